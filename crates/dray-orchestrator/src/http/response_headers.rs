//! Headers of responses: the id of the request, and on the plain endpoints the headers of CORS
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>), which let pages of configured origins read a response.
//!
//! An origin is allowed only if it equals one in the operator's list. Cookies are never allowed: callers send a bearer
//! token. A general CORS layer is not used, because `credentials` refuses requests of other origins by the same list.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dray_http_server::{is_preflight, preflight_headers};

use super::routes::HttpSurface;

/// Header with the id of a request, as in `OpenAI`'s API.
const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Header by which the packages of `OpenAI` learn that they must not repeat a request: they repeat the statuses 408, 409,
/// 429 and 5xx otherwise.
pub(super) const SHOULD_RETRY_HEADER: HeaderName = HeaderName::from_static("x-should-retry");
/// Headers that a page may read in addition to the safelisted ones.
const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("x-request-id, retry-after, x-should-retry");

/// The id of a request, for its log lines.
#[derive(Clone, Debug)]
pub(super) struct RequestId(pub(super) String);

impl RequestId {
    pub(super) fn random() -> Self {
        Self(format!("req_{}", uuid::Uuid::new_v4().simple()))
    }
}

/// Adds an id to a request, and the same id to its response.
pub(super) async fn add_request_id(mut request: Request, next: Next) -> Response {
    let id = RequestId::random();
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).await;
    if let Ok(id) = HeaderValue::try_from(id.0) {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    response
}

/// Adds the headers of CORS, and responds to preflights of configured origins.
pub(super) async fn add_plain_headers(
    State(surface): State<Arc<HttpSurface>>,
    request: Request,
    next: Next,
) -> Response {
    let origins = &surface.options.cors_origins;
    let origin = request
        .headers()
        .get(header::ORIGIN)
        .filter(|origin| is_listed(origins, origin))
        .cloned();
    let mut response = match &origin {
        Some(_) if is_preflight(&request) => {
            (StatusCode::NO_CONTENT, preflight_headers(request.headers())).into_response()
        }
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    if !origins.is_empty() {
        // Caches must not give the response for one origin to another.
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    }
    response
}

/// Whether the operator lists an origin. Browsers write origins in lower case (RFC 6454 section 6.1).
pub(super) fn is_listed(origins: &[String], origin: &HeaderValue) -> bool {
    origins
        .iter()
        .any(|listed| listed.as_bytes() == origin.as_bytes())
}
