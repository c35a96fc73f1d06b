//! The connection of a client over HTTP/2, over TLS whose handshake agreed on it.
//!
//! Each stream is one request and is served as if it had come over HTTP/1.1 on a connection of its own: hyper writes
//! its head and frames its bodies between both ([`super::stream`]). So there is one reading of heads, one judgement and
//! one audit for all versions. Several streams share a connection, their identities do not: each request has its
//! own token.
//!
//! Bounds: h2 limits header lists, the size of frames, resets and short frames. Flow control limits the bytes that wait
//! for a slow target, and no target can take the window of another stream. All streams of the process have as many
//! places as connections of HTTP/1.1 have, and a tenant has a share of them. A connection that has not identified a
//! client within the time for a head is closed.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_guard::proxy_token::token_of;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::header::{HeaderName, HeaderValue, PROXY_AUTHORIZATION, RETRY_AFTER};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::places::StreamSlot;
use super::stream::serve_as_http1;
use crate::metrics::UNKNOWN_PROTOCOL;
use crate::proxy::certificate::ClientCertificate;
use crate::proxy::head::MAX_HEAD_BYTES;
use crate::proxy::listener::UnidentifiedPermit;
use crate::proxy::refusal::ProxyRefusal;
use crate::proxy::serve::ForwardProxy;

/// Most streams of one connection at a time: what browsers and servers assume.
const MAX_STREAMS: u32 = 100;
/// Most streams of one connection that are served at a time. A stream that its client has reset no longer counts for
/// HTTP/2, while its name is resolved or its event is published; the others wait.
const MAX_SERVED_STREAMS: usize = 2 * MAX_STREAMS as usize;
/// Most bytes that a client may send on a stream before they are passed on.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// The same for all streams of a connection: enough for each, so that targets that take nothing hold up no other
/// stream.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;
/// Most bytes that wait to be sent on a stream.
const MAX_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Largest payload of a frame: the least that an endpoint may announce (RFC 9113, section 6.5.2).
const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// Longest time that a connection stays without a stream.
const MAX_IDLE_TIME: Duration = Duration::from_mins(1);
/// Longest time that a client without streams has to close a connection that begins no more of them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time that a client has to take the rest of a response after the proxy has finished its request.
const REST_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a connection begins streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionStage {
    /// It does.
    Open,
    /// It had no stream for too long. A stream that was on its way is served.
    Idle,
    /// Its client has to be judged again: every further stream is refused.
    Over,
}

impl ForwardProxy {
    /// Serves the streams of a client until its connection ends. `permit` is given back once a request is identified.
    /// `replaced`: other files for TLS are in force, so the certificate may be revoked.
    pub(in crate::proxy) async fn serve_http2<S>(
        self: &Arc<Self>,
        io: S,
        certificate: Option<ClientCertificate>,
        permit: UnidentifiedPermit,
        replaced: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let identified_by = Instant::now() + self.settings().head_timeout;
        let handshake = h2::server::Builder::new()
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .max_frame_size(MAX_FRAME_BYTES)
            .max_send_buffer_size(MAX_SEND_BUFFER_BYTES)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(io);
        match timeout_at(identified_by, handshake).await {
            Ok(Ok(connection)) => {
                let unidentified = Some((permit, identified_by));
                let expires_s = certificate
                    .as_ref()
                    .map(|certificate| certificate.expires_s);
                let last_stream = self.last_stream(expires_s, &replaced);
                self.serve_streams(connection, certificate, unidentified, last_stream)
                    .await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "no HTTP/2 with a client of the proxy"),
            Err(_) => self.count_unidentified(),
        }
    }

    /// Waits until a connection may begin no further stream: the process stops, the certificate has expired or may be
    /// revoked, or the connection is as old as a tunnel may be. A handshake then judges the client again.
    async fn last_stream(&self, expires_s: Option<u64>, replaced: &CancellationToken) {
        let now_ms = self.now_ms();
        let valid = expires_s.map_or(Duration::MAX, |expires_s| {
            Duration::from_millis(expires_s.saturating_mul(1000).saturating_sub(now_ms))
        });
        tokio::select! {
            () = self.draining().cancelled() => {}
            () = replaced.cancelled() => {}
            () = sleep(self.settings().tunnel_timeout.min(valid)) => {}
        }
    }

    /// Serves streams concurrently. `unidentified`: the place of the client, and the instant until which the client
    /// keeps it. After `last_stream` the streams that are open are served to their end, and no other.
    async fn serve_streams<S>(
        self: &Arc<Self>,
        mut connection: Connection<S, Bytes>,
        certificate: Option<ClientCertificate>,
        mut unidentified: Option<(UnidentifiedPermit, Instant)>,
        last_stream: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // Each stream has a task, so that several are served while the connection sends. The tasks end with this future.
        let mut streams = JoinSet::new();
        let (mut stage, mut idle_since) = (ConnectionStage::Open, Instant::now());
        tokio::pin!(last_stream);
        loop {
            let idle_until = idle_since
                + match stage {
                    ConnectionStage::Open => MAX_IDLE_TIME,
                    ConnectionStage::Idle | ConnectionStage::Over => CLOSE_TIMEOUT,
                };
            let identified_by = unidentified.as_ref().map(|(_, until)| *until);
            let has_room = streams.len() < MAX_SERVED_STREAMS;
            tokio::select! {
                biased;
                () = &mut last_stream, if stage != ConnectionStage::Over => {
                    (stage, idle_since) = (ConnectionStage::Over, Instant::now());
                    connection.graceful_shutdown();
                }
                () = sleep_until_some(identified_by) => return self.count_unidentified(),
                Some(served) = streams.join_next() => {
                    log_panic(served);
                    idle_since = Instant::now();
                }
                accepted = next_stream(&mut connection, has_room) => {
                    let Some((request, mut respond)) = accepted else {
                        break;
                    };
                    if stage == ConnectionStage::Over {
                        // A client that ignores the end of the connection may continue forever. Others try again
                        // elsewhere.
                        respond.send_reset(Reason::REFUSED_STREAM);
                        continue;
                    }
                    let token = token_of(request.headers().get(PROXY_AUTHORIZATION));
                    let identity = self.identity_of(token, certificate.clone()).ok();
                    if identity.is_some() {
                        unidentified = None;
                    }
                    match self.enter_stream(identity.map(|identity| identity.tenant)) {
                        Ok(place) => {
                            let certificate = certificate.clone();
                            let proxy = Arc::clone(self);
                            streams.spawn(proxy.serve_stream(request, respond, certificate, place));
                        }
                        Err(refusal) => self.refuse_stream(refusal, &mut respond),
                    }
                }
                () = sleep_until(idle_until), if streams.is_empty() => {
                    if stage != ConnectionStage::Open {
                        return;
                    }
                    (stage, idle_since) = (ConnectionStage::Idle, Instant::now());
                    connection.graceful_shutdown();
                }
            }
        }
        // Each stream then ends like a connection of its own that breaks off, with its event.
        drop(connection);
        while let Some(served) = streams.join_next().await {
            log_panic(served);
        }
    }

    /// Refuses a stream for which there is no place. The client of a tenant that holds its share gets a response, since
    /// repeating the request immediately, which a reset allows (RFC 9113, section 8.7), would not help.
    fn refuse_stream(&self, refusal: ProxyRefusal, respond: &mut SendResponse<Bytes>) {
        self.metrics().refused(UNKNOWN_PROTOCOL, refusal.code());
        if refusal != ProxyRefusal::TooManyTenantStreams {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        // The response has no body, because a client with a closed window would not take one.
        if let Err(error) = respond.send_response(bodyless_response(refusal), true) {
            tracing::debug!(%error, "a client of the proxy did not take a refusal");
        }
    }

    /// Serves one stream to its end, and then gives its place back.
    async fn serve_stream(
        self: Arc<Self>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        certificate: Option<ClientCertificate>,
        _place: StreamSlot,
    ) {
        let rest_timeout = REST_TIMEOUT.min(self.settings().idle_timeout);
        let serve = |io| self.serve_certified(io, certificate, None);
        serve_as_http1(request, respond, rest_timeout, serve).await;
    }

    fn count_unidentified(&self) {
        let refusal = ProxyRefusal::SlowRequest;
        self.metrics().refused(UNKNOWN_PROTOCOL, refusal.code());
    }
}

/// Logs a stream whose task panicked; no other stream is affected.
fn log_panic(served: Result<(), JoinError>) {
    if let Err(error) = served {
        tracing::error!(%error, "a stream of the proxy failed");
    }
}

/// The response of a refusal, with the code in `Proxy-Status` alone.
fn bodyless_response(refusal: ProxyRefusal) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = refusal.status();
    let headers = response.headers_mut();
    if let Ok(status) = HeaderValue::from_str(&refusal.proxy_status()) {
        headers.insert(HeaderName::from_static("proxy-status"), status);
    }
    if let Some(seconds) = refusal.retry_after() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Waits until an instant, or for ever.
async fn sleep_until_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// The next stream of a client; `None` at the end of its connection. Without room, streams wait in h2, which ends the
/// connection of a client that resets many of them.
async fn next_stream<S>(
    connection: &mut Connection<S, Bytes>,
    has_room: bool,
) -> Option<(Request<RecvStream>, SendResponse<Bytes>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if has_room {
        return connection.accept().await?.ok();
    }
    // A failure of the connection is an end, too.
    let _ = poll_fn(|cx| connection.poll_closed(cx)).await;
    None
}
