//! Pages of other origins that may upload (Fetch Standard, "CORS protocol"): exactly those that the operator listed,
//! never `*`; without a list, none. Cookies are not used, because uploads have a bearer token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::InboundService;

/// Seconds for which a browser remembers the result of a preflight.
const PREFLIGHT_MAX_AGE_SECONDS: &str = "600";

/// Responds to preflights, and lets pages of listed origins read responses.
pub(super) async fn allow_origins(
    State(service): State<Arc<InboundService>>,
    request: Request,
    next: Next,
) -> Response {
    let origin = allowed_origin(&service.config.get().upload_origins, request.headers());
    let mut response = if request.method() == Method::OPTIONS {
        preflight_response(origin.is_some())
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    // Caches must not give one origin the response for another.
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

fn allowed_origin(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    origins
        .iter()
        .any(|own| own == text)
        .then(|| origin.clone())
}

fn preflight_response(allowed: bool) -> Response {
    if !allowed {
        return StatusCode::FORBIDDEN.into_response();
    }
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_SECONDS),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Whether a text is an origin as browsers send it: only scheme, host and port, in lower case.
pub(crate) fn is_origin(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        for (text, expected) in [
            ("https://app.example", true),
            ("http://localhost:3000", true),
            ("https://app.example/", false),
            ("https://app.example:443", false),
            ("https://App.example", false),
            ("app.example", false),
            ("*", false),
            ("null", false),
            ("file:///x", false),
        ] {
            assert_eq!(is_origin(text), expected, "{text}");
        }
    }
}
