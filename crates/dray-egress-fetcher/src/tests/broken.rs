//! Tests of calls while something fails: no audit stream, broken transfers, cancelled callers, a store that is down.

use std::path::Path;
use std::sync::Arc;

use dray_bus::{Bus, EventFilter, Topology};
use dray_proto::v1;
use dray_service::{Request, ServiceContext};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::http::{ResponseScript, ResponseStep};
use dray_types::{Clock, Fault};

use super::fake_network::*;
use super::test_service::*;
use crate::config::Config;
use crate::service::EgressFetcher;

/// The service without a host, with a bus without streams and a store that the test can stop.
struct BareService {
    service: Arc<EgressFetcher>,
    cx: ServiceContext,
    s3: EmbeddedS3,
    directory: tempfile::TempDir,
}

async fn bare(fake_network: &FakeNetwork, audit_required: bool) -> BareService {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let store = Store::open(&options, clock.clone()).await.unwrap();
    let meter = opentelemetry::metrics::noop::NoopMeterProvider::new();
    let meter = opentelemetry::metrics::MeterProvider::meter(&meter, "test");
    let cx = ServiceContext::new(Bus::in_process(clock.clone(), &meter), store, clock);
    let config = Config {
        enabled: true,
        audit_required,
        ..Config::default()
    };
    let service = EgressFetcher::start_with(config, cx.clone(), fake_network.network())
        .await
        .unwrap();
    BareService {
        service: Arc::new(service),
        cx,
        s3,
        directory,
    }
}

impl BareService {
    async fn fetch(&self, request: v1::FetchRequest) -> Result<v1::FetchReply, Fault> {
        let request = Request::new(meta(&self.cx.clock), request);
        Arc::clone(&self.service).fetch(request).await
    }

    /// Files of unfinished uploads, after the store has removed what it can.
    async fn staged(&self) -> Vec<String> {
        self.cx.store.settle().await;
        self.files()
    }

    /// Files of uploads that are not finished.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        walk(self.directory.path(), &mut files);
        files.retain(|path| path.contains("stage") || path.contains("upload"));
        files
    }
}

fn walk(directory: &Path, files: &mut Vec<String>) {
    // Directories appear and disappear while uploads are under way.
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else {
            files.push(path.to_string_lossy().into_owned());
        }
    }
}

#[tokio::test]
async fn section_18_without_the_stream_the_reply_still_goes_out_unless_audit_is_required() {
    let lax = bare(&hello(), false).await;
    assert!(
        lax.fetch(fetch_request("http://files.example.org/"))
            .await
            .is_ok()
    );
    let strict = bare(&hello(), true).await;
    let fault = strict
        .fetch(fetch_request("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "sink_failed");
    let fault = strict
        .fetch(fetch_request("http://127.0.0.1/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "ssrf_blocked", "a refusal stays what it is");
}

#[tokio::test]
async fn b_2_the_partial_object_of_a_broken_transfer_is_removed() {
    let fake_network = hello();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20);
    let part = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
    fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript(vec![
            ResponseStep::send(head),
            ResponseStep::Repeat(part, 200),
        ]),
    );
    let bare = bare(&fake_network, false).await;
    let mut request = fetch_request("http://files.example.org/");
    request.size_limit_bytes = 50 << 20;
    let fault = bare.fetch(request).await.unwrap_err();
    assert_eq!(fault.detail, "truncated");
    assert_eq!(bare.staged().await, Vec::<String>::new());
}

#[tokio::test]
async fn section_14_cancelling_removes_the_partial_object_and_is_audited() {
    let fake_network = hello();
    let part = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
    fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript(vec![
            ResponseStep::send("HTTP/1.1 200 OK\r\n\r\n"),
            ResponseStep::Repeat(part, 150),
            ResponseStep::Hold,
        ]),
    );
    let bare = bare(&fake_network, false).await;
    let topology = Topology::default();
    bare.cx.bus.apply_topology(&topology).await.unwrap();
    let filter = EventFilter::new("dray.audit.egress.v1.fetched.*").from_start();
    let mut audit = bare.cx.bus.events(filter).await.unwrap();
    let mut request = fetch_request("http://files.example.org/");
    request.size_limit_bytes = 50 << 20;
    let fetching = Box::pin(bare.fetch(request));
    // The upload and its first part: an upload without a part is left to the sweep.
    let staged = dray_testkit::eventually("the first part", async || {
        (bare.files().len() >= 2).then_some(())
    });
    tokio::select! {
        result = fetching => panic!("the fetch cannot end: {result:?}"),
        () = staged => {}
    }
    assert_eq!(bare.staged().await, Vec::<String>::new());
    let event: v1::EgressAudit = audit.next().await.unwrap().decode().unwrap();
    assert_eq!(
        (event.verdict.as_str(), event.code.as_str()),
        ("deny", "cancelled")
    );
    assert_eq!(event.phase, "body");
    assert!(event.duration_ms > 0 && event.duration_ms >= event.body_ms);
    assert!(event.wire_bytes > 0);
}

#[tokio::test]
async fn a_store_that_is_down_fails_the_fetch_and_not_the_service() {
    let fake_network = hello();
    let BareService {
        service,
        cx,
        s3,
        directory: _directory,
    } = bare(&fake_network, false).await;
    s3.stop().await;
    let mut request = fetch_request("http://files.example.org/");
    request.set_sink(v1::Sink::ClaimOnly);
    request.tool_timeout_ms = 3_000;
    let fault = Arc::clone(&service)
        .fetch(Request::new(meta(&cx.clock), request))
        .await
        .unwrap_err();
    assert!(
        ["sink_failed", "timeout"].contains(&fault.detail.as_str()),
        "{fault:?}"
    );
    let request = Request::new(meta(&cx.clock), fetch_request("http://files.example.org/"));
    assert!(
        service.fetch(request).await.is_ok(),
        "small files need no store"
    );
}
