//! A program that uses the forward proxy, over HTTP/1.1 or over HTTP/2, while the proxy is killed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::http2_client::{Http2Connection, Http2Route, StreamTunnel, request_inside};
use super::target::TARGET_NAME;

/// Longest time for a request inside of a tunnel; a killed proxy does not respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often clients succeeded in each way of using the proxy.
#[derive(Debug, Default)]
pub(super) struct ClientCounts {
    /// Messages that a tunnel returned.
    pub(super) exchanged: AtomicUsize,
    /// Tunnels that the proxy refused with status 403.
    pub(super) refused: AtomicUsize,
    /// Requests in a tunnel that the proxy intercepts.
    pub(super) intercepted: AtomicUsize,
}

/// A program that uses the proxy.
#[derive(Clone)]
pub(super) struct TunnelClient {
    pub(super) listen: SocketAddr,
    /// How it reaches the proxy over HTTP/2, if it speaks that.
    pub(super) http2: Option<Http2Client>,
    pub(super) token: String,
    pub(super) proxy_authority: String,
    pub(super) counts: Arc<ClientCounts>,
}

/// Opens tunnels in streams of one connection while that lasts. Clones share it.
#[derive(Clone)]
pub(super) struct Http2Client {
    route: Http2Route,
    connection: Arc<tokio::sync::Mutex<Option<Arc<Http2Connection>>>>,
}

impl Http2Client {
    pub(super) fn new(route: Http2Route) -> Self {
        Self {
            route,
            connection: Arc::default(),
        }
    }

    /// Requests a tunnel. Returns it and the status. After a failure the next one begins with a new connection.
    async fn connect(&self, authority: &str, token: &str) -> std::io::Result<(StreamTunnel, u16)> {
        let mut kept = self.connection.lock().await;
        let connection = match &*kept {
            Some(connection) => Arc::clone(connection),
            None => Arc::new(self.route.open().await?),
        };
        *kept = Some(Arc::clone(&connection));
        drop(kept);
        let connected = connection.connect(authority, token).await;
        if connected.is_err() {
            let mut kept = self.connection.lock().await;
            if kept
                .as_ref()
                .is_some_and(|kept| Arc::ptr_eq(kept, &connection))
            {
                *kept = None;
            }
        }
        connected
    }
}

/// A tunnel as the program in it sees it.
trait TunnelIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> TunnelIo for T {}

/// A tunnel, and what must live as long as it.
struct OpenTunnel {
    io: Box<dyn TunnelIo>,
    _stream: Option<JoinSet<()>>,
}

impl TunnelClient {
    /// Requests a tunnel. Returns it and the status.
    async fn connect(&self, authority: &str) -> std::io::Result<(OpenTunnel, String)> {
        if let Some(http2) = &self.http2 {
            let (tunnel, status) = http2.connect(authority, &self.token).await?;
            let tunnel = OpenTunnel {
                io: Box::new(tunnel.io),
                _stream: Some(tunnel.moving),
            };
            return Ok((tunnel, status.to_string()));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the proxy of the test, on loopback"
        )]
        let mut stream = TcpStream::connect(self.listen).await?;
        let token = &self.token;
        let request = format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await? > 0 {}
        let head = String::from_utf8_lossy(&head);
        let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let tunnel = OpenTunnel {
            io: Box::new(stream),
            _stream: None,
        };
        Ok((tunnel, status))
    }

    /// Opens a tunnel and sends messages through it until the proxy ends or all of them were returned.
    pub(super) async fn use_tunnel(&self, authority: &str, messages: u32) -> std::io::Result<()> {
        let (mut tunnel, status) = self.connect(authority).await?;
        if status != "200" {
            return Ok(());
        }
        for number in 0..messages {
            let message = number.to_be_bytes();
            tunnel.io.write_all(&message).await?;
            let mut returned = [0; 4];
            tunnel.io.read_exact(&mut returned).await?;
            assert_eq!(returned, message);
            self.counts.exchanged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Requests a tunnel that the proxy must refuse.
    pub(super) async fn try_refused(&self, authority: &str) {
        match self.connect(authority).await {
            Ok((_, status)) if status == "403" => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
            }
            Ok((_, status)) => assert_ne!(status, "200", "{authority}"),
            // The proxy does not run.
            Err(_) => tokio::task::yield_now().await,
        }
    }

    /// Sends a request in a tunnel that the proxy intercepts.
    pub(super) async fn request_intercepted(&self) {
        if self.http2.is_some() {
            let responded = tokio::time::timeout(RESPONSE_TIMEOUT, self.request_inside()).await;
            if matches!(responded, Ok(Ok(response)) if response.ends_with("\r\n\r\nok")) {
                self.counts.intercepted.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        let mut curl = tokio::process::Command::new("curl");
        curl.args([
            "--silent",
            "--max-time",
            "5",
            "--cacert",
            &self.proxy_authority,
        ])
        .arg("--proxy")
        .arg(format!("http://x:{}@{}", self.token, self.listen))
        .arg(format!("https://{TARGET_NAME}:8443/"));
        let output = curl.output().await.unwrap();
        if output.status.success() && output.stdout == b"ok" {
            self.counts.intercepted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl TunnelClient {
    /// The response to a request over TLS inside of a tunnel.
    async fn request_inside(&self) -> std::io::Result<String> {
        let (tunnel, _) = self.connect(&format!("{TARGET_NAME}:8443")).await?;
        let text = std::fs::read_to_string(&self.proxy_authority)?;
        let anchor = CertificateDer::from_pem_slice(text.as_bytes());
        let anchor = anchor.map_err(std::io::Error::other)?;
        request_inside(tunnel.io, (TARGET_NAME, 8443), anchor).await
    }
}
