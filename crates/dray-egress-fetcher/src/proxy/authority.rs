//! The operator's certificate authority for tunnels into which the proxy looks: makes a certificate for each host, in
//! memory alone.
//!
//! One key for all leaf certificates is made at the start and never stored. Certificates are made when a host is first
//! needed, kept for a day at most, and bounded in number. A client that trusts the authority trusts it for every host,
//! so its key is worth as much as all credentials that pass through: it is a secret of this service alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_guard::Host;
use dray_service::certificate_expiry_seconds;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use super::hello::HTTP1_PROTOCOLS;

mod facts;

use facts::{AuthorityFacts, read_facts};

/// Most hosts whose certificates are kept.
const MAX_LEAVES: usize = 1024;
/// How long a certificate is used before another one is made.
const LEAF_USE: Duration = Duration::from_hours(24);
/// How long a certificate is valid before and after it is made, for clocks of clients that differ.
const LEAF_VALIDITY: Duration = Duration::from_hours(72);
/// Longest common name (RFC 5280, appendix A.1, `ub-common-name`).
const MAX_COMMON_NAME_BYTES: usize = 64;
/// A name that no client asks for, for the check at the start.
const PROBE_NAME: &str = "probe.invalid";

/// The reason why an authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The file has no certificate in PEM form.
    #[error("the certificate of the authority cannot be read")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The key is not a private key in PEM form.
    #[error("the key of the authority is not one in PKCS#8 PEM form, of ECDSA, Ed25519 or RSA")]
    Key(#[source] rcgen::Error),
    /// The certificate may not sign others.
    #[error(
        "the certificate is not one of an authority: it needs basicConstraints CA and keyCertSign"
    )]
    NotAuthority,
    /// The name of the authority cannot be repeated in certificates.
    #[error("the subject of the authority must be attributes of different types with plain text")]
    Name,
    /// Certificates of the key do not verify with the certificate.
    #[error("the key does not belong to the certificate of the authority")]
    Mismatch(#[source] rustls::Error),
    /// A certificate could not be made.
    #[error("a certificate could not be made")]
    Leaf(#[source] rcgen::Error),
    /// The TLS configuration was refused.
    #[error("the TLS configuration was refused")]
    Config(#[source] rustls::Error),
}

/// Makes and keeps the certificates of intercepted hosts.
pub struct InterceptionAuthority {
    issuer: Issuer<'static, KeyPair>,
    has_key_id: bool,
    expires_s: Option<u64>,
    /// Sent after each leaf: the authority itself where others signed it.
    chain: Vec<CertificateDer<'static>>,
    leaf_key: KeyPair,
    provider: Arc<CryptoProvider>,
    leaves: Mutex<HashMap<String, KeptLeaf>>,
}

struct KeptLeaf {
    config: Arc<ServerConfig>,
    made_s: u64,
    used_s: u64,
}

impl std::fmt::Debug for InterceptionAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterceptionAuthority")
            .finish_non_exhaustive()
    }
}

impl InterceptionAuthority {
    /// Accepts an authority: its certificate in PEM form, followed by those that lead to its root, and its private key.
    /// A certificate for a probe is made and verified with it. `now_s` is in Unix seconds.
    ///
    /// # Errors
    ///
    /// Everything that would make clients refuse its certificates, except its time.
    pub fn new(certificates: &str, key: &str, now_s: u64) -> Result<Self, AuthorityError> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(certificates.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| AuthorityError::Certificate(Box::new(error)))?;
        let Some(certificate) = chain.first().cloned() else {
            let missing = "the file has no certificate in PEM form";
            return Err(AuthorityError::Certificate(missing.into()));
        };
        let AuthorityFacts { name, key_id } = read_facts(&certificate)?;
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Key)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name;
        // This certificate is only a copy with which the library signs leaves; clients get the operator's own
        // certificate.
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let has_key_id = key_id.is_some();
        params.key_identifier_method = KeyIdMethod::PreSpecified(key_id.unwrap_or_default());
        let authority = Self {
            issuer: Issuer::new(params, key),
            has_key_id,
            expires_s: first_expiry(&chain),
            // A client has the root; a server need not send it (RFC 8446, section 4.4.2).
            chain: if chain.len() > 1 { chain } else { Vec::new() },
            leaf_key: KeyPair::generate().map_err(AuthorityError::Leaf)?,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            leaves: Mutex::default(),
        };
        authority.check_probe(certificate, now_s)?;
        Ok(authority)
    }

    /// Unix seconds at which the first certificate of the authority and its chain expires; clients then refuse those of
    /// hosts. `None` where none has a time that can be read.
    pub const fn expires_s(&self) -> Option<u64> {
        self.expires_s
    }

    /// The TLS configuration of a server that is `host`. The certificate is made if none is kept.
    ///
    /// # Errors
    ///
    /// No certificate can be made.
    pub fn server_config(
        &self,
        host: &Host,
        now_s: u64,
    ) -> Result<Arc<ServerConfig>, AuthorityError> {
        let name = match host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.as_str().to_owned(),
        };
        // The lock is held while a certificate is made, so that concurrent tunnels to one host share it.
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get_mut(&name) {
            // A clock that was set back must not keep a certificate for longer.
            let is_current = now_s
                .checked_sub(leaf.made_s)
                .is_some_and(|age_s| age_s < LEAF_USE.as_secs());
            if is_current {
                leaf.used_s = now_s;
                return Ok(Arc::clone(&leaf.config));
            }
        }
        let config = Arc::new(self.new_config(&name, now_s)?);
        if leaves.len() >= MAX_LEAVES && !leaves.contains_key(&name) {
            // A scan of a thousand entries is cheap beside the handshake that follows.
            let oldest = leaves.iter().min_by_key(|(_, leaf)| leaf.used_s);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                leaves.remove(&oldest);
            }
        }
        let leaf = KeptLeaf {
            config: Arc::clone(&config),
            made_s: now_s,
            used_s: now_s,
        };
        leaves.insert(name, leaf);
        Ok(config)
    }

    fn new_config(&self, name: &str, now_s: u64) -> Result<ServerConfig, AuthorityError> {
        let mut chain = vec![self.leaf(name, now_s)?];
        chain.extend(self.chain.iter().cloned());
        let key = PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(chain, PrivateKeyDer::Pkcs8(key))
            })
            .map_err(AuthorityError::Config)?;
        // The requests inside are read as HTTP/1; a client that wants only another protocol was refused by its hello.
        config.alpn_protocols = HTTP1_PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Every tunnel is judged separately, so no TLS session is resumed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn leaf(&self, name: &str, now_s: u64) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut params = CertificateParams::new([name.to_owned()]).map_err(AuthorityError::Leaf)?;
        params.distinguished_name = DistinguishedName::new();
        if name.len() <= MAX_COMMON_NAME_BYTES {
            params.distinguished_name.push(DnType::CommonName, name);
        } else {
            let unnamed = "intercepted host";
            params
                .distinguished_name
                .push(DnType::OrganizationName, unnamed);
        }
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(now_s).saturating_sub(LEAF_VALIDITY);
        params.not_after = epoch + Duration::from_secs(now_s) + LEAF_VALIDITY;
        // All leaves have one key, from which the default would make one serial number for all.
        let serial = uuid::Uuid::new_v4();
        params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Strict clients need it, such as Python from 3.13 on.
        params.use_authority_key_identifier_extension = self.has_key_id;
        let certificate = params
            .signed_by(&self.leaf_key, &self.issuer)
            .map_err(AuthorityError::Leaf)?;
        Ok(certificate.der().clone())
    }

    /// Verifies a certificate for a probe, as a client that trusts the authority does.
    fn check_probe(
        &self,
        certificate: CertificateDer<'static>,
        now_s: u64,
    ) -> Result<(), AuthorityError> {
        let leaf = self.leaf(PROBE_NAME, now_s)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).map_err(AuthorityError::Mismatch)?;
        for root in &mut roots.roots {
            // An authority for some hosts alone does not sign the probe's name.
            root.name_constraints = None;
        }
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| AuthorityError::Certificate(Box::new(error)))?;
        let name = ServerName::try_from(PROBE_NAME)
            .map_err(|error| AuthorityError::Certificate(Box::new(error)))?;
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
        verifier
            .verify_server_cert(&leaf, &[], &name, &[], now)
            .map_err(AuthorityError::Mismatch)?;
        Ok(())
    }
}

/// The earliest end of these certificates, in Unix seconds.
fn first_expiry(chain: &[CertificateDer<'static>]) -> Option<u64> {
    let ends = chain.iter();
    ends.filter_map(|certificate| certificate_expiry_seconds(certificate))
        .min()
}

#[cfg(test)]
mod tests;
