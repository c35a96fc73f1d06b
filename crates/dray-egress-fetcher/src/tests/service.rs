//! Tests of the service from a caller's point of view: through the bus, with a real store.

use std::time::Duration;

use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::{Host, Settings};
use dray_testkit::http::ResponseScript;
use dray_types::{Deadline, FaultCode, Sha256Digest, TenantId};
use tokio::task::JoinSet;

use super::fake_network::*;
use super::test_service::*;
use crate::service::EgressFetcher;

#[tokio::test]
async fn a_small_file_is_returned_inline() {
    let service = start_service(&hello(), &[]).await;
    let reply = service
        .call(&fetch_request("http://files.example.org/a.txt"))
        .await
        .unwrap();
    assert_eq!(content(&reply), ContentSource::Inline("hello".into()));
    assert_eq!(reply.sha256, Sha256Digest::of(b"hello").as_bytes());
    assert_eq!(
        (reply.size, reply.wire_size, reply.http_status),
        (5, 5, 200)
    );
    assert_eq!(reply.final_url, "http://files.example.org/a.txt");
    assert!(reply.length_verified);
}

#[tokio::test]
async fn a_large_file_and_a_caller_that_asks_for_a_claim_get_a_claim() {
    let fake_network = hello();
    let body: Vec<u8> = (0..200_000_u32)
        .map(|index| index.to_le_bytes()[0])
        .collect();
    fake_network.serve(
        PUBLIC_ADDRESS,
        ResponseScript::with_fields(&[("Content-Type", "text/csv")], &body),
    );
    let service = start_service(&fake_network, &[]).await;
    let cx = service.running.context();
    let large = service
        .call(&fetch_request("http://files.example.org/"))
        .await
        .unwrap();
    fake_network.serve(PUBLIC_ADDRESS, ResponseScript::ok("tiny"));
    let mut small = fetch_request("http://files.example.org/");
    small.set_sink(v1::Sink::ClaimOnly);
    let small = service.call(&small).await.unwrap();
    for (reply, expected) in [(large, body.as_slice()), (small, b"tiny".as_slice())] {
        let ContentSource::Claim(claim) = content(&reply) else {
            panic!("the content must be a claim");
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
    let fake_network = hello();
    let service = start_service(&fake_network, &[]).await;
    for (size, inline) in [(65_536, true), (65_537, false)] {
        fake_network.serve(PUBLIC_ADDRESS, ResponseScript::ok(vec![b'x'; size]));
        let reply = service
            .call(&fetch_request("http://files.example.org/"))
            .await
            .unwrap();
        assert_eq!(
            matches!(content(&reply), ContentSource::Inline(_)),
            inline,
            "{size}"
        );
    }
}

#[tokio::test]
async fn section_17_faults_cross_the_bus_with_code_detail_and_trace() {
    let fake_network = hello();
    fake_network.name("inside.example.org", &["10.0.0.1"]);
    let service = start_service(&fake_network, &[]).await;
    let fault = service
        .call(&fetch_request("http://inside.example.org/x?y=z"))
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
    fake_network.serve(PUBLIC_ADDRESS, ResponseScript::status(503));
    let fault = service
        .call(&fetch_request("http://files.example.org/"))
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
    let service = start_service(&hello(), &[]).await;
    let with = |patterns: Option<Vec<&str>>| v1::FetchRequest {
        app_policy: Some(v1::AppPolicy {
            enabled: None,
            host_allowlist: patterns.map(|patterns| v1::HostAllowlist {
                patterns: patterns.into_iter().map(str::to_owned).collect(),
            }),
        }),
        ..fetch_request("http://files.example.org/")
    };
    assert!(service.call(&with(None)).await.is_ok());
    assert!(
        service
            .call(&with(Some(vec!["*.example.org"])))
            .await
            .is_ok()
    );
    let fault = service.call(&with(Some(vec![]))).await.unwrap_err();
    assert_eq!(fault.detail, "host_not_in_app_allowlist");
}

#[tokio::test]
async fn section_14_a_call_ends_with_its_deadline_and_says_so() {
    let fake_network = hello();
    fake_network.peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let mut service = start_service(&fake_network, &[]).await;
    let mut request = fetch_request("http://files.example.org/");
    request.tool_timeout_ms = 300;
    let fault = service.call(&request).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Timeout, "timeout")
    );
    let event = service.event().await;
    assert_eq!(
        (event.code.as_str(), event.phase.as_str()),
        ("timeout", "total")
    );
    assert!(event.duration_ms >= 300);
}

/// Calls of `tenant` that are under way until the set is dropped.
fn calls(service: &TestService, tenant: &str, url: &str, count: usize) -> JoinSet<()> {
    let cx = service.running.context();
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let (bus, meta) = (cx.bus.clone(), meta_of(tenant, &cx.clock));
        let request = fetch_request(url);
        calls.spawn(async move { drop(bus.call_once(&meta, &request).await) });
    }
    calls
}

async fn wait_for_waiting(service: &TestService, count: usize) {
    dray_testkit::eventually("fetches to wait", async || {
        let metrics = service.running.metrics().unwrap();
        let is_there = |line: &str| {
            line.starts_with("dray_egress_queue_depth") && line.ends_with(&format!(" {count}"))
        };
        metrics.lines().any(is_there).then_some(())
    })
    .await;
}

#[tokio::test]
async fn section_15_fetches_that_wait_hold_no_call_permit_of_the_process() {
    let fake_network = hello();
    fake_network.name("slow.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fake_network.peer(OTHER_PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let limits = [("limits.calls", "2"), ("limits.calls_per_tenant", "1")];
    let service = start_service(&fake_network, &limits).await;
    let _one = calls(&service, "one", "http://slow.example.org/", 32);
    let _two = calls(&service, "two", "http://slow.example.org/", 32);
    wait_for_waiting(&service, 60).await;
    let reply = service
        .call(&fetch_request("http://files.example.org/"))
        .await;
    assert_eq!(reply.unwrap().size, 5);
    wait_for_waiting(&service, 60).await;
}

#[tokio::test]
async fn section_15_as_many_wait_as_configured_and_the_next_is_refused() {
    let fake_network = hello();
    fake_network.peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    let mut service = start_service(&fake_network, &[("max_queue", "70")]).await;
    let _many = calls(&service, "acme", "http://files.example.org/", 74);
    wait_for_waiting(&service, 70).await;
    let fault = service
        .call(&fetch_request("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::RateLimited, "overloaded")
    );
    assert_eq!(service.event().await.code, "overloaded");
}

#[tokio::test]
async fn a_fetch_is_not_repeated_by_the_bus() {
    let fake_network = hello();
    let server = fake_network.serve_with(PUBLIC_ADDRESS, |_| ResponseScript::status(503));
    let service = start_service(&fake_network, &[]).await;
    let fault = service
        .call(&fetch_request("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "http_status");
    assert_eq!(server.received_requests().len(), 1);
}

#[tokio::test]
async fn section_20_an_invalid_configuration_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for (key, value) in [
        ("max_redirects", "11"),
        ("private_cidrs", r#"["8.8.8.0/24"]"#),
        ("user_agent", ""),
        ("ca_bundle", "/nonexistent/ca.pem"),
    ] {
        let settings =
            Settings::embedded(directory.path()).set(format!("egress-fetcher.{key}"), value);
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
        revalidate: _,
    } = v1::FetchRequest::default();
}
