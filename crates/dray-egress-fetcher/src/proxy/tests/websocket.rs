//! WebSocket inside an intercepted tunnel: what is judged, what passes, and what does not.

use dray_testkit::http::ResponseScript;
use tokio::io::{AsyncRead, DuplexStream};
use tokio_rustls::server::TlsStream as ServerTlsStream;

use super::intercepted::InterceptingProxy;
use super::persistent::field;
use super::*;

const KEY_FIELDS: &str =
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const UPGRADE_FIELDS: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
const UPGRADE_RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{UPGRADE_FIELDS}{KEY_FIELDS}Origin: https://a.example\r\n\r\n"
    )
}

/// Reads a head, and leaves what follows it.
async fn read_head_text(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// The end of a target that took the TLS handshake of the proxy and its request, and that request.
async fn accept_request(
    fixture: &InterceptingProxy,
    server: DuplexStream,
) -> (ServerTlsStream<DuplexStream>, String) {
    let acceptor = fixture.origin.acceptor(TARGET_HOST).unwrap();
    let mut server = acceptor.accept(server).await.unwrap();
    let head = read_head_text(&mut server).await;
    (server, head)
}

/// Checks the head that agrees to WebSocket.
#[track_caller]
fn check_agreement(head: &str) {
    assert_eq!(status_of(head), 101, "{head}");
    let accept = Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(field(head, "Sec-WebSocket-Accept"), accept, "{head}");
    // aiohttp accepts no other value.
    assert_eq!(field(head, "Connection"), Some("Upgrade"), "{head}");
}

#[tokio::test]
async fn messages_pass_in_both_directions_after_the_handshake_was_judged_and_recorded() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let mut client = fixture.client().await;
    // The first message is sent before the target agreed, as a client may not, and must not be lost or misread.
    let request = format!("{}early", handshake("/sockets/a"));
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, head) = accept_request(&fixture, ends.recv().await.unwrap()).await;
    assert!(head.starts_with("GET /sockets/a HTTP/1.1\r\n"), "{head}");
    for field in [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Origin: https://a.example",
    ] {
        assert_eq!(head.matches(field).count(), 1, "{field}: {head}");
    }
    let opened = fixture.proxy.event().await;
    assert_eq!(
        (opened.proxy_stage.as_str(), opened.method.as_str()),
        ("opened", "GET")
    );
    assert!(opened.intercepted);
    assert_eq!(
        opened.decided_by.split(' ').next(),
        Some("sandboxes/sockets")
    );
    server
        .write_all(format!("{UPGRADE_RESPONSE}hello").as_bytes())
        .await
        .unwrap();
    let agreed = read_head_text(&mut client).await;
    check_agreement(&agreed);
    for (text, to_server) in [("early", true), ("hello", false)] {
        let mut received = vec![0; text.len()];
        if to_server {
            server.read_exact(&mut received).await.unwrap();
        } else {
            client.read_exact(&mut received).await.unwrap();
        }
        assert_eq!(received, text.as_bytes());
    }
    for _ in 0..3 {
        client.write_all(b"ping").await.unwrap();
        let mut received = [0; 4];
        server.read_exact(&mut received).await.unwrap();
        server.write_all(&received).await.unwrap();
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"ping");
    }
    client.shutdown().await.unwrap();
    server.shutdown().await.unwrap();
    let closed = fixture.proxy.event().await;
    assert_eq!(
        (closed.proxy_stage.as_str(), closed.code.as_str()),
        ("closed", "")
    );
    assert_eq!(closed.http_status, 101);
    assert!(closed.up_bytes > 0 && closed.down_bytes > 0);
}

#[tokio::test]
async fn a_handshake_that_a_rule_refuses_reaches_no_target() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = fixture.serve(ResponseScript::ok("no"));
    let response = fixture.exchange(&handshake("/other")).await;
    assert_eq!(
        (status_of(&response), code_of(&response)),
        (403, "policy_denied")
    );
    assert!(server.received_requests().is_empty());
}

#[tokio::test]
async fn a_handshake_with_another_reading_is_refused() {
    let fixture = InterceptingProxy::start(&[]).await;
    let server = fixture.serve(ResponseScript::ok("no"));
    let get = "GET /sockets/a HTTP/1.1";
    for (line, fields) in [
        (
            "POST /sockets/a HTTP/1.1",
            format!("{UPGRADE_FIELDS}{KEY_FIELDS}"),
        ),
        (
            "GET /sockets/a HTTP/1.0",
            format!("{UPGRADE_FIELDS}{KEY_FIELDS}"),
        ),
        (
            get,
            format!("{UPGRADE_FIELDS}{KEY_FIELDS}Content-Length: 5\r\n"),
        ),
        (
            get,
            format!("{UPGRADE_FIELDS}{KEY_FIELDS}Transfer-Encoding: chunked\r\n"),
        ),
        (
            get,
            format!("Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n{KEY_FIELDS}"),
        ),
        (get, format!("{UPGRADE_FIELDS}Upgrade: h2c\r\n{KEY_FIELDS}")),
        (get, format!("Upgrade: websocket\r\n{KEY_FIELDS}")),
        (get, UPGRADE_FIELDS.to_owned()),
        (get, format!("{UPGRADE_FIELDS}{KEY_FIELDS}{KEY_FIELDS}")),
        (
            get,
            format!("{UPGRADE_FIELDS}Sec-WebSocket-Version: 12\r\n"),
        ),
    ] {
        let request = format!("{line}\r\nHost: {TARGET_HOST}\r\n{fields}\r\n");
        let response = fixture.exchange(&request).await;
        let found = (status_of(&response), code_of(&response));
        assert_eq!(found, (501, "websocket_refused"), "{fields}");
    }
    assert!(server.received_requests().is_empty());
}

#[tokio::test]
async fn nothing_passes_unless_the_target_agrees_to_exactly_what_was_asked() {
    let plain = format!("GET /sockets/a HTTP/1.1\r\nHost: {TARGET_HOST}\r\n\r\n");
    let asked = format!("{}GET /other HTTP/1.1\r\n\r\n", handshake("/sockets/a"));
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
    for (request, answer, status) in [
        // Messages behind a refusal reach nothing.
        (
            &asked,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno".to_owned(),
            200,
        ),
        (
            &asked,
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(),
            403,
        ),
        (&asked, format!("{switching}Upgrade: h2c\r\n\r\n"), 502),
        (&asked, format!("{switching}\r\n"), 502),
        (
            &asked,
            format!("{switching}Upgrade: websocket\r\nContent-Length: 5\r\n\r\nhello"),
            502,
        ),
        (&plain, UPGRADE_RESPONSE.to_owned(), 502),
    ] {
        let fixture = InterceptingProxy::start(&[]).await;
        let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
        let serving = async {
            let (mut server, _) = accept_request(&fixture, ends.recv().await.unwrap()).await;
            server.write_all(answer.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            // The proxy closes without a notice of TLS when it refuses.
            let _ = server.read_to_end(&mut rest).await;
            String::from_utf8_lossy(&rest).into_owned()
        };
        let (response, rest) = tokio::join!(fixture.exchange(request), serving);
        assert_eq!(status_of(&response), status, "{answer}: {response}");
        assert_eq!(rest, "", "{answer}");
    }
}

#[tokio::test]
async fn the_limit_of_the_rule_ends_the_messages_of_a_target() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let mut client = fixture.client().await;
    client
        .write_all(handshake("/sockets/a").as_bytes())
        .await
        .unwrap();
    let (mut server, _) = accept_request(&fixture, ends.recv().await.unwrap()).await;
    server.write_all(UPGRADE_RESPONSE.as_bytes()).await.unwrap();
    read_head_text(&mut client).await;
    let _ = server.write_all(&[0; 4096]).await;
    let mut received = Vec::new();
    let _ = client.read_to_end(&mut received).await;
    assert!(received.len() < 1024, "{}", received.len());
    let (_, closed) = fixture.events().await;
    assert_eq!(closed.code, "too_large");
}
