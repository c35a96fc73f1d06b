//! Pages of allowed origins, whose browser asks before it sends a request.

use crate::client::{RawResponse, send};
use crate::fixture::{HttpFixture, PAGE_ORIGIN};

const METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp";

/// Headers that clients of the protocol set.
const CLIENT_HEADERS: &str = "authorization,content-type,mcp-protocol-version,mcp-session-id";

async fn preflight(fixture: &HttpFixture, path: &str, origin: &str) -> RawResponse {
    let fields = [
        ("Origin", origin),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", CLIENT_HEADERS),
    ];
    send(fixture.address, "OPTIONS", path, &fields, "").await
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_send_requests_and_read_why_one_was_refused() {
    let fixture = HttpFixture::new().await;
    let allowed = preflight(&fixture, "/mcp", PAGE_ORIGIN).await;
    assert_eq!(allowed.status, 204, "{allowed:?}");
    assert_eq!(allowed.field("access-control-allow-origin"), PAGE_ORIGIN);
    assert_eq!(
        allowed.field("access-control-allow-headers"),
        CLIENT_HEADERS
    );
    let methods = allowed.field("access-control-allow-methods");
    for method in ["GET", "POST", "DELETE"] {
        assert!(methods.contains(method), "{methods}");
    }
    // The challenge leads the client in the page to the authorization server.
    let fields = [
        ("Origin", PAGE_ORIGIN),
        ("Content-Type", "application/json"),
    ];
    let refused = send(fixture.address, "POST", "/mcp", &fields, "{}").await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(refused.field("access-control-allow-origin"), PAGE_ORIGIN);
    let exposed = refused.field("access-control-expose-headers");
    for name in ["www-authenticate", "mcp-session-id"] {
        assert!(exposed.contains(name), "{exposed}");
    }
}

#[tokio::test]
async fn a_page_of_another_origin_or_port_gets_no_permission() {
    let fixture = HttpFixture::new().await;
    for origin in [
        "https://evil.example",
        "http://app.example.org",
        "https://app.example.org:8443",
    ] {
        let refused = preflight(&fixture, "/mcp", origin).await;
        assert_eq!(refused.status, 403, "{origin}: {refused:?}");
        assert_eq!(refused.field("access-control-allow-origin"), "");
    }
}

#[tokio::test]
async fn pages_of_all_origins_read_the_metadata_of_the_resource() {
    let fixture = HttpFixture::new().await;
    let origin = "https://inspector.example";
    let allowed = preflight(&fixture, METADATA_PATH, origin).await;
    assert_eq!(allowed.status, 204, "{allowed:?}");
    let fields = [("Origin", origin)];
    let metadata = send(fixture.address, "GET", METADATA_PATH, &fields, "").await;
    assert_eq!(metadata.status, 200, "{metadata:?}");
    for response in [allowed, metadata] {
        assert_eq!(response.field("access-control-allow-origin"), "*");
    }
}
