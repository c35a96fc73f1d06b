//! A full store: writes fail with the right fault and leave no partial object, and succeed again once space is free.

use dray_types::{Fault, FaultCode, OperationId};

use super::{TestStore, noise, tenant};
use crate::{ArtifactLabel, PART_BYTES, PutError, RequestError};

#[tokio::test]
async fn a_full_directory_is_reported_and_contains_no_part_of_the_refused_object() {
    let fixture = TestStore::with_capacity(8 << 20).await;
    let acme = tenant("acme");
    let kept = fixture.put(&acme, noise(1 << 20, 1)).await;
    let before = fixture.files();
    for size in [PART_BYTES, 7 << 20, 3 * PART_BYTES] {
        let outcome = async {
            let mut writer = fixture.store.writer(&acme, &OperationId::mint(), 1);
            writer.write(noise(size, 2)).await?;
            if size == PART_BYTES {
                // The directory has no space for two of these.
                fixture.put(&acme, noise(PART_BYTES - 1, 3)).await;
            }
            writer.finish(ArtifactLabel::default()).await
        };
        let error = outcome.await.unwrap_err();
        assert!(
            matches!(error, PutError::Request(RequestError::Full { .. })),
            "{error:?}"
        );
        let fault = Fault::from(error);
        assert_eq!(
            (fault.code, fault.detail.as_str()),
            (FaultCode::Unavailable, "store_full")
        );
        assert!(fault.is_retryable());
        fixture.store.settle().await;
        if size == PART_BYTES {
            let other = dray_types::Sha256Digest::of(&noise(PART_BYTES - 1, 3));
            assert_eq!(
                fixture.store.find(&acme, other).await.unwrap(),
                Some(PART_BYTES as u64 - 1)
            );
            remove(&fixture, other).await;
        }
        assert_eq!(fixture.files(), before, "{size}");
    }
    assert_eq!(fixture.read(&acme, &kept).await.unwrap().len(), 1 << 20);
    let fits = fixture.put(&acme, noise(PART_BYTES, 4)).await;
    assert_eq!(fixture.read(&acme, &fits).await.unwrap().len(), PART_BYTES);
}

async fn remove(fixture: &TestStore, sha256: dray_types::Sha256Digest) {
    let hex = sha256.to_hex();
    crate::object::delete_object(
        &fixture.store.inner,
        &format!("cas/acme/{}/{hex}", &hex[..2]),
        None,
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn used_quota_is_counted_again_after_a_restart() {
    let fixture = TestStore::with_capacity(4 << 20).await;
    fixture.put(&tenant("acme"), noise(3 << 20, 1)).await;
    let TestStore {
        endpoint,
        directory,
        clock,
        ..
    } = fixture;
    endpoint.stop().await;
    let (endpoint, options) = crate::embedded::EmbeddedS3::with_capacity(directory.path(), 4 << 20)
        .await
        .unwrap();
    let store = crate::Store::open(&options, clock).await.unwrap();
    let put = async |size| {
        let bytes = noise(size, 2);
        store
            .put(
                &tenant("acme"),
                &OperationId::mint(),
                bytes,
                ArtifactLabel::default(),
            )
            .await
    };
    let error = put(2 << 20).await.unwrap_err();
    assert!(
        matches!(error, PutError::Request(RequestError::Full { .. })),
        "{error:?}"
    );
    put(1 << 19).await.unwrap();
    endpoint.stop().await;
}
