//! A scripted HTTP/1 server that sends any bytes at any speed and records the request heads.
//!
//! The server is not an HTTP implementation: a response is a list of [`ResponseStep`]s, which are deliberately not
//! validated. [`serve_request`] handles one connection over any stream, so the same scripts run over sockets, TLS and
//! memory.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::listen::ConnectionServer;

/// Most bytes of a request head. The server responds to a longer head without reading the rest.
const HEAD_LIMIT: usize = 256 * 1024;

/// Announces to clients that the connection ends. Without it, a client with a pool may send its next request on the
/// connection at the moment when the server closes it, and that request fails.
const CLOSE_FIELD: &str = "Connection: close\r\n";

/// One step of a response, after a request head was read.
#[derive(Clone, Debug)]
pub enum ResponseStep {
    /// Writes these bytes and flushes them.
    Send(Bytes),
    /// Writes these bytes this many times; `u64::MAX` is endless.
    Repeat(Bytes, u64),
    /// Waits for this time with the connection open.
    Pause(Duration),
    /// Keeps the connection open without sending a byte until the peer closes it.
    Hold,
    /// Closes the connection without `close_notify` of TLS. Over plain TCP this is a normal close.
    Drop,
}

impl ResponseStep {
    /// A step that writes a copy of `bytes`.
    pub fn send(bytes: impl AsRef<[u8]>) -> Self {
        Self::Send(Bytes::copy_from_slice(bytes.as_ref()))
    }
}

/// A complete response: the steps in order, then a regular close of the connection.
#[derive(Clone, Debug, Default)]
pub struct ResponseScript(pub Vec<ResponseStep>);

impl ResponseScript {
    /// A response of exactly these bytes, then a regular close. A head for a client with a connection pool needs
    /// `Connection: close`.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self(vec![ResponseStep::send(bytes)])
    }

    /// `200` with a correct `Content-Length`.
    pub fn ok(body: impl AsRef<[u8]>) -> Self {
        Self::with_fields(&[], body)
    }

    /// `200` with these fields, a correct `Content-Length` and `Connection: close`.
    pub fn with_fields(fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{CLOSE_FIELD}",
            body.len()
        );
        for (name, value) in fields {
            // Writing to a string cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        Self(vec![ResponseStep::send(head), ResponseStep::send(body)])
    }

    /// This status, without a body.
    pub fn status(code: u16) -> Self {
        Self::raw(format!(
            "HTTP/1.1 {code} Any\r\nContent-Length: 0\r\n{CLOSE_FIELD}\r\n"
        ))
    }

    /// A redirect with this status to `location`.
    pub fn redirect(code: u16, location: &str) -> Self {
        Self::raw(format!(
            "HTTP/1.1 {code} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n{CLOSE_FIELD}\r\n"
        ))
    }

    /// Adds a step at the end of the script.
    #[must_use]
    pub fn then(mut self, step: ResponseStep) -> Self {
        self.0.push(step);
        self
    }
}

/// A request head as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedRequest {
    /// Every byte up to and including the empty line.
    pub head: String,
}

impl ReceivedRequest {
    /// Target of the request line; empty without one.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// First field of this name, ignoring case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Chooses the response to each request, and records every request head.
#[derive(Clone)]
pub struct ScriptedResponder {
    respond: Arc<dyn Fn(&ReceivedRequest) -> ResponseScript + Send + Sync>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl std::fmt::Debug for ScriptedResponder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedResponder")
            .field("received_requests", &self.received_requests())
            .finish_non_exhaustive()
    }
}

impl ScriptedResponder {
    /// A responder that calls `respond` for the response to each request.
    pub fn new(
        respond: impl Fn(&ReceivedRequest) -> ResponseScript + Send + Sync + 'static,
    ) -> Self {
        Self {
            respond: Arc::new(respond),
            requests: Arc::default(),
        }
    }

    /// A responder that always sends `script`.
    pub fn always(script: ResponseScript) -> Self {
        Self::new(move |_| script.clone())
    }

    /// Every request head so far.
    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn respond_to(&self, request: ReceivedRequest) -> ResponseScript {
        // The closure is called before the request is recorded and without the lock, because the closure may call
        // `received_requests`.
        let script = (self.respond)(&request);
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        script
    }
}

/// Reads one request head from `stream` and sends the response.
///
/// Returns the errors of the stream. A peer that closes the connection during the response is an error.
pub async fn serve_request<S>(mut stream: S, responder: &ScriptedResponder) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(head) = read_head(&mut stream).await? else {
        return Ok(());
    };
    for step in responder.respond_to(ReceivedRequest { head }).0 {
        match step {
            ResponseStep::Send(bytes) => write_bytes(&mut stream, &bytes).await?,
            ResponseStep::Repeat(bytes, times) => {
                for _ in 0..times {
                    write_bytes(&mut stream, &bytes).await?;
                }
            }
            ResponseStep::Pause(time) => tokio::time::sleep(time).await,
            ResponseStep::Hold => {
                // Keeps reading, so that the task notices when the peer closes the connection.
                tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
            }
            // The connection is dropped without a `shutdown`, which would send `close_notify` over TLS.
            ResponseStep::Drop => return Ok(()),
        }
    }
    stream.shutdown().await
}

async fn write_bytes<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    // TLS buffers bytes until a flush; otherwise a pause would happen before the bytes are sent.
    stream.flush().await
}

async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    // A head without an end gets a response too, because tests of limits send such heads.
    while !head.windows(4).any(|window| window == b"\r\n\r\n") && head.len() < HEAD_LIMIT {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(None);
        }
        head.extend_from_slice(chunk.get(..count).unwrap_or_default());
    }
    Ok(Some(String::from_utf8_lossy(&head).into_owned()))
}

/// The scripted server on a loopback port. Dropping the value ends the server and its connections.
#[derive(Debug)]
pub struct FakeHttpServer {
    server: ConnectionServer,
    responder: ScriptedResponder,
}

impl FakeHttpServer {
    /// Listens on a free loopback port.
    pub async fn start(responder: ScriptedResponder) -> io::Result<Self> {
        Self::listen(responder, None).await
    }

    /// Listens on a free loopback port and uses TLS with `acceptor`.
    pub async fn start_tls(
        responder: ScriptedResponder,
        acceptor: TlsAcceptor,
    ) -> io::Result<Self> {
        Self::listen(responder, Some(acceptor)).await
    }

    async fn listen(
        responder: ScriptedResponder,
        acceptor: Option<TlsAcceptor>,
    ) -> io::Result<Self> {
        let shared = responder.clone();
        let serve = move |stream| serve_connection(stream, shared.clone(), acceptor.clone());
        Ok(Self {
            server: ConnectionServer::start((Ipv4Addr::LOCALHOST, 0).into(), serve).await?,
            responder,
        })
    }

    /// Address on loopback, the same for plain and TLS connections.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Every request head so far.
    pub fn received_requests(&self) -> Vec<ReceivedRequest> {
        self.responder.received_requests()
    }
}

async fn serve_connection(
    stream: TcpStream,
    responder: ScriptedResponder,
    acceptor: Option<TlsAcceptor>,
) -> io::Result<()> {
    match acceptor {
        None => serve_request(stream, &responder).await,
        Some(acceptor) => serve_request(acceptor.accept(stream).await?, &responder).await,
    }
}
