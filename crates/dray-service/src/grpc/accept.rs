//! Connections of the gRPC endpoint: plain ones, or TLS ones after their handshake. A peer that stalls in its handshake
//! does not block others.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use super::security::GrpcSecurity;
use crate::NoDelayListener;

/// Most handshakes in progress. More connections wait in the backlog of the socket until one is done or timed out.
const MAX_PENDING_HANDSHAKES: usize = 256;

/// A connection that is ready for HTTP/2.
#[derive(Debug)]
pub(super) enum GrpcStream {
    /// A connection without TLS.
    Plain(TcpStream),
    /// A TLS connection after its handshake.
    Tls(Box<TlsStream<TcpStream>>),
}

/// DNS names and URIs of the client certificate that the handshake verified; empty without one. Set for each
/// connection.
#[derive(Clone, Debug, Default)]
pub(super) struct CertificateNames(pub(super) Arc<[String]>);

/// Accepts connections and performs the handshake of each.
#[derive(Debug)]
pub(super) struct HandshakeListener {
    listener: NoDelayListener,
    security: Arc<GrpcSecurity>,
    /// Ended when the listener is dropped.
    handshakes: JoinSet<Option<GrpcStream>>,
}

impl HandshakeListener {
    pub(super) fn new(listener: TcpListener, security: Arc<GrpcSecurity>) -> Self {
        Self {
            listener: NoDelayListener::new(listener),
            security,
            handshakes: JoinSet::new(),
        }
    }
}

impl Stream for HandshakeListener {
    type Item = io::Result<GrpcStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            // The handshakes that have finished come first, so that arriving connections cannot starve them.
            while let Poll::Ready(Some(ended)) = this.handshakes.poll_join_next(cx) {
                if let Ok(Some(stream)) = ended {
                    return Poll::Ready(Some(Ok(stream)));
                }
            }
            if this.handshakes.len() >= MAX_PENDING_HANDSHAKES {
                // The set wakes this task when one ends, at the latest at its timeout.
                return Poll::Pending;
            }
            let accepted = ready!(Pin::new(&mut this.listener).poll_next(cx));
            let stream = match accepted {
                Some(Ok(stream)) => stream,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            let Some(config) = this.security.tls() else {
                return Poll::Ready(Some(Ok(GrpcStream::Plain(stream))));
            };
            let timeout = this.security.handshake_timeout();
            let handshake = TlsAcceptor::from(config).accept(stream);
            this.handshakes.spawn(async move {
                match tokio::time::timeout(timeout, handshake).await {
                    Ok(Ok(stream)) => Some(GrpcStream::Tls(Box::new(stream))),
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "TLS handshake failed on the gRPC endpoint");
                        None
                    }
                    Err(_) => {
                        tracing::debug!("TLS handshake timed out on the gRPC endpoint");
                        None
                    }
                }
            });
        }
    }
}

impl Connected for GrpcStream {
    type ConnectInfo = CertificateNames;

    fn connect_info(&self) -> CertificateNames {
        match self {
            Self::Plain(_) => CertificateNames::default(),
            Self::Tls(stream) => {
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
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for GrpcStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
