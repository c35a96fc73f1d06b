//! Bodies that the fake server sends and receives.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

/// Any body; an error breaks the connection in the middle.
pub(super) type Body = BoxBody<Bytes, io::Error>;

/// The complete content, with its length.
pub(super) fn whole_body(content: impl Into<Bytes>) -> Body {
    let full = Full::new(content.into());
    BodyExt::boxed(BodyExt::map_err(full, |never: Infallible| match never {}))
}

/// The complete content, chunked.
pub(super) fn chunked_body(content: Bytes) -> Body {
    BodyExt::boxed(StreamBody::new(stream::iter([Ok(Frame::data(content))])))
}

/// `content`, then a broken connection.
pub(super) fn broken_body(content: Bytes) -> Body {
    // hyper writes buffered bytes only when it is polled again; without this the peer would get no byte.
    let end = stream::once(async {
        tokio::task::yield_now().await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    });
    let first = stream::iter([Ok(Frame::data(content))]);
    BodyExt::boxed(StreamBody::new(first.chain(end)))
}

/// `content`, then no further bytes until the peer disconnects.
pub(super) fn stalled_body(content: Bytes) -> Body {
    let first = stream::iter([Ok(Frame::data(content))]);
    BodyExt::boxed(StreamBody::new(first.chain(stream::pending())))
}

/// Repeats `content` without end.
pub(super) fn endless_body(content: Bytes) -> Body {
    let frames = stream::repeat(content).map(|content| Ok(Frame::data(content)));
    BodyExt::boxed(StreamBody::new(frames))
}

/// The content of the first part of a `multipart/form-data` body (RFC 7578) and its type.
pub(super) fn first_part(content_type: &str, body: &Bytes) -> Option<(Bytes, String)> {
    let (_, boundary) = content_type.split_once("boundary=")?;
    let boundary = boundary.split(';').next()?.trim().trim_matches('"');
    let start = find_bytes(body, format!("--{boundary}\r\n").as_bytes())?;
    // Two hyphens before the boundary and a line break after it.
    let part = body.slice(start + boundary.len() + 4..);
    let head_end = find_bytes(&part, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(part.get(..head_end)?).into_owned();
    let content = part.slice(head_end + 4..);
    // The line break before a boundary belongs to the boundary (RFC 2046, 5.1.1).
    let end = find_bytes(&content, format!("\r\n--{boundary}").as_bytes())?;
    let media_type = head
        .lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-type")
                .then(|| value.trim().to_owned())
        })
        .unwrap_or_else(|| "application/octet-stream".to_owned());
    Some((content.slice(..end), media_type))
}

fn find_bytes(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
