//! One stream of HTTP/2: its request over HTTP/1.1 to the rest of the proxy, and the response back.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::head::{TranslationError, http1_head, remove_connection_fields};
use super::tunnel::TunnelIo;
use crate::proxy::response::client_builder;
use crate::wire::pass_writes_on;

/// Bytes of each direction between a stream and the rest of the proxy.
const PIPE_BYTES: usize = 16 * 1024;

/// The reason why a stream is reset.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    /// The client reset its stream, or its connection broke.
    #[error("the client gave up the stream")]
    Http2(#[from] h2::Error),
    /// The rest of the proxy closed in the middle of a response.
    #[error("the response broke off")]
    Http1(#[from] hyper::Error),
    /// A response that is not final, such as one that changes the protocol.
    #[error("the response is not final")]
    Interim,
    /// The header fields cannot be written as a head of HTTP/1.1.
    #[error("the request has no form in HTTP/1.1")]
    Head(#[from] TranslationError),
    /// The client does not take the end of a response.
    #[error("the client does not take the rest of the response")]
    Slow,
}

impl StreamError {
    /// The reason that the client gets (RFC 9113, section 7).
    const fn reason(&self) -> Reason {
        match self {
            Self::Http2(_) | Self::Slow => Reason::CANCEL,
            Self::Http1(_) | Self::Interim => Reason::INTERNAL_ERROR,
            Self::Head(_) => Reason::PROTOCOL_ERROR,
        }
    }
}

/// How far both ends of a stream are.
#[derive(Debug, Default)]
struct StreamEnds {
    /// Cancelled when the rest of the proxy has finished.
    served: CancellationToken,
    /// Whether the client has sent everything.
    is_ended: AtomicBool,
}

/// Serves one stream to its end. `serve` gets it as a connection of HTTP/1.1 that carries one request. Once it has
/// finished, the client has `rest_timeout` to take the rest of the response: its window may stay closed for ever. A
/// tunnel has no rest then.
pub async fn serve_as_http1<F>(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    rest_timeout: Duration,
    serve: impl FnOnce(StreamIo) -> F,
) where
    F: Future<Output = ()>,
{
    if request.method() == Method::CONNECT {
        match TunnelIo::new(request, respond) {
            Ok(tunnel) => Box::pin(serve(StreamIo(StreamKind::Tunnel(tunnel)))).await,
            Err(error) => tracing::debug!(%error, "a stream of the proxy is reset"),
        }
        return;
    }
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let ends = Arc::new(StreamEnds::default());
    // The future is boxed, because a connection holds the states of many streams.
    let serving = Box::pin(serve(StreamIo(StreamKind::Exchange(ExchangeIo {
        io: far,
        ends: Arc::clone(&ends),
    }))));
    let serving = async {
        serving.await;
        ends.served.cancel();
    };
    let exchanging = async {
        let late = async {
            ends.served.cancelled().await;
            tokio::time::sleep(rest_timeout).await;
        };
        let exchanged = tokio::select! {
            biased;
            exchanged = exchange(near, request, &mut respond, &ends) => exchanged,
            () = late => Err(StreamError::Slow),
        };
        if let Err(error) = exchanged {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a stream of the proxy is reset"
            );
            respond.send_reset(error.reason());
        }
    };
    tokio::join!(serving, Box::pin(exchanging));
}

/// Sends the request to the proxy behind `io`, and its response to the client.
async fn exchange(
    io: DuplexStream,
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
    ends: &StreamEnds,
) -> Result<(), StreamError> {
    let (mut sender, connection) = client_builder().handshake(TokioIo::new(io)).await?;
    let passing = async {
        let (parts, body) = request.into_parts();
        let head = http1_head(parts, !body.is_end_stream())?;
        let request = Request::from_parts(head, RequestBody(body));
        let response = tokio::select! {
            biased;
            reset = poll_fn(|cx| respond.poll_reset(cx)) => return Err(given_up(reset)),
            response = sender.send_request(request) => response?,
        };
        send_response(response, respond).await?;
        ends.is_ended.store(true, Ordering::Release);
        Ok(())
    };
    let running = async {
        // Failures of the connection reach the request or the body that waits for it.
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        biased;
        passed = passing => passed,
        never = running => match never {},
    }
}

/// Sends a response. A body that breaks off resets the stream, because an orderly end
/// would make it look complete.
async fn send_response(
    response: Response<Incoming>,
    respond: &mut SendResponse<Bytes>,
) -> Result<(), StreamError> {
    let (mut parts, mut body) = response.into_parts();
    if parts.status.is_informational() {
        return Err(StreamError::Interim);
    }
    remove_connection_fields(&mut parts.headers);
    let is_empty = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(parts, ()), is_empty)?;
    if is_empty {
        return Ok(());
    }
    loop {
        let frame = tokio::select! {
            biased;
            reset = poll_fn(|cx| stream.poll_reset(cx)) => return Err(given_up(reset)),
            frame = body.frame() => frame,
        };
        let Some(frame) = frame.transpose()? else {
            stream.send_data(Bytes::new(), true)?;
            return Ok(());
        };
        match frame.into_data() {
            Ok(bytes) => send_bytes(&mut stream, bytes).await?,
            // Trailers are the last frame.
            Err(frame) => {
                stream.send_trailers(frame.into_trailers().unwrap_or_default())?;
                return Ok(());
            }
        }
    }
}

fn given_up(reset: Result<Reason, h2::Error>) -> StreamError {
    StreamError::Http2(reset.map_or_else(|error| error, h2::Error::from))
}

/// Sends bytes as fast as the client takes them.
async fn send_bytes(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), StreamError> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|cx| stream.poll_capacity(cx)).await;
        // Without a next capacity the stream is closed.
        let capacity = capacity.unwrap_or_else(|| Err(Reason::CANCEL.into()))?;
        stream.send_data(bytes.split_to(capacity.min(bytes.len())), false)?;
    }
    Ok(())
}

/// The connection of one stream to the rest of the proxy.
#[derive(Debug)]
pub struct StreamIo(StreamKind);

#[derive(Debug)]
enum StreamKind {
    /// A request with a response.
    Exchange(ExchangeIo),
    /// A request for a tunnel.
    Tunnel(TunnelIo),
}

impl AsyncRead for StreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            StreamKind::Exchange(io) => Pin::new(io).poll_read(cx, buffer),
            StreamKind::Tunnel(io) => Pin::new(io).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for StreamIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            StreamKind::Exchange(io) => Pin::new(io).poll_write(cx, bytes),
            StreamKind::Tunnel(io) => Pin::new(io).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            StreamKind::Exchange(io) => Pin::new(io).poll_flush(cx),
            StreamKind::Tunnel(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            StreamKind::Exchange(io) => Pin::new(io).poll_shutdown(cx),
            StreamKind::Tunnel(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

/// A client that gives its stream up shows as a reset connection, as over TCP; otherwise it would look like one that has
/// sent everything and still reads.
#[derive(Debug)]
struct ExchangeIo {
    io: DuplexStream,
    ends: Arc<StreamEnds>,
}

pass_writes_on!(ExchangeIo);

impl AsyncRead for ExchangeIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if is_end && !self.ends.is_ended.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

/// The body of a request. A body that breaks off has an error and no end.
struct RequestBody(RecvStream);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let Some(chunk) = ready!(self.0.poll_data(cx)) else {
            return Poll::Ready(None);
        };
        let released = chunk.and_then(|chunk| {
            self.0.flow_control().release_capacity(chunk.len())?;
            Ok(Frame::data(chunk))
        });
        Poll::Ready(Some(released))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::default()
    }
}
