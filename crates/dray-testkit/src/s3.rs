//! A proxy in front of an S3 endpoint that injects faults: refused, cut, failed, altered and late requests.
//!
//! It forwards unmodified requests, including the `Host` field, so signatures stay valid. [`FaultRule`]s define the
//! faults: the first one that matches a request and is not used up applies.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A fault that is injected into a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Fault {
    /// The connection ends without a response, and the endpoint does not get the request.
    Down,
    /// The endpoint handles the request, but its response is lost with the connection.
    LostResponse,
    /// The endpoint does not get the request. The client gets this status, with an S3 error document from 400 on.
    Status(u16),
    /// The endpoint does not get the request. The client gets status 200 with an S3 error document, as S3 reports the
    /// failure of a copy that began as a success.
    ErrorInSuccess,
    /// The connection ends after this many bytes of the request's body.
    CutRequest(u64),
    /// The connection ends after this many bytes of the response body.
    CutResponse(u64),
    /// One bit of the request's body is flipped, at this byte.
    AlterRequest(u64),
    /// One bit of the response body is flipped, at this byte.
    AlterResponse(u64),
    /// No response is ever sent.
    Stall,
    /// The head of the response is sent, but never its body.
    StallBody,
    /// The response is delayed by this time.
    Late(Duration),
}

type Matches = Box<dyn Fn(&Parts) -> bool + Send + Sync>;

/// The requests that get a fault, and how often.
pub struct FaultRule {
    matches: Matches,
    fault: S3Fault,
    remaining: usize,
}

impl FaultRule {
    /// Every request for which `matches` returns true.
    pub fn new(fault: S3Fault, matches: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self {
            matches: Box::new(matches),
            fault,
            remaining: usize::MAX,
        }
    }

    /// A rule for every request, of any method and path.
    pub fn all(fault: S3Fault) -> Self {
        Self::new(fault, |_| true)
    }

    /// Applies the fault to the first `count` matching requests alone.
    #[must_use]
    pub fn times(mut self, count: usize) -> Self {
        self.remaining = count;
        self
    }
}

impl std::fmt::Debug for FaultRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultRule")
            .field("fault", &self.fault)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct FaultScript {
    rules: Vec<FaultRule>,
    /// Method and target of every request, in the order of arrival.
    request_lines: Vec<String>,
}

/// A running proxy. Ends when dropped.
pub struct FaultyS3 {
    address: SocketAddr,
    script: Arc<Mutex<FaultScript>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for FaultyS3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyS3")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl FaultyS3 {
    /// Forwards from a free loopback port to `upstream`. Without rules it injects no faults.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let proxy = Self {
            address: listener.local_addr()?,
            script: Arc::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let script = Arc::clone(&proxy.script);
        let (stop, tasks) = (proxy.stop.clone(), proxy.tasks.clone());
        proxy.tasks.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { continue };
                let script = Arc::clone(&script);
                let serving = serve_proxy(stream, upstream, script, tasks.clone());
                // Ends with the proxy, because a stalled connection would otherwise last as long as the test.
                tasks.spawn(stop.clone().run_until_cancelled_owned(serving));
            }
        });
        Ok(proxy)
    }

    /// Address on loopback that clients use in place of the endpoint's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL of the proxy, without a slash at its end.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a rule after the existing ones.
    pub fn add(&self, rule: FaultRule) {
        self.script().rules.push(rule);
    }

    /// Removes all rules, so that every request is forwarded unchanged.
    pub fn clear_faults(&self) {
        self.script().rules.clear();
    }

    /// Method and target of every request so far.
    pub fn received_requests(&self) -> Vec<String> {
        self.script().request_lines.clone()
    }

    fn script(&self) -> std::sync::MutexGuard<'_, FaultScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultyS3 {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.close();
    }
}

impl FaultScript {
    /// Records the request and returns the fault for it.
    fn record_request(&mut self, request: &Parts) -> Option<S3Fault> {
        self.request_lines
            .push(format!("{} {}", request.method, request.uri));
        // The first rule that is not used up, so a rule with `times` hides later ones only until it is used up.
        let rule = self
            .rules
            .iter_mut()
            .find(|rule| rule.remaining > 0 && (rule.matches)(request))?;
        rule.remaining -= 1;
        Some(rule.fault)
    }
}

/// A body that is forwarded; an error breaks the connection.
type ForwardedBody = http_body_util::combinators::BoxBody<Bytes, io::Error>;

async fn serve_proxy(
    stream: TcpStream,
    upstream: SocketAddr,
    script: Arc<Mutex<FaultScript>>,
    tasks: TaskTracker,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (script, tasks) = (Arc::clone(&script), tasks.clone());
        async move {
            let (parts, body) = request.into_parts();
            let fault = script
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .record_request(&parts);
            handle_request(upstream, Request::from_parts(parts, body), fault, &tasks).await
        }
    });
    // The error is ignored: this proxy breaks connections on purpose.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn handle_request(
    upstream: SocketAddr,
    request: Request<Incoming>,
    fault: Option<S3Fault>,
    tasks: &TaskTracker,
) -> io::Result<Response<ForwardedBody>> {
    let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
    match fault {
        Some(S3Fault::Down) => return Err(broken()),
        Some(S3Fault::Status(status)) => return Ok(refusal_response(status, status >= 400)),
        Some(S3Fault::ErrorInSuccess) => return Ok(refusal_response(200, true)),
        Some(S3Fault::Stall) => std::future::pending().await,
        _ => {}
    }
    let corruption = match fault {
        Some(S3Fault::CutRequest(after)) => BodyCorruption::Cut(after),
        Some(S3Fault::AlterRequest(at)) => BodyCorruption::Alter(at),
        _ => BodyCorruption::None,
    };
    let request = request.map(|body| CorruptedBody::new(body, corruption).boxed());
    let response = forward_request(upstream, request, tasks).await?;
    let corruption = match fault {
        Some(S3Fault::LostResponse) => {
            // The response is read completely, so that the endpoint has handled the request before the connection
            // breaks.
            let _ = response.into_body().collect().await;
            return Err(broken());
        }
        Some(S3Fault::Late(by)) => {
            tokio::time::sleep(by).await;
            BodyCorruption::None
        }
        Some(S3Fault::CutResponse(after)) => BodyCorruption::Cut(after),
        Some(S3Fault::AlterResponse(at)) => BodyCorruption::Alter(at),
        Some(S3Fault::StallBody) => BodyCorruption::Stall,
        _ => BodyCorruption::None,
    };
    Ok(response.map(|body| CorruptedBody::new(body, corruption).boxed()))
}

/// Forwards a request over a connection of its own, which is slow but simple to break.
async fn forward_request(
    upstream: SocketAddr,
    request: Request<ForwardedBody>,
    tasks: &TaskTracker,
) -> io::Result<Response<Incoming>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a fake server that connects to the endpoint it was given"
    )]
    let stream = TcpStream::connect(upstream).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // hyper needs its connection polled in a separate task; it ends with the response.
    tasks.spawn(connection);
    sender.send_request(request).await.map_err(io::Error::other)
}

fn refusal_response(status: u16, has_document: bool) -> Response<ForwardedBody> {
    // The error codes of S3 for these statuses, by which clients decide whether to repeat a request.
    let code = if status == 503 {
        "SlowDown"
    } else {
        "InternalError"
    };
    let body = if has_document {
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>")
    } else {
        String::new()
    };
    let body = Full::new(Bytes::from(body))
        .map_err(|never| match never {})
        .boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    response
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyCorruption {
    None,
    Cut(u64),
    Alter(u64),
    Stall,
}

/// A body that is cut, altered or stalled while it is forwarded.
struct CorruptedBody {
    body: Incoming,
    corruption: BodyCorruption,
    forwarded_bytes: u64,
}

impl CorruptedBody {
    fn new(body: Incoming, corruption: BodyCorruption) -> Self {
        Self {
            body,
            corruption,
            forwarded_bytes: 0,
        }
    }

    fn corrupt(&mut self, bytes: Bytes) -> io::Result<Bytes> {
        let start = self.forwarded_bytes;
        self.forwarded_bytes += bytes.len() as u64;
        match self.corruption {
            BodyCorruption::Cut(after) if self.forwarded_bytes > after => {
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            }
            BodyCorruption::Alter(at) if (start..self.forwarded_bytes).contains(&at) => {
                let mut altered = BytesMut::from(&bytes[..]);
                let index = usize::try_from(at - start).unwrap_or_default();
                if let Some(byte) = altered.get_mut(index) {
                    *byte ^= 1;
                }
                Ok(altered.freeze())
            }
            _ => Ok(bytes),
        }
    }
}

impl Body for CorruptedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        // The body is pending without a waker, on purpose: the body never continues.
        if self.corruption == BodyCorruption::Stall {
            return Poll::Pending;
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            match frame.map_err(io::Error::other)?.into_data() {
                Ok(bytes) => self.corrupt(bytes).map(Frame::data),
                Err(other) => other
                    .into_trailers()
                    .map(Frame::trailers)
                    .map_err(|_| io::Error::from(io::ErrorKind::InvalidData)),
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
