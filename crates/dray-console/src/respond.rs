//! Responses that are not pages.

use axum::body::Body;
use axum::response::Response;
use dray_http_server::extended_attachment;
use http::{HeaderName, HeaderValue, StatusCode, header};

/// A response of one sentence, for programs and for requests that no page makes.
pub(crate) fn plain_text(status: StatusCode, sentence: &str) -> Response {
    let body = Body::from(format!("{sentence}\n"));
    with_type(status, "text/plain; charset=utf-8", body)
}

/// A response with a body of this media type.
pub(crate) fn with_type(status: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

/// Sends the browser to another page of this console, after an action (RFC 9110 section 15.4.4).
pub(crate) fn see_other(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    set_header(&mut response, header::LOCATION, path);
    response
}

/// Sets a header, unless the value has characters that headers cannot contain.
pub(crate) fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Makes a response a download, whose content no browser runs under the origin of the console.
pub(crate) fn as_download(response: &mut Response, name: &str) {
    for (header, value) in [
        (
            header::CONTENT_DISPOSITION,
            extended_attachment(name).as_str(),
        ),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; sandbox",
        ),
    ] {
        set_header(response, header, value);
    }
}
