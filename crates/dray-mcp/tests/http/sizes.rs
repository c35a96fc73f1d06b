//! Results that clients can take: some clients limit the size of one event.

use serde_json::{Value, json};

use crate::client::{RawResponse, call, send};
use crate::fixture::{HttpFixture, STATIC_TOKEN};

/// Most bytes of an event that the client `mcp` of Python takes.
const MAX_EVENT_BYTES: usize = 1 << 20;

async fn read(fixture: &HttpFixture, name: &str, content: &[u8]) -> Value {
    std::fs::write(fixture.directory.path().join("data").join(name), content).unwrap();
    let response = fixture
        .tool(STATIC_TOKEN, "read", json!({"path": name}))
        .await;
    assert!(response.body.len() < MAX_EVENT_BYTES, "{name}");
    response.message()["result"].clone()
}

/// Bytes that count as a picture by their beginning.
fn picture(size: usize) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(size, 0);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_is_too_large_for_one_event_is_a_link() {
    let fixture = HttpFixture::new().await;
    let small = read(&fixture, "small.png", &picture(760 << 10)).await;
    assert_eq!(small["content"][1]["type"], "image", "{small}");
    let large = read(&fixture, "large.png", &picture(900 << 10)).await;
    assert_eq!(large["content"][1]["type"], "resource_link");
    assert_eq!(large["structuredContent"]["outcome"], "link");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_too_large_for_one_event_is_refused() {
    let fixture = HttpFixture::new().await;
    for (size, is_refused) in [(700 << 10, false), (760 << 10, true)] {
        let result = read(&fixture, &format!("{size}.png"), &picture(size)).await;
        let params = json!({"uri": result["structuredContent"]["handle"]});
        let response = call(
            fixture.address,
            Some(STATIC_TOKEN),
            "resources/read",
            params,
        )
        .await;
        assert!(response.body.len() < MAX_EVENT_BYTES, "{size}");
        let detail = &response.message()["error"]["data"]["detail"];
        assert_eq!(detail == "too_large", is_refused, "{size}: {detail}");
    }
}

/// A message of a session; without its id, one that begins a session.
async fn post(fixture: &HttpFixture, session: &str, message: &Value) -> RawResponse {
    let authorization = format!("Bearer {STATIC_TOKEN}");
    let mut fields = vec![
        ("Authorization", authorization.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    if !session.is_empty() {
        fields.push(("Mcp-Session-Id", session));
    }
    let body = message.to_string();
    send(fixture.address, "POST", "/mcp", &fields, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_version_without_links_gets_none() {
    let fixture = HttpFixture::new().await;
    let path = fixture.directory.path().join("data").join("large.png");
    std::fs::write(path, picture(900 << 10)).unwrap();
    for (version, kinds) in [
        ("2025-03-26", json!(["text"])),
        ("2025-06-18", json!(["text", "resource_link"])),
    ] {
        let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}});
        let begun = post(&fixture, "", &begin).await;
        assert_eq!(
            begun.message()["result"]["protocolVersion"],
            version,
            "{begun:?}"
        );
        let session = begun.field("mcp-session-id");
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(post(&fixture, session, &ready).await.status, 202);
        let read = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "read", "arguments": {"path": "large.png"}}});
        let response = post(&fixture, session, &read).await;
        let content = response.message()["result"]["content"].clone();
        let blocks = content.as_array().unwrap();
        let found: Vec<_> = blocks.iter().map(|block| block["type"].clone()).collect();
        assert_eq!(json!(found), kinds, "{version}: {content}");
        let text = blocks[0]["text"].as_str().unwrap();
        assert!(text.contains("dray://artifact/"), "{text}");
    }
}
