//! Metrics of previews.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Meter};

/// The instruments of previews.
#[derive(Clone, Debug)]
pub struct PreviewMetrics {
    changes: Counter<u64>,
    responses: Counter<u64>,
    bytes: Counter<u64>,
}

impl PreviewMetrics {
    /// Creates the instruments on this meter.
    pub fn new(meter: &Meter) -> Self {
        Self {
            changes: meter
                .u64_counter("dray_previews_total")
                .with_description(
                    "Previews, by `action`: `created`, `opened` (first look) and `revoked`.",
                )
                .build(),
            responses: meter
                .u64_counter("dray_preview_responses_total")
                .with_description(
                    "Responses on links of previews, by `outcome`: `ok`, the kind of a failure of the sandbox, or \
                     `unknown`, `invalid`, `busy`, `condition`, `unavailable`, `sandbox_unavailable`. A response that \
                     broke off counts a second time, as its failure.",
                )
                .build(),
            bytes: meter
                .u64_counter("dray_preview_bytes_total")
                .with_description("Bytes of files and archives that previews sent.")
                .build(),
        }
    }

    pub(crate) fn changed(&self, action: &'static str) {
        self.changes.add(1, &[KeyValue::new("action", action)]);
    }

    pub(crate) fn responded(&self, outcome: &'static str) {
        self.responses.add(1, &[KeyValue::new("outcome", outcome)]);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes.add(bytes as u64, &[]);
    }
}
