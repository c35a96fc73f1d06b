//! The instruments themselves, with the descriptions that become the reference page.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

/// Counters, which only rise.
#[derive(Clone, Debug)]
pub(super) struct CounterSet {
    pub(super) fetches: Counter<u64>,
    pub(super) bytes: Counter<u64>,
    pub(super) blocked: Counter<u64>,
    pub(super) dns_errors: Counter<u64>,
    pub(super) pin_mismatches: Counter<u64>,
    pub(super) sink_failures: Counter<u64>,
    pub(super) audit_failures: Counter<u64>,
    pub(super) opened: Counter<u64>,
    pub(super) retries: Counter<u64>,
    pub(super) reports: Counter<u64>,
    pub(super) reloads: Counter<u64>,
    pub(super) questions: Counter<u64>,
    pub(super) cache: Counter<u64>,
    pub(super) audit_file: Counter<u64>,
    pub(super) audit_file_delayed: Counter<u64>,
    pub(super) audit_syslog: Counter<u64>,
}

impl CounterSet {
    #[expect(clippy::too_many_lines, reason = "a list of all counters")]
    pub(super) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, text: &'static str| {
            meter.u64_counter(name).with_description(text).build()
        };
        Self {
            fetches: counter(
                "dray_egress_fetch_total",
                "Fetches, by verdict (allow, deny) and code (ok on success).",
            ),
            bytes: counter(
                "dray_egress_bytes_total",
                "Body bytes, by kind: wire (received), stored (kept).",
            ),
            blocked: counter(
                "dray_egress_blocked_address_total",
                "Refused addresses in DNS responses, by class.",
            ),
            dns_errors: counter(
                "dray_egress_dns_errors_total",
                "Lookups without an address, by kind (not_found, failure, timeout).",
            ),
            pin_mismatches: counter(
                "dray_egress_pin_mismatch_total",
                "Connections whose peer was not the judged address. Must stay 0; page on any increase.",
            ),
            sink_failures: counter(
                "dray_egress_sink_failures_total",
                "Fetches whose bytes could not be stored.",
            ),
            audit_failures: counter(
                "dray_egress_audit_failures_total",
                "Audit events that could not be published.",
            ),
            opened: counter(
                "dray_egress_opened_range_fetches_total",
                "Fetches with a hop into a private range that the operator opened.",
            ),
            retries: counter(
                "dray_egress_retries_total",
                "Attempts after the first one of a fetch.",
            ),
            reports: counter(
                "dray_egress_policy_reports_total",
                "Fetches and connections that a rule or limit of the policy files reported instead of refusing \
                 them, by rule.",
            ),
            reloads: counter(
                "dray_egress_policy_reloads_total",
                "Changes of the policy files, by result: applied, or failed (the earlier rules stay in force).",
            ),
            cache: counter(
                "dray_egress_cache_total",
                "Fetches by what the cache did for their last hop: hit, revalidated, miss. Not counted while nothing is stored.",
            ),
            audit_file: counter(
                "dray_egress_audit_file_dropped_total",
                "Events that are not in the file of audit events, by reason: queue_full, write_failed.",
            ),
            audit_file_delayed: counter(
                "dray_egress_audit_file_delayed_total",
                "Events that the file did not take at the first attempt. They are written later, or dropped and counted.",
            ),
            audit_syslog: counter(
                "dray_egress_audit_syslog_dropped_total",
                "Events that did not reach the syslog server, by reason: queue_full, write_failed.",
            ),
            questions: counter(
                "dray_egress_questions_total",
                "Questions about hosts, by event: asked, allowed, denied, too_many (the session has reached its limit), failed (the records could not be used).",
            ),
        }
    }
}

/// Histograms, with bounds for each quantity.
#[derive(Clone, Debug)]
pub(super) struct HistogramSet {
    pub(super) seconds: Histogram<f64>,
    pub(super) hops: Histogram<u64>,
    pub(super) answers: Histogram<u64>,
    pub(super) server_seconds: Histogram<f64>,
}

impl HistogramSet {
    pub(super) fn new(meter: &Meter) -> Self {
        let histogram = |name: &'static str, description: &'static str, bounds: &[f64]| {
            meter
                .u64_histogram(name)
                .with_description(description)
                .with_boundaries(bounds.to_vec())
                .build()
        };
        // The default timeouts of section 14 are edges, so a phase at its limit has a separate bucket.
        let bounds = [
            0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0,
        ];
        Self {
            seconds: meter
                .f64_histogram("dray_egress_fetch_duration_seconds")
                .with_description(
                    "Seconds of a fetch, by phase: total, dns, connect, tls, head, body.",
                )
                .with_boundaries(bounds.to_vec())
                .build(),
            server_seconds: meter
                .f64_histogram("dray_egress_dns_server_seconds")
                .with_description(
                    "Seconds of a query to a DNS server, by address of the server and result: answer, failure, no_answer \
                     (another server answered first, or the time limit was reached).",
                )
                .with_boundaries(bounds.to_vec())
                .build(),
            hops: histogram(
                "dray_egress_hops",
                "Requests of a fetch, redirects included.",
                // 6 and 11 are the most requests with the default of 5 redirects and with the ceiling of 10.
                &[0.0, 1.0, 2.0, 3.0, 6.0, 11.0],
            ),
            answers: histogram(
                "dray_egress_dns_answers",
                "Addresses in a DNS response.",
                &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0],
            ),
        }
    }
}

/// Gauges of the current state.
#[derive(Clone, Debug)]
pub(super) struct GaugeSet {
    pub(super) inflight: UpDownCounter<i64>,
    pub(super) policy: Gauge<u64>,
    pub(super) edition: Gauge<u64>,
    pub(super) rules: Gauge<u64>,
    pub(super) rules_stale: Gauge<u64>,
}

impl GaugeSet {
    pub(super) fn new(meter: &Meter) -> Self {
        let gauge = |name: &'static str, description: &'static str| {
            meter.u64_gauge(name).with_description(description).build()
        };
        Self {
            inflight: meter
                .i64_up_down_counter("dray_egress_inflight")
                .with_description("Fetches under way, waiting ones included.")
                .build(),
            policy: gauge(
                "dray_egress_policy_info",
                "Always 1; the labels describe the operator's policy: digest, admin_allowlist (set, unset), private_ranges (set, unset).",
            ),
            rules: gauge(
                "dray_egress_policy_rules_info",
                "1 for the digest of the policy files in force, 0 for a digest that is no longer in force.",
            ),
            rules_stale: gauge(
                "dray_egress_policy_stale",
                "1 while the policy files are wrong or cannot be read and the earlier rules stay in force, otherwise 0.",
            ),
            edition: gauge(
                "dray_egress_table_edition_info",
                "Always 1; the label is the edition of the address tables.",
            ),
        }
    }
}
