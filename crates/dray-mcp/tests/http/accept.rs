//! The media types that a client accepts: RFC 9110 section 12.5.1.

use serde_json::json;

use crate::client::{RawResponse, request_meta, send};
use crate::fixture::{HttpFixture, STATIC_TOKEN};

/// A request of 2026-07-28 with this `Accept`; `None` sends none.
async fn list_tools(fixture: &HttpFixture, accept: Option<&str>) -> RawResponse {
    let authorization = format!("Bearer {STATIC_TOKEN}");
    let mut fields = vec![
        ("Authorization", authorization.as_str()),
        ("Content-Type", "application/json"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/list"),
    ];
    fields.extend(accept.map(|accept| ("Accept", accept)));
    let params = json!({"_meta": request_meta(&json!({}))});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
    send(fixture.address, "POST", "/mcp", &fields, &body.to_string()).await
}

#[tokio::test]
async fn media_ranges_that_include_both_types_are_accepted() {
    let fixture = HttpFixture::new().await;
    for accept in [
        None,
        Some("*/*"),
        Some("application/*, text/*"),
        Some("application/json, text/*;q=0.5"),
        Some("text/html, */*;q=0.1"),
        Some("text/plain;note=\"a, b;q=0\", */*"),
        Some("*/*;q=0, application/json, text/event-stream"),
        Some("APPLICATION/JSON, Text/Event-Stream"),
    ] {
        let response = list_tools(&fixture, accept).await;
        assert_eq!(response.status, 200, "{accept:?}: {response:?}");
        assert!(response.message()["result"]["tools"].is_array());
    }
}

#[tokio::test]
async fn a_client_that_does_not_accept_one_of_the_types_is_refused() {
    let fixture = HttpFixture::new().await;
    for accept in [
        "application/json",
        "text/event-stream",
        "application/json, text/html",
        "*/*;q=0",
        "*/*, text/event-stream;q=0",
        "*/*, text/*;q=0.000",
        "application/json;q=0, application/*;q=0, text/*",
    ] {
        let response = list_tools(&fixture, Some(accept)).await;
        assert_eq!(response.status, 406, "{accept}: {response:?}");
    }
}

#[tokio::test]
async fn a_stream_needs_only_its_own_type() {
    let fixture = HttpFixture::new().await;
    let authorization = format!("Bearer {STATIC_TOKEN}");
    for (accept, is_acceptable) in [
        ("text/*", true),
        ("*/*", true),
        ("application/json", false),
        ("*/*, text/event-stream;q=0", false),
    ] {
        let fields = [
            ("Authorization", authorization.as_str()),
            ("Accept", accept),
        ];
        let response = send(fixture.address, "GET", "/mcp", &fields, "").await;
        // The request has no session, which is checked later.
        let is_other_problem = response.status >= 400 && response.status != 406;
        assert_eq!(is_other_problem, is_acceptable, "{accept}: {response:?}");
    }
}
