//! Certificates and identities of the gRPC endpoint, as the files have them, and their reload while the endpoint
//! serves.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dray_types::{Clock, Sha256Digest};
use opentelemetry::metrics::{Gauge, Meter};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::time::MissedTickBehavior;

use super::identity::IdentityTable;
use super::validity::certificate_expiry_seconds;
use crate::certificate_expiry::CertificateExpiry;
use crate::settings::GrpcSection;

/// Most bytes of a key, certificate or token file; a larger file is refused.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Longest time between the two equal reads after which a change counts.
const MAX_SETTLE_INTERVAL: Duration = Duration::from_secs(1);

/// A file of the endpoint's credentials that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`grpc.{field}` ({path}): {problem}")]
pub struct SecurityFileError {
    field: &'static str,
    path: String,
    /// The problem, without any of the content.
    problem: String,
}

/// The content of the files when they were last valid.
#[derive(Debug, Default)]
struct LoadedSecurity {
    /// `None`: the endpoint does not use TLS.
    tls: Option<Arc<ServerConfig>>,
    /// `None`: callers are not identified.
    identities: Option<Arc<IdentityTable>>,
    /// Unix time at which the certificate expires; `None` without one.
    expiry_seconds: Option<u64>,
}

/// Whether the files of the endpoint are in force, and how long its certificate is valid.
#[derive(Debug)]
pub(crate) struct GrpcFileMetrics {
    stale: Gauge<u64>,
    certificate_expiry: CertificateExpiry,
}

impl GrpcFileMetrics {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            stale: meter
                .u64_gauge("dray_grpc_files_stale")
                .with_description(
                    "1 while the certificates or identities of the gRPC endpoint cannot be used and the earlier ones stay \
                     in force, otherwise 0. Absent without the endpoint.",
                )
                .build(),
            certificate_expiry: CertificateExpiry::new(meter),
        }
    }

    fn set_stale(&self, is_stale: bool) {
        self.stale.record(u64::from(is_stale), &[]);
    }

    /// Records when the certificate expires, and returns whether it has. The log says so when it begins: TLS serves an
    /// expired certificate, and clients refuse it.
    fn record_expiry(&self, clock: &Clock, loaded: &LoadedSecurity, was_expired: bool) -> bool {
        let Some(expiry_seconds) = loaded.expiry_seconds else {
            return false;
        };
        self.certificate_expiry.record("grpc", expiry_seconds);
        let is_expired = expiry_seconds <= clock.now_ms() / 1000;
        if is_expired && !was_expired {
            tracing::warn!(
                "the certificate of the gRPC endpoint has expired, so clients refuse it"
            );
        }
        is_expired
    }
}

/// Reads the files that the section names, as a start does. Returns the Unix time in seconds at which the certificate of
/// the endpoint expires; `None` without a certificate.
///
/// # Errors
///
/// The first file that cannot be used.
pub async fn check_grpc_files(section: &GrpcSection) -> Result<Option<u64>, SecurityFileError> {
    let files = SecurityFiles::read(section).await?;
    Ok(files.build(section)?.expiry_seconds)
}

/// The current credentials. Every connection and every request reads them, so a reload applies to the next one.
#[derive(Debug)]
pub(crate) struct GrpcSecurity {
    section: GrpcSection,
    /// Digest of the content that was read at the start.
    first_digest: Sha256Digest,
    current: RwLock<Arc<LoadedSecurity>>,
}

impl GrpcSecurity {
    /// Reads the files that the section names.
    ///
    /// # Errors
    ///
    /// The first file that cannot be used.
    pub(crate) async fn load(section: &GrpcSection) -> Result<Arc<Self>, SecurityFileError> {
        let files = SecurityFiles::read(section).await?;
        let loaded = files.build(section)?;
        Ok(Arc::new(Self {
            section: section.clone(),
            first_digest: files.digest(),
            current: RwLock::new(Arc::new(loaded)),
        }))
    }

    /// TLS for the next connection; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.loaded().tls.clone()
    }

    /// Callers for the next request; `None` without configured identities.
    pub(crate) fn identities(&self) -> Option<Arc<IdentityTable>> {
        self.loaded().identities.clone()
    }

    /// Longest time of a handshake.
    pub(crate) fn handshake_timeout(&self) -> Duration {
        self.section.handshake_timeout.as_duration()
    }

    /// Longest time until the message of a request is complete.
    pub(crate) fn message_timeout(&self) -> Duration {
        self.section.message_timeout.as_duration()
    }

    /// Age at which a connection ends after its running requests.
    pub(crate) fn max_connection_age(&self) -> Duration {
        self.section.max_connection_age.as_duration()
    }

    /// Reads the files periodically, and applies changed ones. Never returns.
    pub(crate) async fn keep_current(self: Arc<Self>, clock: Clock, metrics: GrpcFileMetrics) {
        let mut is_expired = metrics.record_expiry(&clock, &self.loaded(), false);
        metrics.set_stale(false);
        let interval = self.section.reload_interval.as_duration();
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Digest of the last content, so that an unusable file is reported once.
        let mut last_digest = self.first_digest;
        let mut is_readable = true;
        let mut is_usable = true;
        loop {
            ticks.tick().await;
            is_expired = metrics.record_expiry(&clock, &self.loaded(), is_expired);
            let read = || async {
                let files = SecurityFiles::read(&self.section).await?;
                Ok::<_, SecurityFileError>((files.digest(), files))
            };
            let read = read_settled(last_digest, interval.min(MAX_SETTLE_INTERVAL), read);
            let (digest, files) = match read.await {
                Ok(read) => read,
                Err(error) => {
                    metrics.set_stale(true);
                    if std::mem::take(&mut is_readable) {
                        tracing::warn!(%error, "could not read the gRPC credentials; the earlier ones stay in force");
                    }
                    continue;
                }
            };
            is_readable = true;
            if digest != std::mem::replace(&mut last_digest, digest) {
                is_usable = self.apply(&files);
            }
            metrics.set_stale(!is_usable);
        }
    }

    /// Puts the content of the files in force; returns whether it can be used.
    fn apply(&self, files: &SecurityFiles) -> bool {
        match files.build(&self.section) {
            Ok(loaded) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                tracing::info!("reloaded the gRPC credentials");
                true
            }
            // A possible cause is a new certificate whose key is not written yet.
            Err(error) => {
                tracing::warn!(%error, "could not use the gRPC credentials; the earlier ones stay in force");
                false
            }
        }
    }

    fn loaded(&self) -> Arc<LoadedSecurity> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads until the content is known, or two reads in a row are equal.
///
/// A file that is just being written may be empty or end early. A list of identities that ends early is valid, so it
/// would refuse callers.
async fn read_settled<C, E, F>(
    known_digest: Sha256Digest,
    interval: Duration,
    // This is not an async closure: a task that borrows for one could not move between threads.
    read: impl Fn() -> F,
) -> Result<(Sha256Digest, C), E>
where
    F: Future<Output = Result<(Sha256Digest, C), E>>,
{
    let (mut last_digest, mut content) = read().await?;
    while last_digest != known_digest {
        tokio::time::sleep(interval).await;
        let before = last_digest;
        (last_digest, content) = read().await?;
        if last_digest == before {
            break;
        }
    }
    Ok((last_digest, content))
}

/// Contents of the files, before they are parsed.
#[derive(Debug, Default)]
struct SecurityFiles {
    certificate: Vec<u8>,
    private_key: Vec<u8>,
    client_authorities: Vec<u8>,
    identities: Vec<u8>,
}

impl SecurityFiles {
    async fn read(section: &GrpcSection) -> Result<Self, SecurityFileError> {
        Ok(Self {
            certificate: read_file("certificate", section.certificate.as_deref()).await?,
            private_key: read_file("private_key", section.private_key.as_deref()).await?,
            client_authorities: read_file(
                "client_authorities",
                section.client_authorities.as_deref(),
            )
            .await?,
            identities: read_file("identities", section.identities.as_deref()).await?,
        })
    }

    fn digest(&self) -> Sha256Digest {
        let parts = [
            &self.certificate,
            &self.private_key,
            &self.client_authorities,
            &self.identities,
        ];
        let digests: Vec<u8> = parts
            .iter()
            .flat_map(|part| *Sha256Digest::of(part).as_bytes())
            .collect();
        Sha256Digest::of(&digests)
    }

    fn build(&self, section: &GrpcSection) -> Result<LoadedSecurity, SecurityFileError> {
        let tls = match &section.certificate {
            Some(path) => Some(Arc::new(self.tls_config(section, path)?)),
            None => None,
        };
        let identities = match &section.identities {
            Some(path) => {
                let refuse = |problem: String| file_error("identities", path, problem);
                let text = std::str::from_utf8(&self.identities)
                    .map_err(|_| refuse("is not UTF-8".to_owned()))?;
                Some(Arc::new(IdentityTable::parse(text).map_err(refuse)?))
            }
            None => None,
        };
        let expiry_seconds = match &section.certificate {
            Some(path) => certificates("certificate", path, &self.certificate)?
                .first()
                .and_then(|certificate| certificate_expiry_seconds(certificate)),
            None => None,
        };
        Ok(LoadedSecurity {
            tls,
            identities,
            expiry_seconds,
        })
    }

    fn tls_config(
        &self,
        section: &GrpcSection,
        certificate_path: &Path,
    ) -> Result<ServerConfig, SecurityFileError> {
        let chain = certificates("certificate", certificate_path, &self.certificate)?;
        let key_path = section.private_key.clone().unwrap_or_default();
        let key = PrivateKeyDer::from_pem_slice(&self.private_key)
            .map_err(|_| file_error("private_key", &key_path, "holds no private key in PEM"))?;
        // The provider is named here: the process has no default provider.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| file_error("certificate", certificate_path, error.to_string()))?;
        let builder = match &section.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let refuse = |problem: String| file_error("client_authorities", path, problem);
                let mut roots = RootCertStore::empty();
                for authority in certificates("client_authorities", path, &self.client_authorities)?
                {
                    roots
                        .add(authority)
                        .map_err(|error| refuse(error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if section.require_client_certificate {
                    verifier
                } else {
                    verifier.allow_unauthenticated()
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| refuse(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| file_error("certificate", certificate_path, error.to_string()))?;
        if section.client_authorities.is_some() {
            // A resumed session would keep a certificate that has expired since: only full handshakes verify it.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        // gRPC is HTTP/2, and clients insist on its name in ALPN.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }
}

fn certificates(
    field: &'static str,
    path: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, SecurityFileError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(file_error(field, path, "holds no certificate in PEM")),
    }
}

async fn read_file(field: &'static str, path: Option<&Path>) -> Result<Vec<u8>, SecurityFileError> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    let read = async {
        // The size is checked first, so that a device or an endless file in its place does not fill the memory.
        let size = tokio::fs::metadata(path).await?.len();
        if size > MAX_FILE_BYTES {
            return Err(std::io::Error::other("is larger than 8 MiB"));
        }
        tokio::fs::read(path).await
    };
    read.await
        .map_err(|error| file_error(field, path, error.to_string()))
}

fn file_error(
    field: &'static str,
    path: impl Into<PathBuf>,
    problem: impl Into<String>,
) -> SecurityFileError {
    SecurityFileError {
        field,
        path: path.into().display().to_string(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use opentelemetry::metrics::{MeterProvider as _, noop::NoopMeterProvider};

    use super::*;

    #[test]
    fn a_certificate_that_expires_while_it_is_served_is_noticed() {
        let metrics = GrpcFileMetrics::new(&NoopMeterProvider::new().meter("test"));
        let loaded = LoadedSecurity {
            expiry_seconds: Some(100),
            ..LoadedSecurity::default()
        };
        let clock = Clock::manual(99_000);
        assert!(!metrics.record_expiry(&clock, &loaded, false));
        clock.advance(Duration::from_secs(1));
        assert!(metrics.record_expiry(&clock, &loaded, false));
    }

    /// Reads these contents one after the other; the last digest is that of the content in force.
    async fn settle(known: &str, contents: &[&'static str]) -> (&'static str, usize) {
        let reads = Cell::new(0);
        let known = Sha256Digest::of(known.as_bytes());
        let settled = read_settled(known, MAX_SETTLE_INTERVAL, || async {
            let content = contents[reads.get()];
            reads.set(reads.get() + 1);
            Ok::<_, SecurityFileError>((Sha256Digest::of(content.as_bytes()), content))
        });
        let (digest, content) = settled.await.unwrap();
        assert_eq!(digest, Sha256Digest::of(content.as_bytes()));
        (content, reads.get())
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_being_written_are_read_again_until_they_stay_the_same() {
        let contents = ["", "[[identity]]\nname", "whole", "whole"];
        assert_eq!(settle("old", &contents).await, ("whole", 4));
        assert_eq!(settle("old", &["", "old"]).await, ("old", 2));
        assert_eq!(settle("old", &["old"]).await, ("old", 1));
    }
}
