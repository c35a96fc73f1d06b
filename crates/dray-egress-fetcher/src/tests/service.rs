//! The service as a caller sees it: through the bus, with a real store, audit stream and metrics.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, CallError, EventFilter, EventStream, Meta, Topology};
use dray_proto::convert::Content;
use dray_proto::v1;
use dray_service::{Context, Host, Request, Running, Settings};
use dray_store::Store;
use dray_store::embedded::EmbeddedS3;
use dray_testkit::http::{Script, Step};
use dray_types::{AppId, Clock, Deadline, Fault, FaultCode, Sha256Digest, TenantId, TraceContext};

use super::world::*;
use crate::config::Config;
use crate::service::EgressFetcher;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A host with the service over the in-memory network.
struct House {
    running: Running,
    audit: EventStream,
    _folder: tempfile::TempDir,
}

async fn house(world: &World, set: &[(&str, &str)]) -> House {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(folder.path()).set("egress-fetcher.enabled", "true");
    for (key, value) in set {
        settings = settings.set(format!("egress-fetcher.{key}"), *value);
    }
    let network = world.network();
    let running = Host::new(settings)
        .with_start::<EgressFetcher, _, _>(move |config, cx| {
            EgressFetcher::start_with(config, cx, network)
        })
        .start()
        .await
        .unwrap();
    let filter = EventFilter::new("dray.audit.egress.v1.fetched.*").from_start();
    let audit = running.context().bus.events(filter).await.unwrap();
    House {
        running,
        audit,
        _folder: folder,
    }
}

fn meta(clock: &Clock) -> Meta {
    let deadline = Deadline::after(clock.now_ms(), Duration::from_secs(30));
    Meta::new(TenantId::new("acme").unwrap(), deadline)
        .with_app(AppId::new("reporter").unwrap())
        .with_trace(TraceContext::new(
            &format!("00-{TRACE}-00f067aa0ba902b7-01"),
            "",
        ))
}

fn asking(url: &str) -> v1::FetchRequest {
    v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    }
}

impl House {
    async fn call(&self, request: &v1::FetchRequest) -> Result<v1::FetchReply, Fault> {
        let cx = self.running.context();
        cx.bus
            .call(&meta(&cx.clock), request)
            .await
            .map_err(|error: CallError| error.into())
    }

    async fn event(&mut self) -> v1::EgressAudit {
        let next = tokio::time::timeout(Duration::from_secs(10), self.audit.next()).await;
        next.unwrap().unwrap().decode().unwrap()
    }
}

fn hello() -> World {
    Fixture::default().world
}

fn content(reply: &v1::FetchReply) -> Content {
    reply.content.clone().unwrap().try_into().unwrap()
}

#[tokio::test]
async fn a_small_file_comes_back_inline() {
    let house = house(&hello(), &[]).await;
    let reply = house
        .call(&asking("http://files.example.org/a.txt"))
        .await
        .unwrap();
    assert_eq!(content(&reply), Content::Inline("hello".into()));
    assert_eq!(reply.sha256, Sha256Digest::of(b"hello").as_bytes());
    assert_eq!(
        (reply.size, reply.wire_size, reply.http_status),
        (5, 5, 200)
    );
    assert_eq!(reply.final_url, "http://files.example.org/a.txt");
    assert!(reply.length_verified);
}

#[tokio::test]
async fn a_large_file_and_whoever_wants_a_claim_get_a_claim() {
    let world = hello();
    let body: Vec<u8> = (0..200_000_u32)
        .map(|index| index.to_le_bytes()[0])
        .collect();
    world.serve(
        PUBLIC,
        Script::with_fields(&[("Content-Type", "text/csv")], &body),
    );
    let house = house(&world, &[]).await;
    let cx = house.running.context();
    let large = house
        .call(&asking("http://files.example.org/"))
        .await
        .unwrap();
    world.serve(PUBLIC, Script::ok("tiny"));
    let mut small = asking("http://files.example.org/");
    small.set_sink(v1::Sink::ClaimOnly);
    let small = house.call(&small).await.unwrap();
    for (reply, expected) in [(large, body.as_slice()), (small, b"tiny".as_slice())] {
        let Content::Claim(claim) = content(&reply) else {
            panic!("not a claim");
        };
        let tenant = TenantId::new("acme").unwrap();
        let deadline = Deadline::after(cx.clock.now_ms(), Duration::from_secs(10));
        let reader = cx.store.read(&tenant, &claim, deadline).await.unwrap();
        assert_eq!(
            reader.read_all(dray_types::ByteSize::mib(1)).await.unwrap(),
            expected
        );
        assert_eq!(reply.sha256, claim.artifact.sha256.as_bytes());
        assert_eq!(reply.size, claim.artifact.size);
    }
}

#[tokio::test]
async fn exactly_the_inline_limit_is_inline_and_one_more_is_not() {
    let world = hello();
    let house = house(&world, &[]).await;
    for (size, inline) in [(65_536, true), (65_537, false)] {
        world.serve(PUBLIC, Script::ok(vec![b'x'; size]));
        let reply = house
            .call(&asking("http://files.example.org/"))
            .await
            .unwrap();
        assert_eq!(
            matches!(content(&reply), Content::Inline(_)),
            inline,
            "{size}"
        );
    }
}

#[tokio::test]
async fn section_17_faults_cross_the_bus_with_code_detail_and_trace() {
    let world = hello();
    world.name("inside.example.org", &["10.0.0.1"]);
    let house = house(&world, &[]).await;
    let fault = house
        .call(&asking("http://inside.example.org/x?y=z"))
        .await
        .unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "ssrf_blocked")
    );
    assert_eq!(
        fault.message,
        "External URL http://inside.example.org/x resolves to a blocked address \
         (loopback, private, link-local, or cloud-metadata)."
    );
    assert!(!fault.is_retryable());
    assert_eq!(fault.trace_id.len(), 32);
    world.serve(PUBLIC, Script::status(503));
    let fault = house
        .call(&asking("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Unavailable, "http_status")
    );
    assert!(fault.is_retryable());
}

#[tokio::test]
async fn p_1_absent_and_empty_lists_differ_on_the_wire() {
    let house = house(&hello(), &[]).await;
    let with = |patterns: Option<Vec<&str>>| v1::FetchRequest {
        app_policy: Some(v1::AppPolicy {
            enabled: None,
            host_allowlist: patterns.map(|patterns| v1::HostAllowlist {
                patterns: patterns.into_iter().map(str::to_owned).collect(),
            }),
        }),
        ..asking("http://files.example.org/")
    };
    assert!(house.call(&with(None)).await.is_ok());
    assert!(house.call(&with(Some(vec!["*.example.org"]))).await.is_ok());
    let fault = house.call(&with(Some(vec![]))).await.unwrap_err();
    assert_eq!(fault.detail, "host_not_in_app_allowlist");
}

#[tokio::test]
async fn section_18_every_fetch_has_one_complete_audit_event() {
    let world = hello();
    world.serve_with(PUBLIC, |seen| match seen.target() {
        "/start?token=secret" => Script::redirect(302, "/end?signature=hidden"),
        _ => Script::with_fields(&[("Content-Type", "text/plain")], "hello"),
    });
    let mut house = house(&world, &[]).await;
    house
        .call(&asking("http://files.example.org/start?token=secret#part"))
        .await
        .unwrap();
    let event = house.event().await;
    assert_eq!((event.verdict.as_str(), event.code.as_str()), ("allow", ""));
    assert_eq!(event.app_id, "reporter");
    assert_eq!(event.trace_id, TRACE);
    assert_eq!(event.policy_digest.len(), 64);
    assert!(event.admin_enabled && event.app_enabled.is_none() && event.length_verified);
    assert_eq!(
        (
            event.url_scheme.as_str(),
            event.url_host.as_str(),
            event.url_port
        ),
        ("http", "files.example.org", 80)
    );
    assert_eq!(event.url_path_hash.len(), 64);
    assert_eq!((event.redirect_count, event.http_status), (1, 200));
    assert_eq!((event.stored_bytes, event.wire_bytes), (5, 5));
    assert_eq!(event.sha256, Sha256Digest::of(b"hello").to_hex());
    assert_eq!(event.content_type, "text/plain");
    assert_eq!(event.table_edition, dray_guard::TABLE_EDITION);
    assert_eq!(event.hops.len(), 2);
    let hop = &event.hops[0];
    assert_eq!((hop.index, hop.status, hop.port), (0, 302, 80));
    assert_eq!(hop.answers[0].address, PUBLIC);
    assert_eq!(hop.answers[0].class, "public");
    assert_eq!(hop.chosen_address, format!("{PUBLIC}:80"));
    assert_eq!(hop.peer_address, hop.chosen_address);
    assert_eq!(hop.local_port, 40_000);
    let everything = format!("{event:?}");
    for secret in ["token", "secret", "signature", "hidden", "part", "hello\""] {
        assert!(!everything.contains(secret), "S-5: {secret}");
    }
}

#[tokio::test]
async fn section_18_refusals_are_audited_with_what_was_judged() {
    let world = hello();
    world.name("inside.example.org", &["10.0.0.1", PUBLIC]);
    let mut house = house(&world, &[]).await;
    house
        .call(&asking("http://inside.example.org/"))
        .await
        .unwrap_err();
    let event = house.event().await;
    assert_eq!(
        (
            event.verdict.as_str(),
            event.code.as_str(),
            event.phase.as_str()
        ),
        ("deny", "ssrf_blocked", "dns")
    );
    let answers: Vec<_> = event.hops[0]
        .answers
        .iter()
        .map(|answer| answer.class.as_str())
        .collect();
    assert_eq!(answers, ["private_use", "public"]);
    assert_eq!(event.hops[0].code, "ssrf_blocked");
    assert_eq!(event.hops[0].chosen_address, "");
    house
        .call(&asking("http://user:hunter2@files.example.org/"))
        .await
        .unwrap_err();
    let event = house.event().await;
    assert_eq!(
        (
            event.code.as_str(),
            event.phase.as_str(),
            event.url_host.as_str()
        ),
        ("url_credentials", "url", "")
    );
    assert!(!format!("{event:?}").contains("hunter2"), "S-5");
}

#[tokio::test]
async fn section_18_opened_ranges_are_visible_in_every_event() {
    let world = hello();
    world.name("inside.example.org", &["10.1.2.3"]);
    world.serve("10.1.2.3", Script::ok("inside"));
    let mut house = house(&world, &[("private_cidrs", r#"["10.1.0.0/16"]"#)]).await;
    house
        .call(&asking("http://inside.example.org/"))
        .await
        .unwrap();
    let event = house.event().await;
    assert_eq!(event.private_cidrs, ["10.1.0.0/16"]);
    assert_eq!(event.hops[0].answers[0].class, "opened:10.1.0.0/16");
    let metrics = house.running.metrics().unwrap();
    assert!(
        metrics.contains("dray_egress_opened_range_fetches_total"),
        "{metrics}"
    );
    assert!(metrics.contains(r#"private_ranges="set""#));
}

/// The value of the first sample with this name and these labels.
fn sample(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    metrics
        .lines()
        .filter(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)))
        .find_map(|line| line.rsplit(' ').next()?.parse().ok())
}

#[tokio::test]
async fn section_19_metrics_tell_verdicts_classes_and_bytes_and_no_host() {
    let world = hello();
    world.name("inside.example.org", &["10.0.0.1"]);
    let house = house(&world, &[]).await;
    for host in ["files", "inside", "nowhere"] {
        let url = format!("http://{host}.example.org/");
        assert_eq!(house.call(&asking(&url)).await.is_ok(), host == "files");
    }
    let metrics = house.running.metrics().unwrap();
    let edition = dray_guard::TABLE_EDITION;
    let rows: &[(&str, &[&str], f64)] = &[
        ("fetch_total{", &["verdict=\"allow\"", "code=\"ok\""], 1.0),
        (
            "fetch_total{",
            &["verdict=\"deny\"", "code=\"ssrf_blocked\""],
            1.0,
        ),
        (
            "fetch_total{",
            &["verdict=\"deny\"", "code=\"dns_not_found\""],
            1.0,
        ),
        ("bytes_total{", &["kind=\"stored\""], 5.0),
        ("bytes_total{", &["kind=\"wire\""], 5.0),
        ("blocked_address_total{", &["class=\"private_use\""], 1.0),
        ("dns_errors_total{", &["kind=\"not_found\""], 1.0),
        ("inflight", &[], 0.0),
        ("queue_depth", &[], 0.0),
        ("host_breaker_open", &[], 0.0),
        ("pin_mismatch_total", &[], 0.0),
        (
            "policy_info{",
            &["admin_allowlist=\"unset\"", "private_ranges=\"unset\""],
            1.0,
        ),
        ("table_edition_info{", &[edition], 1.0),
        ("hops_count", &[], 3.0),
        ("dns_answers_count", &[], 2.0),
        ("fetch_duration_seconds_count{", &["phase=\"total\""], 3.0),
    ];
    for (name, labels, expected) in rows {
        let found = sample(&metrics, &format!("dray_egress_{name}"), labels);
        assert_eq!(found, Some(*expected), "{name} {labels:?}\n{metrics}");
    }
    let ours = metrics
        .lines()
        .filter(|line| line.starts_with("dray_egress_"));
    assert!(
        !ours.clone().any(|line| line.contains("example.org")),
        "host names are not labels"
    );
}

#[tokio::test]
async fn section_19_an_impostor_raises_the_alarm() {
    let world = hello();
    world.peer(
        PUBLIC,
        80,
        Peer::Impostor("93.184.215.15:80".parse().unwrap()),
    );
    let house = house(&world, &[]).await;
    let fault = house
        .call(&asking("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "internal");
    let metrics = house.running.metrics().unwrap();
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("dray_egress_pin_mismatch_total") && line.ends_with(" 1"))
    );
}

#[tokio::test]
async fn section_14_a_call_ends_with_its_deadline_and_says_so() {
    let world = hello();
    world.peer(PUBLIC, 80, Peer::Mute);
    let mut house = house(&world, &[]).await;
    let mut request = asking("http://files.example.org/");
    request.tool_timeout_ms = 300;
    let fault = house.call(&request).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Timeout, "timeout")
    );
    let event = house.event().await;
    assert_eq!(
        (event.code.as_str(), event.phase.as_str()),
        ("timeout", "total")
    );
    assert!(event.duration_ms >= 300);
}

/// The service without a host, so that its parts can be broken: bus without streams, store that stops.
struct Bare {
    service: Arc<EgressFetcher>,
    cx: Context,
    s3: EmbeddedS3,
    folder: tempfile::TempDir,
}

async fn bare(world: &World, audit_required: bool) -> Bare {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let (s3, options) = EmbeddedS3::start(folder.path()).await.unwrap();
    let store = Store::open(&options, clock.clone()).await.unwrap();
    let meter = opentelemetry::metrics::noop::NoopMeterProvider::new();
    let meter = opentelemetry::metrics::MeterProvider::meter(&meter, "test");
    let cx = Context::new(Bus::in_process(clock.clone(), &meter), store, clock);
    let config = Config {
        enabled: true,
        audit_required,
        ..Config::default()
    };
    let service = EgressFetcher::start_with(config, cx.clone(), world.network())
        .await
        .unwrap();
    Bare {
        service: Arc::new(service),
        cx,
        s3,
        folder,
    }
}

impl Bare {
    async fn fetch(&self, request: v1::FetchRequest) -> Result<v1::FetchReply, Fault> {
        let request = Request::new(meta(&self.cx.clock), request);
        Arc::clone(&self.service).fetch(request).await
    }

    /// Files that a broken upload left behind.
    async fn staged(&self) -> Vec<String> {
        self.cx.store.settle().await;
        self.files()
    }

    /// Files of uploads that are not finished.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(self.folder.path(), &mut found);
        found.retain(|path| path.contains("stage") || path.contains("upload"));
        found
    }
}

fn walk(folder: &Path, found: &mut Vec<String>) {
    // Folders come and go while uploads are under way.
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

#[tokio::test]
async fn section_18_without_the_stream_the_reply_still_goes_out_unless_audit_is_required() {
    let lax = bare(&hello(), false).await;
    assert!(lax.fetch(asking("http://files.example.org/")).await.is_ok());
    let strict = bare(&hello(), true).await;
    let fault = strict
        .fetch(asking("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "sink_failed");
    let fault = strict.fetch(asking("http://127.0.0.1/")).await.unwrap_err();
    assert_eq!(fault.detail, "ssrf_blocked", "a refusal stays what it is");
}

#[tokio::test]
async fn b_2_the_partial_object_of_a_broken_transfer_is_removed() {
    let world = hello();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20);
    let part = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
    world.serve(
        PUBLIC,
        Script(vec![Step::send(head), Step::Repeat(part, 200)]),
    );
    let bare = bare(&world, false).await;
    let mut request = asking("http://files.example.org/");
    request.size_limit_bytes = 50 << 20;
    let fault = bare.fetch(request).await.unwrap_err();
    assert_eq!(fault.detail, "truncated");
    assert_eq!(bare.staged().await, Vec::<String>::new());
}

#[tokio::test]
async fn section_14_cancelling_removes_the_partial_object_and_is_audited() {
    let world = hello();
    let part = bytes::Bytes::from(vec![b'x'; 64 * 1024]);
    world.serve(
        PUBLIC,
        Script(vec![
            Step::send("HTTP/1.1 200 OK\r\n\r\n"),
            Step::Repeat(part, 150),
            Step::Hold,
        ]),
    );
    let bare = bare(&world, false).await;
    let topology = Topology::used_by("egress-fetcher");
    bare.cx.bus.apply_topology(&topology).await.unwrap();
    let filter = EventFilter::new("dray.audit.egress.v1.fetched.*").from_start();
    let mut audit = bare.cx.bus.events(filter).await.unwrap();
    let mut request = asking("http://files.example.org/");
    request.size_limit_bytes = 50 << 20;
    let fetching = Box::pin(bare.fetch(request));
    // The upload and its first part: one that is only just being begun is left to the sweep.
    let staged = dray_testkit::eventually("the first part", async || {
        (bare.files().len() >= 2).then_some(())
    });
    tokio::select! {
        ended = fetching => panic!("it cannot end: {ended:?}"),
        () = staged => {}
    }
    assert_eq!(bare.staged().await, Vec::<String>::new());
    let event: v1::EgressAudit = audit.next().await.unwrap().decode().unwrap();
    assert_eq!(
        (event.verdict.as_str(), event.code.as_str()),
        ("deny", "cancelled")
    );
    assert!(event.wire_bytes > 0);
}

#[tokio::test]
async fn a_store_that_is_down_fails_the_fetch_and_not_the_service() {
    let world = hello();
    let Bare {
        service,
        cx,
        s3,
        folder: _folder,
    } = bare(&world, false).await;
    s3.stop().await;
    let mut request = asking("http://files.example.org/");
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
    let request = Request::new(meta(&cx.clock), asking("http://files.example.org/"));
    assert!(
        service.fetch(request).await.is_ok(),
        "small files need no store"
    );
}

#[tokio::test]
async fn section_20_an_invalid_configuration_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (key, value) in [
        ("max_redirects", "11"),
        ("private_cidrs", r#"["8.8.8.0/24"]"#),
        ("user_agent", ""),
        ("ca_bundle", "/nonexistent/ca.pem"),
    ] {
        let settings =
            Settings::embedded(folder.path()).set(format!("egress-fetcher.{key}"), value);
        let network = hello().network();
        let started = Host::new(settings)
            .with_start::<EgressFetcher, _, _>(move |config, cx| {
                EgressFetcher::start_with(config, cx, network)
            })
            .start()
            .await;
        assert!(started.is_err(), "{key}");
    }
}

#[test]
fn c_1_the_command_has_no_field_for_anything_else() {
    let v1::FetchRequest {
        url: _,
        app_policy: _,
        size_limit_bytes: _,
        tool_timeout_ms: _,
        sink: _,
    } = v1::FetchRequest::default();
}
