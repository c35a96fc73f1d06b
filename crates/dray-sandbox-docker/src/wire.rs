//! HTTP to the engine, for calls that the client library does not support.
//!
//! The archive calls need paths that are not UTF-8, a declared length, and responses that are distinguished by their
//! head. Each transfer has its own connection, driven by its reader or writer. Dropping the reader or writer closes the
//! connection immediately, which also unblocks the container: the engine locks it during a transfer.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind};
use futures_util::StreamExt as _;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::dial::{SshEndpoint, TlsEndpoint};
use crate::fault;

/// Bytes that are gathered before they are passed on.
const CHUNK_BYTES: usize = 256 * 1024;
/// Longest text of a refusal in bytes.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// The address on which the engine listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Path of a Unix socket of this host.
    Unix(PathBuf),
    /// Host and port, without TLS.
    Tcp(String),
    /// Host and port, with TLS.
    Tls(TlsEndpoint),
    /// Another host, reached over SSH.
    Ssh(SshEndpoint),
}

/// A stream of any of these kinds.
pub(crate) trait EngineStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> EngineStream for T {}

/// A connection to the engine, in the form that hyper accepts.
pub(crate) type Io = TokioIo<Box<dyn EngineStream>>;

/// Reports a socket without a listener as one that does not exist. An engine that was killed leaves it, and one that is
/// restarted removes it or, with socket activation, keeps listening. A full queue of connections is another error.
fn left_socket(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return io::Error::new(io::ErrorKind::NotFound, error);
    }
    error
}

impl Endpoint {
    /// Connects within the time limit.
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator chose this address, no other party can"
    )]
    pub(crate) async fn connect(&self, connect_timeout: Duration) -> io::Result<Io> {
        let connecting = async {
            Ok::<Box<dyn EngineStream>, io::Error>(match self {
                Self::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(left_socket)?),
                Self::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
                Self::Tls(tls) => {
                    let stream = TcpStream::connect(&tls.address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(tls.connect(stream).await?)
                }
                Self::Ssh(ssh) => Box::new(ssh.connect()?),
            })
        };
        match timeout(connect_timeout, connecting).await {
            Ok(connected) => Ok(TokioIo::new(connected?)),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Body of a request: nothing, JSON or an archive as a stream.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, Error>;

type Driver = Pin<Box<http1::Connection<Io, RequestBody>>>;

/// A connection that carries one request after another.
pub(crate) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    /// The state machine of the connection; `None` once it is closed.
    driver: Option<Driver>,
}

impl Connection {
    pub(crate) async fn open(
        endpoint: &Endpoint,
        connect_timeout: Duration,
    ) -> Result<Self, Error> {
        const ACTIVITY_NAME: &str = "connecting to the engine";
        let io = endpoint.connect(connect_timeout).await;
        let io = io.map_err(|error| fault::broken(ACTIVITY_NAME, error))?;
        let (sender, driver) = http1::handshake(io)
            .await
            .map_err(|error| fault::broken(ACTIVITY_NAME, error))?;
        Ok(Self {
            sender,
            driver: Some(Box::pin(driver)),
        })
    }

    /// Sends a request and waits for the head of the response. Polls the connection meanwhile, which has no separate
    /// task.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Error> {
        let Self { sender, driver } = self;
        let mut sending = pin!(async {
            sender.ready().await?;
            sender.send_request(request).await
        });
        let response = poll_fn(|context| {
            loop {
                // The request is polled first: the connection may have read its response in the last round.
                if let Poll::Ready(response) = sending.as_mut().poll(context) {
                    return Poll::Ready(response);
                }
                if drive(driver, context).is_pending() {
                    return sending.as_mut().poll(context);
                }
            }
        });
        response
            .await
            .map_err(|error| fault::broken("asking the engine", error))
    }

    /// Whether the connection can take another request.
    pub(crate) fn is_open(&self) -> bool {
        self.driver.is_some() && !self.sender.is_closed()
    }
}

/// Polls the connection, which moves its bytes; ready when it has just closed.
fn drive(driver: &mut Option<Driver>, context: &mut Context<'_>) -> Poll<()> {
    let Some(running) = driver else {
        return Poll::Pending;
    };
    match running.as_mut().poll(context) {
        // Requests and bodies under way get the reason from hyper.
        Poll::Ready(_) => {
            *driver = None;
            Poll::Ready(())
        }
        Poll::Pending => Poll::Pending,
    }
}

/// A response with its connection, which must live until the body was read.
pub(crate) struct EngineResponse {
    /// Status code of the response.
    pub(crate) status: StatusCode,
    /// Header fields of the response.
    pub(crate) headers: HeaderMap,
    body: Incoming,
    connection: Connection,
}

impl EngineResponse {
    pub(crate) fn new(connection: Connection, response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body,
            connection,
        }
    }

    /// Passes a success on. Any other status becomes the refusal of what `context` names, with the engine's message.
    pub(crate) async fn require_success(self, context: &'static str) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let status = self.status.as_u16();
        let message = self.message().await?;
        Err(fault::refused(context, status, &message))
    }

    /// Reads the message of a refusal; text that is not JSON counts as the message.
    async fn message(self) -> Result<String, Error> {
        let (text, _) = self.text().await?;
        Ok(serde_json::from_slice::<RefusalBody>(&text).map_or_else(
            |_| String::from_utf8_lossy(&text).into_owned(),
            |message| message.message,
        ))
    }

    /// Reads a short body to its end, so that the connection can be used again.
    pub(crate) async fn text(self) -> Result<(Vec<u8>, Connection), Error> {
        let mut all = Vec::new();
        let mut reply = self;
        while let Some(chunk) = poll_fn(|context| reply.poll_chunk(context)).await {
            all.extend_from_slice(&chunk?);
            if all.len() > MAX_REFUSAL_BYTES {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "the message of a refusal has no end",
                ));
            }
        }
        Ok((all, reply.connection))
    }

    /// The body as a stream. Reading it drives the connection.
    pub(crate) fn into_body(self) -> Body {
        Body::new(futures_util::stream::unfold(Some(self), async |state| {
            let mut reply = state?;
            match poll_fn(|context| reply.poll_chunk(context)).await? {
                Ok(chunk) => Some((Ok(chunk), Some(reply))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    /// Collects the bytes that have arrived, up to the size of a chunk.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let mut collected = BytesMut::new();
        let mut driven = false;
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers hold no content.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    driven = false;
                    if collected.is_empty() {
                        if data.len() >= CHUNK_BYTES {
                            return Poll::Ready(Some(Ok(data)));
                        }
                        collected.reserve(CHUNK_BYTES + data.len());
                    }
                    collected.extend_from_slice(&data);
                    if collected.len() >= CHUNK_BYTES {
                        return Poll::Ready(Some(Ok(collected.freeze())));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    let error = fault::broken("reading the engine's answer", error);
                    return Poll::Ready(Some(Err(error)));
                }
                // The connection passes on one frame at a time and may hold the next one already.
                Poll::Pending if !driven => {
                    driven = true;
                    let _ = drive(&mut self.connection.driver, context);
                }
                Poll::Pending if collected.is_empty() => return Poll::Pending,
                Poll::Ready(None) if collected.is_empty() => return Poll::Ready(None),
                Poll::Pending | Poll::Ready(None) => {
                    return Poll::Ready(Some(Ok(collected.freeze())));
                }
            }
        }
    }
}

/// The JSON of a refusal.
#[derive(serde::Deserialize)]
struct RefusalBody {
    message: String,
}

/// The body of an upload. The head declares no length: a tar marks its own end.
pub(crate) fn outgoing(body: Body) -> RequestBody {
    UnsyncBoxBody::new(StreamBody::new(body.map(|chunk| chunk.map(Frame::data))))
}

/// The body of a request without one.
pub(crate) fn empty() -> RequestBody {
    UnsyncBoxBody::new(Empty::new().map_err(|never| match never {}))
}
