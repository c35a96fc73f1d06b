//! The media types that a client accepts (RFC 9110 section 12.5.1).
//!
//! The protocol wants clients to name `application/json` and `text/event-stream`, and the library refuses others with
//! 406. General-purpose clients send ranges such as `*/*`, or no `Accept`, which means the same by that RFC.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};

/// Type of a response with one message.
const JSON_TYPE: MediaType = MediaType("application", "json");
/// Type of a response with a stream of messages.
const EVENT_STREAM_TYPE: MediaType = MediaType("text", "event-stream");
/// The types as the library expects them.
const BOTH_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A type and its subtype.
#[derive(Clone, Copy, Debug)]
struct MediaType(&'static str, &'static str);

/// Names the types of the protocol in requests whose `Accept` includes them as ranges. Other requests stay as they are,
/// and the library refuses them with its reason.
pub(crate) async fn name_accepted_types(mut request: Request, next: Next) -> Response {
    let needed: &[MediaType] = match *request.method() {
        Method::POST => &[JSON_TYPE, EVENT_STREAM_TYPE],
        Method::GET => &[EVENT_STREAM_TYPE],
        _ => &[],
    };
    let headers = request.headers_mut();
    if needed
        .iter()
        .all(|media_type| is_accepted(headers, *media_type))
    {
        headers.insert(ACCEPT, BOTH_TYPES);
    }
    next.run(request).await
}

/// Whether the most specific range for this type has a weight above zero. Without `Accept` every type is accepted.
fn is_accepted(headers: &HeaderMap, media_type: MediaType) -> bool {
    if !headers.contains_key(ACCEPT) {
        return true;
    }
    let values = headers.get_all(ACCEPT).iter();
    let ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| split_unquoted(value, ','));
    let matching = ranges.filter_map(|range| range_match(range, media_type));
    // Of two equal ranges the one with a weight counts.
    matching.max().is_some_and(|(_, has_weight)| has_weight)
}

/// How specific a range is for this type, and whether its weight is above zero; `None` for a range of other types.
/// Parameters of the type are ignored, because the responses have none.
fn range_match(range: &str, media_type: MediaType) -> Option<(u8, bool)> {
    let mut parts = split_unquoted(range, ';').map(str::trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    let MediaType(own_kind, own_subtype) = media_type;
    let specificity = match (kind, subtype) {
        ("*", "*") => 0,
        (kind, "*") if kind.eq_ignore_ascii_case(own_kind) => 1,
        (kind, subtype)
            if kind.eq_ignore_ascii_case(own_kind) && subtype.eq_ignore_ascii_case(own_subtype) =>
        {
            2
        }
        _ => return None,
    };
    let has_weight = parts.all(|parameter| {
        let weight = parameter.split_once('=');
        let weight = weight.filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
        // A weight that is not a number is ignored, as a misspelt parameter is.
        !weight.is_some_and(|(_, weight)| weight.trim().parse() == Ok(0.0))
    });
    Some((specificity, has_weight))
}

/// The parts of a header between delimiters that are not in a quoted string (RFC 9110 section 5.6.4).
fn split_unquoted(value: &str, delimiter: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value.split(move |character| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            _ if was_escaped => false,
            '\\' if is_quoted => {
                is_escaped = true;
                false
            }
            '"' => {
                is_quoted = !is_quoted;
                false
            }
            _ => !is_quoted && character == delimiter,
        }
    })
}
