//! Tests of complete audit events, and of the counters of failures, with calls through a host.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::Bus;
use dray_proto::v1;
use dray_service::{Host, RunningHost, ServiceContext, Settings};
use dray_testkit::http::{ResponseScript, ResponseStep, ScriptedResponder};
use dray_testkit::tls::Authority;
use dray_types::{Fault, Sha256Digest};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::fake_network::*;
use super::test_service::*;
use crate::config::Config;
use crate::service::EgressFetcher;

const FILE_URL: &str = "http://files.example.org/";

/// A host whose service has another bus, peers and settings than usual.
struct CustomHost {
    running: RunningHost,
    _directory: tempfile::TempDir,
}

async fn start_customised(
    fake_network: &FakeNetwork,
    set: &[(&str, &str)],
    change: fn(ServiceContext) -> ServiceContext,
) -> CustomHost {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(directory.path()).set("egress-fetcher.enabled", "true");
    for (key, value) in set {
        settings = settings.set(format!("egress-fetcher.{key}"), *value);
    }
    let network = fake_network.network();
    let running = Host::new(settings)
        .with_start::<EgressFetcher, _, _>(move |config, cx| {
            EgressFetcher::start_with(config, change(cx), network)
        })
        .start()
        .await
        .unwrap();
    CustomHost {
        running,
        _directory: directory,
    }
}

/// Audit events go to a bus without streams.
fn without_audit_stream(cx: ServiceContext) -> ServiceContext {
    let bus = Bus::in_process(cx.clock.clone(), &cx.meter);
    ServiceContext { bus, ..cx }
}

impl CustomHost {
    async fn call(&self, url: &str) -> Result<v1::FetchReply, Fault> {
        let cx = self.running.context();
        let called = cx.bus.call(&meta(&cx.clock), &fetch_request(url)).await;
        called.map_err(Into::into)
    }

    /// The value of the sample with this name and labels; 0 when there is none.
    fn sample(&self, name: &str, labels: &str) -> u64 {
        sample(&self.running.metrics().unwrap(), name, labels)
    }
}

fn sample(metrics: &str, name: &str, labels: &str) -> u64 {
    metrics
        .lines()
        .filter(|line| line.starts_with(&format!("dray_egress_{name}")) && line.contains(labels))
        .find_map(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_default()
}

#[tokio::test]
async fn section_18_with_audit_required_an_unpublished_fetch_is_a_sink_failure() {
    let strict = start_customised(
        &hello(),
        &[("audit_required", "true")],
        without_audit_stream,
    )
    .await;
    let fault = strict.call(FILE_URL).await.unwrap_err();
    assert_eq!(fault.detail, "sink_failed");
    assert_eq!(strict.sample("fetch_total{", "verdict=\"allow\""), 0);
    // The caller tries again, as the fault allows.
    let failed = strict.sample("fetch_total{", "code=\"sink_failed\"");
    assert!(failed >= 1);
    assert_eq!(strict.sample("sink_failures_total", ""), failed);
    assert!(strict.sample("audit_failures_total", "") >= failed);
    assert_eq!(strict.sample("inflight", ""), 0);
}

#[tokio::test]
async fn section_18_with_audit_required_a_fetch_passes_only_when_its_event_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let set = [
        ("audit_required", "true"),
        ("audit_file.path", path.to_str().unwrap()),
    ];
    let host = start_customised(&hello(), &set, |cx| cx).await;
    // A directory in the place of the file makes every attempt to write fail.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let fault = host.call(FILE_URL).await.unwrap_err();
    assert_eq!(fault.detail, "sink_failed");
    std::fs::remove_dir(&path).unwrap();
    // No event is lost: the events waited.
    dray_testkit::eventually("a fetch", async || host.call(FILE_URL).await.ok()).await;
    let text = std::fs::read_to_string(&path).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let codes: Vec<String> = events
        .map(|event: serde_json::Value| event["code"].as_str().unwrap().to_owned())
        .collect();
    assert!(codes.contains(&"sink_failed".to_owned()), "{codes:?}");
    assert_eq!(codes.last().map(String::as_str), Some(""), "{codes:?}");
}

#[tokio::test]
async fn section_18_otherwise_an_unpublished_fetch_is_counted_and_answered() {
    let lax = start_customised(&hello(), &[], without_audit_stream).await;
    assert!(lax.call(FILE_URL).await.is_ok());
    assert_eq!(lax.sample("fetch_total{", "verdict=\"allow\""), 1);
    // Publishing continues for a moment after the reply.
    dray_testkit::eventually("the failure to be counted", async || {
        (lax.sample("audit_failures_total", "") == 1).then_some(())
    })
    .await;
    assert_eq!(lax.sample("sink_failures_total", ""), 0);
}

#[tokio::test]
async fn section_19_an_open_breaker_is_in_the_metrics() {
    let fake_network = hello();
    fake_network.peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
    let directory = tempfile::tempdir().unwrap();
    let network = fake_network.network();
    let (tell, handed_over) = std::sync::mpsc::channel();
    let running = Host::new(Settings::embedded(directory.path()))
        .with_start::<EgressFetcher, _, _>(move |config, cx| async move {
            let config = Config {
                enabled: true,
                ..config
            };
            let service = EgressFetcher::start_with(config, cx, network).await?;
            tell.send(Arc::clone(service.fetcher())).unwrap();
            Ok(service)
        })
        .start()
        .await
        .unwrap();
    let fetcher = handed_over.recv().unwrap();
    for expected in [0, 0, 0, 0, 0, 1] {
        let metrics = running.metrics().unwrap();
        assert_eq!(sample(&metrics, "host_breaker_open", ""), expected);
        run(&fetcher, &request(FILE_URL)).await.result.unwrap_err();
    }
}

#[tokio::test]
async fn s_4_what_the_process_itself_talks_to_cannot_be_fetched() {
    let fake_network = hello();
    let service = start_customised(&fake_network, &[], |cx| ServiceContext {
        peers: vec![format!("nats://{PUBLIC_ADDRESS}:4222")],
        ..cx
    })
    .await;
    let fault = service.call(FILE_URL).await.unwrap_err();
    assert_eq!(fault.detail, "ssrf_blocked");
    assert_eq!(fake_network.dialled(), Vec::<String>::new());
}

/// A gzip body over TLS, delayed in every phase.
fn late(authority: &Authority, fake_network: &FakeNetwork) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"hello").unwrap();
    let body = encoder.finish().unwrap();
    let pause = || ResponseStep::Pause(Duration::from_millis(20));
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let script = ResponseScript(vec![
        pause(),
        ResponseStep::send(head),
        pause(),
        ResponseStep::send(body),
    ]);
    let acceptor = authority.acceptor("files.example.org").unwrap();
    fake_network.peer(
        PUBLIC_ADDRESS,
        443,
        FakePeer::Tls(acceptor, ScriptedResponder::always(script)),
    );
    fake_network.slow("files.example.org", Duration::from_millis(20));
    let dns_answer = answer(
        "files.example.org",
        &["cdn.example.net."],
        &[PUBLIC_ADDRESS],
    );
    fake_network.set_dns_answers("files.example.org", vec![Ok(dns_answer)]);
}

#[tokio::test]
async fn section_18_the_event_has_caller_times_coding_and_tls() {
    let authority = Authority::new().unwrap();
    let mut bundle = tempfile::NamedTempFile::new().unwrap();
    bundle.write_all(authority.pem().as_bytes()).unwrap();
    let fake_network = hello();
    late(&authority, &fake_network);
    let path = bundle.path().to_str().unwrap();
    let mut service = start_service(&fake_network, &[("ca_bundle", path)]).await;
    let before = service.running.context().clock.now_ms();
    service
        .call(&fetch_request("https://files.example.org/a"))
        .await
        .unwrap();
    let event = service.event().await;
    let after = service.running.context().clock.now_ms();
    assert!(uuid::Uuid::parse_str(&event.event_id).is_ok());
    assert!((before..=after).contains(&event.time_ms));
    assert!(!event.operation_id.is_empty());
    assert_eq!(event.final_host, "files.example.org");
    assert_eq!(event.coding, "gzip");
    assert_eq!(event.sha256, Sha256Digest::of(b"hello").to_hex());
    assert_eq!(event.stored_bytes, 5);
    assert_eq!(event.fetcher_version, env!("CARGO_PKG_VERSION"));
    for late in [event.dns_ms, event.head_ms, event.body_ms] {
        assert!(late >= 19, "{event:?}");
    }
    let parts = [
        event.dns_ms,
        event.connect_ms,
        event.tls_ms,
        event.head_ms,
        event.body_ms,
    ];
    assert!(event.duration_ms >= parts.iter().sum(), "{event:?}");
    let hop = &event.hops[0];
    assert_eq!(hop.cname_chain, ["cdn.example.net."]);
    assert_eq!(hop.tls_version, "TLSv1.3");
    assert_eq!(hop.certificate_sha256.len(), 64);
    assert_eq!((hop.scheme.as_str(), hop.port), ("https", 443));
    // Another fetch has other identifiers.
    service
        .call(&fetch_request("https://files.example.org/a"))
        .await
        .unwrap();
    let other = service.event().await;
    assert_ne!(other.event_id, event.event_id);
    assert_ne!(other.operation_id, event.operation_id);
    assert_eq!(other.url_path_hash, event.url_path_hash);
}

#[tokio::test]
async fn section_18_an_invalid_redirect_target_is_recorded() {
    let fake_network = hello();
    fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::redirect(302, "http://2130706433/?key=hunter2"),
    );
    let mut service = start_service(&fake_network, &[]).await;
    for (url, first) in [
        (FILE_URL, "files.example.org"),
        ("http://2130706433/", "2130706433"),
    ] {
        service.call(&fetch_request(url)).await.unwrap_err();
        let event = service.event().await;
        assert_eq!(event.code, "ambiguous_host");
        assert_eq!((event.url_scheme.as_str(), event.url_port), ("http", 80));
        assert_eq!(event.url_host, first);
        let hop = event.hops.last().unwrap();
        assert_eq!((hop.scheme.as_str(), hop.port), ("http", 80));
        assert_eq!(hop.host, "2130706433");
        assert!(!format!("{event:?}").contains("hunter2"), "S-5");
    }
}
