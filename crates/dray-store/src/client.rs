//! The configured SDK client: limits, TLS, signing. It creates clients and sends no request.

use std::io;
use std::path::Path;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, IdentityCache, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_http_client::{Builder as HttpBuilder, Connector};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::credentials::SharedCredentials;
use crate::embedded::InProcessTransport;
use crate::options::StoreOptions;

/// Time to a connection, TLS included (messaging-reliability K-8).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to the head of a response, the request's body included (K-8).
pub(crate) const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for work that the store does alone and that grows with the object: putting parts together, copying.
pub(crate) const SERVER_WORK_TIMEOUT: Duration = Duration::from_mins(2);
/// Time without a byte while a body is read (K-8).
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest pause before the one internal retry.
const MAX_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Time that an unused connection is kept. It is shorter than the usual 60 s of servers, so that they do not close
/// first.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Two clients for one bucket: they differ in the host that is signed.
#[derive(Clone)]
pub(crate) struct S3Clients {
    /// Client for the requests of this process.
    pub(crate) inside: Client,
    /// Client that signs URLs for others and never sends.
    pub(crate) public: Client,
}

impl S3Clients {
    /// Creates both clients, which sign with `credentials`. Fails only when the file with certificate authorities
    /// cannot be read.
    pub(crate) async fn new(
        options: &StoreOptions,
        credentials: &SharedCredentials,
    ) -> io::Result<Self> {
        let plain = options.endpoint.starts_with("http://");
        let tls = tls_context(options.ca_file.as_deref()).await?;
        let http = http_client(plain, tls);
        Ok(Self::with_http_client(options, credentials, http))
    }

    /// Creates both clients for an endpoint of this process.
    pub(crate) fn in_process(
        options: &StoreOptions,
        credentials: &SharedCredentials,
        transport: InProcessTransport,
    ) -> Self {
        Self::with_http_client(options, credentials, transport.into_client())
    }

    fn with_http_client(
        options: &StoreOptions,
        credentials: &SharedCredentials,
        http: SharedHttpClient,
    ) -> Self {
        let public = if options.public_endpoint.is_empty() {
            &options.endpoint
        } else {
            &options.public_endpoint
        };
        Self {
            inside: s3_client(options, &options.endpoint, credentials, http.clone()),
            // The host is part of the signature: a URL signed for an internal name fails behind a proxy (L-3).
            public: s3_client(options, public, credentials, http),
        }
    }
}

fn s3_client(
    options: &StoreOptions,
    endpoint: &str,
    credentials: &SharedCredentials,
    http: SharedHttpClient,
) -> Client {
    let mut config = Builder::new()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new(options.region.clone()))
        .credentials_provider(credentials.clone())
        // The provider has them in memory; a cache would keep replaced ones for minutes.
        .identity_cache(IdentityCache::no_cache())
        .force_path_style(options.path_style)
        .http_client(http)
        .timeout_config(timeout_config(RESPONSE_HEAD_TIMEOUT))
        // One layer of retries: callers retry complete operations within their deadlines (messaging-reliability 8).
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(2)
                .with_initial_backoff(MAX_RETRY_DELAY),
        )
        // This crate sets the checksums that it needs, and its reader enforces the idle limit.
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    // Without an endpoint the SDK derives the AWS endpoint from the region.
    if !endpoint.is_empty() {
        config = config.endpoint_url(endpoint);
    }
    Client::from_conf(config.build())
}

fn timeout_config(request: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(request)
        .build()
}

/// Overrides for requests that may take [`SERVER_WORK_TIMEOUT`].
pub(crate) fn server_work_overrides() -> Builder {
    Builder::new().timeout_config(timeout_config(SERVER_WORK_TIMEOUT))
}

/// Makes the HTTP client: no proxies from the environment, and certificates are always verified.
fn http_client(plain: bool, tls: TlsContext) -> SharedHttpClient {
    HttpBuilder::new()
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .build_with_connector_fn(move |settings, components| {
            let mut builder = Connector::builder()
                .proxy_config(ProxyConfig::disabled())
                .enable_tcp_nodelay(true);
            if let Some(settings) = settings {
                builder = builder.connector_settings(settings.clone());
            }
            if let Some(components) = components {
                builder.set_sleep_impl(components.sleep_impl());
            }
            if plain {
                return builder.build_http();
            }
            builder
                // This is the provider of the whole workspace; the SDK's default would add a second provider.
                .tls_provider(Provider::Rustls(CryptoMode::Ring))
                .tls_context(tls.clone())
                .build()
        })
}

/// The authorities to trust: the system's, or exactly those of the file. The file is checked here, because the
/// connector would panic at the first request for an invalid file.
async fn tls_context(file: Option<&Path>) -> io::Result<TlsContext> {
    let trust = match file {
        None => TrustStore::default(),
        Some(file) => {
            // The file is read once at start. A new file needs a restart, as all configuration does.
            let pem = tokio::fs::read(file).await?;
            let invalid = |error: &dyn std::fmt::Display| {
                io::Error::new(io::ErrorKind::InvalidData, error.to_string())
            };
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| invalid(&error))?;
                roots.add(certificate).map_err(|error| invalid(&error))?;
            }
            if roots.is_empty() {
                return Err(invalid(&"no certificate in the file"));
            }
            TrustStore::empty().with_pem_certificate(pem)
        }
    };
    TlsContext::builder()
        .with_trust_store(trust)
        .build()
        .map_err(|error| io::Error::other(error.to_string()))
}
