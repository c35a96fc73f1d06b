//! The connection pool, and the settings of all of its connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dray_types::Period;
use http::Method;
use reqwest::redirect::Policy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{FailureKind, HttpError};
use crate::guard::{DestinationGuard, GuardedResolver};
use crate::request::RequestBuilder;

/// The timeouts of a client. No timeout limits a complete transfer: it may continue while it makes progress
/// (sandbox-transfer 1.6).
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeouts {
    /// Longest time to connect, name resolution and TLS included.
    pub connect: Duration,
    /// Longest time without a byte inside a body, in either direction.
    pub idle: Duration,
    /// Longest wait from the last byte of a request to the head of the response.
    pub response: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            response: Duration::from_mins(2),
        }
    }
}

/// The settings of a client under the names that they have in configurations.
#[derive(Clone, Copy, Debug)]
pub struct HttpSettings<'a> {
    /// The period of [`HttpTimeouts::connect`].
    pub connect_timeout: Period,
    /// The period of [`HttpTimeouts::idle`].
    pub idle_timeout: Period,
    /// The period of [`HttpTimeouts::response`].
    pub response_timeout: Period,
    /// PEM file with certificate authorities that are trusted in addition to the public ones.
    pub ca_file: Option<&'a Path>,
}

/// The certificate authorities that a client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustedAuthorities {
    /// The public authorities that are compiled in.
    #[default]
    Public,
    /// The public authorities and those of a PEM file.
    PublicAnd(PathBuf),
    /// Only the authorities of a PEM file.
    Only(PathBuf),
}

impl TrustedAuthorities {
    /// The public authorities, and those of `file` if given.
    pub fn public_and(file: Option<&Path>) -> Self {
        file.map_or(Self::Public, |file| Self::PublicAnd(file.to_owned()))
    }
}

/// A client without redirects, proxies, cookies, compression or environment. Clones share the connections.
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
    /// [`FailureKind::Options`] when the file cannot be read or has no certificate.
    pub fn new(limits: HttpTimeouts, authorities: Option<&Path>) -> Result<Self, HttpError> {
        Self::trusting(limits, &TrustedAuthorities::public_and(authorities))
    }

    /// A client with the settings of a configuration.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Options`] when the file cannot be read or has no certificate.
    pub fn from_settings(settings: HttpSettings<'_>) -> Result<Self, HttpError> {
        let timeouts = HttpTimeouts {
            connect: settings.connect_timeout.as_duration(),
            idle: settings.idle_timeout.as_duration(),
            response: settings.response_timeout.as_duration(),
        };
        Self::new(timeouts, settings.ca_file)
    }

    /// A client that trusts `authorities`.
    ///
    /// # Errors
    ///
    /// [`FailureKind::Options`] when the file cannot be read or has no certificate.
    pub fn trusting(
        limits: HttpTimeouts,
        authorities: &TrustedAuthorities,
    ) -> Result<Self, HttpError> {
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
        Self::build(limits, &TrustedAuthorities::Public, Some(guard))
    }

    fn build(
        limits: HttpTimeouts,
        authorities: &TrustedAuthorities,
        guard: Option<Arc<dyn DestinationGuard>>,
    ) -> Result<Self, HttpError> {
        let tls = tls_config(authorities)
            .map_err(|cause| HttpError::before(FailureKind::Options(cause)))?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // A redirect is a response: its target was chosen by the peer, not by configuration.
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            // A second attempt may repeat the effect of the first. The caller decides whether that is safe
            // (`HttpError::sent`).
            .retry(reqwest::retry::never())
            // Switching protocols needs HTTP/1.1, and over HTTP/2 E2B's proxy sends an empty DATA frame every 32 KiB
            // (sandbox-transfer 8.2).
            .http1_only()
            .connect_timeout(limits.connect)
            .user_agent(concat!("drayage/", env!("CARGO_PKG_VERSION")));
        if let Some(guard) = &guard {
            let guard = Arc::clone(guard);
            // The resolver checks names; literal addresses are not resolved, so `send` checks the URL.
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

    /// This client with other timeouts, for peers that send nothing while they work. It uses the same connections.
    #[must_use]
    pub const fn with_body_timeouts(mut self, idle: Duration, response: Duration) -> Self {
        self.limits.idle = idle;
        self.limits.response = response;
        self
    }

    /// Begins a request. `url` is absolute; it may carry a token and appears in no error.
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        RequestBuilder::new(self.clone(), method, url)
    }

    /// Begins a GET request; see [`HttpClient::request`].
    pub fn get(&self, url: &str) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a POST request; see [`HttpClient::request`].
    pub fn post(&self, url: &str) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a PUT request; see [`HttpClient::request`].
    pub fn put(&self, url: &str) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a PATCH request; see [`HttpClient::request`].
    pub fn patch(&self, url: &str) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a DELETE request; see [`HttpClient::request`].
    pub fn delete(&self, url: &str) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }
}

fn root_store(authorities: &TrustedAuthorities) -> Result<RootCertStore, crate::Cause> {
    let mut roots = RootCertStore::empty();
    let (public, file) = match authorities {
        TrustedAuthorities::Public => (true, None),
        TrustedAuthorities::PublicAnd(file) => (true, Some(file)),
        TrustedAuthorities::Only(file) => (false, Some(file)),
    };
    if public {
        // The roots are compiled in: the system's store is chosen by environment variables.
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(path) = file {
        let mut added = 0;
        for certificate in CertificateDer::pem_file_iter(path)? {
            roots.add(certificate?)?;
            added += 1;
        }
        // A file without a certificate is a wrong path; without this the first call would fail instead of the start.
        if added == 0 {
            return Err("the CA file holds no certificate".into());
        }
    }
    Ok(roots)
}

fn tls_config(authorities: &TrustedAuthorities) -> Result<ClientConfig, crate::Cause> {
    // The provider is named, because the feature `rustls-no-provider` leaves no default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(root_store(authorities)?)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_authorities_of_a_file_are_trusted_when_options_say_so() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let authority = dray_testkit::tls::Authority::new().unwrap();
        std::fs::write(&file, authority.pem()).unwrap();
        let count = |authorities| root_store(&authorities).unwrap().len();
        let public = count(TrustedAuthorities::Public);
        assert_eq!(
            count(TrustedAuthorities::PublicAnd(file.clone())),
            public + 1
        );
        assert_eq!(count(TrustedAuthorities::Only(file.clone())), 1);
        std::fs::write(&file, "no certificate").unwrap();
        root_store(&TrustedAuthorities::Only(file)).unwrap_err();
    }
}
