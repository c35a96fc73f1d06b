//! TLS between clients and the proxy, and the identity of clients by their certificates.
//!
//! The handshake is part of the time for the head, and its client counts as unidentified. Nothing is resumed, so that a
//! certificate is verified for every connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dray_guard::proxy_token::ProxyIdentity;
use dray_guard::ruleset::matches_name;
use dray_types::{Secret, SessionId, Sha256Digest};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::ClientCertificate;
use super::hello::HTTP1_PROTOCOLS;
use super::listener::UnidentifiedPermit;
use super::refusal::ProxyRefusal;
use super::serve::ForwardProxy;
use crate::config::{CertificateClient, ClientTlsSettings};
use crate::metrics::UNKNOWN_PROTOCOL;

/// Why the listener cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file cannot be read, or contains no certificates in PEM form.
    #[error("{0} cannot be read as certificates in PEM form")]
    Certificates(
        &'static str,
        #[source] Box<dyn std::error::Error + Send + Sync>,
    ),
    /// The key is not a private key in PEM form.
    #[error("`key` is not a private key in PEM form")]
    Key(#[source] rustls_pki_types::pem::Error),
    /// The authorities cannot verify certificates.
    #[error("`client_authorities` cannot verify certificates")]
    Authorities(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key belongs to another certificate, or is of a kind that is not supported.
    #[error("`certificate` and `key` cannot be used together")]
    Mismatch(#[source] rustls::Error),
}

/// Accepts TLS from clients, and knows who they are.
#[derive(Clone)]
pub struct ClientTls {
    acceptor: TlsAcceptor,
    clients: Vec<CertificateClient>,
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls")
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Files that cannot be read, and everything that makes every handshake fail.
    pub async fn open(settings: &ClientTlsSettings) -> Result<Self, ClientTlsError> {
        let chain = read_certificates("`certificate`", &settings.certificate).await?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(ClientTlsError::Mismatch)?;
        let builder = match &settings.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let authorities = read_certificates("`client_authorities`", path).await?;
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots
                        .add(authority)
                        .map_err(|error| ClientTlsError::Authorities(Box::new(error)))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if settings.requires_certificate {
                    verifier
                } else {
                    verifier.allow_unauthenticated()
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| ClientTlsError::Authorities(Box::new(error)))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, read_key(&settings.key)?)
            .map_err(ClientTlsError::Mismatch)?;
        config.alpn_protocols = HTTP1_PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // A resumed session would keep a certificate that has expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            clients: settings.clients.clone(),
        })
    }

    /// The client whose certificate this is; `None` for one of which the configuration says nothing.
    pub(super) fn identity_of(&self, certificate: &ClientCertificate) -> Option<ProxyIdentity> {
        let name = certificate.name.as_deref()?;
        let is_named = |pattern: &String| matches_name(pattern, name);
        let client = self
            .clients
            .iter()
            .find(|client| client.names.iter().any(is_named))?;
        let session = match &client.session {
            Some(session) => session.clone(),
            // Names that are longer than ids are hashed.
            None => SessionId::new(name)
                .or_else(|_| SessionId::new(Sha256Digest::of(name.as_bytes()).to_hex()))
                .ok()?,
        };
        Some(ProxyIdentity {
            tenant: client.tenant.clone(),
            session,
            app: client.app.clone(),
            expires_s: certificate.expires_s,
            allow: None,
            certificate: Some(name.to_owned()),
        })
    }
}

async fn read_certificates(
    field: &'static str,
    path: &std::path::Path,
) -> Result<Vec<CertificateDer<'static>>, ClientTlsError> {
    let text = tokio::fs::read(path)
        .await
        .map_err(|error| ClientTlsError::Certificates(field, Box::new(error)))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            let missing = "the file has no certificate in PEM form";
            Err(ClientTlsError::Certificates(field, missing.into()))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(ClientTlsError::Certificates(field, Box::new(error))),
    }
}

fn read_key(key: &Secret) -> Result<PrivateKeyDer<'static>, ClientTlsError> {
    PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).map_err(ClientTlsError::Key)
}

impl ForwardProxy {
    /// Serves a client of the listener, over TLS where the listener speaks it.
    pub(super) async fn serve_accepted(&self, stream: TcpStream, permit: UnidentifiedPermit) {
        let Some(tls) = self.client_tls() else {
            let plain = ClientSocket::Plain(stream);
            return self.serve_client(plain, Some(permit)).await;
        };
        // Boxed: the handshake is not part of the state of a tunnel.
        let accepting = Box::pin(tls.acceptor.accept(stream));
        let accepted = timeout(self.settings().head_timeout, accepting).await;
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.count_failed_handshake(&error),
            Err(_) => return self.count_failed_handshake(&io::ErrorKind::TimedOut.into()),
        };
        let (_, session) = stream.get_ref();
        let own = session.peer_certificates().and_then(<[_]>::first);
        let certificate = match own.map(ClientCertificate::read) {
            Some(None) => {
                let unreadable = io::Error::other("the certificate cannot be read");
                return self.count_failed_handshake(&unreadable);
            }
            Some(read) => read,
            None => None,
        };
        let client = ClientSocket::Tls(Box::new(stream));
        self.serve_certified(client, certificate, Some(permit))
            .await;
    }

    /// A client without a TLS session gets no response beyond the alert, which is sent already.
    fn count_failed_handshake(&self, error: &io::Error) {
        let refusal = ProxyRefusal::ClientTls;
        self.metrics().refused(UNKNOWN_PROTOCOL, refusal.code());
        tracing::debug!(%error, "no TLS session with a client of the proxy");
    }
}

/// The connection of a client of the listener.
#[derive(Debug)]
pub(super) enum ClientSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for ClientSocket {
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

impl AsyncWrite for ClientSocket {
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
