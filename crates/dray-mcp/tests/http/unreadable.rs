//! Bodies that are not messages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{RawResponse, call, send};
use crate::fixture::{HttpFixture, STATIC_TOKEN};

/// Longest wait for a response.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a body with the header fields of a message of 2025-11-25.
async fn send_body(fixture: &HttpFixture, body: &str) -> RawResponse {
    let authorization = format!("Bearer {STATIC_TOKEN}");
    let fields = [
        ("Authorization", authorization.as_str()),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    send(fixture.address, "POST", "/mcp", &fields, body).await
}

/// Checks that the response is an error of the protocol with these words, and returns it.
fn check_error(response: &RawResponse, status: u16, code: i64, words: &str) -> Value {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.field("Content-Type"), "application/json");
    let message = response.message();
    assert_eq!(message["error"]["code"], json!(code), "{message}");
    let text = message["error"]["message"].as_str().unwrap();
    assert!(text.contains(words), "{text}");
    message
}

#[tokio::test]
async fn a_body_that_is_not_a_message_gets_an_error_of_the_protocol() {
    let fixture = HttpFixture::new().await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let deep_request =
        format!(r#"{{"jsonrpc":"2.0","id":"a","method":"ping","params":{{"x":{deep}}}}}"#);
    // Within the limit of a body, and 100 times its size when it is parsed.
    let values = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"read","arguments":{{"path":[{}0]}}}}}}"#,
        "0,".repeat(200_000)
    );
    for (body, code, words) in [
        (values.as_str(), -32600, "more than 100000 values"),
        ("", -32700, "not JSON"),
        ("{bad", -32700, "not JSON"),
        (&"[".repeat(100_000), -32700, "not JSON"),
        ("7", -32600, "not an object"),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            -32600,
            "no batches",
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            -32600,
            "`id`",
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            -32600,
            "not a request",
        ),
        (&deep_request, -32700, "127 levels"),
    ] {
        let response = send_body(&fixture, body).await;
        check_error(&response, 400, code, words);
    }
    // A message whose id can be read gets it back.
    let response = send_body(&fixture, &deep_request).await;
    assert_eq!(response.message()["id"], "a");
}

#[tokio::test]
async fn an_initialize_with_invalid_parameters_is_not_taken_for_one_without_a_session() {
    let fixture = HttpFixture::new().await;
    let message =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":5,"method":"initialize"{params}}}"#);
    for (params, words) in [
        ("", "missing field `protocolVersion`"),
        (r#","params":null"#, "missing field `protocolVersion`"),
        (r#","params":{"protocolVersion":7}"#, "`protocolVersion`"),
        (
            r#","params":{"protocolVersion":"2025-11-25"}"#,
            "missing field `capabilities`",
        ),
    ] {
        let response = send_body(&fixture, &message(params)).await;
        let message = check_error(&response, 400, -32602, words);
        assert_eq!(message["id"], 5, "{message}");
    }
    let without_id = r#"{"jsonrpc":"2.0","method":"initialize","params":{}}"#;
    check_error(
        &send_body(&fixture, without_id).await,
        400,
        -32600,
        "no `id`",
    );
    // Another request still needs the session.
    let list = r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#;
    let response = send_body(&fixture, list).await;
    assert_eq!(response.status, 400);
    assert!(response.body.contains("Session ID"), "{response:?}");
}

#[tokio::test]
async fn the_version_without_sessions_has_no_initialize() {
    let fixture = HttpFixture::new().await;
    let response = call(fixture.address, Some(STATIC_TOKEN), "initialize", json!({})).await;
    check_error(&response, 404, -32601, "not offered");
}

#[tokio::test]
async fn a_method_that_the_version_does_not_have_is_named_in_a_sentence() {
    let fixture = HttpFixture::new().await;
    for (method, params) in [
        ("ping", json!({})),
        ("resources/subscribe", json!({"uri": "dray://receipt/d1"})),
        ("resources/unsubscribe", json!({"uri": "dray://receipt/d1"})),
    ] {
        let response = call(fixture.address, Some(STATIC_TOKEN), method, params).await;
        let words = format!("The method `{method}` is not offered here.");
        check_error(&response, 404, -32601, &words);
    }
}

#[tokio::test]
async fn a_cursor_that_is_not_a_string_is_refused_in_both_eras() {
    let fixture = HttpFixture::new().await;
    for cursor in [json!(5), json!({}), json!(["a"])] {
        let params = json!({"cursor": cursor});
        let response = call(
            fixture.address,
            Some(STATIC_TOKEN),
            "tools/list",
            params.clone(),
        )
        .await;
        let message = check_error(&response, 200, -32602, "`cursor`");
        assert_eq!(message["id"], 1, "{message}");
        let list = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": params});
        let response = send_body(&fixture, &list.to_string()).await;
        let message = check_error(&response, 200, -32602, "`cursor`");
        assert_eq!(message["id"], 5, "{message}");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_or_is_too_long_is_an_error_of_the_request() {
    let fixture = HttpFixture::new().await;
    let long = " ".repeat((1 << 20) + 1);
    assert_eq!(send_body(&fixture, &long).await.status, 413);
    let address = fixture.address;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {STATIC_TOKEN}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\nnot a size\r\n"
    );
    let exchange = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start).into_owned()
    };
    let start = tokio::task::spawn_blocking(exchange).await.unwrap();
    assert_eq!(start, "HTTP/1.1 400");
}
