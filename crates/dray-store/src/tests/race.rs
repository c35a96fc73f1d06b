//! Tests two concurrent writers of the same bytes (messaging-reliability 19.7): both succeed, there is one object, and
//! both claims are valid.

use bytes::Bytes;
use dray_testkit::s3::{FaultRule, S3Fault};
use dray_types::{Claim, OperationId};

use super::{TestStore, noise, tenant};
use crate::{ArtifactLabel, PART_BYTES, PutError, Store};

async fn write(store: &Store, bytes: &Bytes) -> Result<Claim, PutError> {
    let mut writer = store.writer(&tenant("acme"), &OperationId::mint(), 1);
    writer.write(bytes.clone()).await?;
    writer.finish(ArtifactLabel::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_of_the_same_bytes_create_one_object() {
    let fixture = TestStore::new().await;
    for size in [1000, PART_BYTES + 1] {
        let bytes = noise(size, 1);
        let writers = (0..8).map(|_| write(&fixture.store, &bytes));
        let claims = futures_util::future::join_all(writers).await;
        for claim in claims {
            let claim = claim.unwrap();
            assert!(fixture.read(&tenant("acme"), &claim).await.unwrap() == bytes);
        }
    }
    let files = fixture.files();
    assert_eq!(files.len(), 2, "{files:?}");
}

#[tokio::test]
async fn the_loser_of_a_race_checks_the_object_of_the_winner() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    for size in [1000, PART_BYTES + 1] {
        let bytes = noise(size, 2);
        let winner = write(&fixture.store, &bytes).await.unwrap();
        let loser = write(&store, &bytes).await.unwrap();
        assert_eq!(loser.artifact, winner.artifact);
        let head = format!("HEAD /drayage/{}", loser.artifact.key());
        assert!(
            proxy
                .received_requests()
                .iter()
                .any(|line| line.starts_with(&head)),
            "{:?}",
            proxy.received_requests()
        );
    }
}

#[tokio::test]
async fn a_created_object_whose_response_was_lost_is_found_by_the_second_attempt() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    for size in [1000, PART_BYTES + 1] {
        let bytes = noise(size, 3);
        proxy.add(
            FaultRule::new(S3Fault::LostResponse, |request| {
                request.method == http::Method::PUT && request.uri.path().contains("/cas/")
            })
            .times(1),
        );
        let claim = write(&store, &bytes).await.unwrap();
        assert!(fixture.read(&tenant("acme"), &claim).await.unwrap() == bytes);
    }
    assert_eq!(fixture.files().len(), 2, "{:?}", fixture.files());
}

#[tokio::test]
async fn a_completion_whose_response_was_lost_is_found() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let bytes = noise(2 * PART_BYTES + 1, 4);
    proxy.add(
        FaultRule::new(S3Fault::LostResponse, |request| {
            request.method == http::Method::POST
                && request
                    .uri
                    .query()
                    .is_some_and(|query| query.contains("uploadId"))
        })
        .times(1),
    );
    let claim = write(&store, &bytes).await.unwrap();
    assert!(fixture.read(&tenant("acme"), &claim).await.unwrap() == bytes);
    assert_eq!(fixture.files().len(), 1, "{:?}", fixture.files());
}
