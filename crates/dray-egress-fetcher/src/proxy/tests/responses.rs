//! What of the response of a target reaches the client.

use dray_testkit::http::ResponseScript;

use super::intercepted::InterceptingProxy;
use super::persistent::{PersistentServer, field, read_head_of};
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
