//! One request and one response over one stream that is already connected (egress-security 10, 11, 21).
//!
//! hyper's low-level connection (HTTP/1.1) and that of h2 (HTTP/2) get no host name to resolve, keep no pool and follow
//! no redirect. They are polled by the future that waits for the head or the body, so dropping [`WireBody`] closes the
//! connection immediately; no task is left behind. Deadlines belong to the caller.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dray_guard::Code;
use http::HeaderName;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, HeaderValue, IF_RANGE, RANGE, USER_AGENT,
};
use http::request::Builder;
use http::response::Parts;
use http::{Request, Uri};
use http_body::Body as _;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::dial::Io;
use crate::resume::BodyResumption;
use crate::wire::{InterimIo, WireError};

mod http2;

use http2::Http2Body;
pub use http2::send_http2_request;

/// Most header fields of a response head.
const MAX_FIELDS: usize = 128;
/// Most bytes of a response head, and of one read (R-1, B-1).
const MAX_HEAD_BYTES: usize = 64 * 1024;

type Connection = http1::Connection<TokioIo<InterimIo>, Empty<Bytes>>;

/// An error of the HTTP library below.
type SourceError = Box<dyn StdError + Send + Sync>;

/// The request of one hop. No other header fields are sent.
#[derive(Clone, Debug)]
pub struct HopRequest<'a> {
    /// Canonical host, with the port where it is not the scheme's default.
    pub host: &'a str,
    /// Path and query of the canonical URL.
    pub path_and_query: &'a str,
    /// `User-Agent`, a configured constant.
    pub user_agent: &'a HeaderValue,
    /// The field of a credential of the operator.
    pub credential: Option<(HeaderName, HeaderValue)>,
    /// Fields that make the request conditional, for a response that is stored.
    pub conditions: Vec<(HeaderName, HeaderValue)>,
    /// The rest of a body that was interrupted. This is the only case in which a range is requested.
    pub resume: Option<&'a BodyResumption>,
}

/// The reason why a request got no response head, or a body did not end.
#[derive(Debug, thiserror::Error)]
pub enum HopError {
    /// The request could not be built from the canonical URL, which is a bug of this program.
    #[error("could not build the request")]
    Request(#[source] SourceError),
    /// The connection ended before a response head.
    #[error("the connection ended before a response head")]
    Closed(#[source] SourceError),
    /// The server answers this request over HTTP/1.1 only (RFC 9113, section 7, `HTTP_1_1_REQUIRED`).
    #[error("the server requires HTTP/1.1")]
    Http11Required(#[source] SourceError),
    /// The server sent something that is not HTTP.
    #[error("the server sent an invalid response")]
    Malformed(#[source] SourceError),
    /// The TLS session broke.
    #[error("the TLS session failed")]
    Tls(#[source] SourceError),
    /// The body ended before it was complete.
    #[error("the body ended before it was complete")]
    Truncated(#[source] SourceError),
    /// The peers sent more bytes than a body within the limit needs (I-7).
    #[error("the server sent more bytes than allowed")]
    TooLarge(#[source] SourceError),
    /// A quota of the policy files is used up.
    #[error("a quota is used up")]
    Quota(#[source] SourceError),
}

impl HopError {
    /// The reason for the agent.
    pub const fn code(&self) -> Code {
        match self {
            Self::Request(_) => Code::Internal,
            // No version was negotiated yet, so both are offered again.
            Self::Closed(_) | Self::Http11Required(_) => Code::ConnectionClosed,
            Self::Malformed(_) => Code::MalformedResponse,
            Self::Tls(_) => Code::TlsError,
            Self::Truncated(_) => Code::Truncated,
            Self::TooLarge(_) => Code::TooLarge,
            Self::Quota(_) => Code::QuotaExceeded,
        }
    }

    fn in_head(error: hyper::Error) -> Self {
        // This check is first: hyper wraps the error of this program's own limit like an error of the connection.
        if let Some(limit) = caused_by_limit(&error) {
            return Self::from_wire_limit(limit, error.into());
        }
        if error.is_parse() {
            Self::Malformed(error.into())
        } else if caused_by_tls(&error) {
            Self::Tls(error.into())
        } else {
            Self::Closed(error.into())
        }
    }

    fn in_body(error: hyper::Error) -> Self {
        // This check is first here too: the same error would count as a body that broke off, and be resumed.
        if let Some(limit) = caused_by_limit(&error) {
            return Self::from_wire_limit(limit, error.into());
        }
        if caused_by_tls(&error) {
            return Self::Tls(error.into());
        }
        let kind = find_cause::<io::Error>(&error).map(io::Error::kind);
        match kind {
            // hyper reports a bad chunk as an I/O error of these kinds and not as a parse error.
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                Self::Malformed(error.into())
            }
            _ if error.is_parse() => Self::Malformed(error.into()),
            _ => Self::Truncated(error.into()),
        }
    }

    fn from_wire_limit(limit: WireError, error: SourceError) -> Self {
        match limit {
            WireError::TooManyBytes => Self::TooLarge(error),
            WireError::QuotaExceeded => Self::Quota(error),
            WireError::TooManyInterimResponses | WireError::TooManyControlFrames => {
                Self::Malformed(error)
            }
        }
    }
}

/// The first error of type `E` below `error`.
fn find_cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(cause) = error.downcast_ref::<E>() {
            return Some(cause);
        }
        next = error.source();
    }
    None
}

fn caused_by_limit(error: &hyper::Error) -> Option<WireError> {
    find_cause::<io::Error>(error).and_then(WireError::of)
}

/// Whether a server sent something that is not a response head of HTTP. Otherwise it closed before one, or the connection
/// broke.
pub(crate) fn is_malformed_head(error: &hyper::Error) -> bool {
    caused_by_limit(error).map_or_else(
        || error.is_parse(),
        |limit| {
            matches!(
                limit,
                WireError::TooManyInterimResponses | WireError::TooManyControlFrames
            )
        },
    )
}

fn caused_by_tls(error: &hyper::Error) -> bool {
    find_cause::<rustls::Error>(error).is_some()
        // `io::Error::source` skips the error that it wraps, so the wrapped error is examined separately.
        || find_cause::<io::Error>(error)
            .and_then(io::Error::get_ref)
            .is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
}

/// The body of a response, as it comes over the wire. Dropping it drops the connection without reading further (T-6).
pub struct WireBody(BodySource);

enum BodySource {
    Http1(Box<Http1Body>),
    Http2(Box<Http2Body>),
}

/// The body of a response over HTTP/1.1.
struct Http1Body {
    connection: Option<Connection>,
    body: Incoming,
}

impl std::fmt::Debug for WireBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WireBody").finish_non_exhaustive()
    }
}

/// Sends the request over HTTP/1.1 and waits for the final response head. Interim responses are skipped, up to their
/// limit.
pub async fn send_request(
    io: Box<dyn Io>,
    hop_request: HopRequest<'_>,
) -> Result<(Parts, WireBody), HopError> {
    let request = build_request(hop_request).map_err(|error| HopError::Request(error.into()))?;
    let (mut sender, connection) = http1::Builder::new()
        // Without this limit hyper accepts a head of 500 kB (section 22).
        .max_headers(MAX_FIELDS)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(MAX_HEAD_BYTES)
        .title_case_headers(true)
        .handshake(TokioIo::new(InterimIo::new(io)))
        .await
        .map_err(|error| HopError::Closed(error.into()))?;
    let mut connection = Some(connection);
    let mut response = Box::pin(sender.send_request(request));
    // Head and connection are polled by one future: no task outlives a dropped fetch.
    let response = poll_fn(|cx| {
        if let Poll::Ready(response) = response.as_mut().poll(cx) {
            return Poll::Ready(response);
        }
        drive_connection(&mut connection, cx);
        response.as_mut().poll(cx)
    })
    .await
    .map_err(HopError::in_head)?;
    let (parts, body) = response.into_parts();
    let body = Box::new(Http1Body { connection, body });
    Ok((parts, WireBody(BodySource::Http1(body))))
}

/// Builds the request of Q-1: exactly these fields, in this order.
fn build_request(hop_request: HopRequest<'_>) -> Result<Request<Empty<Bytes>>, http::Error> {
    // In origin form (RFC 9112, section 3.2.1): the host is in the `Host` field alone.
    let request = Request::get(Uri::try_from(hop_request.path_and_query)?)
        .header(HOST, HeaderValue::from_str(hop_request.host)?);
    add_fields(request, hop_request)
        .header(CONNECTION, HeaderValue::from_static("close"))
        .body(Empty::new())
}

/// Adds the fields that both versions of HTTP have. `Range` and `If-Range` are sent only for the rest of a body that
/// broke off, and conditions only for a stored response.
fn add_fields(request: Builder, hop_request: HopRequest<'_>) -> Builder {
    let mut request = request
        .header(USER_AGENT, hop_request.user_agent)
        .header(ACCEPT, HeaderValue::from_static("*/*"))
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some((name, value)) = hop_request.credential {
        request = request.header(name, value);
    }
    for (name, value) in hop_request.conditions {
        request = request.header(name, value);
    }
    match hop_request.resume {
        Some(resume) => request
            .header(RANGE, format!("bytes={}-", resume.received))
            .header(IF_RANGE, &resume.validator),
        None => request,
    }
}

/// Polls the connection for the head or body that waits for it and that gets its errors.
fn drive_connection(connection: &mut Option<Connection>, cx: &mut Context<'_>) {
    if let Some(running) = connection
        && running.poll_without_shutdown(cx).is_ready()
    {
        // A finished future must not be polled again.
        *connection = None;
    }
}

impl WireBody {
    /// Returns the next chunk, at most 64 KiB (B-1), or `None` at the verified end. Trailers are ignored.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HopError> {
        match &mut self.0 {
            BodySource::Http1(body) => body.next().await,
            BodySource::Http2(body) => body.next().await,
        }
    }
}

impl Http1Body {
    async fn next(&mut self) -> Result<Option<Bytes>, HopError> {
        loop {
            match poll_fn(|cx| self.poll_frame(cx)).await {
                None => return Ok(None),
                Some(Err(error)) => return Err(HopError::in_body(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive_connection(&mut self.connection, cx);
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

#[cfg(test)]
mod tests;
