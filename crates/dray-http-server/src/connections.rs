//! The accept loop and its connections. Dropping [`serve`] ends every connection, and with it every request on one.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use crate::RequestBody;
use crate::byte_limit::ByteLimit;
use crate::head::{HeadMeter, MAX_LARGE_HEAD_BYTES, MeteredSocket};

type BoxError = Box<dyn StdError + Send + Sync>;

/// Wait of a listener after a connection that could not be accepted, for example for lack of descriptors.
pub const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Default of [`ConnectionLimits::head_timeout`].
const DEFAULT_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Default of [`ConnectionLimits::body_idle_timeout`].
const DEFAULT_BODY_IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// Default of [`ConnectionLimits::write_idle_timeout`].
const DEFAULT_WRITE_IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// Default of [`ConnectionLimits::max_head_bytes`]. Browsers send up to about 16 KiB of cookies and referrer.
const DEFAULT_MAX_HEAD_BYTES: usize = 64 * 1024;
/// Default of [`ConnectionLimits::max_connections`].
const DEFAULT_MAX_CONNECTIONS: usize = 4_096;

/// The limits for peers of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Longest time for the complete head of a request, counted from the accepted connection or the end of the previous
    /// request. It also closes idle keep-alive connections.
    pub head_timeout: Duration,
    /// Longest wait for the next bytes of a request body, or `None` if the service itself limits that.
    pub body_idle_timeout: Option<Duration>,
    /// Longest time for which a peer may take no byte of what was sent to it (RFC 5482). The connection breaks then,
    /// and the body of the response is dropped. A peer that reads slowly is not affected, nor a response that has
    /// nothing to send.
    pub write_idle_timeout: Duration,
    /// Most bytes of a request head; a longer one is refused with status 431. At least 8 KiB. Heads above 64 KiB may
    /// have 64 MiB together while they arrive; further connections with such a head break.
    pub max_head_bytes: usize,
    /// Most concurrent connections; more wait in the backlog of the kernel.
    pub max_connections: usize,
    /// Longest time that requests may take after the stop, or `None` to wait for all of them.
    pub drain_timeout: Option<Duration>,
    /// Whether a peer that closed its sending side still gets its response (`shutdown(SHUT_WR)`, as `nc -N` does).
    /// Without it, the end of the peer's data cancels the request, so that work for a disconnected client ends.
    pub half_close: bool,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_timeout: DEFAULT_HEAD_TIMEOUT,
            body_idle_timeout: Some(DEFAULT_BODY_IDLE_TIMEOUT),
            write_idle_timeout: DEFAULT_WRITE_IDLE_TIMEOUT,
            max_head_bytes: DEFAULT_MAX_HEAD_BYTES,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            drain_timeout: None,
            half_close: false,
        }
    }
}

/// How the connections ended after a stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum DrainOutcome {
    /// Each request got its complete response.
    Complete,
    /// [`ConnectionLimits::drain_timeout`] passed, and the requests that still ran were cut off; they are dropped.
    CutOff,
}

/// Serves the listener until `stop` is cancelled. Then it closes the listener and idle connections, finishes the
/// running requests for at most [`ConnectionLimits::drain_timeout`], and returns. An error of the service closes the
/// connection without a response.
///
/// Dropping the future closes all connections immediately.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> DrainOutcome
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(limits.max_connections));
    let head_memory = ByteLimit::new(MAX_LARGE_HEAD_BYTES);
    let mut connections = JoinSet::new();
    loop {
        // Ended tasks stay in the set until they are joined; otherwise it would grow with each connection.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            // This is cancellation safe: a dropped permit is released, and `accept` loses no connection.
            accepted = accept_connection(&listener, &permits, &limits) => accepted,
        };
        match accepted {
            Ok((socket, permit)) => {
                let (service, stop) = (service.clone(), stop.clone());
                let meter = HeadMeter::new(head_memory.clone());
                let socket = MeteredSocket { socket, meter };
                connections.spawn(async move {
                    serve_connection(socket, service, limits, stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                // Without descriptors `accept` fails immediately, and the loop would spin.
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    // The listener closes before the drain, so that new connections are refused instead of waiting in the backlog.
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    match limits.drain_timeout {
        None => drained.await,
        Some(timeout) => {
            if tokio::time::timeout(timeout, drained).await.is_err() {
                // The connections are aborted and awaited: the caller may wait for work that a request begins when it
                // is dropped.
                connections.shutdown().await;
                return DrainOutcome::CutOff;
            }
        }
    }
    DrainOutcome::Complete
}

async fn accept_connection(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    limits: &ConnectionLimits,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    // The permit is acquired before `accept`, so that connections above the limit wait in the backlog of the kernel,
    // without a descriptor.
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let (socket, _) = listener.accept().await?;
    // A connection that the peer has already reset refuses the option; its first read reports the reset.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY on a connection");
    }
    // The kernel applies this timeout, because it sees each byte that the peer takes. hyper waits for a full socket
    // without a limit, and a socket becomes writable only after the peer took a large part of it.
    let timeout = Some(limits.write_idle_timeout);
    if let Err(error) = SockRef::from(&socket).set_tcp_user_timeout(timeout) {
        tracing::debug!(%error, "could not set TCP_USER_TIMEOUT on a connection");
    }
    Ok((socket, permit))
}

async fn serve_connection<S, B>(
    socket: MeteredSocket,
    service: S,
    limits: ConnectionLimits,
    stop: CancellationToken,
) where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>> + Clone,
    B: Body<Data = Bytes, Error: Into<BoxError>> + 'static,
{
    let meter = socket.meter.clone();
    let handler = service_fn(move |request: Request<Incoming>| {
        meter.end_head();
        let request = request.map(|body| RequestBody::new(body, limits.body_idle_timeout));
        let end = request.body().end();
        let response = service.clone().oneshot(request);
        let meter = meter.clone();
        async move {
            let mut response = response.await?;
            // hyper closes the connection when the rest of the body has not arrived by then. Without this header, a client
            // would send its next request on it (RFC 9112, section 9.6).
            if end.is_reached() {
                meter.begin_head();
            } else {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, S::Error>(response)
        }
    });
    let connection = http1::Builder::new()
        // hyper panics on a header timeout without a timer.
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.max_head_bytes)
        .half_close(limits.half_close)
        .serve_connection(TokioIo::new(socket), handler);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            // Finishes the response that is being sent; idle keep-alive connections close immediately.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
