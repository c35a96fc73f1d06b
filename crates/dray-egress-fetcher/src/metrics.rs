//! What is counted (egress-security 19). Made from [`Record`]s; host names are never labels.

use dray_guard::Class;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

use crate::error::Phase;
use crate::limits::Limits;
use crate::record::{End, Record, Times};

/// The instruments of the service.
#[derive(Clone, Debug)]
pub struct Metrics {
    fetches: Counter<u64>,
    seconds: Histogram<f64>,
    bytes: Counter<u64>,
    hops: Histogram<u64>,
    inflight: UpDownCounter<i64>,
    blocked: Counter<u64>,
    answers: Histogram<u64>,
    dns_errors: Counter<u64>,
    pin_mismatches: Counter<u64>,
    policy: Gauge<u64>,
    edition: Gauge<u64>,
    sink_failures: Counter<u64>,
    audit_failures: Counter<u64>,
    opened: Counter<u64>,
}

impl Metrics {
    /// Creates every instrument.
    pub fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, description: &'static str| {
            meter
                .u64_counter(name)
                .with_description(description)
                .build()
        };
        let gauge = |name: &'static str, description: &'static str| {
            meter.u64_gauge(name).with_description(description).build()
        };
        let histogram = |name: &'static str, description: &'static str, bounds: &[f64]| {
            meter
                .u64_histogram(name)
                .with_description(description)
                .with_boundaries(bounds.to_vec())
                .build()
        };
        Self {
            fetches: counter(
                "dray_egress_fetch_total",
                "Fetches, by verdict (allow, deny) and code (ok on success).",
            ),
            seconds: meter
                .f64_histogram("dray_egress_fetch_duration_seconds")
                .with_description(
                    "Seconds of a fetch, by phase: total, dns, connect, tls, head, body.",
                )
                .with_boundaries(vec![
                    0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0,
                ])
                .build(),
            bytes: counter(
                "dray_egress_bytes_total",
                "Body bytes, by kind: wire (received), stored (kept).",
            ),
            hops: histogram(
                "dray_egress_hops",
                "Requests of a fetch, redirects included.",
                &[0.0, 1.0, 2.0, 3.0, 6.0, 11.0],
            ),
            inflight: meter
                .i64_up_down_counter("dray_egress_inflight")
                .with_description("Fetches under way, waiting ones included.")
                .build(),
            blocked: counter(
                "dray_egress_blocked_address_total",
                "Refused addresses in answers, by class.",
            ),
            answers: histogram(
                "dray_egress_dns_answers",
                "Addresses in an answer.",
                &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0],
            ),
            dns_errors: counter(
                "dray_egress_dns_errors_total",
                "Lookups without an address, by kind.",
            ),
            pin_mismatches: counter(
                "dray_egress_pin_mismatch_total",
                "Connections whose peer was not the judged address. Must stay 0; page on any increase.",
            ),
            policy: gauge(
                "dray_egress_policy_info",
                "1, with the operator's policy: digest, admin_allowlist (set, unset), private_ranges (set, unset).",
            ),
            edition: gauge(
                "dray_egress_table_edition_info",
                "1, with the edition of the address tables.",
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
        }
    }

    /// Shows the state of the limits whenever metrics are read.
    pub fn observe(meter: &Meter, limits: &Limits) {
        let gauge = |name: &'static str, description: &'static str, read: fn(&Limits) -> usize| {
            let limits = limits.clone();
            meter
                .u64_observable_gauge(name)
                .with_description(description)
                .with_callback(move |observer| observer.observe(read(&limits) as u64, &[]))
                .build();
        };
        gauge(
            "dray_egress_queue_depth",
            "Fetches that wait for a place.",
            Limits::waiting,
        );
        gauge(
            "dray_egress_host_breaker_open",
            "Targets that are refused after repeated failures.",
            |limits| limits.breaker().open(),
        );
    }

    /// Shows the policy and the tables.
    pub fn policy(&self, digest: &str, allowlist: bool, private_ranges: bool) {
        let set = |is_set| if is_set { "set" } else { "unset" };
        self.policy.record(
            1,
            &[
                KeyValue::new("digest", digest.to_owned()),
                KeyValue::new("admin_allowlist", set(allowlist)),
                KeyValue::new("private_ranges", set(private_ranges)),
            ],
        );
        self.edition
            .record(1, &[KeyValue::new("edition", dray_guard::TABLE_EDITION)]);
    }

    /// A fetch began; it counts as under way until the value is dropped.
    pub fn begin(&self) -> InFlight {
        self.inflight.add(1, &[]);
        InFlight(self.inflight.clone())
    }

    /// An audit event was not published.
    pub fn audit_failed(&self) {
        self.audit_failures.add(1, &[]);
    }

    /// A fetch ended; a cancelled one has no end and counts as `cancelled`.
    pub fn ended(&self, record: &Record) {
        let (verdict, code) = match record.end {
            Some(End::Stored) => ("allow", "ok"),
            Some(End::Failed { code, phase }) => {
                if phase == Phase::Sink {
                    self.sink_failures.add(1, &[]);
                }
                ("deny", code.as_str())
            }
            None => ("deny", "cancelled"),
        };
        self.fetches.add(
            1,
            &[
                KeyValue::new("verdict", verdict),
                KeyValue::new("code", code),
            ],
        );
        self.times(&record.times);
        self.bytes
            .add(record.counts.wire, &[KeyValue::new("kind", "wire")]);
        self.bytes
            .add(record.counts.stored, &[KeyValue::new("kind", "stored")]);
        self.hops.record(record.hops.len() as u64, &[]);
        self.pin_mismatches
            .add(u64::from(record.pin_mismatches), &[]);
        for kind in &record.dns_errors {
            self.dns_errors.add(1, &[KeyValue::new("kind", *kind)]);
        }
        self.addresses(record);
    }

    fn times(&self, times: &Times) {
        let Times {
            total,
            dns,
            connect,
            tls,
            head,
            body,
        } = times;
        for (phase, time) in [
            (Phase::Total, total),
            (Phase::Dns, dns),
            (Phase::Connect, connect),
            (Phase::Tls, tls),
            (Phase::Head, head),
            (Phase::Body, body),
        ] {
            if phase == Phase::Total || !time.is_zero() {
                self.seconds.record(
                    time.as_secs_f64(),
                    &[KeyValue::new("phase", phase.as_str())],
                );
            }
        }
    }

    fn addresses(&self, record: &Record) {
        for hop in record.hops.iter().filter(|hop| !hop.answers.is_empty()) {
            self.answers.record(hop.answers.len() as u64, &[]);
            for judged in &hop.answers {
                if let Class::Blocked(class) = judged.class {
                    self.blocked.add(1, &[KeyValue::new("class", class)]);
                }
            }
        }
        let opened = |hop: &crate::record::Hop| {
            let inside = |judged: &dray_guard::Judged| matches!(judged.class, Class::Opened(_));
            hop.peer.is_some() && hop.answers.iter().any(inside)
        };
        if record.hops.iter().any(opened) {
            self.opened.add(1, &[]);
        }
    }
}

/// A fetch that is under way.
#[derive(Debug)]
pub struct InFlight(UpDownCounter<i64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.add(-1, &[]);
    }
}
