//! TLS between clients and the proxy, and the identity of clients by their certificates.
//!
//! The handshake is part of the time for the head, and its client counts as unidentified. Nothing is resumed, so that a
//! certificate is verified for every connection. The files may change meanwhile ([`ClientTlsWatcher`]).

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use dray_guard::proxy_token::ProxyIdentity;
use dray_guard::ruleset::matches_name;
use dray_types::{SessionId, Sha256Digest};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::certificate::ClientCertificate;
use super::http2::HTTP2_PROTOCOL;
use super::listener::UnidentifiedPermit;
use super::refusal::ProxyRefusal;
use super::serve::ForwardProxy;
use crate::config::CertificateClient;
use crate::metrics::UNKNOWN_PROTOCOL;

mod files;

pub use files::{ClientTlsError, ClientTlsWatcher, check_files};

/// The connection of a client of the listener, without TLS or with it.
type ClientSocket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Accepts TLS from clients, and identifies them by their certificates. Clones share the files in force.
#[derive(Clone)]
pub struct ClientTls {
    in_force: Arc<RwLock<AcceptedFiles>>,
    clients: Vec<CertificateClient>,
}

/// The settings of handshakes, from files that are replaced together.
#[derive(Clone)]
struct AcceptedFiles {
    acceptor: TlsAcceptor,
    /// Cancelled when other files are in force.
    replaced: CancellationToken,
}

impl AcceptedFiles {
    fn new(config: ServerConfig) -> Self {
        Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            replaced: CancellationToken::new(),
        }
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientTls")
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    /// TLS with the content of the files, for clients with these certificates.
    fn new(config: ServerConfig, clients: Vec<CertificateClient>) -> Self {
        Self {
            in_force: Arc::new(RwLock::new(AcceptedFiles::new(config))),
            clients,
        }
    }

    /// Uses other files from the next connection on.
    fn replace(&self, config: ServerConfig) {
        let newer = AcceptedFiles::new(config);
        let mut in_force = self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *in_force, newer).replaced.cancel();
    }

    fn in_force(&self) -> AcceptedFiles {
        let in_force = self.in_force.read();
        in_force.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The client to which this certificate belongs; `None` for a certificate that the configuration does not name.
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

impl ForwardProxy {
    /// Serves a client of the listener, over TLS where the listener speaks it.
    pub(super) async fn serve_accepted(
        self: &Arc<Self>,
        stream: TcpStream,
        permit: UnidentifiedPermit,
    ) {
        let Some(tls) = self.client_tls() else {
            let plain = ClientSocket::Left(stream);
            return self.serve_client(plain, Some(permit)).await;
        };
        let AcceptedFiles { acceptor, replaced } = tls.in_force();
        // The future of the handshake is boxed, so that it is not part of the state of a tunnel.
        let accepting = Box::pin(acceptor.accept(stream));
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
        if session.alpn_protocol() == Some(HTTP2_PROTOCOL) {
            let serving = self.serve_http2(stream, certificate, permit, replaced);
            return Box::pin(serving).await;
        }
        let client = ClientSocket::Right(Box::new(stream));
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
