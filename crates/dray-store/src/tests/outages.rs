//! Tests of a store that is down, fails, is slow or returns wrong data during an operation (messaging-reliability
//! 19.7).

use std::time::Duration;

use dray_testkit::s3::{FaultRule, S3Fault};
use dray_types::{ByteSize, Deadline, Fault, FaultCode, OperationId};
use http::Method;
use http::request::Parts;

use super::{TestStore, noise, tenant};
use crate::{ArtifactLabel, OpenError, PART_BYTES, PutError, ReadError, RequestError, Store};

fn is_copy(request: &Parts) -> bool {
    request.headers.contains_key("x-amz-copy-source")
}

fn is_part(request: &Parts) -> bool {
    request.method == Method::PUT
        && request
            .uri
            .query()
            .is_some_and(|query| query.contains("partNumber"))
}

/// Selects the requests that get a fault.
type RequestFilter = fn(&Parts) -> bool;

fn is_completion(request: &Parts) -> bool {
    request.method == Method::POST
        && request
            .uri
            .query()
            .is_some_and(|query| query.contains("uploadId"))
}

fn is_download(request: &Parts) -> bool {
    request.method == Method::GET
}

async fn write(store: &Store, size: usize) -> Result<dray_types::Claim, PutError> {
    let mut writer = store.writer(&tenant("acme"), &OperationId::mint(), 1);
    writer.write(noise(size, 1)).await?;
    writer.finish(ArtifactLabel::default()).await
}

#[tokio::test]
async fn an_outage_between_upload_and_copy_leaves_nothing_visible_and_a_repeat_succeeds() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let cases: [(S3Fault, RequestFilter); 4] = [
        (S3Fault::Down, is_copy),
        (S3Fault::Status(503), is_copy),
        (S3Fault::ErrorInSuccess, is_copy),
        (S3Fault::ErrorInSuccess, is_completion),
    ];
    for (trouble, matches) in cases {
        proxy.add(FaultRule::new(trouble, matches));
        let error = write(&store, PART_BYTES + 1).await.unwrap_err();
        let fault = Fault::from(error);
        assert_eq!(fault.code, FaultCode::Unavailable, "{trouble:?}");
        assert!(fault.is_retryable());
        let files = fixture.files();
        assert!(
            !files.iter().any(|file| file.contains("/cas/")),
            "{files:?}"
        );
        proxy.clear_faults();
        store.settle().await;
        assert_eq!(
            fixture.files(),
            Vec::<String>::new(),
            "what was staged is removed"
        );
    }
    let claim = write(&store, PART_BYTES + 1).await.unwrap();
    assert_eq!(
        fixture.read(&tenant("acme"), &claim).await.unwrap().len(),
        PART_BYTES + 1
    );
}

#[tokio::test]
async fn one_lost_connection_is_repeated_and_two_are_a_fault() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    for trouble in [
        S3Fault::Down,
        S3Fault::CutRequest(1 << 20),
        S3Fault::Status(500),
    ] {
        proxy.add(FaultRule::new(trouble, is_part).times(1));
        write(&store, PART_BYTES + 1).await.unwrap();
        proxy.clear_faults();
        proxy.add(FaultRule::new(trouble, is_part));
        let error = write(&store, PART_BYTES + 1).await.unwrap_err();
        assert!(matches!(error, PutError::Request(_)), "{error:?}");
        proxy.clear_faults();
    }
}

#[tokio::test]
async fn bytes_that_were_altered_during_the_upload_are_refused_by_the_checksum() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    for (size, at) in [(1000, 999), (PART_BYTES + 1, 17)] {
        proxy.add(FaultRule::new(S3Fault::AlterRequest(at), |request| {
            request.method == Method::PUT
        }));
        let error = write(&store, size).await.unwrap_err();
        assert!(
            matches!(error, PutError::Request(RequestError::Corrupted { .. })),
            "{error:?}"
        );
        proxy.clear_faults();
        store.settle().await;
        assert_eq!(fixture.files(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_download_that_breaks_or_changes_is_never_complete() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let claim = fixture.put(&tenant("acme"), noise(3 << 20, 1)).await;
    let read = async || {
        let reader = store
            .read(&tenant("acme"), &claim, fixture.deadline())
            .await?;
        reader.read_all(ByteSize::mib(8)).await
    };
    proxy.add(FaultRule::new(S3Fault::CutResponse(1 << 20), is_download).times(1));
    let error = read().await.unwrap_err();
    assert!(
        matches!(error, ReadError::Request(RequestError::Unreachable(_))),
        "{error:?}"
    );
    proxy.clear_faults();
    proxy.add(FaultRule::new(S3Fault::AlterResponse(1 << 20), is_download).times(1));
    let error = read().await.unwrap_err();
    assert!(matches!(error, ReadError::Mismatch("digest")), "{error:?}");
    assert_eq!(read().await.unwrap().len(), 3 << 20);
}

#[tokio::test]
async fn every_request_ends_by_its_deadline() {
    let fixture = TestStore::new().await;
    let (store, proxy) = fixture.behind().await;
    let claim = fixture.put(&tenant("acme"), noise(1000, 1)).await;
    let soon = || Deadline::after(fixture.clock.now_ms(), Duration::from_millis(300));

    proxy.add(FaultRule::all(S3Fault::Stall));
    let error = store
        .read(&tenant("acme"), &claim, soon())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReadError::Request(RequestError::TimedOut)),
        "{error:?}"
    );
    let mut writer = store
        .writer(&tenant("acme"), &OperationId::mint(), 1)
        .deadline(soon());
    writer.write("other".into()).await.unwrap();
    let error = writer.finish(ArtifactLabel::default()).await.unwrap_err();
    assert!(
        matches!(error, PutError::Request(RequestError::TimedOut)),
        "{error:?}"
    );
    proxy.clear_faults();

    proxy.add(FaultRule::new(S3Fault::StallBody, is_download));
    // Long enough that the response begins in time on a busy machine.
    let later = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(3));
    let mut reader = store.read(&tenant("acme"), &claim, later).await.unwrap();
    let error = reader.next().await.unwrap_err();
    assert!(
        matches!(error, ReadError::Request(RequestError::TimedOut)),
        "{error:?}"
    );
    assert_eq!(Fault::from(error).code, FaultCode::Timeout);
}

#[tokio::test]
async fn readers_beyond_the_limit_wait_and_time_out() {
    let fixture = TestStore::new().await;
    let options = crate::StoreOptions {
        concurrency: 1,
        ..fixture.options.clone()
    };
    let store = Store::open(&options, fixture.clock.clone()).await.unwrap();
    let claim = fixture.put(&tenant("acme"), "bytes").await;
    let first = store
        .read(&tenant("acme"), &claim, fixture.deadline())
        .await
        .unwrap();
    let soon = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(2));
    let error = store.read(&tenant("acme"), &claim, soon).await.unwrap_err();
    assert!(
        matches!(error, ReadError::Request(RequestError::Busy)),
        "{error:?}"
    );
    assert_eq!(Fault::from(error).code, FaultCode::RateLimited);

    // Writing does not wait for readers.
    write(&store, 10).await.unwrap();
    drop(first);
    store
        .read(&tenant("acme"), &claim, fixture.deadline())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_store_that_ignores_conditions_is_not_opened() {
    let fixture = TestStore::new().await;
    let proxy = dray_testkit::s3::FaultyS3::start(fixture.endpoint.address())
        .await
        .unwrap();
    // The proxy responds to the second create as if it had succeeded.
    let writes = std::sync::atomic::AtomicUsize::new(0);
    proxy.add(FaultRule::new(S3Fault::Status(200), move |request| {
        request.method == Method::PUT
            && request.headers.contains_key("if-none-match")
            && writes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1
    }));
    let options = crate::StoreOptions {
        endpoint: proxy.endpoint(),
        ..fixture.options.clone()
    };
    let error = Store::open(&options, fixture.clock.clone())
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::Unconditional), "{error:?}");
}

#[tokio::test]
async fn a_store_that_refuses_conditional_copies_is_checked_before_a_copy() {
    let fixture = TestStore::new().await;
    let proxy = dray_testkit::s3::FaultyS3::start(fixture.endpoint.address())
        .await
        .unwrap();
    proxy.add(FaultRule::new(S3Fault::Status(501), |request| {
        is_copy(request) && request.headers.contains_key("if-none-match")
    }));
    let options = crate::StoreOptions {
        endpoint: proxy.endpoint(),
        ..fixture.options.clone()
    };
    let store = Store::open(&options, fixture.clock.clone()).await.unwrap();
    assert!(!store.inner.capabilities().conditional_copy);
    for _ in 0..2 {
        let claim = write(&store, PART_BYTES + 1).await.unwrap();
        assert_eq!(
            fixture.read(&tenant("acme"), &claim).await.unwrap().len(),
            PART_BYTES + 1
        );
    }
    let copies = proxy.received_requests();
    let copies = copies
        .iter()
        .filter(|line| line.starts_with("PUT /drayage/cas/"))
        .count();
    assert_eq!(copies, 1, "the second writer saw the object of the first");
}
