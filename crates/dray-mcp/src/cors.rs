//! Headers of CORS (<https://fetch.spec.whatwg.org/#http-cors-protocol>). Without them a browser sends no call of a page
//! of another origin, and hides the responses from it.
//!
//! Cookies are never allowed: callers send a bearer token.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

/// Allows pages of all origins.
pub(crate) const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
/// Seconds for which a browser keeps the permission of a preflight.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");
/// Methods of the endpoint.
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Headers that a client needs from a response: its session, and what it has to do before the next request.
const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("mcp-session-id, www-authenticate, retry-after");
/// Most bytes of the list of headers in a preflight.
const MAX_REQUESTED_HEADERS_BYTES: usize = 4096;

/// Responds to preflights, and lets a page read the response to its request. The origin was checked before.
pub(crate) async fn share_responses(request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = if origin.is_some() && is_preflight(&request) {
        preflight_response(request.headers())
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
    let mut response = preflight_response(headers);
    let shared = response.headers_mut();
    shared.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
    response
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight. It allows all headers that the preflight lists: the names of `Mcp-Param-*` depend on the
/// tool, and no header gives more rights than the token.
fn preflight_response(request: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    let requested_headers = request
        .get(ACCESS_CONTROL_REQUEST_HEADERS)
        .filter(|requested_headers| requested_headers.len() <= MAX_REQUESTED_HEADERS_BYTES);
    if let Some(requested_headers) = requested_headers {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested_headers.clone());
    }
    response
}
