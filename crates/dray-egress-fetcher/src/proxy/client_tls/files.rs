//! The files for TLS with clients: read at the start, and again whenever they change.
//!
//! As with policy files, files that cannot be used change nothing: the earlier ones stay in force, the log has the
//! reason, and the metric `dray_egress_proxy_tls_stale` is 1. Open connections keep the files with which they began. A
//! revocation list may have megabytes, so unchanged files are not read: their stamps are compared first.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use dray_service::certificate_expiry_seconds;
use dray_types::reload::{ReloadState, ReloadStep};
use dray_types::{ErrorChain, Sha256Digest};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

use super::ClientTls;
use crate::config::ClientTlsSettings;
use crate::metrics::ProxyMetrics;
use crate::policy_files::POLL_INTERVAL;
use crate::proxy::hello::HTTP1_PROTOCOLS;
use crate::proxy::http2::HTTP2_PROTOCOL;

/// Most bytes of a file. Revocation lists of large authorities have some megabytes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Why the listener cannot speak TLS, or cannot use changed files.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// A file cannot be read, or does not contain what its field needs.
    #[error("`{0}` cannot be used")]
    File(
        &'static str,
        #[source] Box<dyn std::error::Error + Send + Sync>,
    ),
    /// The key is not a private key in PEM form.
    #[error("the private key is not one in PEM form")]
    Key(#[source] rustls_pki_types::pem::Error),
    /// The key belongs to another certificate, or is of a kind that is not supported.
    #[error("`certificate` and the private key cannot be used together")]
    Mismatch(#[source] rustls::Error),
}

/// Contents of the files.
struct TlsFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// `None` where no file is named, here and below.
    client_authorities: Option<Vec<u8>>,
    revocation_lists: Option<Vec<u8>>,
}

impl TlsFiles {
    async fn read(settings: &ClientTlsSettings) -> Result<Self, ClientTlsError> {
        let certificate = read_file("certificate", &settings.certificate).await?;
        let key = read_file("private_key", &settings.private_key).await?;
        let mut others = [None, None];
        for (content, (field, path)) in others.iter_mut().zip([
            ("client_authorities", &settings.client_authorities),
            ("revocation_lists", &settings.revocation_lists),
        ]) {
            if let Some(path) = path {
                *content = Some(read_file(field, path).await?);
            }
        }
        let [client_authorities, revocation_lists] = others;
        Ok(Self {
            certificate,
            key,
            client_authorities,
            revocation_lists,
        })
    }

    fn digest(&self) -> Sha256Digest {
        let empty = Vec::new();
        let parts = [
            &self.certificate,
            &self.key,
            self.client_authorities.as_ref().unwrap_or(&empty),
            self.revocation_lists.as_ref().unwrap_or(&empty),
        ];
        // The digest of each part keeps the borders between them apart.
        let digests: Vec<u8> = parts
            .iter()
            .flat_map(|part| *Sha256Digest::of(part).as_bytes())
            .collect();
        Sha256Digest::of(&digests)
    }

    /// Checks everything that would make every handshake fail.
    fn build(&self, settings: &ClientTlsSettings) -> Result<ServerConfig, ClientTlsError> {
        let chain = read_items::<CertificateDer<'static>>("certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(ClientTlsError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(ClientTlsError::Mismatch)?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let field = "client_authorities";
                let mut roots = RootCertStore::empty();
                for authority in read_items::<CertificateDer<'static>>(field, authorities)? {
                    roots
                        .add(authority)
                        .map_err(|error| ClientTlsError::File(field, error.into()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .with_crls(self.revocation_lists()?)
                        .enforce_revocation_expiration();
                let verifier = if settings.requires_certificate {
                    verifier
                } else {
                    verifier.allow_unauthenticated()
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| ClientTlsError::File("revocation_lists", error.into()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(ClientTlsError::Mismatch)?;
        let http2 = (!settings.http1_only).then_some(HTTP2_PROTOCOL);
        let protocols = http2.into_iter().chain(HTTP1_PROTOCOLS);
        config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
        // A resumed session would keep a certificate that has expired or was revoked since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Shows when the certificate expires, unless its time cannot be read.
    fn show_expiry(&self, metrics: &ProxyMetrics) {
        let mut chain = CertificateDer::pem_slice_iter(&self.certificate);
        if let Some(Ok(certificate)) = chain.next()
            && let Some(at_seconds) = certificate_expiry_seconds(&certificate)
        {
            metrics.listener_expires(at_seconds);
        }
    }

    /// The lists; none where no file is named.
    fn revocation_lists(
        &self,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, ClientTlsError> {
        let lists = self.revocation_lists.as_deref();
        lists.map_or(Ok(Vec::new()), |lists| {
            read_items("revocation_lists", lists)
        })
    }
}

/// The items of one kind in a PEM text, at least one.
fn read_items<T: PemObject>(field: &'static str, text: &[u8]) -> Result<Vec<T>, ClientTlsError> {
    let items: Result<Vec<T>, _> = T::pem_slice_iter(text).collect();
    match items {
        // A file without the expected items would turn a check off without a word.
        Ok(items) if items.is_empty() => {
            let missing = "the file has no such item in PEM form";
            Err(ClientTlsError::File(field, missing.into()))
        }
        Ok(items) => Ok(items),
        Err(error) => Err(ClientTlsError::File(field, Box::new(error))),
    }
}

async fn read_file(field: &'static str, path: &Path) -> Result<Vec<u8>, ClientTlsError> {
    let read = async {
        // Opening a named pipe would wait for a writer.
        if !tokio::fs::metadata(path).await?.is_file() {
            return Err(std::io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .await?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(std::io::Error::other("it is larger than 16 MiB"));
        }
        Ok(bytes)
    };
    read.await
        .map_err(|error| ClientTlsError::File(field, Box::new(error)))
}

/// The stamps of the files, in the order of the configuration. Equal stamps mean equal content once two reads in a row
/// had them: a write within the same tick of the clock of the file system happened before the second read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamps(Vec<FileStamp>);

/// What the file system changes with every write and every replacement of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Seconds and nanoseconds. Programs that copy files set `modified` to an earlier time, but cannot set this one.
    changed: (i64, i64),
}

impl FileStamps {
    /// The present stamps; `None` while one of the files cannot be examined.
    async fn read(settings: &ClientTlsSettings) -> Option<Self> {
        let others = [&settings.client_authorities, &settings.revocation_lists];
        let paths = [&settings.certificate, &settings.private_key];
        let paths = paths.into_iter().chain(others.into_iter().flatten());
        let mut stamps = Vec::new();
        for path in paths {
            let metadata = tokio::fs::metadata(path).await.ok()?;
            stamps.push(FileStamp {
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            });
        }
        Some(Self(stamps))
    }
}

/// Checks the files as the start of the proxy does, and keeps nothing of them.
///
/// # Errors
///
/// Those of [`ClientTlsWatcher::open`].
pub async fn check_files(settings: &ClientTlsSettings) -> Result<(), ClientTlsError> {
    TlsFiles::read(settings).await?.build(settings)?;
    Ok(())
}

/// Replaces the files in force when they change.
#[derive(Debug)]
pub struct ClientTlsWatcher {
    tls: ClientTls,
    settings: ClientTlsSettings,
    metrics: ProxyMetrics,
    state: ReloadState<Sha256Digest>,
    /// The stamps before the last read.
    stamps: Option<FileStamps>,
    /// Whether files with these stamps need no further read.
    is_settled: bool,
}

impl ClientTlsWatcher {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// Files that cannot be read, and everything that makes every handshake fail.
    pub async fn open(
        settings: ClientTlsSettings,
        metrics: ProxyMetrics,
    ) -> Result<Self, ClientTlsError> {
        let stamps = FileStamps::read(&settings).await;
        let files = TlsFiles::read(&settings).await?;
        let config = files.build(&settings)?;
        metrics.tls_stale(false);
        files.show_expiry(&metrics);
        Ok(Self {
            tls: ClientTls::new(config, settings.clients.clone()),
            settings,
            metrics,
            state: ReloadState::new(files.digest()),
            stamps,
            is_settled: false,
        })
    }

    /// TLS with the files in force.
    pub const fn tls(&self) -> &ClientTls {
        &self.tls
    }

    /// Examines the files every [`POLL_INTERVAL`] until `stop`, and reads those that may have changed.
    pub async fn watch(mut self, stop: CancellationToken) {
        while stop
            .run_until_cancelled(tokio::time::sleep(POLL_INTERVAL))
            .await
            .is_some()
        {
            self.reload_changed().await;
        }
    }

    /// Reads the files unless their stamps show that they are known, and applies them when they have changed and are
    /// stable. Returns whether they were read.
    async fn reload_changed(&mut self) -> bool {
        // The stamps are taken before the files are read: the next examination then finds a write between the two,
        // because its stamp differs.
        let stamps = FileStamps::read(&self.settings).await;
        let is_same = stamps.is_some() && stamps == self.stamps;
        if is_same && self.is_settled {
            return false;
        }
        let is_read = self.read_again().await;
        self.is_settled = is_same && is_read && self.state.is_settled();
        self.stamps = stamps;
        true
    }

    /// Reads the files once, and applies them when they have changed and are stable. Returns whether all could be read.
    async fn read_again(&mut self) -> bool {
        let read = TlsFiles::read(&self.settings).await;
        let is_read = read.is_ok();
        let state = match &read {
            Ok(files) => Ok(files.digest()),
            Err(error) => Err(ErrorChain(error).to_string()),
        };
        match self.state.note(state) {
            ReloadStep::InForce { .. } => self.metrics.tls_stale(false),
            ReloadStep::Wait => {}
            ReloadStep::Apply => self.apply(read),
        }
        is_read
    }

    fn apply(&mut self, read: Result<TlsFiles, ClientTlsError>) {
        match read.and_then(|files| Ok((files.build(&self.settings)?, files))) {
            Ok((config, files)) => {
                self.tls.replace(config);
                self.state.applied(files.digest());
                files.show_expiry(&self.metrics);
                self.metrics.tls_stale(false);
                tracing::info!("new files for TLS with clients of the proxy are in force");
            }
            Err(error) => {
                self.state.rejected();
                self.metrics.tls_stale(true);
                let problem = ErrorChain(&error).to_string();
                tracing::error!(
                    problem,
                    "files of egress-fetcher.proxy.tls cannot be used; the earlier ones stay in force"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
