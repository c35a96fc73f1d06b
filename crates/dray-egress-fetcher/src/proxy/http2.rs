//! HTTP/2 with clients of the proxy (RFC 9113), over TLS whose handshake agreed on it.
//!
//! Each stream is one request and is served as if it had come over HTTP/1.1 on a connection of its own: hyper writes its head
//! and frames its bodies between both ([`stream`]). So there is one reading of heads, one judgement and one audit, whatever
//! the version. Several streams share a connection, their identities do not: each request has its own token.
//!
//! Bounds: h2 limits header lists, the size of frames, resets and short frames. Flow control limits the bytes that wait for a
//! slow target. A connection that has not identified a client within the time for a head is closed.

use std::time::Duration;

use bytes::Bytes;
use dray_guard::proxy_token::token_of;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::server::Connection;
use http::header::PROXY_AUTHORIZATION;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::certificate::ClientCertificate;
use super::head::MAX_HEAD_BYTES;
use super::listener::UnidentifiedPermit;
use super::refusal::ProxyRefusal;
use super::serve::ForwardProxy;
use crate::metrics::UNKNOWN_PROTOCOL;

mod stream;

/// The name of HTTP/2 in TLS handshakes (RFC 9113, section 3.1).
pub(super) const HTTP2_PROTOCOL: &[u8] = b"h2";
/// Most streams of one connection at a time: what browsers and servers assume.
const MAX_STREAMS: u32 = 100;
/// Most bytes that a client may send on a stream before they are passed on.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same for all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Most bytes that wait to be sent on a stream.
const MAX_SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Largest payload of a frame: the least that an endpoint may announce (RFC 9113, section 6.5.2).
const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// Longest time that a connection stays without a stream.
const MAX_IDLE_TIME: Duration = Duration::from_mins(1);
/// Longest time that a client without streams has to close a connection that begins no more of them.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl ForwardProxy {
    /// Serves the streams of a client until its connection ends. `permit` is given back once a request is identified.
    /// `replaced`: other files for TLS are in force, so the certificate may be revoked.
    pub(super) async fn serve_http2<S>(
        &self,
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

    /// Serves streams beside each other. `unidentified`: the place of the client, and the instant until which it keeps it.
    /// After `last_stream` the streams that are open are served to their end, and no other.
    async fn serve_streams<S>(
        &self,
        mut connection: Connection<S, Bytes>,
        certificate: Option<ClientCertificate>,
        mut unidentified: Option<(UnidentifiedPermit, Instant)>,
        last_stream: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut streams = FuturesUnordered::new();
        let mut is_closing = false;
        tokio::pin!(last_stream);
        loop {
            let idle_time = if is_closing {
                CLOSE_TIMEOUT
            } else {
                MAX_IDLE_TIME
            };
            let identified_by = unidentified.as_ref().map(|(_, until)| *until);
            tokio::select! {
                biased;
                () = &mut last_stream, if !is_closing => {
                    is_closing = true;
                    connection.graceful_shutdown();
                }
                () = sleep_until_some(identified_by) => return self.count_unidentified(),
                Some(()) = streams.next() => {}
                accepted = connection.accept() => {
                    // Its end ends all streams, too.
                    let Some(Ok((request, respond))) = accepted else {
                        return;
                    };
                    let token = token_of(request.headers().get(PROXY_AUTHORIZATION));
                    if self.identity_of(token, certificate.clone()).is_ok() {
                        unidentified = None;
                    }
                    streams.push(self.serve_stream(request, respond, certificate.clone()));
                }
                () = sleep(idle_time), if streams.is_empty() => {
                    if is_closing {
                        return;
                    }
                    is_closing = true;
                    connection.graceful_shutdown();
                }
            }
        }
    }

    fn count_unidentified(&self) {
        let refusal = ProxyRefusal::SlowRequest;
        self.metrics().refused(UNKNOWN_PROTOCOL, refusal.code());
    }
}

/// Waits until an instant, or for ever.
async fn sleep_until_some(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
