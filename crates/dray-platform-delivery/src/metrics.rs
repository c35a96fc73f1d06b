//! Metrics of deliveries. Labels come from closed sets; names, chats and tenants are never labels.

use std::time::Duration;

use dray_platform::{ErrorKind, Route};
use dray_types::PlatformKind;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};

use crate::accounts::AccountRegistry;
use crate::cache::CacheMetrics;
use crate::record::{DeliveryRecord, WaitingReason};

/// The instruments of this service, which all its tasks share.
#[derive(Clone, Debug)]
pub struct DeliveryMetrics {
    files: Counter<u64>,
    steps: Counter<u64>,
    bytes: Counter<u64>,
    failures: Counter<u64>,
    waits: Counter<u64>,
    inbound: Counter<u64>,
    /// Metrics of the sweeps of the cache.
    pub(crate) cache: CacheMetrics,
    request_seconds: Histogram<f64>,
    delivery_seconds: Histogram<f64>,
}

/// The outcomes of steps.
const STEP_OUTCOMES: [&str; 3] = ["done", "failed", "unknown"];
/// Route of a file that was never sent.
const NO_ROUTE: &str = "other";

impl DeliveryMetrics {
    /// Creates all instruments on this meter.
    pub fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        let seconds = |name: &'static str, text: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            histogram.with_description(text).build()
        };
        Self {
            cache: CacheMetrics::new(meter),
            files: counter(
                "dray_delivery_files_total",
                "Files of ended deliveries, by platform, route and state.",
            ),
            steps: counter(
                "dray_delivery_steps_total",
                "Visible requests that ended, by platform, route and outcome (done, failed, unknown).",
            ),
            bytes: counter(
                "dray_delivery_sent_bytes_total",
                "Bytes of files that left for platforms, by platform and route.",
            ),
            failures: counter(
                "dray_delivery_failures_total",
                "Requests that failed, by platform and kind.",
            ),
            waits: counter(
                "dray_delivery_parked_total",
                "Deliveries put back to wait, by reason (rate_limited, window_closed, queue).",
            ),
            inbound: counter(
                "dray_inbound_attachments_total",
                "Attachments of users, by platform and outcome (stored, unavailable).",
            ),
            request_seconds: seconds(
                "dray_delivery_request_seconds",
                "Duration of visible requests, by platform and route.",
            ),
            delivery_seconds: seconds(
                "dray_delivery_seconds",
                "Duration of deliveries from their record to their end, waits included, by platform.",
            ),
        }
    }

    pub(crate) fn sent(
        &self,
        platform: &'static str,
        route: Route,
        bytes: u64,
        duration: Duration,
    ) {
        let labels = [
            KeyValue::new("platform", platform),
            KeyValue::new("route", route.as_str()),
        ];
        self.bytes.add(bytes, &labels);
        self.request_seconds.record(duration.as_secs_f64(), &labels);
    }

    /// Creates the counters of steps on the platforms of these accounts with 0, so that the first event is an increase and
    /// not a new series.
    pub(crate) fn start_at_zero(&self, accounts: &AccountRegistry) {
        for account in accounts.iter() {
            for route in Route::ALL {
                for outcome in STEP_OUTCOMES {
                    self.add_steps(0, account.platform.name(), route, outcome);
                }
            }
        }
    }

    pub(crate) fn step(&self, platform: &'static str, route: Route, outcome: &'static str) {
        self.add_steps(1, platform, route, outcome);
    }

    fn add_steps(&self, count: u64, platform: &'static str, route: Route, outcome: &'static str) {
        self.steps.add(
            count,
            &[
                KeyValue::new("platform", platform),
                KeyValue::new("route", route.as_str()),
                KeyValue::new("outcome", outcome),
            ],
        );
    }

    pub(crate) fn failed(&self, platform: &'static str, kind: ErrorKind) {
        self.failures.add(
            1,
            &[
                KeyValue::new("platform", platform),
                KeyValue::new("kind", kind.as_str()),
            ],
        );
    }

    pub(crate) fn parked(&self, reason: WaitingReason) {
        self.waits.add(1, &[KeyValue::new("reason", reason.name())]);
    }

    pub(crate) fn attachment(&self, platform: &str, outcome: &str) {
        self.inbound.add(
            1,
            &[
                // The platform is in a request, so it is checked like the route.
                KeyValue::new("platform", known_platform(platform)),
                KeyValue::new("outcome", outcome.to_owned()),
            ],
        );
    }

    pub(crate) fn finished(&self, platform: &str, record: &DeliveryRecord) {
        let platform = known_platform(platform);
        for file in &record.files {
            self.files.add(
                1,
                &[
                    KeyValue::new("platform", platform),
                    KeyValue::new("route", file.route.map_or(NO_ROUTE, Route::as_str)),
                    KeyValue::new("state", file.state.name()),
                ],
            );
        }
        let duration = record.ended_at_ms.saturating_sub(record.begun_at_ms);
        let duration = Duration::from_millis(duration).as_secs_f64();
        self.delivery_seconds
            .record(duration, &[KeyValue::new("platform", platform)]);
    }
}

/// The label of a platform; `other` for a name that is not a platform.
fn known_platform(name: &str) -> &'static str {
    PlatformKind::from_name(name).map_or("other", PlatformKind::as_str)
}
