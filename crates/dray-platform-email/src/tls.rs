//! TLS for connections to the server.

use std::path::Path;
use std::sync::Arc;

use dray_platform::{ErrorKind, PlatformError};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// A client configuration that trusts the public authorities, and those of a PEM file.
pub(crate) fn tls_config(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, PlatformError> {
    let unreadable_ca_file = || PlatformError::new(ErrorKind::BadFormat, "ca_file cannot be read");
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = authorities {
        let certificates = CertificateDer::pem_file_iter(path)
            .map_err(|cause| unreadable_ca_file().caused_by(cause))?;
        let mut has_certificate = false;
        for certificate in certificates {
            let certificate = certificate.map_err(|cause| unreadable_ca_file().caused_by(cause))?;
            roots
                .add(certificate)
                .map_err(|cause| unreadable_ca_file().caused_by(cause))?;
            has_certificate = true;
        }
        // An empty file is a mistake of the operator, not a wish for the public authorities alone.
        if !has_certificate {
            return Err(unreadable_ca_file());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| unreadable_ca_file().caused_by(cause))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
