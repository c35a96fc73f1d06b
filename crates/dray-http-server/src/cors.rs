//! Preflights of CORS (<https://fetch.spec.whatwg.org/#http-cors-protocol>), by which a browser learns whether a page of
//! another origin may send a request.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
};
use http::{HeaderMap, HeaderValue, Method, Request};

/// Seconds for which a browser keeps the permission of a preflight.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");
/// Methods that pages may use.
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Most bytes of the list of headers in a preflight.
const MAX_REQUESTED_HEADERS_BYTES: usize = 4096;

/// Whether a request is a preflight.
pub fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Headers of the response to a preflight, whose status is 204. The caller adds the allowed origin. All headers that
/// the preflight lists are allowed: clients add headers that a service does not know, and no header gives more rights
/// than the caller's token. Cookies are not allowed.
pub fn preflight_headers(request: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    let requested_headers = request
        .get(ACCESS_CONTROL_REQUEST_HEADERS)
        .filter(|requested_headers| requested_headers.len() <= MAX_REQUESTED_HEADERS_BYTES);
    if let Some(requested_headers) = requested_headers {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested_headers.clone());
    }
    headers
}
