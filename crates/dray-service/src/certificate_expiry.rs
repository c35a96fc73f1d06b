//! The metric of when the certificates of a process expire.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Gauge, Meter};

/// Shows when each certificate expires that others check.
#[derive(Clone, Debug)]
pub(crate) struct CertificateExpiry(Gauge<u64>);

impl CertificateExpiry {
    pub(crate) fn new(meter: &Meter) -> Self {
        let gauge = meter
            .u64_gauge("dray_certificate_expiry_timestamp_seconds")
            .with_description(
                "Unix time at which the certificate in force expires, by use (grpc, bus). Alert on it.",
            );
        Self(gauge.build())
    }

    /// Records the Unix time at which the certificate for `purpose` expires.
    pub(crate) fn record(&self, purpose: &'static str, expiry_seconds: u64) {
        self.0
            .record(expiry_seconds, &[KeyValue::new("use", purpose)]);
    }
}
