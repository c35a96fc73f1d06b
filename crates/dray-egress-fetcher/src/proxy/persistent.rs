//! Requests one after the other in an intercepted tunnel (RFC 9112, section 9.3): each is read, judged and recorded
//! like the first one, and only then sent.
//!
//! The response is framed for the client by this module, from what hyper read, and never copied. Only a request whose
//! end is known before it is sent keeps its tunnel. The end of the response must be known, too. The connection to the
//! target is kept only if the request had no body, the target agrees, and the target sent no byte after its response.
//! Everything else is the last of its tunnel: an upgrade, an `Expect`, a chunked or long request body, bytes of the
//! client before the end of the response.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use dray_guard::ruleset::overrides::methods_in_query;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::body::LimitedBody;
use super::client::ClientStream;
use super::head::{ProxyRequest, RequestFraming, overridden_methods};
use super::meter::{ByteCounts, ByteLimits, StreamQuota, TargetStream};
use super::refusal::{ConnectionEnd, ProxyRefusal};
use super::response::{
    ResponseContent, ResponseRules, client_builder, drop_content, refusal_without_head,
    remove_hop_fields, unify_length,
};
use crate::dial::Io;
use crate::error::FetchPhase;
use crate::head::{BodyFraming, body_framing};
use crate::wire::{InterimIo, InterimRestart};

mod single;

pub use single::{ExchangeEnd, exchange_once};

/// Most bytes of a request body that keeps its tunnel: it is read before the request is sent.
const MAX_KEPT_BODY_BYTES: u64 = 64 * 1024;

/// Whether other requests may follow this one in its tunnel. `arrived` bytes have come after its head. Bytes beyond its
/// body are another request, which is not waited for.
pub(super) fn is_keepable(request: &ProxyRequest, arrived: usize) -> bool {
    let is_bounded = match request.framing {
        RequestFraming::Empty => arrived == 0,
        RequestFraming::Length(length) => length <= MAX_KEPT_BODY_BYTES && arrived as u64 <= length,
        RequestFraming::Chunked => false,
    };
    is_bounded
        && !request.is_http_10
        && !closes_connection(&request.fields)
        && !request.fields.contains_key(UPGRADE)
        // The client waits for an interim response before it sends the body.
        && !request.fields.contains_key(EXPECT)
}

/// Reads the whole body of a request whose end is known.
pub(super) async fn read_body<S>(
    client: &mut ClientStream<S>,
    request: &ProxyRequest,
) -> Result<Bytes, ProxyRefusal>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let RequestFraming::Length(length) = request.framing else {
        return Ok(Bytes::new());
    };
    let mut body = Vec::new();
    let read = client.take(length).read_to_end(&mut body).await;
    let is_whole = read.is_ok() && body.len() as u64 == length;
    if is_whole {
        Ok(body.into())
    } else {
        Err(ProxyRefusal::SlowRequest)
    }
}

/// Whether a message is the last one of its connection.
fn closes_connection(fields: &HeaderMap) -> bool {
    let mut values = fields.get_all(CONNECTION).iter();
    values.any(|value| {
        let mut options = value.as_bytes().split(|byte| *byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    })
}

/// A request with its whole body, for the target.
pub(super) struct PersistentRequest<'a> {
    /// The head for the target.
    pub(super) head: http::request::Parts,
    pub(super) body: Bytes,
    /// What the response has to meet.
    pub(super) rules: ResponseRules<'a>,
}

/// The outcome of a request in an intercepted tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PersistentOutcome {
    /// The response is complete.
    Answered {
        /// Whether the client may send another request.
        keeps_client: bool,
        /// Whether the connection to the target may carry it.
        keeps_target: bool,
    },
    /// The client gets this refusal, and the tunnel ends.
    Refused(ProxyRefusal),
    /// A connection that carried other requests ended before a response to this one. The target may have closed it
    /// before the request arrived.
    Unanswered {
        /// Whether another connection may carry the request again: none of it was sent, or its method is idempotent
        /// (RFC 9110, section 9.2.2) and no byte of a response came.
        is_repeatable: bool,
    },
    /// The tunnel ends without another byte.
    Broken,
}

impl PersistentOutcome {
    /// How the request ended for its audit event.
    pub(super) const fn end(self) -> ConnectionEnd {
        match self {
            Self::Answered { .. } => ConnectionEnd::Closed,
            Self::Refused(ProxyRefusal::Guard(code, _)) => ConnectionEnd::of_response(code),
            Self::Refused(ProxyRefusal::Response) => ConnectionEnd::Malformed,
            Self::Refused(_) | Self::Unanswered { .. } | Self::Broken => ConnectionEnd::Broken,
        }
    }
}

/// A connection to a target, secured, that carries requests one after the other.
pub(super) struct PersistentTarget {
    sender: SendRequest<Full<Bytes>>,
    driver: ConnectionDriver,
    interim: InterimRestart,
    /// Quotas and counts of what is on the wire.
    wire: (StreamQuota, ByteCounts),
    /// Counts inside of TLS, without the records of the handshake and of the end.
    inner_counts: ByteCounts,
    /// Whether the connection carried a request before.
    is_used: bool,
}

/// The work of a connection, until it ends.
struct ConnectionDriver(Option<BoxFuture<'static, ()>>);

impl ConnectionDriver {
    /// Polls the work. Returns whether it has ended.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(work) = &mut self.0
            && work.as_mut().poll(cx).is_ready()
        {
            self.0 = None;
        }
        self.0.is_none()
    }
}

impl PersistentTarget {
    /// Begins HTTP on a secured connection. `wire` are the quotas and counts below TLS.
    pub(super) async fn start(
        io: Box<dyn Io>,
        wire: (StreamQuota, ByteCounts),
    ) -> Result<Self, ProxyRefusal> {
        let inner_counts = ByteCounts::default();
        let stream = TargetStream::new(io, ByteLimits::WITHOUT_LIMITS, inner_counts.clone());
        let io = InterimIo::new(Box::new(stream));
        let interim = io.restart_handle();
        let handshake = client_builder().handshake(TokioIo::new(io)).await;
        let (sender, connection) = handshake.map_err(|_| ProxyRefusal::Response)?;
        Ok(Self {
            sender,
            // Failures of the connection reach the request or the body that waits for it.
            driver: ConnectionDriver(Some(Box::pin(connection.map(drop)))),
            interim,
            wire,
            inner_counts,
            is_used: false,
        })
    }

    /// Bytes that the caller may still send and receive on this connection.
    pub(super) const fn wire_quota(&self) -> &StreamQuota {
        &self.wire.0
    }

    /// The counts of what is on the wire, beginning at zero now.
    pub(super) fn counts_from_now(&self) -> ByteCounts {
        self.wire.1.from_now()
    }

    /// Works for the connection while no request is under way, and never ends. A byte or the end of the stream at that
    /// time ends the connection.
    pub(super) async fn keep_idle(&mut self) -> Infallible {
        std::future::poll_fn(|cx| {
            self.driver.poll_work(cx);
            Poll::Pending
        })
        .await
    }

    /// Whether the connection can carry another request.
    pub(super) fn is_ready(&self) -> bool {
        self.driver.0.is_some() && self.sender.is_ready()
    }

    /// Sends the request and returns the response to the client. `status` is set once there is one.
    pub(super) async fn exchange<S>(
        &mut self,
        client: &mut ClientStream<S>,
        request: PersistentRequest<'_>,
        status: &mut Option<u16>,
    ) -> PersistentOutcome
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        self.interim.restart();
        let exchange = KeptExchange {
            request,
            was_used: std::mem::replace(&mut self.is_used, true),
            received: self.inner_counts.from_now(),
            counts: self.wire.1.clone(),
        };
        let Self { sender, driver, .. } = self;
        let mut exchanging = std::pin::pin!(exchange.run(client, sender, status));
        std::future::poll_fn(|cx| {
            // The exchange may continue after the end of this work: the rest of a response may wait for the client.
            driver.poll_work(cx);
            let outcome = exchanging.as_mut().poll(cx);
            if outcome.is_ready() {
                // The connection finds bytes behind the response here, before `is_ready` is called.
                driver.poll_work(cx);
            }
            outcome
        })
        .await
    }
}

/// One request and one response.
struct KeptExchange<'a> {
    request: PersistentRequest<'a>,
    /// Whether the connection carried a request before.
    was_used: bool,
    /// Bytes inside of TLS since the request.
    received: ByteCounts,
    /// Bytes on the wire.
    counts: ByteCounts,
}

impl KeptExchange<'_> {
    async fn run<S>(
        self,
        client: &mut ClientStream<S>,
        sender: &mut SendRequest<Full<Bytes>>,
        status: &mut Option<u16>,
    ) -> PersistentOutcome
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let PersistentRequest { head, body, rules } = self.request;
        let is_last_of_target = closes_connection(&head.headers);
        let is_idempotent = is_idempotent(&head);
        let request = Request::from_parts(head, Full::new(body));
        let sending = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let sent = tokio::select! {
            biased;
            sent = sending => sent,
            () = client_end(client) => return PersistentOutcome::Broken,
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(%error, "a target sent no valid response");
                let refusal = refusal_without_head(&error);
                if !self.was_used || refusal == ProxyRefusal::Response {
                    return PersistentOutcome::Refused(refusal);
                }
                // hyper cancels a request only when it has written nothing of it, and takes none for a connection that
                // is closed.
                let is_unsent = error.is_canceled() || error.is_closed();
                let is_repeatable = is_unsent || (is_idempotent && self.received.down() == 0);
                return PersistentOutcome::Unanswered { is_repeatable };
            }
        };
        let framed = match frame_response(response, rules, &self.counts, status) {
            Ok(framed) => framed,
            Err(refusal) => return PersistentOutcome::Refused(refusal),
        };
        let keeps_target = framed.keeps_target && !is_last_of_target;
        let keeps_client = framed.has_end && !has_sent_more(client);
        match framed.send(client, keeps_client).await {
            Ok(is_quiet) => PersistentOutcome::Answered {
                keeps_client: keeps_client && is_quiet,
                keeps_target,
            },
            Err(error) => {
                tracing::debug!(%error, "a response broke off");
                PersistentOutcome::Broken
            }
        }
    }
}

/// Whether a request has the same effect however often it is sent. A request that names another method counts as that
/// method, which may be any.
fn is_idempotent(head: &http::request::Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    head.method.is_idempotent()
        && overridden_methods(&head.headers).next().is_none()
        && methods_in_query(query).next().is_none()
}

/// Ends when the client has closed its side. Bytes that it sends meanwhile are kept and end the tunnel later.
async fn client_end<S: AsyncRead + AsyncWrite + Unpin>(client: &mut ClientStream<S>) {
    if client.read_ahead().await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Whether the client has sent bytes, or closed, although the response is not complete.
fn has_sent_more<S: AsyncRead + AsyncWrite + Unpin>(client: &mut ClientStream<S>) -> bool {
    !client.ahead().is_empty() || client.read_ahead().now_or_never().is_some()
}

/// The next part of a response. A client that closes before its end makes it an error.
async fn next_frame<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut ClientStream<S>,
    body: &mut LimitedBody,
) -> io::Result<Option<Frame<Bytes>>> {
    // After the last byte of the body, the client sends its next request, which is not read at this point.
    let frame = if body.is_end_stream() || !client.ahead().is_empty() {
        body.frame().await
    } else {
        tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = client_end(client) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    frame.transpose()
}

/// A response of a target whose framing has one reading.
struct FramedResponse {
    /// The head for the client, without the empty line.
    head: Vec<u8>,
    /// `None` if it is dropped.
    body: Option<LimitedBody>,
    /// Whether its body goes to the client in chunks.
    is_chunked: bool,
    /// Whether its end is known before the connection ends.
    has_end: bool,
    /// Whether the target agrees to another request.
    keeps_target: bool,
}

/// Checks a response as that of a tunnel with one request, and makes its head for the client. `counts` note a body that
/// exceeds the limit of the rule.
fn frame_response(
    response: Response<Incoming>,
    rules: ResponseRules<'_>,
    counts: &ByteCounts,
    status: &mut Option<u16>,
) -> Result<FramedResponse, ProxyRefusal> {
    let (mut parts, body) = response.into_parts();
    // Ambiguous framing is refused as in a fetch, and so is a protocol that was not asked for.
    let framing =
        body_framing(parts.version, &parts.headers).map_err(|_| ProxyRefusal::Response)?;
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ProxyRefusal::Response);
    }
    *status = Some(parts.status.as_u16());
    rules.remove_credential(&mut parts.headers)?;
    let content = rules
        .check(parts.status, &parts.headers, framing, &body)
        .map_err(|code| ProxyRefusal::Guard(code, FetchPhase::Head))?;
    let is_dropped = content == ResponseContent::Dropped;
    let has_end = framing != BodyFraming::Close || body.is_end_stream() || is_dropped;
    // Content that is dropped is not read.
    let keeps_target = has_end
        && !is_dropped
        && parts.version == Version::HTTP_11
        && !closes_connection(&parts.headers);
    let fields = &mut parts.headers;
    remove_hop_fields(fields);
    unify_length(fields, framing);
    if parts.status == StatusCode::NO_CONTENT {
        // A 204 has no body; a client that believes the field would take the next response for one (RFC 9110, 8.6).
        fields.remove(CONTENT_LENGTH);
    }
    if is_dropped {
        drop_content(parts.status, fields);
    }
    let is_chunked = !fields.contains_key(CONTENT_LENGTH) && !body.is_end_stream();
    if is_chunked {
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Ok(FramedResponse {
        head: head_text(parts.status, fields),
        body: (!is_dropped).then(|| LimitedBody::new(body, rules.max_bytes(), counts.clone())),
        is_chunked,
        has_end,
        keeps_target,
    })
}

/// The status line and the fields, each with its line end.
fn head_text(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in fields {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head
}

impl FramedResponse {
    /// Sends the response to the client. Returns whether the client was silent before the last bytes; after them, the
    /// next request may come at any time. Trailers are not passed on.
    async fn send<S>(self, client: &mut ClientStream<S>, keeps_client: bool) -> io::Result<bool>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin,
    {
        let Self {
            mut head,
            mut body,
            is_chunked,
            ..
        } = self;
        if !keeps_client {
            head.extend_from_slice(b"connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        client.write_all(&head).await?;
        client.flush().await?;
        let mut is_quiet = true;
        // An early end is an error too, so the client never gets the end of a body that broke off.
        while let Some(body) = &mut body
            && let Some(frame) = next_frame(client, body).await?
        {
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if data.is_empty() {
                continue;
            }
            is_quiet = is_quiet && !has_sent_more(client);
            if is_chunked {
                let size = format!("{:x}\r\n", data.len());
                // All is one write, because TLS makes a record of each.
                let chunk = [size.as_bytes(), &data, b"\r\n"].concat();
                client.write_all(&chunk).await?;
            } else {
                client.write_all(&data).await?;
            }
            client.flush().await?;
        }
        if is_chunked {
            is_quiet = is_quiet && !has_sent_more(client);
            client.write_all(b"0\r\n\r\n").await?;
            client.flush().await?;
        }
        Ok(is_quiet)
    }
}

#[cfg(test)]
mod tests;
