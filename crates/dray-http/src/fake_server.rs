//! A small HTTP server (feature `fake-server`) for fake servers of platforms and providers.
//!
//! Bodies are counted and hashed while they arrive and are not stored, so that a fake server can receive bodies of any
//! size. It has its state behind one lock, and returns [`ConnectionClosed`] to break a connection without a response.

mod form;
mod reader;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use form::{FormData, FormPart};
pub use reader::{BodyReader, ContentDigest, MalformedBody};

/// The fake server breaks the connection without a response.
#[derive(Debug)]
pub struct ConnectionClosed;

impl fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fake server closed the connection")
    }
}

impl std::error::Error for ConnectionClosed {}

impl From<MalformedBody> for ConnectionClosed {
    fn from(_: MalformedBody) -> Self {
        Self
    }
}

/// The response of a fake server, with its body still to be sent.
pub type Reply = Response<BoxBody<Bytes, ConnectionClosed>>;

/// A request whose body was not read yet.
#[derive(Debug)]
pub struct ReceivedRequest {
    /// Method in upper case.
    pub method: String,
    /// Path as sent, with its escapes.
    pub path: String,
    /// Query as sent, with its escapes; empty for none.
    pub query: String,
    headers: http::HeaderMap,
    body: Incoming,
    count: Arc<AtomicU64>,
    upgrade: OnUpgrade,
}

impl ReceivedRequest {
    /// A header; `None` when it is absent or not printable ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The first parameter of this name in the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        form::decode_pairs(&self.query)
            .into_iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// All parameters of the query, decoded.
    pub fn parameters(&self) -> Vec<(String, String)> {
        form::decode_pairs(&self.query)
    }

    /// `Content-Length` as sent; `None` for a chunked body.
    pub fn length(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// The upgraded connection after a response with status 101.
    pub fn into_upgrade(self) -> OnUpgrade {
        self.upgrade
    }

    /// Returns a reader of the body.
    pub fn into_reader(self) -> BodyReader {
        BodyReader::new(self.body, self.count)
    }

    /// A `multipart/form-data` or `application/x-www-form-urlencoded` body.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when it is neither, or breaks.
    pub async fn form(self) -> Result<FormData, MalformedBody> {
        let media_type = self.header("content-type").unwrap_or_default().to_owned();
        form::read_form(&media_type, self.into_reader()).await
    }

    /// Reads a JSON body of at most 4 MiB.
    ///
    /// # Errors
    ///
    /// [`MalformedBody`] when the body is not JSON, or the connection breaks.
    pub async fn json(self) -> Result<serde_json::Value, MalformedBody> {
        let bytes = self.into_reader().all().await?;
        serde_json::from_slice(&bytes).map_err(|_| MalformedBody)
    }
}

/// Makes a response with a JSON body.
pub fn json_reply(status: u16, value: &serde_json::Value) -> Reply {
    bytes_reply(status, "application/json", value.to_string().into())
}

/// Makes a response with this body. An impossible status becomes 200.
pub fn bytes_reply(status: u16, media_type: &'static str, body: Bytes) -> Reply {
    let whole = Full::new(body)
        .map_err(|never: Infallible| match never {})
        .boxed();
    let mut reply = Response::new(whole);
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    reply.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(media_type),
    );
    reply
}

/// Makes a response that announces all of `body` and breaks the connection after `sent_bytes` of it.
pub fn cut_reply(media_type: &'static str, body: &Bytes, sent_bytes: usize) -> Reply {
    let first = body.slice(..sent_bytes.min(body.len()));
    let first = futures_util::stream::iter([Ok(Frame::data(first))]);
    // The given bytes are sent before the connection breaks.
    let broken = futures_util::stream::once(async {
        tokio::task::yield_now().await;
        Err(ConnectionClosed)
    });
    let mut reply = Response::new(BoxBody::new(StreamBody::new(first.chain(broken))));
    let headers = reply.headers_mut();
    headers.insert(http::header::CONTENT_LENGTH, body.len().into());
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(media_type),
    );
    reply
}

/// Makes a response whose body is sent as it comes; an error of the stream breaks the connection.
pub fn stream_reply(
    media_type: &'static str,
    body: impl Stream<Item = Result<Bytes, ConnectionClosed>> + Send + 'static,
) -> Reply {
    // A body has to be `Sync`. The mutex is never locked: polling has exclusive access.
    let mut body = Mutex::new(Box::pin(body));
    let frames = futures_util::stream::poll_fn(move |context| {
        let body = body.get_mut().unwrap_or_else(PoisonError::into_inner);
        body.as_mut()
            .poll_next(context)
            .map(|next| next.map(|bytes| bytes.map(Frame::data)))
    });
    let mut reply = Response::new(BoxBody::new(StreamBody::new(frames)));
    reply.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(media_type),
    );
    reply
}

/// The same response with one more header. An invalid value is left out.
pub fn with_header(mut reply: Reply, name: &'static str, value: &str) -> Reply {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply
            .headers_mut()
            .insert(HeaderName::from_static(name), value);
    }
    reply
}

/// Handles the requests of one fake server; implemented by closures of this type.
pub trait RequestHandler<S>: Send + Sync + 'static {
    /// Returns a response, or breaks the connection.
    fn answer(
        &self,
        state: Arc<SharedState<S>>,
        request: ReceivedRequest,
    ) -> BoxFuture<'static, Result<Reply, ConnectionClosed>>;
}

impl<S, F> RequestHandler<S> for F
where
    F: Fn(
            Arc<SharedState<S>>,
            ReceivedRequest,
        ) -> BoxFuture<'static, Result<Reply, ConnectionClosed>>
        + Send
        + Sync
        + 'static,
{
    fn answer(
        &self,
        state: Arc<SharedState<S>>,
        request: ReceivedRequest,
    ) -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        self(state, request)
    }
}

/// The shared state of a fake server's handlers: its state, its address and a counter.
#[derive(Debug)]
pub struct SharedState<S> {
    state: Mutex<S>,
    received: Arc<AtomicU64>,
    address: SocketAddr,
}

impl<S> SharedState<S> {
    /// The state, locked. The lock must not be held across an `await`.
    pub fn lock(&self) -> MutexGuard<'_, S> {
        // Ignores poisoning, so that a test that panicked reports its own failure.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The base of its URLs, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes of bodies read from all connections until now.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }
}

/// A server on a loopback port. It ends, connections included, when it is dropped.
#[derive(Debug)]
pub struct FakeServer<S> {
    shared: Arc<SharedState<S>>,
    _serving: JoinSet<()>,
}

impl<S: Send + 'static> FakeServer<S> {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start(state: S, response: impl RequestHandler<S>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let shared = Arc::new(SharedState {
            state: Mutex::new(state),
            received: Arc::default(),
            address: listener.local_addr()?,
        });
        let mut serving = JoinSet::new();
        serving.spawn(serve_connections(
            listener,
            Arc::clone(&shared),
            Arc::new(response),
        ));
        Ok(Self {
            shared,
            _serving: serving,
        })
    }

    /// The state that the server shares with its handlers, for inspection in tests.
    pub fn shared(&self) -> &Arc<SharedState<S>> {
        &self.shared
    }
}

async fn serve_connections<S: Send + 'static>(
    listener: TcpListener,
    shared: Arc<SharedState<S>>,
    response: Arc<impl RequestHandler<S>>,
) {
    // This task owns the set: dropping the server ends it, and with it every connection.
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        // Removes ended connections, or the set would grow with every request.
        while connections.try_join_next().is_some() {}
        let (shared, response) = (Arc::clone(&shared), Arc::clone(&response));
        // Otherwise small messages, such as those of a WebSocket, wait 40 ms for an acknowledgement (Nagle's
        // algorithm).
        if socket.set_nodelay(true).is_err() {
            continue;
        }
        connections.spawn(async move {
            let service = service_fn(move |mut request: http::Request<Incoming>| {
                // The call comes before the request is destructured, because it removes its handle from the extensions.
                let upgrade = hyper::upgrade::on(&mut request);
                let (head, body) = request.into_parts();
                let received = ReceivedRequest {
                    method: head.method.as_str().to_owned(),
                    path: head.uri.path().to_owned(),
                    query: head.uri.query().unwrap_or_default().to_owned(),
                    headers: head.headers,
                    body,
                    count: Arc::clone(&shared.received),
                    upgrade,
                };
                response.answer(Arc::clone(&shared), received)
            });
            // Errors are ignored, because some tests break connections.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .with_upgrades()
                .await;
        });
    }
}
