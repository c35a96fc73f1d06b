//! Tests of audit events and metrics of real calls (sections 18 and 19).

use dray_testkit::http::ResponseScript;
use dray_types::Sha256Digest;

use super::fake_network::*;
use super::test_service::*;

#[tokio::test]
async fn section_18_every_fetch_has_one_complete_audit_event() {
    let fake_network = hello();
    fake_network.serve_with(PUBLIC_ADDRESS, |received| match received.target() {
        "/start?token=secret" => ResponseScript::redirect(302, "/end?signature=hidden"),
        _ => ResponseScript::with_fields(&[("Content-Type", "text/plain")], "hello"),
    });
    let mut service = start_service(&fake_network, &[]).await;
    service
        .call(&fetch_request(
            "http://files.example.org/start?token=secret#part",
        ))
        .await
        .unwrap();
    let event = service.event().await;
    assert_eq!((event.verdict.as_str(), event.code.as_str()), ("allow", ""));
    assert_eq!(event.app_id, "reporter");
    assert_eq!(event.trace_id, TRACE_ID);
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
    assert_eq!(hop.answers[0].address, PUBLIC_ADDRESS);
    assert_eq!(hop.answers[0].class, "public");
    assert_eq!(hop.chosen_address, format!("{PUBLIC_ADDRESS}:80"));
    assert_eq!(hop.peer_address, hop.chosen_address);
    assert_eq!(hop.local_port, 40_000);
    let everything = format!("{event:?}");
    for secret in ["token", "secret", "signature", "hidden", "part", "hello\""] {
        assert!(!everything.contains(secret), "S-5: {secret}");
    }
}

#[tokio::test]
async fn section_18_refusals_are_audited_with_what_was_judged() {
    let fake_network = hello();
    fake_network.name("inside.example.org", &["10.0.0.1", PUBLIC_ADDRESS]);
    let mut service = start_service(&fake_network, &[]).await;
    service
        .call(&fetch_request("http://inside.example.org/"))
        .await
        .unwrap_err();
    let event = service.event().await;
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
    service
        .call(&fetch_request("http://user:hunter2@files.example.org/"))
        .await
        .unwrap_err();
    let event = service.event().await;
    assert_eq!(
        (
            event.code.as_str(),
            event.phase.as_str(),
            event.url_host.as_str()
        ),
        ("url_credentials", "url", "files.example.org")
    );
    assert!(!format!("{event:?}").contains("hunter2"), "S-5");
}

#[tokio::test]
async fn section_18_opened_ranges_are_visible_in_every_event() {
    let fake_network = hello();
    fake_network.name("inside.example.org", &["10.1.2.3"]);
    fake_network.serve("10.1.2.3", ResponseScript::ok("inside"));
    let mut service =
        start_service(&fake_network, &[("private_cidrs", r#"["10.1.0.0/16"]"#)]).await;
    service
        .call(&fetch_request("http://inside.example.org/"))
        .await
        .unwrap();
    let event = service.event().await;
    assert_eq!(event.private_cidrs, ["10.1.0.0/16"]);
    assert_eq!(event.hops[0].answers[0].class, "opened:10.1.0.0/16");
    let metrics = service.running.metrics().unwrap();
    assert_eq!(
        sample(&metrics, "dray_egress_opened_range_fetches_total", &[]),
        Some(1.0),
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
async fn section_19_counters_start_at_zero() {
    let service = start_service(&hello(), &[]).await;
    let metrics = service.running.metrics().unwrap();
    let rows: &[(&str, &[&str])] = &[
        ("fetch_total{", &["verdict=\"allow\"", "code=\"ok\""]),
        (
            "fetch_total{",
            &["verdict=\"deny\"", "code=\"ssrf_blocked\""],
        ),
        ("fetch_total{", &["verdict=\"deny\"", "code=\"cancelled\""]),
        ("bytes_total{", &["kind=\"wire\""]),
        ("bytes_total{", &["kind=\"stored\""]),
        ("blocked_address_total{", &["class=\"loopback\""]),
        ("blocked_address_total{", &["class=\"own_address\""]),
        ("dns_errors_total{", &["kind=\"timeout\""]),
        ("pin_mismatch_total", &[]),
        ("sink_failures_total", &[]),
        ("audit_failures_total", &[]),
        ("audit_file_dropped_total{", &["reason=\"queue_full\""]),
        ("audit_file_dropped_total{", &["reason=\"write_failed\""]),
        ("audit_syslog_dropped_total{", &["reason=\"write_failed\""]),
        ("opened_range_fetches_total", &[]),
        ("retries_total", &[]),
    ];
    for (name, labels) in rows {
        let value = sample(&metrics, &format!("dray_egress_{name}"), labels);
        assert_eq!(value, Some(0.0), "{name} {labels:?}\n{metrics}");
    }
}

#[tokio::test]
async fn section_19_metrics_have_verdicts_classes_and_bytes_and_no_host() {
    let fake_network = hello();
    fake_network.name("inside.example.org", &["10.0.0.1"]);
    let service = start_service(&fake_network, &[]).await;
    for host in ["files", "inside", "nowhere"] {
        let url = format!("http://{host}.example.org/");
        assert_eq!(
            service.call(&fetch_request(&url)).await.is_ok(),
            host == "files"
        );
    }
    let metrics = service.running.metrics().unwrap();
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
        let value = sample(&metrics, &format!("dray_egress_{name}"), labels);
        assert_eq!(value, Some(*expected), "{name} {labels:?}\n{metrics}");
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
    let fake_network = hello();
    fake_network.peer(
        PUBLIC_ADDRESS,
        80,
        FakePeer::Impostor("93.184.215.15:80".parse().unwrap()),
    );
    let service = start_service(&fake_network, &[]).await;
    let fault = service
        .call(&fetch_request("http://files.example.org/"))
        .await
        .unwrap_err();
    assert_eq!(fault.detail, "internal");
    let metrics = service.running.metrics().unwrap();
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("dray_egress_pin_mismatch_total") && line.ends_with(" 1"))
    );
}
