//! R7: memory of parallel calls is bounded by their number, not by the size of their files.
//!
//! A separate test binary, because it measures its complete process: the resolver, the store's client and server, and
//! the fake DIAL Core.

#![cfg(test)]

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;

use dray_bus::{Meta, test_bus};
use dray_file_resolver::FileResolver;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::{Host, Settings};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::dial::DialCore;
use dray_types::{Clock, Deadline, TenantId};

const CALL_COUNT: u64 = 8;
const FILE_BYTES: u64 = 32 << 20;
/// Most memory of one call: the store's window at the client and at the server, and chunks on the network.
const MAX_CALL_BYTES: u64 = 20 << 20;

/// A value of `/proc/self/status` in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_parallel_base64_of_large_files_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (_s3, options) = EmbeddedS3::start(&directory.path().join("s3"))
        .await
        .unwrap();
    let store = Store::open(&options, clock.clone()).await.unwrap();
    let bus = test_bus::in_process(&clock).await;
    let core = DialCore::start().await.unwrap();
    core.add_key("key", "b");
    core.put(
        "b/large",
        vec![b'x'; usize::try_from(FILE_BYTES).unwrap()],
        "image/x",
    );
    let settings = Settings::embedded(directory.path())
        .set("file-resolver.dial_url", core.url())
        .set("file-resolver.default_size_limit", FILE_BYTES.to_string())
        .bus(bus.clone())
        .store(store);
    let running = Host::new(settings)
        .with::<FileResolver>()
        .start()
        .await
        .unwrap();

    let before = status("VmRSS:");
    let calls = (0..CALL_COUNT).map(|number| {
        // Different results, so that no two are one object.
        let arguments = format!(r#"{{"n":{number},"f":"file:base64::files/b/large"}}"#);
        let request = v1::ResolveRequest {
            arguments: Some(ContentSource::Inline(Bytes::from(arguments)).into()),
            credentials: Some(v1::DialCredentials {
                api_key: "key".to_owned(),
                authorization: String::new(),
            }),
            ..v1::ResolveRequest::default()
        };
        let deadline = Deadline::after(clock.now_ms(), Duration::from_mins(5));
        let meta = Meta::new(TenantId::new("acme").unwrap(), deadline);
        let bus = bus.clone();
        async move { bus.call(&meta, &request).await }
    });
    let replies = try_join_all(calls).await.unwrap();
    let grown = status("VmHWM:").saturating_sub(before);

    for reply in replies {
        let Some(v1::resolve_reply::Outcome::Resolved(resolved)) = reply.outcome else {
            panic!("not resolved: {reply:?}");
        };
        let Ok(ContentSource::Claim(claim)) = ContentSource::try_from(resolved.arguments.unwrap())
        else {
            panic!("the content must be a claim");
        };
        assert_eq!(claim.artifact.size, FILE_BYTES.div_ceil(3) * 4 + 14);
    }
    assert!(
        grown <= CALL_COUNT * MAX_CALL_BYTES,
        "{CALL_COUNT} calls took {} MiB",
        grown >> 20
    );
    running.stop().await;
}
