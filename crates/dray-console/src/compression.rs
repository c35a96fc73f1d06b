//! Compresses pages, styles and scripts with gzip (RFC 1952) for browsers that accept it: the page of a large directory
//! consists of hundreds of nearly equal rows.
//!
//! Streams and downloads pass unchanged. Tokens of forms are masked, so that the length of a page shows nothing of them
//! ([`ConsoleSession::form_token`](crate::session::ConsoleSession::form_token)).

use std::io::Write as _;

use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};

/// Smallest body that is compressed, in bytes; a smaller one fits into one packet with its header.
const MIN_BYTES: u64 = 1024;
/// Largest body that is compressed, in bytes, so that compression takes no noticeable time.
const MAX_BYTES: u64 = 4 << 20;
/// Media types that are compressed.
const TEXT_TYPES: [&str; 3] = ["text/html", "text/css", "text/javascript"];

/// Whether a request accepts gzip (RFC 9110 section 12.5.3).
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.trim().strip_prefix("q=");
        // A weight of zero means "not acceptable".
        let is_refused = weight.is_some_and(|weight| weight.trim().parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Compresses the body of a response if it is a text of moderate size, and says in `Vary` that it depends on the
/// request.
pub(crate) async fn compress(mut response: Response, accepts_gzip: bool) -> Response {
    if !is_text(response.headers()) {
        return response;
    }
    response
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let size = response.body().size_hint().exact();
    if !accepts_gzip || !size.is_some_and(|size| (MIN_BYTES..=MAX_BYTES).contains(&size)) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let limit = usize::try_from(MAX_BYTES).unwrap_or(usize::MAX);
    let Ok(bytes) = axum::body::to_bytes(body, limit).await else {
        // A body in memory of a known size is always read; a broken one must not look like an empty page.
        return crate::respond::plain_text(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "The page was cut off.",
        );
    };
    let Ok(compressed) = gzip(&bytes) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(head, Body::from(compressed))
}

fn is_text(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|media_type| media_type.to_str().ok());
    let essence = media_type.and_then(|media_type| media_type.split(';').next());
    essence.is_some_and(|essence| TEXT_TYPES.contains(&essence.trim()))
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::respond::with_type;

    fn accepting(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))])
    }

    #[test]
    fn gzip_is_used_only_where_the_request_accepts_it() {
        for value in ["gzip", "br, gzip;q=0.5", "deflate,GZIP", "gzip; q=1"] {
            assert!(accepts_gzip(&accepting(value)), "{value}");
        }
        for value in ["", "br", "gzip;q=0", "gzip; q=0.000", "xgzip", "identity"] {
            assert!(!accepts_gzip(&accepting(value)), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    async fn compressed_response(media_type: &'static str, text: &str, accepts: bool) -> Response {
        let response = with_type(
            http::StatusCode::OK,
            media_type,
            Body::from(text.to_owned()),
        );
        compress(response, accepts).await
    }

    #[tokio::test]
    async fn pages_are_compressed_and_streams_and_short_texts_are_not() {
        let page = "<tr><td>row</td></tr>".repeat(1000);
        let response = compressed_response("text/html; charset=utf-8", &page, true).await;
        assert_eq!(response.headers().get("content-encoding").unwrap(), "gzip");
        assert_eq!(response.headers().get("vary").unwrap(), "accept-encoding");
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        let bytes = bytes.unwrap();
        assert!(bytes.len() < page.len() / 10, "{}", bytes.len());
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(bytes.as_ref());
        decoder.read_to_string(&mut text).unwrap();
        assert_eq!(text, page);
        for (media_type, text, accepts) in [
            ("text/html; charset=utf-8", page.as_str(), false),
            ("text/html; charset=utf-8", "short", true),
            ("text/event-stream", page.as_str(), true),
            ("application/octet-stream", page.as_str(), true),
        ] {
            let response = compressed_response(media_type, text, accepts).await;
            assert_eq!(response.headers().get("content-encoding"), None);
            let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await;
            assert_eq!(bytes.unwrap(), text, "{media_type}");
        }
    }
}
