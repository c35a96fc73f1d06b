//! One connection of the gRPC endpoint, which ends unless its client begins to speak HTTP/2.
//!
//! The server library waits for the connection preface without a limit, and pings the peer only afterwards.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

/// Length of the connection preface of a client (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = 24;

/// A plain connection, or a TLS connection after its handshake.
pub(super) type GrpcTransport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection that is ready for HTTP/2.
#[derive(Debug)]
pub(super) struct GrpcStream {
    transport: GrpcTransport,
    /// `None` once the preface has arrived.
    preface: Option<PrefaceTimer>,
    /// Counts the connection until it is closed.
    _permit: OwnedSemaphorePermit,
}

/// The wait for the preface of a client.
#[derive(Debug)]
struct PrefaceTimer {
    timeout: Pin<Box<Sleep>>,
    missing_bytes: usize,
}

/// DNS names and URIs of the client certificate that the handshake verified; empty without one. Set for each
/// connection.
#[derive(Clone, Debug, Default)]
pub(super) struct CertificateNames(pub(super) Arc<[String]>);

impl GrpcStream {
    /// Wraps a transport. Its reads fail when the preface has not arrived within the timeout.
    pub(super) fn new(
        transport: GrpcTransport,
        preface_timeout: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            transport,
            preface: Some(PrefaceTimer {
                timeout: Box::pin(tokio::time::sleep(preface_timeout)),
                missing_bytes: PREFACE_BYTES,
            }),
            _permit: permit,
        }
    }
}

impl Connected for GrpcStream {
    type ConnectInfo = CertificateNames;

    fn connect_info(&self) -> CertificateNames {
        match &self.transport {
            Either::Left(_) => CertificateNames::default(),
            Either::Right(stream) => {
                let (_, connection) = stream.get_ref();
                let chain = connection.peer_certificates().unwrap_or_default();
                // The first certificate is the client's own; the handshake has verified it.
                CertificateNames(chain.first().map(names_of).unwrap_or_default().into())
            }
        }
    }
}

/// DNS names and URIs of a certificate's subject alternative names.
fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let names = parsed.valid_dns_names().chain(parsed.valid_uri_names());
    names.map(str::to_owned).collect()
}

impl AsyncRead for GrpcStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buffer.filled().len();
        let read = Pin::new(&mut this.transport).poll_read(cx, buffer);
        if let Some(preface) = &mut this.preface {
            let read_bytes = buffer.filled().len() - filled;
            preface.missing_bytes = preface.missing_bytes.saturating_sub(read_bytes);
            if preface.missing_bytes == 0 {
                this.preface = None;
            } else if read.is_pending() && preface.timeout.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for GrpcStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().transport).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().transport).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().transport).poll_shutdown(cx)
    }
}
