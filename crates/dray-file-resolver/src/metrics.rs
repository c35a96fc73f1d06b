//! Counters of the resolver. Labels come from closed sets; names, URLs and tenants are not among them.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Meter};

use dray_proto::v1;

use crate::loader::LoadError;
use crate::resolver::plan::{PlannedSlot, SlotContent};
use dray_dial::origin::LoadTarget;

/// The instruments of one resolver.
#[derive(Clone, Debug)]
pub struct ResolverMetrics {
    references: Counter<u64>,
    loaded: Counter<u64>,
    results: Counter<u64>,
}

impl ResolverMetrics {
    /// Creates every instrument on `meter`.
    pub fn new(meter: &Meter) -> Self {
        Self {
            references: meter
                .u64_counter("dray_file_references_total")
                .with_description(
                    "References in arguments, by form (base64, text, url, none), source (dial, external, none) and outcome \
                     (ok, invalid, failed).",
                )
                .build(),
            loaded: meter
                .u64_counter("dray_file_loaded_bytes_total")
                .with_description("Bytes put into arguments before encoding, by source (dial, external).")
                .build(),
            results: meter
                .u64_counter("dray_file_results_total")
                .with_description("Resolved argument sets, by placement (inline, claim).")
                .build(),
        }
    }

    /// Counts one reference, with its outcome.
    pub(crate) fn reference(
        &self,
        slot: &PlannedSlot,
        filled: Result<&v1::ResolvedFile, &LoadError>,
    ) {
        let (form, source) = match &slot.filling {
            SlotContent::Url { .. } => ("url", "none"),
            SlotContent::Invalid(_) => ("none", "none"),
            SlotContent::Content {
                form,
                target: LoadTarget::Dial(_),
                ..
            } => (form.as_str(), "dial"),
            SlotContent::Content {
                form,
                target: LoadTarget::External(_),
                ..
            } => (form.as_str(), "external"),
        };
        let outcome = match filled {
            Ok(file) => {
                // The bytes are counted with the outcome, so a failed file adds no bytes.
                self.loaded
                    .add(file.size, &[KeyValue::new("source", source)]);
                "ok"
            }
            Err(LoadError::Correctable(_)) => "invalid",
            Err(LoadError::Failed(_)) => "failed",
        };
        self.references.add(
            1,
            &[
                KeyValue::new("form", form),
                KeyValue::new("source", source),
                KeyValue::new("outcome", outcome),
            ],
        );
    }

    /// Counts one resolved argument set.
    pub(crate) fn resolved(&self, resolved: &v1::ResolvedArguments) {
        let body = resolved
            .arguments
            .as_ref()
            .and_then(|content| content.body.as_ref());
        let placement = match body {
            Some(v1::content::Body::Claim(_)) => "claim",
            Some(v1::content::Body::Inline(_)) | None => "inline",
        };
        self.results
            .add(1, &[KeyValue::new("placement", placement)]);
    }
}
