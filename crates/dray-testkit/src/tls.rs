//! A certificate authority for tests. It signs certificates for any name.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

/// A throw-away certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// A certificate that an [`Authority`] signed, with its key.
#[derive(Clone, Debug)]
pub struct IssuedCertificate {
    /// The certificate as PEM text.
    pub certificate: String,
    /// The certificate's private key as PEM text.
    pub private_key: String,
}

/// The certificate and the protocols of a server; [`TlsOffer::default`] is a valid certificate over TLS 1.3 and 1.2.
#[derive(Clone, Debug)]
pub struct TlsOffer {
    /// Whether the certificate expired long ago.
    pub expired: bool,
    /// Protocol versions that the server speaks.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// Protocols offered by ALPN, best first; empty offers none.
    pub alpn: Vec<Vec<u8>>,
}

impl Default for TlsOffer {
    fn default() -> Self {
        Self {
            expired: false,
            versions: vec![&TLS13, &TLS12],
            alpn: Vec::new(),
        }
    }
}

impl Authority {
    /// Creates an authority with its own key.
    pub fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        // A different name than that of the signed certificates, because OpenSSL treats equal names as self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Clients refuse an issuer without the right to sign certificates.
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self {
            issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)?,
        })
    }

    /// The authority's certificate, for a client's trust store.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The authority's certificate as PEM text.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate with its key as PEM texts, for a server or a client. `names` are host names, addresses or URIs;
    /// an expired certificate expired long ago.
    pub fn issue(&self, names: &[&str], expired: bool) -> Result<IssuedCertificate, rcgen::Error> {
        let (uris, hosts): (Vec<&str>, Vec<&str>) =
            names.iter().partition(|name| name.contains("://"));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts)?;
        for uri in uris {
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        // OpenSSL treats a certificate as self-signed if its subject equals that of its issuer, which is the default
        // here.
        params.distinguished_name = DistinguishedName::new();
        let subject = names.first().copied().unwrap_or("unnamed");
        params.distinguished_name.push(DnType::CommonName, subject);
        if expired {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(IssuedCertificate {
            certificate: certificate.pem(),
            private_key: key.serialize_pem(),
        })
    }

    /// An acceptor with a valid certificate for `name`, a host name or an address.
    pub fn acceptor(&self, name: &str) -> Result<TlsAcceptor, TlsError> {
        self.acceptor_with(name, TlsOffer::default())
    }

    /// An acceptor with a certificate for `name` and the properties of `offer`.
    pub fn acceptor_with(&self, name: &str, offer: TlsOffer) -> Result<TlsAcceptor, TlsError> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        if offer.expired {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        // The provider is named here, because the process-wide default may not be installed in a test.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&offer.versions)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = offer.alpn;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// The reason why a test certificate or a server configuration could not be created.
#[derive(Debug)]
pub enum TlsError {
    /// The certificate could not be created.
    Certificate(rcgen::Error),
    /// The server configuration was refused.
    Config(rustls::Error),
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Certificate(error) => write!(f, "test certificate: {error}"),
            Self::Config(error) => write!(f, "test TLS configuration: {error}"),
        }
    }
}

impl std::error::Error for TlsError {}

impl From<rcgen::Error> for TlsError {
    fn from(error: rcgen::Error) -> Self {
        Self::Certificate(error)
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Config(error)
    }
}
