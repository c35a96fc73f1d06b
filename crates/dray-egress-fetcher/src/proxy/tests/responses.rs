//! What of the response of a target reaches the client.

use dray_testkit::http::ResponseScript;

use super::intercepted::InterceptingProxy;
use super::persistent::{PersistentServer, ask, field, path_table, read_head_of};
use super::*;

/// A credential in a parameter of the query, for a port of the target.
fn query_credential(port: u16) -> String {
    serde_json::json!([{
        "name": "files", "host": TARGET_HOST, "port": port, "query": "key", "secret": "hunter2",
        "tenants": ["acme"], "allow_plain_http": true,
    }])
    .to_string()
}

#[tokio::test]
async fn a_redirect_that_keeps_the_query_reaches_the_client_without_the_credential() {
    let credential = query_credential(80);
    let proxy = ProxyFixture::start(&[("/credentials", &credential)]).await;
    let server = proxy.fake_network.serve_with(PUBLIC_ADDRESS, |request| {
        let target = request.target();
        if target.starts_with("/shown") {
            ResponseScript::with_fields(&[("X-Target", target)], "hello")
        } else {
            ResponseScript::redirect(301, &format!("http://other.example.org{target}"))
        }
    });
    let response = proxy.get(&format!("http://{TARGET_HOST}/dir?a=b")).await;
    let (head, _) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(status_of(head), 301, "{head}");
    assert_eq!(
        field(head, "location"),
        Some("http://other.example.org/dir?a=b")
    );
    let response = proxy.get(&format!("http://{TARGET_HOST}/shown")).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (502, "malformed_response")
    );
    assert!(!response.contains("hunter2"), "{response}");
    let requests = server.received_requests();
    assert!(
        requests
            .iter()
            .all(|request| request.target().contains("key=hunter2"))
    );
}

#[tokio::test]
async fn a_redirect_in_an_intercepted_tunnel_reaches_the_client_without_the_credential() {
    let credential = query_credential(443);
    let fixture = InterceptingProxy::start(&[("/credentials", &credential)]).await;
    let server = PersistentServer::start(&fixture, |path| {
        format!(
            "HTTP/1.1 301 Moved\r\nContent-Type: text/csv\r\nContent-Length: 0\r\n\
             Location: https://other.example.org{path}\r\n\r\n"
        )
    });
    let mut client = fixture.client().await;
    // The second request is the last one of its tunnel, which takes another way to the target.
    for fields in ["", "Connection: close\r\n"] {
        let request = format!("GET /tables/dir HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{fields}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head_of(&mut client).await.unwrap();
        assert_eq!(
            field(&head, "location"),
            Some("https://other.example.org/tables/dir"),
            "{head}"
        );
    }
    let paths = server.paths();
    let is_sent = |(_, path): &(usize, String)| path == "/tables/dir?key=hunter2";
    assert!(paths.len() == 2 && paths.iter().all(is_sent), "{paths:?}");
}

/// A rule for tables.
const TABLE_RULE: &str = "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"allow\"\n\
                          hosts = [\"files.example.org\"]\nmedia_types = [\"text/csv\"]\n";

/// Status, fields and content of responses whose head passes, and a field that the client gets.
type PassedHead = (
    u16,
    &'static str,
    &'static str,
    (&'static str, &'static str),
);

fn passed_heads() -> [PassedHead; 9] {
    [
        (304, "ETag: x\r\n", "", ("etag", "x")),
        (
            304,
            "ETag: x\r\nContent-Type: text/html\r\n",
            "",
            ("etag", "x"),
        ),
        (204, "ETag: y\r\n", "", ("etag", "y")),
        (200, "ETag: z\r\nContent-Length: 0\r\n", "", ("etag", "z")),
        (
            301,
            "Location: /b\r\nContent-Length: 0\r\n",
            "",
            ("location", "/b"),
        ),
        (
            302,
            "Location: /c\r\nContent-Type: text/html\r\n",
            "<html>",
            ("location", "/c"),
        ),
        (
            401,
            "WWW-Authenticate: Bearer x\r\nContent-Type: application/json\r\n",
            "{}",
            ("www-authenticate", "Bearer x"),
        ),
        (
            416,
            "Content-Range: bytes */9\r\nContent-Length: 3\r\n",
            "abc",
            ("content-range", "bytes */9"),
        ),
        (
            503,
            "Retry-After: 7\r\nContent-Encoding: gzip\r\n",
            "abc",
            ("retry-after", "7"),
        ),
    ]
}

#[tokio::test]
async fn a_rule_for_media_types_passes_the_head_of_redirects_errors_and_confirmations() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    std::fs::write(&path, TABLE_RULE).unwrap();
    let set = [("/policy_path", path.to_str().unwrap())];
    let mut proxy = ProxyFixture::start(&set).await;
    for (status, fields, content, shown) in passed_heads() {
        let response =
            format!("HTTP/1.1 {status} Any\r\nConnection: close\r\n{fields}\r\n{content}");
        proxy
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::raw(&response));
        let received = proxy.get(&format!("http://{TARGET_HOST}/a")).await;
        let (head, body) = received.split_once("\r\n\r\n").unwrap();
        let (name, value) = shown;
        assert_eq!(
            (status_of(head), field(head, name), body),
            (status, Some(value), ""),
            "{response}"
        );
        let reason = format!("dray; received-status={status}; details=\"media_type_not_allowed\"");
        let is_dropped = field(head, "proxy-status") == Some(reason.as_str());
        assert_eq!(is_dropped, !content.is_empty(), "{received}");
        let (_, closed) = (proxy.event().await, proxy.event().await);
        assert_eq!(
            (closed.http_status, closed.code.as_str()),
            (u32::from(status), "")
        );
    }
    // The content of a success has the type that the rule names.
    for fields in ["", "Content-Type: text/html\r\n"] {
        let response = format!("HTTP/1.1 206 Any\r\nConnection: close\r\n{fields}\r\nabc");
        proxy
            .fake_network
            .serve(PUBLIC_ADDRESS, ResponseScript::raw(response));
        let received = proxy.get(&format!("http://{TARGET_HOST}/a")).await;
        let refused = (status_of(&received), code_of(&received));
        assert_eq!(refused, (403, "media_type_not_allowed"), "{fields}");
    }
}

#[tokio::test]
async fn a_tunnel_goes_on_after_a_head_whose_content_is_dropped() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |path| match path {
        "/tables/known" => "HTTP/1.1 304 Not Modified\r\nX-Length: 0\r\n\r\n".to_owned(),
        "/tables/login" => {
            let fields = "Content-Type: text/html\r\nWWW-Authenticate: Bearer x\r\n";
            format!("HTTP/1.1 401 Any\r\n{fields}Content-Length: 6\r\n\r\n<html>")
        }
        _ => path_table(path),
    });
    let mut client = fixture.client().await;
    for (path, status, content) in [
        ("/tables/known", 304, ""),
        ("/tables/login", 401, ""),
        ("/tables/a", 200, "/tables/a"),
    ] {
        let (head, body) = ask(&mut client, &format!("GET {path}"), "").await;
        assert_eq!(
            (status_of(&head), body.as_str()),
            (status, content),
            "{head}"
        );
        let challenge = (status == 401).then_some("Bearer x");
        assert_eq!(field(&head, "www-authenticate"), challenge);
    }
    // The content was not read, so its connection carries nothing else.
    let numbers: Vec<_> = server.paths().iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 1, 2]);
}

#[tokio::test]
async fn the_event_of_a_response_that_is_refused_has_the_code_that_the_client_gets() {
    let mut proxy = ProxyFixture::start(&[]).await;
    let (lengths, head) = (
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "HTTP/1.1 200 OK\r\n",
    );
    let long_field = format!("X: {}\r\n", "x".repeat(70_000));
    for (response, code) in [
        ("garbage\r\n\r\n".to_owned(), "malformed_response"),
        (format!("{head}{lengths}\r\nabc"), "malformed_response"),
        (format!("{head}{long_field}\r\n"), "malformed_response"),
        (
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(17),
            "malformed_response",
        ),
        (
            "HTTP/1.1 101 Switching\r\n\r\n".to_owned(),
            "malformed_response",
        ),
        (String::new(), "connection_closed"),
        (head.to_owned(), "connection_closed"),
    ] {
        let script = ResponseScript::raw(&response);
        proxy.fake_network.serve(PUBLIC_ADDRESS, script);
        let received = proxy.get(&format!("http://{TARGET_HOST}/")).await;
        assert_eq!((status_of(&received), code_of(&received)), (502, code));
        let (_, closed) = (proxy.event().await, proxy.event().await);
        let shown = &response[..response.len().min(60)];
        assert_eq!(closed.code, code, "{shown}");
    }
}
