//! Connects through a proxy of the operator, for networks without a direct way to the web (egress-security T-3).
//!
//! The proxy gets the judged address. By name it would resolve the host itself, to an address that nothing judged
//! (I-2). TLS with the target runs end to end through the tunnel. Opened private ranges are part of the operator's
//! network, so they are dialled directly. No attempt is repeated here, and no other scheme of authentication than Basic
//! is known.
//!
//! A separate circuit breaker refuses an unreachable proxy for a while, so that fetches fail without a wait. A
//! failure of the proxy does not count against the hosts behind it ([`is_upstream_proxy_failure`]).

use std::error::Error as StdError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_guard::{CanonicalUrl, Class, Host, PinnedAddr};
use dray_types::Secret;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{DialedStream, Dialer, Io, TcpDialer, new_socket, race_attempts};
use crate::limits::CircuitBreaker;
use crate::tls::{TlsClient, TlsError};

/// Most bytes of the responses to `CONNECT`, interim ones included.
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// Longest time for TCP and TLS to the proxy. It is less than the default for a whole connection, because the proxy is
/// near.
const PROXY_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for the response of the proxy where no other is configured.
const DEFAULT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// The one entry of the proxy's circuit breaker.
const BREAKER_KEY: &str = "upstream proxy";
/// Least time between two failures that count: the addresses of one host are tried at the same time.
const FAILURE_INTERVAL: Duration = Duration::from_secs(1);
/// Most header fields of a response to `CONNECT`.
const MAX_HEADER_FIELDS: usize = 64;

/// The reason why the upstream proxy opened no tunnel.
#[derive(Debug, thiserror::Error)]
enum UpstreamProxyError {
    /// The proxy's name has no address, or no address accepts connections.
    #[error("could not connect to the upstream proxy")]
    Connect(#[source] io::Error),
    /// Several connections to the proxy failed shortly before.
    #[error("the upstream proxy failed several times and is not tried for a while")]
    BreakerOpen,
    /// The handshake with the proxy failed, or its certificate is not good for its host.
    #[error("could not secure the connection to the upstream proxy")]
    Tls(#[source] TlsError),
    /// The connection broke before the response.
    #[error("the connection to the upstream proxy broke")]
    Broken(#[source] io::Error),
    /// The proxy accepted the connection and sent no response in time.
    #[error("the upstream proxy sent no response in time")]
    Silent,
    /// The proxy closed the connection before the response.
    #[error("the upstream proxy closed the connection without a response")]
    Closed,
    /// The bytes of the proxy are not an HTTP/1.1 response.
    #[error("the response of the upstream proxy cannot be read")]
    Malformed(#[source] httparse::Error),
    /// The head of the response does not end within the limit.
    #[error("the response of the upstream proxy has more than {MAX_HEAD_BYTES} bytes")]
    TooLarge,
    /// The proxy requires other credentials.
    #[error(
        "the upstream proxy does not accept the credentials in egress-fetcher.upstream_proxy (status 407)"
    )]
    Credentials,
    /// The proxy does not connect to the target.
    #[error("the upstream proxy refused the connection with status {0}")]
    Refused(u16),
}

impl UpstreamProxyError {
    /// Whether the proxy itself failed. A refusal with a status other than 407 is about the target.
    const fn is_of_proxy(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    /// Whether the error counts for the breaker of the proxy: only an error that no target can cause. A proxy may close
    /// the connection because of one target, which an agent names.
    const fn is_counted(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Tls(_))
    }
}

/// Whether a failure to connect is one of the upstream proxy and not of the target.
pub fn is_upstream_proxy_failure(cause: &(dyn StdError + 'static)) -> bool {
    cause
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
        .and_then(|inner| inner.downcast_ref::<UpstreamProxyError>())
        .is_some_and(UpstreamProxyError::is_of_proxy)
}

/// The checked settings of the upstream proxy.
#[derive(Clone, Debug)]
pub struct UpstreamProxySettings {
    /// Scheme, host and port of the proxy.
    pub url: CanonicalUrl,
    /// Value of `Proxy-Authorization`; `None` without a user.
    pub authorization: Option<Secret>,
}

/// Connects through the upstream proxy, and directly to opened private ranges.
#[derive(Clone, Debug)]
pub struct UpstreamProxyDialer {
    settings: UpstreamProxySettings,
    tls: TlsClient,
    /// Longest time from the request to the response.
    response_timeout: Duration,
    breaker: CircuitBreaker,
    failures: Arc<Mutex<FailureTimes>>,
}

/// The last failures of the proxy.
#[derive(Debug, Default)]
struct FailureTimes {
    last: Option<Instant>,
    /// The last target for which it was silent, since it worked.
    silent_for: Option<IpAddr>,
}

impl UpstreamProxyDialer {
    /// Connects through the proxy of `settings`. A proxy with an `https` URL must prove its name to `tls`.
    pub fn new(settings: UpstreamProxySettings, tls: TlsClient) -> Self {
        Self {
            settings,
            tls,
            response_timeout: DEFAULT_RESPONSE_TIMEOUT,
            breaker: CircuitBreaker::default(),
            failures: Arc::default(),
        }
    }

    /// With the time that a fetch has for its connection. A silent proxy is given up before that time ends, so that the
    /// failure counts as that of the proxy: later it would look like a failure of the host.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout * 3 / 5;
        self
    }

    /// Opens a tunnel unless the breaker of the proxy is open, and reports the outcome to the breaker.
    async fn open_counted(&self, target: SocketAddr) -> Result<DialedStream, UpstreamProxyError> {
        if self.breaker.is_open(BREAKER_KEY) {
            return Err(UpstreamProxyError::BreakerOpen);
        }
        let opened = self.open_tunnel(target).await;
        match &opened {
            Err(error) if error.is_counted() => self.count_failure(),
            Err(UpstreamProxyError::Silent) => self.count_silence(target.ip()).await,
            // A refusal too shows that the proxy is reachable.
            _ => {
                self.lock_failures().silent_for = None;
                self.breaker.succeeded(BREAKER_KEY);
            }
        }
        opened
    }

    fn lock_failures(&self) -> MutexGuard<'_, FailureTimes> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure for the breaker, unless the last counted one is less than [`FAILURE_INTERVAL`] ago.
    fn count_failure(&self) {
        let now = Instant::now();
        let mut failures = self.lock_failures();
        let is_recent = failures
            .last
            .is_some_and(|earlier| now < earlier + FAILURE_INTERVAL);
        if !is_recent {
            failures.last = Some(now);
            self.breaker.failed(BREAKER_KEY);
        }
    }

    /// Counts a silence for the breaker if the proxy does not respond to a direct request either. The proxy may have
    /// waited for a target that drops packets. Not every proxy responds to such a request, so the same target counts
    /// once until the proxy has responded for another.
    async fn count_silence(&self, target: IpAddr) {
        let earlier = self.lock_failures().silent_for.replace(target);
        if earlier != Some(target) && !self.is_alive().await {
            self.count_failure();
        }
    }

    /// Whether the proxy responds to a request that it may not forward (RFC 9110, section 7.6.2). A refusal is a
    /// response.
    async fn is_alive(&self) -> bool {
        let probing = async {
            let (io, ..) = self.reach_proxy().await?;
            let mut io = BufReader::new(io);
            let host = self.settings.url.host_header();
            let request = format!(
                "OPTIONS * HTTP/1.1\r\nHost: {host}\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n"
            );
            let sending = async {
                io.write_all(request.as_bytes()).await?;
                io.flush().await
            };
            sending.await.map_err(UpstreamProxyError::Broken)?;
            read_status(&mut io).await
        };
        // A third of the timeout leaves time for the connection itself.
        match tokio::time::timeout(self.response_timeout / 3, probing).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => !error.is_counted(),
            Err(_) => false,
        }
    }

    /// Connects to the proxy; also returns the proxy's address and the local address.
    async fn reach_proxy(
        &self,
    ) -> Result<(Box<dyn Io>, SocketAddr, SocketAddr), UpstreamProxyError> {
        let url = &self.settings.url;
        let stream = connect_tcp(url)
            .await
            .map_err(UpstreamProxyError::Connect)?;
        let addresses = stream
            .peer_addr()
            .and_then(|peer| Ok((peer, stream.local_addr()?)));
        let (proxy, local) = addresses.map_err(UpstreamProxyError::Connect)?;
        let mut io: Box<dyn Io> = Box::new(stream);
        if url.https() {
            let secured = self.tls.handshake(io, url.host()).await;
            (io, _) = secured.map_err(UpstreamProxyError::Tls)?;
        }
        Ok((io, proxy, local))
    }

    async fn open_tunnel(&self, target: SocketAddr) -> Result<DialedStream, UpstreamProxyError> {
        let reaching = tokio::time::timeout(PROXY_CONNECT_TIMEOUT, self.reach_proxy());
        let reached = reaching.await.unwrap_or_else(|_| {
            let timeout = io::Error::from(io::ErrorKind::TimedOut);
            Err(UpstreamProxyError::Connect(timeout))
        });
        let (io, proxy, local) = reached?;
        // The tunnel keeps the buffer: the first bytes of the target may arrive with the response.
        let mut io = BufReader::new(io);
        let request = self.connect_request(target);
        let sending = async {
            io.write_all(request.as_bytes()).await?;
            // The TLS stream may buffer a small write.
            io.flush().await
        };
        sending.await.map_err(UpstreamProxyError::Broken)?;
        let reading = tokio::time::timeout(self.response_timeout, read_status(&mut io));
        match reading.await.unwrap_or(Err(UpstreamProxyError::Silent))? {
            200..=299 => Ok(DialedStream {
                io: Box::new(io),
                peer: target,
                local,
                upstream_proxy: Some(proxy),
            }),
            // Only an operator can correct the credentials, so the log names the setting.
            407 => Err(UpstreamProxyError::Credentials),
            status => Err(UpstreamProxyError::Refused(status)),
        }
    }

    /// The request for a tunnel (RFC 9110, section 9.3.6). `Host` repeats its target (RFC 9112, section 3.2).
    fn connect_request(&self, target: SocketAddr) -> String {
        let authorization = self
            .settings
            .authorization
            .as_ref()
            .map(|value| format!("Proxy-Authorization: {}\r\n", value.expose()));
        let authorization = authorization.unwrap_or_default();
        format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{authorization}\r\n")
    }
}

impl Dialer for UpstreamProxyDialer {
    fn connect<'a>(&'a self, to: &'a PinnedAddr) -> BoxFuture<'a, io::Result<DialedStream>> {
        if is_direct(to) {
            return TcpDialer.connect(to);
        }
        Box::pin(async move {
            let tunnel = self.open_counted(to.socket_addr()).await;
            tunnel.map_err(io::Error::other)
        })
    }
}

/// Whether an address is inside the operator's network, to which the proxy does not lead.
fn is_direct(address: &PinnedAddr) -> bool {
    matches!(address.class(), Class::Opened(_))
}

/// Connects to the proxy itself. Its name is the operator's and is resolved by the system.
async fn connect_tcp(url: &CanonicalUrl) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = match url.host() {
        Host::Ip(address) => vec![SocketAddr::new(*address, url.port())],
        Host::Name(name) => tokio::net::lookup_host((name.as_str(), url.port()))
            .await?
            .collect(),
    };
    // Addresses of the proxy are tried as those of a target: an address that does not answer must not hold up the next
    // one.
    let attempts: Vec<_> = addresses.into_iter().map(connect_address).collect();
    race_attempts(attempts).await
}

async fn connect_address(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = new_socket(address)?.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads the responses up to the final one and returns its status. Everything behind its head stays in `io`: a 2xx to
/// `CONNECT` has no body, regardless of its fields (RFC 9112, section 6.3).
async fn read_status(io: &mut BufReader<Box<dyn Io>>) -> Result<u16, UpstreamProxyError> {
    let mut head = Vec::new();
    let mut earlier_bytes = 0;
    loop {
        let received = io.fill_buf().await.map_err(UpstreamProxyError::Broken)?;
        if received.is_empty() {
            return Err(UpstreamProxyError::Closed);
        }
        let known_bytes = head.len();
        head.extend_from_slice(received);
        // The length is read before `consume`: the slice borrows the reader.
        let received_bytes = received.len();
        let mut fields = [httparse::EMPTY_HEADER; MAX_HEADER_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response
            .parse(&head)
            .map_err(UpstreamProxyError::Malformed)?;
        match (parsed, response.code) {
            (httparse::Status::Complete(length), Some(status)) => {
                io.consume(length - known_bytes);
                if status >= 200 {
                    return Ok(status);
                }
                earlier_bytes += length;
                head.clear();
            }
            _ => io.consume(received_bytes),
        }
        if earlier_bytes + head.len() > MAX_HEAD_BYTES {
            return Err(UpstreamProxyError::TooLarge);
        }
    }
}

#[cfg(test)]
mod tests;
