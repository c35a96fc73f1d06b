//! Metrics of the sweeps of the cache.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Meter};

use super::SweepReport;

/// The instruments of sweeps, part of those of the service.
#[derive(Clone, Debug)]
pub(crate) struct CacheMetrics {
    removed: Counter<u64>,
    removed_bytes: Counter<u64>,
    failures: Counter<u64>,
    objects: Gauge<u64>,
    bytes: Gauge<u64>,
    held_bytes: Gauge<u64>,
}

impl CacheMetrics {
    /// Creates all instruments on this meter.
    pub(crate) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        let gauge = |name: &'static str, text: &'static str| {
            meter.u64_gauge(name).with_description(text).build()
        };
        Self {
            removed: counter(
                "dray_cache_removed_total",
                "Objects that were removed from the cache, by reason (expired, evicted).",
            ),
            removed_bytes: counter(
                "dray_cache_removed_bytes_total",
                "Bytes that were removed from the cache, by reason.",
            ),
            failures: counter(
                "dray_cache_sweep_failures_total",
                "Sweeps of the cache that failed; the next one continues.",
            ),
            objects: gauge(
                "dray_cache_objects",
                "Objects in the cache after the last sweep of this process.",
            ),
            bytes: gauge(
                "dray_cache_bytes",
                "Bytes in the cache after the last sweep of this process.",
            ),
            held_bytes: gauge(
                "dray_cache_held_bytes",
                "Bytes in the cache that deliveries, links and copies under way need.",
            ),
        }
    }

    pub(super) fn record_sizes(&self, swept: &SweepReport) {
        self.objects.record(swept.objects, &[]);
        self.bytes.record(swept.bytes, &[]);
        self.held_bytes.record(swept.held, &[]);
    }

    pub(super) fn record_removal(&self, reason: &'static str, bytes: u64) {
        let labels = [KeyValue::new("reason", reason)];
        self.removed.add(1, &labels);
        self.removed_bytes.add(bytes, &labels);
    }

    pub(super) fn record_failure(&self) {
        self.failures.add(1, &[]);
    }
}
