//! A store in the process of its endpoint, whose requests need no connection.

use std::time::Duration;

use dray_types::{ByteSize, Clock, Deadline, OperationId, Secret, Sha256Digest, TenantId};

use super::{TestStore, noise};
use crate::embedded::EmbeddedS3;
use crate::{ArtifactLabel, PART_BYTES, PutError, ReadError, RequestError, Store, StoreOptions};

/// A store that reaches the endpoint of `fixture` only inside the process: its options name a port without a listener.
async fn unconnected_store(fixture: &TestStore) -> Store {
    let options = StoreOptions {
        endpoint: "http://127.0.0.1:1".to_owned(),
        ..fixture.options.clone()
    };
    let error = Store::open(&options, fixture.clock.clone()).await;
    assert!(error.is_err(), "something listens on port 1");
    Store::open_in_process(&fixture.endpoint, &options, fixture.clock.clone())
        .await
        .unwrap()
}

#[tokio::test]
async fn content_of_any_size_is_stored_and_read_without_a_connection() {
    let fixture = TestStore::new().await;
    let store = unconnected_store(&fixture).await;
    let tenant = TenantId::new("acme").unwrap();
    for (seed, size) in [0, 1, PART_BYTES, 3 * PART_BYTES + 17]
        .into_iter()
        .enumerate()
    {
        let bytes = noise(size, u64::try_from(seed).unwrap());
        let mut writer = store.writer(&tenant, &OperationId::mint(), 1);
        writer.write(bytes.clone()).await.unwrap();
        let claim = writer.finish(ArtifactLabel::default()).await.unwrap();
        let reader = store
            .read(&tenant, &claim, fixture.deadline())
            .await
            .unwrap();
        assert_eq!(reader.read_all(ByteSize::mib(64)).await.unwrap(), bytes);
        // Other processes find the same object through the listener.
        assert_eq!(fixture.read(&tenant, &claim).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn wrong_credentials_are_refused_without_a_connection_too() {
    let fixture = TestStore::new().await;
    let options = StoreOptions {
        secret_key: Secret::new("another"),
        ..fixture.options.clone()
    };
    let opened = Store::open_in_process(&fixture.endpoint, &options, fixture.clock.clone()).await;
    let shown = format!("{:?}", opened.unwrap_err());
    assert!(shown.contains("403"), "{shown}");
}

#[tokio::test]
async fn a_missing_object_and_a_full_disk_are_reported_as_over_a_connection() {
    let fixture = TestStore::with_capacity(4 << 20).await;
    let store = unconnected_store(&fixture).await;
    let tenant = TenantId::new("acme").unwrap();
    let absent = store.find(&tenant, Sha256Digest::of(b"absent")).await;
    assert_eq!(absent.unwrap(), None);
    let (operation, bytes) = (OperationId::mint(), noise(5 << 20, 1));
    let put = store.put(&tenant, &operation, bytes, ArtifactLabel::default());
    let error = put.await.unwrap_err();
    assert!(
        matches!(error, PutError::Request(RequestError::Full { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn requests_fail_after_the_end_of_the_endpoint_and_do_not_keep_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (endpoint, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let clock = Clock::system();
    let store = Store::open_in_process(&endpoint, &options, clock.clone())
        .await
        .unwrap();
    let tenant = TenantId::new("acme").unwrap();
    let claim = store
        .put(
            &tenant,
            &OperationId::mint(),
            "kept".into(),
            ArtifactLabel::default(),
        )
        .await
        .unwrap();
    endpoint.stop().await;
    let deadline = Deadline::after(clock.now_ms(), Duration::from_secs(30));
    let error = store.read(&tenant, &claim, deadline).await.unwrap_err();
    assert!(
        matches!(error, ReadError::Request(RequestError::Unreachable(_))),
        "{error:?}"
    );
    // The store still exists, and the directory can be served again.
    let (_endpoint, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let repeated = Store::open(&options, clock).await.unwrap();
    let reader = repeated.read(&tenant, &claim, deadline).await.unwrap();
    assert_eq!(reader.read_all(ByteSize::mib(1)).await.unwrap(), "kept");
}

#[tokio::test]
async fn links_lead_to_the_listener() {
    let fixture = TestStore::new().await;
    let store = Store::open_in_process(&fixture.endpoint, &fixture.options, fixture.clock.clone())
        .await
        .unwrap();
    let tenant = TenantId::new("acme").unwrap();
    let claim = fixture.put(&tenant, "linked").await;
    let link = store
        .presign_get(&tenant, &claim, Duration::from_mins(10))
        .await
        .unwrap();
    assert!(link.url.expose().starts_with(&fixture.options.endpoint));
}
