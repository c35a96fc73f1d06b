//! Events and metrics of connections.

use dray_testkit::http::ResponseScript;

use super::*;

#[tokio::test]
async fn section_18_a_connection_has_one_event_before_its_first_byte_and_one_at_its_end() {
    let mut proxy = ProxyFixture::start(&[("plain_ports", "443")]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let dns = answer(
        TARGET_HOST,
        &["cdn.example.net."],
        &[PUBLIC_ADDRESS, OTHER_PUBLIC_ADDRESS],
    );
    proxy
        .fake_network
        .set_dns_answers(TARGET_HOST, vec![Ok(dns)]);
    let (mut client, _) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    let mut server = ends.recv().await.unwrap();
    // The event is published before the first byte is relayed.
    let opened = proxy.event().await;
    assert_eq!(
        (opened.proxy_stage.as_str(), opened.verdict.as_str()),
        ("opened", "allow")
    );
    assert_eq!((opened.up_bytes, opened.down_bytes), (0, 0));
    assert_eq!(proxy.metric("open_connections", &[]), 1);
    client.write_all(b"12345").await.unwrap();
    client.shutdown().await.unwrap();
    server.write_all(b"123").await.unwrap();
    let mut up = Vec::new();
    server.read_to_end(&mut up).await.unwrap();
    drop(server);
    assert_eq!((up.len(), read_all(&mut client).await.len()), (5, 3));
    let closed = proxy.event().await;
    assert_eq!((closed.up_bytes, closed.down_bytes), (5, 3));
    assert_eq!(
        (closed.proxy_stage.as_str(), closed.code.as_str()),
        ("closed", "")
    );
    assert_eq!(opened.operation_id, closed.operation_id);
    assert_ne!(opened.event_id, closed.event_id);
    for event in [opened, closed] {
        check_origin_and_addresses(&event);
    }
    assert_eq!(proxy.metric("open_connections", &[]), 0);
    assert_eq!(proxy.metric("bytes_total", &["direction=\"up\""]), 5);
    assert_eq!(proxy.metric("bytes_total", &["direction=\"down\""]), 3);
    assert_eq!(
        proxy.metric(
            "connections_total",
            &["protocol=\"connect\"", "code=\"ok\""]
        ),
        1
    );
}

/// Checks the identity, the target and the addresses in an event of the first test.
fn check_origin_and_addresses(event: &v1::EgressAudit) {
    assert_eq!(
        (event.tenant_id.as_str(), event.session_id.as_str()),
        ("acme", "chat-1")
    );
    assert_eq!(
        (event.url_host.as_str(), event.url_port),
        (TARGET_HOST, 443)
    );
    assert_eq!(event.policy_digest.len(), 64);
    let hop = &event.hops[0];
    assert_eq!(hop.cname_chain, ["cdn.example.net."]);
    let answers: Vec<_> = hop
        .answers
        .iter()
        .map(|answer| answer.address.as_str())
        .collect();
    assert_eq!(answers, [PUBLIC_ADDRESS, OTHER_PUBLIC_ADDRESS]);
    assert_eq!(hop.chosen_address, format!("{PUBLIC_ADDRESS}:443"));
    assert_eq!(hop.peer_address, hop.chosen_address);
}

#[tokio::test]
async fn section_18_a_refusal_is_audited_with_its_rule() {
    let mut proxy = ProxyFixture::start(&[("http_ports", "80,8080")]).await;
    proxy
        .fake_network
        .name("inside.example.org", &["10.0.0.1", PUBLIC_ADDRESS]);
    for (url, code, rule) in [
        ("http://inside.example.org/", "ssrf_blocked", "addresses"),
        ("http://missing.example.org/", "dns_not_found", "resolution"),
        ("http://localhost/", "blocked_host", "host_name"),
        ("http://files.example.org:22/", "port_not_allowed", "port"),
        ("http://files.example.org:8443/", "port_not_allowed", "port"),
        ("http://127.1/", "ambiguous_host", "url"),
        (
            "http://u:secret@files.example.org/",
            "url_credentials",
            "url",
        ),
        ("https://files.example.org/", "unsupported_scheme", "url"),
    ] {
        let response = proxy.get(url).await;
        let event = proxy.event().await;
        assert_eq!(
            (event.code.as_str(), event.rule.as_str()),
            (code, rule),
            "{url}"
        );
        assert_eq!(
            (event.proxy_stage.as_str(), event.verdict.as_str()),
            ("refused", "deny")
        );
        assert!(!format!("{event:?}").contains("secret"), "S-5");
        // I-8: addresses are only for the operator.
        assert!(!response.contains("10.0.0.1"));
        if code == "ssrf_blocked" {
            assert_eq!(event.hops[0].answers.len(), 2);
        }
    }
}

#[tokio::test]
async fn a_proxy_without_fetching_refuses_everything() {
    let mut proxy = ProxyFixture::start(&[("/enabled", "false")]).await;
    for url in ["http://files.example.org/", "http://127.1/"] {
        let response = proxy.get(url).await;
        assert_eq!(
            (status_of(&response), code_of(&response)),
            (403, "disabled_by_admin")
        );
        assert_eq!(proxy.event().await.rule, "operator_switch");
    }
    assert_eq!(proxy.fake_network.queried_names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_request_has_the_status_of_its_response_in_the_last_event() {
    let mut proxy = ProxyFixture::start(&[]).await;
    proxy
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::status(418));
    let response = proxy.get("http://files.example.org/a?token=secret").await;
    assert_eq!(status_of(&response), 418);
    let (opened, closed) = (proxy.event().await, proxy.event().await);
    assert_eq!((opened.http_status, closed.http_status), (0, 418));
    assert_eq!(closed.url_path_hash.len(), 64);
    assert!(!format!("{opened:?}{closed:?}").contains("secret"), "S-5");
}

#[tokio::test]
async fn events_of_connections_are_in_the_file_of_audit_events() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let set = [("/audit_file.path", path.to_str().unwrap())];
    let proxy = ProxyFixture::start(&set).await;
    proxy.get("http://files.example.org/").await;
    proxy.get("http://127.0.0.1/").await;
    let lines = dray_testkit::eventually("three lines", async || {
        let text = std::fs::read_to_string(&path).ok()?;
        let lines: Vec<serde_json::Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        (lines.len() == 3).then_some(lines)
    })
    .await;
    let stages: Vec<_> = lines.iter().map(|line| &line["proxy_stage"]).collect();
    assert_eq!(stages, ["opened", "closed", "refused"]);
}

#[tokio::test]
async fn with_audit_required_no_request_passes_while_the_file_accepts_no_event_and_none_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.jsonl");
    let set = [
        ("/audit_file.path", path.to_str().unwrap()),
        ("/audit_required", "true"),
        ("plain_ports", "443"),
    ];
    let proxy = ProxyFixture::start(&set).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    // A directory in the place of the file makes every attempt to write fail.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let (mut client, head) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    assert_eq!(status_of(&head), 200);
    client.write_all(b"first bytes").await.unwrap();
    let mut received = Vec::new();
    let mut server = ends.recv().await.unwrap();
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"");
    // The refusal is recorded before the client is closed.
    read_all(&mut client).await;
    let url = format!("http://{TARGET_HOST}/");
    let response = proxy.get(&url).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (503, "sink_failed")
    );
    std::fs::remove_dir(&path).unwrap();
    let stages = dray_testkit::eventually("the lines of both connections", async || {
        let text = std::fs::read_to_string(&path).ok()?;
        let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
        let lines: Result<Vec<_>, _> = lines.collect();
        let stage = |line: &serde_json::Value| line["proxy_stage"].as_str().map(str::to_owned);
        let stages: Option<Vec<_>> = lines.ok()?.iter().map(stage).collect();
        stages.filter(|stages| stages.len() == 4)
    })
    .await;
    assert_eq!(stages, ["opened", "refused", "opened", "refused"]);
    let metrics = proxy.service.running.metrics().unwrap();
    let sum = |name: &str| -> u64 {
        let samples = metrics.lines().filter(|line| line.starts_with(name));
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    };
    assert!(sum("dray_egress_audit_file_delayed_total") >= 1);
    assert_eq!(sum("dray_egress_audit_file_dropped_total"), 0);
    // The file takes events again.
    assert_eq!(status_of(&proxy.get(&url).await), 200);
}
