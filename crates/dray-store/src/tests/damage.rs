//! Stored objects that differ from their claims (messaging-reliability K-5, 19.7).

use dray_types::{Claim, Fault, FaultCode, RetryAdvice};

use super::{TestStore, noise, tenant};
use crate::{PutError, ReadError, RequestError};

/// Stores `length` bytes, replaces the object by `stored`, and reads.
async fn check(length: usize, stored: &[u8]) -> ReadError {
    let fixture = TestStore::new().await;
    let claim = fixture.put(&tenant("acme"), noise(length, 1)).await;
    fixture
        .overwrite(&claim.artifact.key(), stored.to_vec())
        .await;
    fixture.read(&tenant("acme"), &claim).await.unwrap_err()
}

#[tokio::test]
async fn truncated_altered_and_oversized_objects_are_never_delivered() {
    let right = noise(200_000, 1);
    let mut altered = right.to_vec();
    altered[199_999] ^= 1;
    let mut longer = right.to_vec();
    longer.push(0);
    for stored in [&right[..199_999], &[], &altered, &longer] {
        let error = check(200_000, stored).await;
        assert!(matches!(error, ReadError::Mismatch(_)), "{error:?}");
        let fault = Fault::from(error);
        assert_eq!(
            (fault.detail.as_str(), fault.retry),
            ("integrity_mismatch", RetryAdvice::Never)
        );
    }
}

#[tokio::test]
async fn a_failed_reader_does_not_continue() {
    let fixture = TestStore::new().await;
    let claim = fixture.put(&tenant("acme"), "right").await;
    fixture.overwrite(&claim.artifact.key(), "wrong").await;
    let mut reader = fixture
        .store
        .read(&tenant("acme"), &claim, fixture.deadline())
        .await
        .unwrap();
    while let Ok(Some(_)) = reader.next().await {}
    assert!(reader.next().await.is_err());
}

#[tokio::test]
async fn an_old_claim_without_an_object_is_missing_after_one_request() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let mut claim = fixture.put(&tenant("acme"), "gone").await;
    fixture
        .store
        .inner
        .clients
        .inside
        .delete_object()
        .bucket(&fixture.options.bucket)
        .key(claim.artifact.key())
        .send()
        .await
        .unwrap();
    claim.created_at_ms = fixture.clock.now_ms() - 5_000;
    let requests_before = proxy.received_requests().len();
    let error = store
        .read(&tenant("acme"), &claim, fixture.deadline())
        .await
        .unwrap_err();
    assert_eq!(proxy.received_requests().len(), requests_before + 1);
    let fault = Fault::from(error);
    assert_eq!(fault.code, FaultCode::NotFound);
    assert_eq!(
        (fault.detail.as_str(), fault.retry),
        ("claim_missing", RetryAdvice::Never)
    );
}

#[tokio::test]
async fn a_young_claim_without_an_object_is_requested_three_times() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let mut claim = fixture.put(&tenant("acme"), "elsewhere").await;
    claim.artifact.sha256 = dray_types::Sha256Digest::of(b"late");
    claim.artifact.size = 4;
    claim.created_at_ms = fixture.clock.now_ms() + 60_000;
    let head_requests = |proxy: &dray_testkit::s3::FaultyS3| {
        let key = claim.artifact.key();
        proxy
            .received_requests()
            .iter()
            .filter(|line| line.contains(&key))
            .count()
    };
    let error = store
        .read(&tenant("acme"), &claim, fixture.deadline())
        .await
        .unwrap_err();
    assert!(matches!(error, ReadError::Missing), "{error:?}");
    assert_eq!(head_requests(&proxy), 3);

    // The object appears after the first attempt.
    let acme = tenant("acme");
    let (reading, ()) = tokio::join!(store.read(&acme, &claim, fixture.deadline()), async {
        while head_requests(&proxy) < 4 {
            tokio::task::yield_now().await;
        }
        fixture.put(&acme, "late").await;
    });
    let bytes = reading
        .unwrap()
        .read_all(dray_types::ByteSize::kib(1))
        .await
        .unwrap();
    assert_eq!(bytes, "late");
}

#[tokio::test]
async fn a_wrong_object_under_a_finished_key_is_not_adopted() {
    let fixture = TestStore::new().await;
    let acme = tenant("acme");
    for (right, wrong) in [("right", "sho"), ("other", "WRONG")] {
        let claim = fixture.put(&acme, right).await;
        fixture.overwrite(&claim.artifact.key(), wrong).await;
        let error = fixture
            .store
            .put(
                &acme,
                &dray_types::OperationId::mint(),
                right.into(),
                crate::ArtifactLabel::default(),
            )
            .await
            .unwrap_err();
        assert!(matches!(error, PutError::Conflict), "{error:?}");
    }
}

#[tokio::test]
async fn a_damaged_file_of_the_embedded_store_is_an_error_and_not_bytes() {
    let fixture = TestStore::new().await;
    let claim: Claim = fixture.put(&tenant("acme"), noise(5000, 2)).await;
    let file = fixture.directory.path().join(&fixture.files()[0]);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..3000]).unwrap();
    let error = fixture.read(&tenant("acme"), &claim).await.unwrap_err();
    assert!(
        matches!(
            error,
            ReadError::Request(RequestError::ServerError { status: 500, .. })
        ),
        "{error:?}"
    );
}
