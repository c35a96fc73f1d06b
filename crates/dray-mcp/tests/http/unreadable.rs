//! Bodies that are no messages.

use serde_json::json;

use crate::client::send;
use crate::fixture::{HttpFixture, STATIC_TOKEN};

#[tokio::test]
async fn a_body_that_is_not_a_message_gets_an_error_of_the_protocol() {
    let fixture = HttpFixture::new().await;
    let authorization = format!("Bearer {STATIC_TOKEN}");
    let fields = [
        ("Authorization", authorization.as_str()),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    for (body, code) in [("{bad", -32700), ("7", -32600)] {
        let response = send(fixture.address, "POST", "/mcp", &fields, body).await;
        assert_eq!(response.status, 400, "{response:?}");
        assert_eq!(response.field("Content-Type"), "application/json");
        let message = response.message();
        assert_eq!(message["error"]["code"], json!(code), "{message}");
    }
}
