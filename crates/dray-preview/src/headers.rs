//! Header fields of every response, and the content security policies: pages of agents run scripts, and must not reach
//! other previews or the user's logins with them (cross-site scripting).

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Policy of content from a sandbox: an opaque origin that may run scripts, show dialogs and save files, and that
/// loads from its preview alone. It may not open windows, send forms, leave its frame or be framed elsewhere. It allows
/// inline and evaluated code, because agents make single-file pages with charts.
pub(crate) const CONTENT_POLICY: &str = "sandbox allow-scripts allow-downloads allow-modals; \
    default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; object-src 'none'; base-uri 'self'; \
    form-action 'none'; frame-ancestors 'self'";

/// Network endpoints that a page of an agent may use: those of its own origin. The content policy already restricts
/// what a page loads. But browsers do not apply it to WebRTC, to preconnections and to navigation of a page outside of
/// our frame, and each of these could carry text out. Redirects stay allowed, because this server redirects to itself
/// alone, from a directory to its path with a slash. The field is `Connection-Allowlist` (WICG draft); Chromium
/// enforces it since version 152, and other browsers ignore it.
pub(crate) const CONNECTION_POLICY: &str = "(response-origin);redirects=allow";
/// Name of the field of [`CONNECTION_POLICY`].
pub(crate) const CONNECTION_ALLOWLIST: HeaderName = HeaderName::from_static("connection-allowlist");

/// Policy of PDF documents. Browsers do not start their PDF viewer in a sandbox; it runs no script of the document in
/// this origin, and the declared type is final (`nosniff`).
pub(crate) const PDF_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; object-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

/// Policy of the viewer pages: their own script and style, and the content of the preview, nothing else.
pub(crate) const VIEWER_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    media-src 'self'; frame-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Policy of pages that are made from documents: no script, and only pictures of the preview. A click may open another
/// file in the page around it, or an address outside in a new window.
pub(crate) const DOCUMENT_POLICY: &str = "sandbox allow-downloads allow-popups allow-popups-to-escape-sandbox \
    allow-top-navigation-by-user-activation; default-src 'none'; img-src 'self'; style-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'self'";

/// Policy of short texts and archives.
pub(crate) const TEXT_POLICY: &str = "default-src 'none'; frame-ancestors 'self'; sandbox";

/// Browser features that previewed pages may not ask a person for. The list has only names that browsers know, because
/// others are errors in the log of each page; Bluetooth needs an origin, which a previewed page does not have.
const FEATURE_POLICY: &str = "camera=(), display-capture=(), geolocation=(), microphone=(), midi=(), payment=(), \
    serial=(), usb=(), hid=(), clipboard-read=(), screen-wake-lock=()";

/// Sets a field; a value that is not valid in a header is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A response with a content policy of its own.
pub(crate) fn response(status: StatusCode, media_type: &str, policy: &str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    set(headers, header::CONTENT_TYPE, media_type);
    set(headers, header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// Adds the fields of every response: browsers neither store nor sniff it, and send no referrer to other sites.
pub(crate) fn with_common_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        // A cache would outlive the link.
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The path of every URL here is a secret.
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("permissions-policy"),
            FEATURE_POLICY,
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("x-robots-tag"),
            "noindex, nofollow, noarchive",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
