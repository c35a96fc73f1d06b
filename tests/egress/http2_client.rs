//! A client of the forward proxy that speaks HTTP/2: tunnels in streams of one connection over TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use dray_testkit::tls::Authority;
use h2::client::SendRequest;
use http::Request;
use http::header::PROXY_AUTHORIZATION;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Name in the certificate of the proxy.
pub(crate) const PROXY_NAME: &str = "proxy.example.org";
/// Bytes of a tunnel that wait for the client.
const PIPE_BYTES: usize = 64 * 1024;

/// How clients reach the proxy over HTTP/2.
#[derive(Clone)]
pub(crate) struct Http2Route {
    listen: SocketAddr,
    connector: TlsConnector,
}

/// A connection with the proxy.
pub(crate) struct Http2Connection {
    sender: SendRequest<Bytes>,
    _driving: JoinSet<()>,
}

/// A tunnel, and the tasks that move its bytes between stream and program.
pub(crate) struct StreamTunnel {
    pub(crate) io: DuplexStream,
    pub(crate) moving: JoinSet<()>,
}

impl Http2Route {
    /// A route to `listen`, whose certificate `authority` has signed.
    pub(crate) fn new(listen: SocketAddr, authority: &Authority) -> Self {
        Self {
            listen,
            connector: connector(authority.certificate(), &[b"h2"]),
        }
    }

    /// Opens a connection.
    pub(crate) async fn open(&self) -> io::Result<Http2Connection> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the proxy of the test, on loopback"
        )]
        let stream = TcpStream::connect(self.listen).await?;
        let name = ServerName::try_from(PROXY_NAME).map_err(io::Error::other)?;
        let stream = self.connector.connect(name, stream).await?;
        let (sender, connection) = h2::client::handshake(stream)
            .await
            .map_err(io::Error::other)?;
        let mut driving = JoinSet::new();
        driving.spawn(async move {
            // The streams report the end of the connection.
            let _ = connection.await;
        });
        Ok(Http2Connection {
            sender,
            _driving: driving,
        })
    }
}

impl Http2Connection {
    /// Requests a tunnel. Returns it and the status.
    pub(crate) async fn connect(
        &self,
        authority: &str,
        token: &str,
    ) -> io::Result<(StreamTunnel, u16)> {
        let request = Request::connect(authority)
            .header(PROXY_AUTHORIZATION, format!("Bearer {token}"))
            .body(())
            .map_err(io::Error::other)?;
        let mut sender = self
            .sender
            .clone()
            .ready()
            .await
            .map_err(io::Error::other)?;
        let (response, mut up) = sender
            .send_request(request, false)
            .map_err(io::Error::other)?;
        let response = response.await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let (mut sent, mut down) = tokio::io::split(far);
        let mut moving = JoinSet::new();
        moving.spawn(async move {
            while let Some(Ok(chunk)) = body.data().await {
                let released = body.flow_control().release_capacity(chunk.len());
                if released.is_err() || down.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            let _ = down.shutdown().await;
        });
        moving.spawn(async move {
            let mut chunk = vec![0; 4096];
            while let Ok(count @ 1..) = sent.read(&mut chunk).await {
                if up
                    .send_data(Bytes::copy_from_slice(&chunk[..count]), false)
                    .is_err()
                {
                    return;
                }
            }
            let _ = up.send_data(Bytes::new(), true);
        });
        let tunnel = StreamTunnel { io: near, moving };
        Ok((tunnel, status))
    }
}

/// Sends a request over TLS inside of a tunnel to this port of `name`, and returns the response.
pub(crate) async fn request_inside<S>(
    io: S,
    (name, port): (&'static str, u16),
    anchor: CertificateDer<'static>,
) -> io::Result<String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let server = ServerName::try_from(name).map_err(io::Error::other)?;
    let mut stream = connector(anchor, &[]).connect(server, io).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Trusts `anchor` alone, and offers these protocols.
fn connector(anchor: CertificateDer<'static>, protocols: &[&[u8]]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(anchor).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}
