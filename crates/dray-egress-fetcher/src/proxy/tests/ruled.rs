//! Connections under the rules of policy files.

use std::fs;
use std::time::Duration;

use dray_testkit::http::ResponseScript;

use super::*;

const POLICY_TEXT: &str = r#"
[[role]]
name = "sandboxes"
tenants = ["acme"]
sessions = ["chat-*"]
[[role.rule]]
name = "tables"
outcome = "allow"
hosts = ["files.example.org"]
ports = [80]
methods = ["GET"]
paths = ["/tables/**"]
media_types = ["text/csv"]
[[role.rule]]
name = "tunnels"
outcome = "allow"
hosts = ["files.example.org"]
ports = [443]
max_bytes = 4
"#;

struct RuledProxy {
    proxy: ProxyFixture,
    directory: tempfile::TempDir,
}

impl RuledProxy {
    async fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        fs::write(&path, text).unwrap();
        let set = [
            ("/policy_path", path.to_str().unwrap()),
            ("plain_ports", "443"),
        ];
        let proxy = ProxyFixture::start(&set).await;
        Self { proxy, directory }
    }

    /// Replaces the file and waits until its rules are in force.
    async fn replace(&self, text: &str) {
        fs::write(self.directory.path().join("policy.toml"), text).unwrap();
        let digest = dray_types::Sha256Digest::of(text.as_bytes()).to_hex();
        let line = format!("dray_egress_policy_rules_info{{digest=\"{digest}\"");
        self.wait_for(|metrics| {
            let mut lines = metrics.lines().filter(|metric| metric.starts_with(&line));
            lines.any(|metric| metric.ends_with(" 1"))
        })
        .await;
    }

    async fn wait_for(&self, is_there: impl Fn(&str) -> bool) {
        let waiting = async {
            while !is_there(&self.proxy.service.running.metrics().unwrap()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn method_path_and_type_are_judged_where_they_are_visible() {
    let RuledProxy { mut proxy, .. } = RuledProxy::start(POLICY_TEXT).await;
    let csv = ResponseScript::with_fields(&[("Content-Type", "text/csv")], "1;2");
    proxy.fake_network.serve(PUBLIC_ADDRESS, csv);
    let response = proxy
        .get(&format!("http://{TARGET_HOST}/tables/a.csv"))
        .await;
    assert_eq!((status_of(&response), code_of(&response)), (200, "1;2"));
    let opened = proxy.event().await;
    assert_eq!(opened.decided_by, "sandboxes/tables (policy.toml:6)");
    assert_eq!(
        (opened.method.as_str(), opened.rules_digest.len()),
        ("GET", 64)
    );
    proxy.event().await;
    let auth = proxy.auth();
    for (line, url) in [
        ("GET", "/other"),
        ("POST", "/tables/a"),
        ("GET", "/tables/../other"),
        ("GET", "/tables%2f..%2fx"),
    ] {
        let response = proxy
            .exchange(format!(
                "{line} http://{TARGET_HOST}{url} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}\r\n"
            ))
            .await;
        assert_eq!(
            (status_of(&response), code_of(&response)),
            (403, "policy_denied"),
            "{line} {url}"
        );
        let event = proxy.event().await;
        assert_eq!(
            (event.rule.as_str(), event.decided_by.as_str()),
            ("policy_rules", "default")
        );
    }
    proxy
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::ok("<html>"));
    let response = proxy
        .get(&format!("http://{TARGET_HOST}/tables/a.csv"))
        .await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (403, "media_type_not_allowed")
    );
    let (_, closed) = (proxy.event().await, proxy.event().await);
    assert_eq!(
        (closed.proxy_stage.as_str(), closed.code.as_str()),
        ("closed", "media_type_not_allowed")
    );
}

#[tokio::test]
async fn a_field_that_names_another_method_is_judged_as_that_method() {
    let RuledProxy { mut proxy, .. } = RuledProxy::start(POLICY_TEXT).await;
    let server = proxy.fake_network.serve_with(PUBLIC_ADDRESS, |_| {
        ResponseScript::with_fields(&[("Content-Type", "text/csv")], "1;2")
    });
    for (field, status) in [
        ("X-HTTP-Method-Override: DELETE", 403),
        ("x-http-method: delete", 403),
        ("X_HTTP_Method_Override: DELETE", 403),
        ("X-Method-Override: ", 403),
        // The method of this header is allowed, too.
        ("X-HTTP-Method-Override: get", 200),
    ] {
        let auth = proxy.auth();
        let request = format!(
            "GET http://{TARGET_HOST}/tables/a.csv HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{field}\r\n{auth}\r\n"
        );
        let response = proxy.exchange(request).await;
        assert_eq!(status_of(&response), status, "{field}: {response}");
        let event = proxy.event().await;
        if status == 403 {
            assert_eq!(
                (event.proxy_stage.as_str(), event.code.as_str()),
                ("refused", "policy_denied")
            );
        }
    }
    assert_eq!(server.received_requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_names_a_refused_method_is_not_charged_and_reaches_no_network() {
    let quota = "[role.limits]\nrequests_per_day = 1\n[[role.rule]]\nname = \"tables\"";
    let text = POLICY_TEXT
        .replacen("[[role.rule]]\nname = \"tables\"", quota, 1)
        .replace("[\"GET\"]", "[\"GET\", \"POST\"]");
    let RuledProxy { mut proxy, .. } = RuledProxy::start(&text).await;
    let csv = ResponseScript::with_fields(&[("Content-Type", "text/csv")], "1;2");
    proxy.fake_network.serve(PUBLIC_ADDRESS, csv);
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1\r\n";
    for fields in [
        "X-HTTP-Method-Override: DELETE\r\n".to_owned(),
        // A form that cannot be read.
        format!("{form}Content-Encoding: gzip\r\n"),
    ] {
        let auth = proxy.auth();
        let response = proxy
            .exchange(format!(
                "POST http://{TARGET_HOST}/tables/a HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{auth}{fields}\r\nx"
            ))
            .await;
        let refused = (status_of(&response), code_of(&response));
        assert_eq!(refused, (403, "policy_denied"), "{fields}");
        let event = proxy.event().await;
        let recorded = (event.proxy_stage.as_str(), event.rule.as_str());
        assert_eq!(recorded, ("refused", "method_override"), "{fields}");
        assert_eq!(event.decided_by, "default");
        assert_eq!(event.method, "POST");
    }
    assert_eq!(proxy.fake_network.queried_names(), Vec::<String>::new());
    let url = format!("http://{TARGET_HOST}/tables/a.csv");
    assert_eq!(status_of(&proxy.get(&url).await), 200);
}

#[tokio::test]
async fn a_query_that_names_another_method_is_judged_as_that_method() {
    let RuledProxy { mut proxy, .. } = RuledProxy::start(POLICY_TEXT).await;
    let server = proxy.fake_network.serve_with(PUBLIC_ADDRESS, |_| {
        ResponseScript::with_fields(&[("Content-Type", "text/csv")], "1;2")
    });
    for (query, status) in [
        ("_method=DELETE", 403),
        ("a=1&%5Fmethod=delete", 403),
        ("_method=get", 200),
        ("method=DELETE", 200),
    ] {
        let response = proxy
            .get(&format!("http://{TARGET_HOST}/tables/a.csv?{query}"))
            .await;
        assert_eq!(status_of(&response), status, "{query}: {response}");
        let event = proxy.event().await;
        if status == 403 {
            assert_eq!(
                (event.proxy_stage.as_str(), event.code.as_str()),
                ("refused", "policy_denied")
            );
        } else {
            // The end of the connection.
            proxy.event().await;
        }
    }
    assert_eq!(server.received_requests().len(), 2);
}

#[tokio::test]
async fn a_session_without_a_role_has_no_access() {
    let RuledProxy { proxy, .. } = RuledProxy::start(POLICY_TEXT).await;
    let auth = format!(
        "Proxy-Authorization: Bearer {}\r\n",
        proxy.token_of("other-1", None)
    );
    let (_, head) = proxy
        .tunnel_with(&format!("{TARGET_HOST}:443"), &auth)
        .await;
    assert_eq!(status_of(&head), 403);
    assert_eq!(proxy.fake_network.queried_names(), Vec::<String>::new());
}

#[tokio::test]
async fn the_limit_of_a_rule_holds_for_the_bytes_of_a_tunnel() {
    let RuledProxy { mut proxy, .. } = RuledProxy::start(POLICY_TEXT).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, _) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    let mut server = ends.recv().await.unwrap();
    proxy.event().await;
    server.write_all(b"12345").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await, "1234");
    drop(client);
    assert_eq!(proxy.event().await.code, "too_large");
}

#[tokio::test]
async fn new_rules_hold_for_new_connections_and_end_none_that_is_open() {
    let ruled = RuledProxy::start(POLICY_TEXT).await;
    let mut ends = ruled.proxy.be_server(PUBLIC_ADDRESS, 443);
    let authority = format!("{TARGET_HOST}:443");
    let (mut client, _) = ruled.proxy.tunnel(&authority).await;
    let mut server = ends.recv().await.unwrap();
    ruled.replace("default = \"deny\"\n").await;
    let (_, refused) = ruled.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&refused), 403);
    // The open tunnel continues.
    client.write_all(b"up").await.unwrap();
    let mut up = [0; 2];
    server.read_exact(&mut up).await.unwrap();
    server.write_all(b"down").await.unwrap();
    drop(server);
    assert_eq!(read_all(&mut client).await, "down");
    // A broken file changes no rule and is reported.
    fs::write(ruled.directory.path().join("policy.toml"), "default = \"al").unwrap();
    let is_stale = |metrics: &str| {
        let mut lines = metrics.lines();
        lines.any(|line| line.starts_with("dray_egress_policy_stale") && line.ends_with(" 1"))
    };
    ruled.wait_for(is_stale).await;
    let (_, refused) = ruled.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&refused), 403);
    ruled.replace(POLICY_TEXT).await;
    let (_, granted) = ruled.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&granted), 200);
}

#[tokio::test]
async fn with_report_only_a_denied_request_passes_and_is_counted_and_audited() {
    let RuledProxy { mut proxy, .. } =
        RuledProxy::start(&format!("report_only = true\n{POLICY_TEXT}")).await;
    let response = proxy.get(&format!("http://{TARGET_HOST}/other")).await;
    assert_eq!(status_of(&response), 200);
    let (opened, closed) = (proxy.event().await, proxy.event().await);
    for event in [opened, closed] {
        assert_eq!(
            (event.verdict.as_str(), event.reported_by.as_str()),
            ("allow", "default")
        );
    }
    let metrics = proxy.service.running.metrics().unwrap();
    let line = metrics
        .lines()
        .find(|line| line.starts_with("dray_egress_policy_reports_total{"));
    assert!(line.unwrap().contains("rule=\"default\""), "{line:?}");
    assert!(line.unwrap().ends_with(" 1"), "{line:?}");
}

#[tokio::test]
async fn a_connection_over_a_quota_is_refused_with_the_time_to_come_back() {
    let quota = "[role.limits]\nrequests_per_day = 1\n[[role.rule]]\nname = \"tables\"";
    let text = POLICY_TEXT.replacen("[[role.rule]]\nname = \"tables\"", quota, 1);
    let RuledProxy { mut proxy, .. } = RuledProxy::start(&text).await;
    let csv = ResponseScript::with_fields(&[("Content-Type", "text/csv")], "1;2");
    proxy.fake_network.serve(PUBLIC_ADDRESS, csv);
    let url = format!("http://{TARGET_HOST}/tables/a.csv");
    assert_eq!(status_of(&proxy.get(&url).await), 200);
    let response = proxy.get(&url).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (429, "quota_exceeded")
    );
    let seconds = response.split_once("\r\nRetry-After: ").unwrap().1;
    let seconds: u64 = seconds.split("\r\n").next().unwrap().parse().unwrap();
    assert!((1..=86_401).contains(&seconds));
    let (_, _, refused) = (
        proxy.event().await,
        proxy.event().await,
        proxy.event().await,
    );
    assert_eq!(
        (refused.code.as_str(), refused.rule.as_str()),
        ("quota_exceeded", "quota")
    );
    assert_eq!(
        refused.decided_by,
        "sandboxes/requests_per_day (policy.toml:2)"
    );
}

#[tokio::test]
async fn a_tunnel_ends_when_its_bytes_exceed_the_quota_in_either_direction() {
    let text = "default = \"allow\"\n[[role]]\nname = \"a\"\n[role.limits]\nbytes_per_day = 8\n";
    let RuledProxy { mut proxy, .. } = RuledProxy::start(text).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let authority = format!("{TARGET_HOST}:443");
    let (mut client, _) = proxy.tunnel(&authority).await;
    let mut server = ends.recv().await.unwrap();
    proxy.event().await;
    client.write_all(b"12345").await.unwrap();
    let mut up = [0; 5];
    server.read_exact(&mut up).await.unwrap();
    server.write_all(b"6789").await.unwrap();
    // Exactly the quota passes.
    assert_eq!(read_all(&mut client).await, "678");
    let closed = proxy.event().await;
    assert_eq!(
        (closed.proxy_stage.as_str(), closed.code.as_str()),
        ("closed", "quota_exceeded")
    );
    assert_eq!((closed.up_bytes, closed.down_bytes), (5, 3));
    let (_, refused) = proxy.tunnel(&authority).await;
    assert_eq!(status_of(&refused), 429);
}

#[tokio::test]
async fn tunnels_that_share_a_quota_pass_no_byte_more_than_it() {
    let text = "default = \"allow\"\n[[role]]\nname = \"a\"\n[role.limits]\nbytes_per_day = 100\n";
    let RuledProxy { proxy, .. } = RuledProxy::start(text).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 443);
    let authority = format!("{TARGET_HOST}:443");
    let mut pairs = Vec::new();
    for _ in 0..4 {
        let (client, _) = proxy.tunnel(&authority).await;
        pairs.push((client, ends.recv().await.unwrap()));
    }
    let mut received = 0;
    for (mut client, mut server) in pairs {
        // The proxy may have closed the tunnel already.
        let _ = client.write_all(&[7; 60]).await;
        let _ = client.shutdown().await;
        let mut passed = Vec::new();
        let _ = server.read_to_end(&mut passed).await;
        received += passed.len();
    }
    assert_eq!(received, 100);
}

#[tokio::test]
async fn a_credential_replaces_the_field_of_the_client_and_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    fs::write(&file, "hunter2\n").unwrap();
    let credential = serde_json::json!([{
        "name": "files", "host": TARGET_HOST, "port": 80, "header": "authorization", "prefix": "Bearer ",
        "secret_file": file, "tenants": ["acme"], "allow_plain_http": true,
    }])
    .to_string();
    let mut proxy = ProxyFixture::start(&[("/credentials", &credential)]).await;
    let server = proxy
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
    let auth = proxy.auth();
    for (method, sent) in [
        ("GET", "Authorization: Bearer hunter2"),
        ("TRACE", "Authorization: own"),
    ] {
        let response = proxy
            .exchange(format!(
                "{method} http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\nAuthorization: own\r\n{auth}\r\n"
            ))
            .await;
        assert!(!response.contains("hunter2"), "{response}");
        let head = server.received_requests().last().unwrap().head.clone();
        let lines: Vec<_> = head
            .lines()
            .filter(|line| line.starts_with("Authorization"))
            .collect();
        assert_eq!(lines, [sent], "{method}");
        let (opened, closed) = (proxy.event().await, proxy.event().await);
        let names: &[&str] = if method == "GET" { &["files"] } else { &[] };
        for event in [opened, closed] {
            assert_eq!(event.credentials, names);
            assert!(!format!("{event:?}").contains("hunter2"));
        }
    }
}

#[tokio::test]
async fn a_credential_replaces_fields_that_a_server_reads_as_its_own() {
    let credential = serde_json::json!([{
        "name": "files", "host": TARGET_HOST, "port": 80, "header": "x-api-key", "secret": "hunter2",
        "tenants": ["acme"], "allow_plain_http": true,
    }])
    .to_string();
    let proxy = ProxyFixture::start(&[("/credentials", &credential)]).await;
    let server = proxy
        .fake_network
        .serve_with(PUBLIC_ADDRESS, |_| ResponseScript::ok("hello"));
    let auth = proxy.auth();
    // A server of CGI variables has one name for all of them.
    let own = "X_Api_Key: own\r\nX-Api_Key: own\r\nX-Api-Key: own\r\nX-Api-Keys: other\r\n";
    let request =
        format!("GET http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{own}{auth}\r\n");
    assert_eq!(status_of(&proxy.exchange(request).await), 200);
    let requests = server.received_requests();
    let head = requests[0].head.to_ascii_lowercase();
    let lines: Vec<_> = head.lines().filter(|line| line.starts_with('x')).collect();
    assert_eq!(lines.len(), 2, "{head}");
    assert!(lines.contains(&"x-api-key: hunter2") && lines.contains(&"x-api-keys: other"));
}
