//! One request and one response over HTTP/2 (RFC 9113), on a connection that carries nothing else.
//!
//! The h2 crate is used without hyper, for two reasons. First, hyper reports a body as complete when the server resets
//! its stream with `NO_ERROR` or `CANCEL`, so a part of a body would pass as the whole (B-3). Second, hyper spawns the
//! connection as a task, which would outlive a dropped fetch. No connection is shared or kept: a certificate that is
//! good for several names never lets one fetch use the connection of another (T-4).
//!
//! Bounds: [`FrameIo`] counts frames below h2. h2 bounds header lists, CONTINUATION frames and the size of a frame.
//! Flow control bounds the bytes that are received and not stored yet. The server may not push.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture};
use h2::{Reason, RecvStream};
use http::response::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Request, StatusCode, Uri, Version};

use super::{BodySource, HopError, HopRequest, MAX_FIELDS, WireBody, add_fields};
use crate::dial::Io;
use crate::wire::{FrameIo, InterimCount, ReadFailure, WireError};

/// Largest decoded header list of a response, as HTTP/2 counts it: 32 bytes for each field in addition to its text (RFC
/// 9113, section 6.5.2). So a little less text fits than over HTTP/1.1.
const MAX_HEADER_LIST_BYTES: u32 = 64 * 1024;
/// Largest payload of a frame: the least that an endpoint may announce (RFC 9113, section 6.5.2).
const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// Most body bytes that the server may send before they are stored. At a round-trip time of 100 ms this allows 10
/// MiB/s. Until the body is read, the connection has the window of 65,535 bytes with which every connection begins (RFC
/// 9113, section 6.9.2). The body of a redirect or an error is never read, but its received bytes count.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// Budget for short data frames that wait to be stored. Each frame costs the number of bytes by which it is shorter
/// than 256. With a slow store tens of thousands of short frames wait, which h2 takes for a flood with its default
/// budget.
const SHORT_FRAME_BUDGET: usize = 8 * 1024 * 1024;

type Http2Connection = Connection<FrameIo, Bytes>;

/// The body of a response over HTTP/2.
pub(super) struct Http2Body {
    connection: Option<Http2Connection>,
    body: RecvStream,
    failure: ReadFailure,
    /// Whether the connection has its full window.
    is_window_open: bool,
}

/// Part of an exchange in which an error occurred.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExchangePart {
    Head,
    Body,
}

/// Sends the request over HTTP/2 and waits for the final response head. Interim responses are skipped, up to their
/// limit. The server must have chosen `h2` by ALPN for this stream.
///
/// # Errors
///
/// The errors of a request over HTTP/1.1, and [`HopError::Http11Required`].
pub async fn send_http2_request(
    io: Box<dyn Io>,
    hop_request: HopRequest<'_>,
) -> Result<(Parts, WireBody), HopError> {
    let request = build_request(hop_request).map_err(|error| HopError::Request(error.into()))?;
    let failure = ReadFailure::default();
    let in_head = |error| to_hop_error(error, &failure, ExchangePart::Head);
    let (mut sender, connection) = h2::client::Builder::new()
        .enable_push(false)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .initial_window_size(WINDOW_BYTES)
        .data_frame_budget(SHORT_FRAME_BUDGET)
        .handshake(FrameIo::new(io, failure.clone()))
        .await
        .map_err(in_head)?;
    // The head ends the stream: a GET has no body (C-1).
    let (mut response, _) = sender.send_request(request, true).map_err(in_head)?;
    let mut connection = Some(connection);
    let mut interim = InterimCount::default();
    let received = poll_fn(|cx| {
        drive_connection(&mut connection, cx);
        match poll_interim(&mut response, &mut interim, cx) {
            Ok(()) => Pin::new(&mut response).poll(cx).map_err(in_head),
            Err(error) => Poll::Ready(Err(error)),
        }
    })
    .await?;
    let (parts, body) = received.into_parts();
    // The parser of HTTP/1.1 counts the fields; h2 counts only their bytes.
    if parts.headers.len() > MAX_FIELDS {
        return Err(HopError::Malformed("too many header fields".into()));
    }
    let body = Http2Body {
        connection,
        body,
        failure,
        is_window_open: false,
    };
    Ok((parts, WireBody(BodySource::Http2(Box::new(body)))))
}

/// Builds the request of Q-1 in HTTP/2: the pseudo-fields, and the same fields as in HTTP/1.1 except those of the
/// connection (RFC 9113, section 8.2.2).
fn build_request(hop_request: HopRequest<'_>) -> Result<Request<()>, http::Error> {
    let uri = Uri::builder()
        .scheme(Scheme::HTTPS)
        .authority(hop_request.host)
        .path_and_query(PathAndQuery::try_from(hop_request.path_and_query)?)
        .build()?;
    let request = Request::get(uri).version(Version::HTTP_2);
    add_fields(request, hop_request).body(())
}

/// Counts the interim responses that have arrived.
fn poll_interim(
    response: &mut ResponseFuture,
    interim: &mut InterimCount,
    cx: &mut Context<'_>,
) -> Result<(), HopError> {
    // The loop ends when no interim response is left, or at an error of the stream, which the response returns too.
    while let Poll::Ready(Some(Ok(head))) = response.poll_informational(cx) {
        // HTTP/2 does not have this status (RFC 9113, section 8.6).
        if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(HopError::Malformed("a switch of protocols".into()));
        }
        interim
            .add(header_list_bytes(head.headers()))
            .map_err(|limit: WireError| HopError::Malformed(limit.into()))?;
    }
    Ok(())
}

/// Size of a header list as HTTP/2 counts it.
fn header_list_bytes(headers: &HeaderMap) -> u64 {
    let field_bytes = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().len() + value.len() + 32) as u64
    };
    headers.iter().map(field_bytes).sum()
}

/// Polls the connection, without which the stream makes no progress. The stream gets the connection's errors.
fn drive_connection(connection: &mut Option<Http2Connection>, cx: &mut Context<'_>) {
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        // A finished future must not be polled again.
        *connection = None;
    }
}

/// The error of an exchange. `failure` has the error of the stream below, of which h2 keeps only the text.
fn to_hop_error(error: h2::Error, failure: &ReadFailure, part: ExchangePart) -> HopError {
    let cut_off = |error| match part {
        ExchangePart::Head => HopError::Closed(error),
        ExchangePart::Body => HopError::Truncated(error),
    };
    if let Some(cause) = failure.take() {
        return match WireError::of(&cause) {
            Some(limit) => HopError::from_wire_limit(limit, cause.into()),
            None if is_tls_failure(&cause) => HopError::Tls(cause.into()),
            None => cut_off(cause.into()),
        };
    }
    // The server ended the stream or the connection. REFUSED_STREAM, and a GOAWAY that excludes the stream, mean that
    // the request was not processed. After other reasons it may be repeated, because a GET is idempotent (RFC 9110,
    // section 9.2.2).
    if error.is_remote() {
        return match error.reason() {
            Some(Reason::HTTP_1_1_REQUIRED) if part == ExchangePart::Head => {
                HopError::Http11Required(error.into())
            }
            _ => cut_off(error.into()),
        };
    }
    // These are refusals of h2 itself: frames, fields and lengths that break the protocol, and floods.
    if error.is_library() {
        return HopError::Malformed(error.into());
    }
    cut_off(error.into())
}

fn is_tls_failure(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
}

impl Http2Body {
    /// Returns the next chunk, at most [`MAX_FRAME_BYTES`], or `None` after the frame that ends the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, HopError> {
        self.open_window();
        loop {
            let Some(chunk) = poll_fn(|cx| self.poll_data(cx)).await else {
                return Ok(None);
            };
            let chunk =
                chunk.map_err(|error| to_hop_error(error, &self.failure, ExchangePart::Body))?;
            // h2 does not return capacity by itself, so the window of the stream would run empty.
            self.body
                .flow_control()
                .release_capacity(chunk.len())
                .map_err(|error| to_hop_error(error, &self.failure, ExchangePart::Body))?;
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
    }

    /// Gives the connection its full window, at the first call.
    fn open_window(&mut self) {
        if let Some(connection) = &mut self.connection
            && !self.is_window_open
        {
            self.is_window_open = true;
            connection.set_target_window_size(WINDOW_BYTES);
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        // The connection is polled first: it sends the window updates, without which the server would stop.
        drive_connection(&mut self.connection, cx);
        self.body.poll_data(cx)
    }
}

#[cfg(test)]
mod tests;
