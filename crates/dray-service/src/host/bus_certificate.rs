//! Shows when the certificate expires with which this process logs in to the bus. The client reads it for each
//! connection, so an expired one would be noticed at the first reconnect.

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::certificate_expiry::CertificateExpiry;
use crate::grpc::certificate_expiry_seconds;

/// Time between two reads of the file.
const READ_INTERVAL: Duration = Duration::from_mins(1);

/// Records the end of the first certificate in the file, now and after each interval. A file that cannot be read is
/// left to the next connection, which fails with the reason. Never returns.
pub(super) async fn record_expiry(file: PathBuf, expiry: CertificateExpiry) {
    loop {
        if let Ok(pem) = tokio::fs::read(&file).await
            && let Ok(certificate) = CertificateDer::from_pem_slice(&pem)
            && let Some(expiry_seconds) = certificate_expiry_seconds(&certificate)
        {
            expiry.record("bus", expiry_seconds);
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
}
