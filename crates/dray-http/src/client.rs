//! The connection pool.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{FailureKind, HttpError};
use crate::guard::{DestinationGuard, GuardedResolver};
use crate::request::RequestBuilder;

/// How long things may take. Nothing limits a whole transfer: what moves may go on (sandbox-transfer 1.6).
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeouts {
    /// To connect, TLS included.
    pub connect: Duration,
    /// Without a byte of a body in either direction.
    pub idle: Duration,
    /// From the last byte of a request to the head of the answer.
    pub answer: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            answer: Duration::from_mins(2),
        }
    }
}

/// A client without redirects, proxies, cookies, compression or environment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpClient {
    pub(crate) inner: reqwest::Client,
    pub(crate) limits: HttpTimeouts,
    pub(crate) guard: Option<Arc<dyn DestinationGuard>>,
}

impl HttpClient {
    /// A client that trusts the public authorities, and those of `authorities` (a PEM file) too.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Options`] when the file cannot be read or holds no certificate.
    pub fn new(limits: HttpTimeouts, authorities: Option<&Path>) -> Result<Self, HttpError> {
        Self::build(limits, authorities, None)
    }

    /// A client that trusts the public authorities and connects only where `guard` allows it.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Options`] when the client cannot be made.
    pub fn guarded(
        limits: HttpTimeouts,
        guard: Arc<dyn DestinationGuard>,
    ) -> Result<Self, HttpError> {
        Self::build(limits, None, Some(guard))
    }

    fn build(
        limits: HttpTimeouts,
        authorities: Option<&Path>,
        guard: Option<Arc<dyn DestinationGuard>>,
    ) -> Result<Self, HttpError> {
        let tls = tls_config(authorities)
            .map_err(|cause| HttpError::before(FailureKind::Options(cause)))?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .retry(reqwest::retry::never())
            .http1_only()
            .connect_timeout(limits.connect)
            .user_agent(concat!("drayage/", env!("CARGO_PKG_VERSION")));
        if let Some(guard) = &guard {
            let guard = Arc::clone(guard);
            builder = builder.dns_resolver(Arc::new(GuardedResolver { guard }));
        }
        let inner = builder
            .build()
            .map_err(|cause| HttpError::before(FailureKind::Options(cause.into())))?;
        Ok(Self {
            inner,
            limits,
            guard,
        })
    }

    /// The same pool with other patience: for streams that are silent while the peer works.
    #[must_use]
    pub const fn patient(mut self, idle: Duration, answer: Duration) -> Self {
        self.limits.idle = idle;
        self.limits.answer = answer;
        self
    }

    /// A request. `url` is absolute; it may carry a token and appears in no error.
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        RequestBuilder::new(self.clone(), method, url)
    }

    /// A GET request.
    pub fn get(&self, url: &str) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// A POST request.
    pub fn post(&self, url: &str) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// A PUT request.
    pub fn put(&self, url: &str) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// A PATCH request.
    pub fn patch(&self, url: &str) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// A DELETE request.
    pub fn delete(&self, url: &str) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }
}

fn tls_config(authorities: Option<&Path>) -> Result<ClientConfig, crate::Cause> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = authorities {
        let mut found = 0;
        for certificate in CertificateDer::pem_file_iter(path)? {
            roots.add(certificate?)?;
            found += 1;
        }
        if found == 0 {
            return Err("the file of authorities holds no certificate".into());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
