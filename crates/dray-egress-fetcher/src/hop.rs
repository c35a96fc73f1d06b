//! One request and one response over one stream that is already connected (egress-security 10, 11, 21).
//!
//! hyper's low-level connection gets no host name to resolve, keeps no pool and follows no redirect. It is polled by
//! the future that waits for the head or the body, so dropping [`WireBody`] closes the connection immediately; no task
//! is left behind. Deadlines belong to the caller.

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

/// Most header fields of a response head.
const MAX_FIELDS: usize = 128;
/// Most bytes of a response head, and of one read (R-1, B-1).
const MAX_HEAD: usize = 64 * 1024;

type Connection = http1::Connection<TokioIo<InterimIo>, Empty<Bytes>>;

/// The request of one hop. Fields that it does not have are never sent.
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
    /// The rest of a body that broke off; the only case in which a range is requested.
    pub resume: Option<&'a BodyResumption>,
}

/// The reason why a request got no response head, or a body did not end.
#[derive(Debug, thiserror::Error)]
pub enum HopError {
    /// The request could not be built from the canonical URL, which is a bug of this program.
    #[error("could not build the request")]
    Request(#[source] http::Error),
    /// The connection ended before a response head.
    #[error("the connection ended before a response head")]
    Closed(#[source] hyper::Error),
    /// The server sent something that is not HTTP/1.
    #[error("the server sent an invalid response")]
    Malformed(#[source] hyper::Error),
    /// The TLS session broke.
    #[error("the TLS session failed")]
    Tls(#[source] hyper::Error),
    /// The body ended before it was complete.
    #[error("the body ended before it was complete")]
    Truncated(#[source] hyper::Error),
    /// The peers sent more bytes than a body within the limit needs (I-7).
    #[error("the server sent more bytes than allowed")]
    TooLarge(#[source] hyper::Error),
    /// A quota of the policy files is used up.
    #[error("a quota is used up")]
    Quota(#[source] hyper::Error),
}

impl HopError {
    /// The reason for the agent.
    pub const fn code(&self) -> Code {
        match self {
            Self::Request(_) => Code::Internal,
            Self::Closed(_) => Code::ConnectionClosed,
            Self::Malformed(_) => Code::MalformedResponse,
            Self::Tls(_) => Code::TlsError,
            Self::Truncated(_) => Code::Truncated,
            Self::TooLarge(_) => Code::TooLarge,
            Self::Quota(_) => Code::QuotaExceeded,
        }
    }

    fn in_head(error: hyper::Error) -> Self {
        // Checked first: hyper wraps the error of this program's own limit like an error of the connection.
        if let Some(limit) = caused_by_limit(&error) {
            return Self::beyond(limit, error);
        }
        if error.is_parse() {
            Self::Malformed(error)
        } else if caused_by_tls(&error) {
            Self::Tls(error)
        } else {
            Self::Closed(error)
        }
    }

    fn in_body(error: hyper::Error) -> Self {
        // First here too, before the same error counts as a body that broke off and is resumed.
        if let Some(limit) = caused_by_limit(&error) {
            return Self::beyond(limit, error);
        }
        if caused_by_tls(&error) {
            return Self::Tls(error);
        }
        let kind = find_cause::<io::Error>(&error).map(io::Error::kind);
        match kind {
            // hyper reports a bad chunk as an I/O error of these kinds and not as a parse error.
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
                Self::Malformed(error)
            }
            _ if error.is_parse() => Self::Malformed(error),
            _ => Self::Truncated(error),
        }
    }

    fn beyond(limit: WireError, error: hyper::Error) -> Self {
        match limit {
            WireError::TooManyBytes => Self::TooLarge(error),
            WireError::QuotaExceeded => Self::Quota(error),
            WireError::TooManyInterimResponses => Self::Malformed(error),
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

fn caused_by_tls(error: &hyper::Error) -> bool {
    find_cause::<rustls::Error>(error).is_some()
        // `io::Error::source` skips the error that it wraps, so that one is examined separately.
        || find_cause::<io::Error>(error)
            .and_then(io::Error::get_ref)
            .is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
}

/// The body of a response, as it comes over the wire. Dropping it drops the connection without reading further (T-6).
pub struct WireBody {
    connection: Option<Connection>,
    body: Incoming,
}

impl std::fmt::Debug for WireBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WireBody").finish_non_exhaustive()
    }
}

/// Sends the request and waits for the final response head; interim ones are passed over, up to their limit.
pub async fn send_request(
    io: Box<dyn Io>,
    ask: HopRequest<'_>,
) -> Result<(Parts, WireBody), HopError> {
    let request = build_request(ask).map_err(HopError::Request)?;
    let (mut sender, connection) = http1::Builder::new()
        // Without this limit hyper accepts a head of 500 kB (section 22).
        .max_headers(MAX_FIELDS)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_HEAD)
        .title_case_headers(true)
        .handshake(TokioIo::new(InterimIo::new(io)))
        .await
        .map_err(HopError::Closed)?;
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
    Ok((parts, WireBody { connection, body }))
}

/// Builds the request of Q-1: exactly these fields, in this order. `Range` and `If-Range` are sent only for the rest
/// of a body that broke off, conditions only for a stored response.
fn build_request(ask: HopRequest<'_>) -> Result<Request<Empty<Bytes>>, http::Error> {
    // In origin form (RFC 9112, section 3.2.1): the host is in the `Host` field alone.
    let mut request = Request::get(Uri::try_from(ask.path_and_query)?)
        .header(HOST, HeaderValue::from_str(ask.host)?)
        .header(USER_AGENT, ask.user_agent)
        .header(ACCEPT, HeaderValue::from_static("*/*"))
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some((name, value)) = ask.credential {
        request = request.header(name, value);
    }
    for (name, value) in ask.conditions {
        request = request.header(name, value);
    }
    if let Some(resume) = ask.resume {
        request = request
            .header(RANGE, format!("bytes={}-", resume.received))
            .header(IF_RANGE, &resume.validator);
    }
    request
        .header(CONNECTION, HeaderValue::from_static("close"))
        .body(Empty::new())
}

/// Moves bytes between the connection and the head or body that waits on it, which also gets its errors.
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
