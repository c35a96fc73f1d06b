//! The head of a request of HTTP/2 in the form of HTTP/1.1. Pure.
//!
//! The strict reader ([`crate::proxy::head`]) judges the result. It must read exactly the head that the client sent
//! over HTTP/2, so a head that it would read differently is refused here. h2 has already refused names and characters
//! that could end a line or a field.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version};

/// Fields that belong to a connection of HTTP/1.1 and that HTTP/2 does not allow (RFC 9113, section 8.2.2).
const CONNECTION_FIELDS: [HeaderName; 5] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The reason why a request has no form in HTTP/1.1.
#[derive(Debug, thiserror::Error)]
pub(super) enum TranslationError {
    /// A path that is neither `*` nor begins with `/` would become a part of the host.
    #[error("the path does not begin with a slash")]
    Path,
    /// A reader of HTTP/1.1 removes blanks around values, which RFC 9113 does not allow (section 8.2.1).
    #[error("the value of a header field begins or ends with a blank")]
    Blank,
    /// A value that is not valid.
    #[error("the value of a header field is not valid")]
    Value(#[from] http::header::InvalidHeaderValue),
}

/// The same head over HTTP/1.1. The authority becomes `Host`, and the parts of a cookie become one field (RFC 9113,
/// sections 8.2.3 and 8.3.1). `has_body`: the stream does not end with the head.
pub(super) fn http1_head(mut parts: Parts, has_body: bool) -> Result<Parts, TranslationError> {
    if parts.headers.values().any(has_outer_blank) {
        return Err(TranslationError::Blank);
    }
    parts.version = Version::HTTP_11;
    let fields = &mut parts.headers;
    if !fields.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
    {
        fields.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    }
    // An empty part would leave a blank at an end.
    let crumbs: Vec<&[u8]> = fields
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .filter(|crumb| !crumb.is_empty())
        .collect();
    if fields.get_all(COOKIE).iter().nth(1).is_some() {
        let cookie = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))?;
        fields.insert(COOKIE, cookie);
    }
    if parts.method == Method::CONNECT {
        return Ok(parts);
    }
    if has_body && !fields.contains_key(CONTENT_LENGTH) {
        // hyper sends no body of a GET or HEAD whose head does not frame it.
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    match parts.uri.path_and_query().map(PathAndQuery::as_str) {
        // This is the asterisk form, which the strict reader refuses. Behind an authority it would belong to the host.
        Some("*") => parts.uri = Uri::from_static("*"),
        Some(path) if path.starts_with('/') => {}
        _ => return Err(TranslationError::Path),
    }
    Ok(parts)
}

fn has_outer_blank(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    bytes.trim_ascii().len() != bytes.len()
}

/// Removes the fields of a response that HTTP/2 does not have.
pub(super) fn remove_connection_fields(fields: &mut HeaderMap) {
    for name in &CONNECTION_FIELDS {
        fields.remove(name);
    }
}
