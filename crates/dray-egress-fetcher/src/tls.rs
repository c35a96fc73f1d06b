//! TLS for one connection (egress-security T-5): the handshake, the verification, and their part of the audit event.
//!
//! Certificates are verified for the host of the URL, always; no setting turns it off. No session is resumed, no early
//! data is sent, no client certificate is sent, and no key is logged.

use std::io;
use std::sync::Arc;

use dray_guard::{Code, Host};
use dray_types::Sha256Digest;
use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_rustls::TlsConnector;

use crate::dial::Io;
use crate::wire::WireError;

/// Name of HTTP/2 in ALPN (RFC 9113, section 3.2).
const HTTP2_PROTOCOL: &[u8] = b"h2";

/// Makes TLS connections to hosts of URLs. Clones share one configuration.
#[derive(Clone)]
pub struct TlsClient {
    connector: TlsConnector,
    /// Offers HTTP/2 beside HTTP/1.1; `None` where the operator turned it off.
    http2_connector: Option<TlsConnector>,
}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

/// The result of a handshake, for the audit event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// SHA-256 of the peer's own certificate.
    pub certificate: Sha256Digest,
    /// Whether the server chose HTTP/2 by ALPN (RFC 7301).
    pub is_http2: bool,
}

/// The trust anchors or the handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The operator's bundle is not a list of certificates.
    #[error("the CA bundle holds no usable certificate")]
    Bundle(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The TLS configuration was refused.
    #[error("the TLS configuration was refused")]
    Config(#[source] rustls::Error),
    /// The handshake failed, or the certificate is not good for the host.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The handshake would exceed the fetch's budget of bytes (I-7).
    #[error("the server sent more bytes during the TLS handshake than allowed")]
    TooLarge(#[source] io::Error),
    /// The connection ended during the handshake.
    #[error("the connection ended during the TLS handshake")]
    Closed(#[source] io::Error),
}

impl TlsError {
    /// The reason for the agent.
    pub const fn code(&self) -> Code {
        match self {
            Self::Bundle(_) | Self::Config(_) => Code::Internal,
            Self::Handshake(_) => Code::TlsError,
            Self::TooLarge(_) => Code::TooLarge,
            Self::Closed(_) => Code::ConnectionClosed,
        }
    }

    /// Whether the certificate of the server is not valid for it.
    pub fn is_about_certificate(&self) -> bool {
        let Self::Handshake(error) = self else {
            return false;
        };
        let inner = error.get_ref();
        let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
    }
}

impl TlsClient {
    /// Trusts the built-in web roots, and in addition the certificates of `bundle` (PEM text). Offers HTTP/1.1 by ALPN.
    pub fn new(bundle: Option<&str>) -> Result<Self, TlsError> {
        Self::for_protocol(bundle, b"http/1.1")
    }

    /// Like [`Self::new`] for another protocol, by its name in ALPN.
    pub(crate) fn for_protocol(bundle: Option<&str>, protocol: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(bundle) = bundle {
            for certificate in parse_anchors(bundle)? {
                roots
                    .add(certificate)
                    .map_err(|error| TlsError::Bundle(Box::new(error)))?;
            }
        }
        // The provider is selected here: the process-wide default depends on the features that other crates enable.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(TlsError::Config)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        // A resumed session would connect two fetches that may have different policies.
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            http2_connector: None,
        })
    }

    /// Offers HTTP/2 too, in [`Self::handshake_for_fetch`] alone.
    #[must_use]
    pub fn with_http2(mut self) -> Self {
        let mut config = ClientConfig::clone(self.connector.config());
        // The client's order is its preference (RFC 7301, section 3.1).
        config.alpn_protocols.insert(0, HTTP2_PROTOCOL.to_vec());
        self.http2_connector = Some(TlsConnector::from(Arc::new(config)));
        self
    }

    /// Does the TLS handshake over a connected stream, for `host` alone. Offers the one protocol of this client, so a
    /// caller without HTTP/2 never gets HTTP/2. This function has no deadline; the caller sets one.
    pub async fn handshake(
        &self,
        io: Box<dyn Io>,
        host: &Host,
    ) -> Result<(Box<dyn Io>, TlsSession), TlsError> {
        shake_hands(&self.connector, io, host).await
    }

    /// Like [`Self::handshake`], and offers HTTP/2 where the operator allows it. [`TlsSession::is_http2`] has the
    /// choice of the server.
    pub async fn handshake_for_fetch(
        &self,
        io: Box<dyn Io>,
        host: &Host,
    ) -> Result<(Box<dyn Io>, TlsSession), TlsError> {
        let connector = self.http2_connector.as_ref().unwrap_or(&self.connector);
        shake_hands(connector, io, host).await
    }
}

async fn shake_hands(
    connector: &TlsConnector,
    io: Box<dyn Io>,
    host: &Host,
) -> Result<(Box<dyn Io>, TlsSession), TlsError> {
    let name = match host {
        // The certificate then needs an IP SAN, and no SNI is sent (T-5).
        Host::Ip(ip) => ServerName::from(*ip),
        Host::Name(name) => ServerName::try_from(name.as_str().to_owned()).map_err(|error| {
            TlsError::Handshake(io::Error::new(io::ErrorKind::InvalidInput, error))
        })?,
    };
    let stream = connector.connect(name, io).await.map_err(to_tls_error)?;
    let (_, connection) = stream.get_ref();
    let session = TlsSession {
        version: match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        },
        certificate: connection
            .peer_certificates()
            // The peer's own certificate comes first in the list (RFC 8446, section 4.4.2).
            .and_then(<[_]>::first)
            .map_or(Sha256Digest::of(b""), |certificate| {
                Sha256Digest::of(certificate)
            }),
        is_http2: connection.alpn_protocol() == Some(HTTP2_PROTOCOL),
    };
    Ok((Box::new(stream), session))
}

fn to_tls_error(error: io::Error) -> TlsError {
    // The limit of this program also ends the stream with an I/O error, which is not a failed handshake.
    if WireError::of(&error).is_some() {
        return TlsError::TooLarge(error);
    }
    if error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
    {
        TlsError::Handshake(error)
    } else {
        TlsError::Closed(error)
    }
}

/// The certificates of a PEM text, at least one.
fn parse_anchors(bundle: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(bundle.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Bundle(Box::new(error)))?;
    if certificates.is_empty() {
        return Err(TlsError::Bundle("no certificate in PEM form".into()));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests;
