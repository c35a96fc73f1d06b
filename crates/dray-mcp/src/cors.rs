//! Headers of CORS (<https://fetch.spec.whatwg.org/#http-cors-protocol>). Without them a browser sends no call of a page
//! of another origin, and hides the responses from it.
//!
//! Cookies are never allowed: callers send a bearer token.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dray_http_server::{is_preflight, preflight_headers};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Allows pages of all origins.
pub(crate) const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
/// Headers that a client needs from a response: its session, and what it has to do before the next request.
const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("mcp-session-id, www-authenticate, retry-after");

/// Responds to preflights, and lets a page read the response to its request. The origin was checked before.
pub(crate) async fn share_responses(request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = if origin.is_some() && is_preflight(&request) {
        (StatusCode::NO_CONTENT, preflight_headers(request.headers())).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    // Caches must not give the response for one origin to another.
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    }
    response
}

/// The response to a preflight for a document that pages of all origins may read.
pub(crate) fn share_with_all(headers: &HeaderMap) -> Response {
    let mut shared = preflight_headers(headers);
    shared.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
    (StatusCode::NO_CONTENT, shared).into_response()
}
