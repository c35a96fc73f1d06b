//! The metrics of the bus (messaging-reliability 17). Labels come from closed sets: results, outcomes, codes, areas of
//! the contracts and names of durables; never ids, tenants or subjects.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

use crate::topology::{FullStreamPolicy, StreamUsage};

/// Bounds of histograms of seconds.
const DURATION_BOUNDS_SECONDS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Every instrument of the bus.
#[derive(Clone, Debug)]
pub(crate) struct BusMetrics {
    /// `dray_publish_total`, by `result`: `ok`, `duplicate`, `timeout`, `full` or `error`.
    publish_total: Counter<u64>,
    publish_seconds: Histogram<f64>,
    /// `dray_call_total`, by `area` and `result`; the results are the variants of `CallError`.
    call_total: Counter<u64>,
    /// `dray_call_seconds`, by `area`: the total wait of a caller, including retries.
    call_seconds: Histogram<f64>,
    /// `dray_call_retries_total`, by `area`: attempts after the first.
    call_retries_total: Counter<u64>,
    /// `dray_call_late_replies_total`: replies that arrived after their caller had stopped waiting.
    pub(crate) call_late_replies_total: Counter<u64>,
    /// `dray_process_total`, by `outcome` of the delivery.
    process_total: Counter<u64>,
    process_seconds: Histogram<f64>,
    /// `dray_redelivered_total`: deliveries that were not the first of their message.
    pub(crate) redelivered_total: Counter<u64>,
    /// `dray_attempts`: real attempts of work that ended.
    pub(crate) attempts: Histogram<u64>,
    /// `dray_lease_lost_total`: leases that another worker had taken over.
    pub(crate) lease_lost_total: Counter<u64>,
    /// `dray_ledger_regression_total`: a write got a revision that was already used, so entries were lost (7.2).
    pub(crate) ledger_regression_total: Counter<u64>,
    /// `dray_dead_total`, by `code` of the last failure.
    dead_total: Counter<u64>,
    /// `dray_dead_oldest_seconds`: age of the oldest letter that waits for an operator, set by the sweeper.
    pub(crate) dead_oldest_seconds: Gauge<f64>,
    /// `dray_consumer_pending`, by `consumer`: messages not handed out yet.
    consumer_pending: Gauge<u64>,
    /// `dray_ack_pending`, by `consumer`: messages handed out and not acknowledged.
    ack_pending: Gauge<u64>,
    /// `dray_oldest_unfinished_seconds`: age of the oldest work without a terminal state, set by the sweeper.
    pub(crate) oldest_unfinished_seconds: Gauge<f64>,
    /// `dray_stranded_total`: messages that the sweeper found without a terminal state.
    pub(crate) stranded_total: Counter<u64>,
    /// `dray_sweep_failures_total`: sweeps that did not check all work and all dead letters.
    pub(crate) sweep_failures_total: Counter<u64>,
    /// `dray_sweep_last_success_timestamp_seconds`: Unix time at which the last complete sweep ended.
    pub(crate) sweep_last_success_seconds: Gauge<f64>,
    pub(crate) disconnects_total: Counter<u64>,
    /// `dray_slow_consumer_total`: subscriptions that dropped messages; each is a bug.
    pub(crate) slow_consumer_total: Counter<u64>,
    /// `dray_permission_violation_total`: subjects that the server refused.
    pub(crate) permission_violation_total: Counter<u64>,
    /// `dray_foreign_entries_total`: reads of keys that hold a message that was not written as a key.
    pub(crate) foreign_entries_total: Counter<u64>,
    /// `dray_key_write_total`, by `bucket` and `result`: `ok`, `stale`, `full`, `timeout` or `error`.
    key_write_total: Counter<u64>,
    /// `dray_stream_used_ratio`, by `stream` and `when_full` (`refuse` or `drop`): the used part of the limit of each
    /// stream.
    stream_used_ratio: Gauge<f64>,
    /// `dray_topology_mismatch`: fields that differ, of the last verification of what the services need.
    pub(crate) topology_mismatch: Gauge<u64>,
}

impl BusMetrics {
    #[expect(
        clippy::too_many_lines,
        reason = "a list: each instrument with its meaning"
    )]
    pub(crate) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, meaning: &'static str| {
            meter.u64_counter(name).with_description(meaning).build()
        };
        let seconds = |name: &'static str, meaning: &'static str| {
            meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(meaning)
                .with_boundaries(DURATION_BOUNDS_SECONDS.to_vec())
                .build()
        };
        let seconds_gauge = |name: &'static str, meaning: &'static str| {
            meter
                .f64_gauge(name)
                .with_unit("s")
                .with_description(meaning)
                .build()
        };
        let gauge = |name: &'static str, meaning: &'static str| {
            meter.u64_gauge(name).with_description(meaning).build()
        };
        let attempts = meter
            .u64_histogram("dray_attempts")
            .with_description("Real attempts of work that ended.")
            .with_boundaries(vec![1.0, 2.0, 3.0, 4.0, 5.0, 10.0]);
        Self {
            publish_total: counter(
                "dray_publish_total",
                "Work, events and audit events published, by result (ok, duplicate, timeout, full, error).",
            ),
            publish_seconds: seconds(
                "dray_publish_seconds",
                "Seconds until a publish was acknowledged or given up.",
            ),
            call_total: counter(
                "dray_call_total",
                "Calls made, by area and result (ok, fault, no_responder, timeout, circuit_open, too_large, bad_reply, \
                 transport).",
            ),
            call_seconds: seconds(
                "dray_call_seconds",
                "Seconds a caller waited, retries included, by area.",
            ),
            call_retries_total: counter(
                "dray_call_retries_total",
                "Attempts of calls after the first, by area.",
            ),
            call_late_replies_total: counter(
                "dray_call_late_replies_total",
                "Replies that arrived after their caller had stopped waiting.",
            ),
            process_total: counter(
                "dray_process_total",
                "Deliveries of work that were processed, by outcome.",
            ),
            process_seconds: seconds(
                "dray_process_seconds",
                "Seconds from delivery to acknowledgement.",
            ),
            redelivered_total: counter(
                "dray_redelivered_total",
                "Deliveries that were not the first of their message.",
            ),
            attempts: attempts.build(),
            lease_lost_total: counter(
                "dray_lease_lost_total",
                "Leases that another worker had taken over.",
            ),
            ledger_regression_total: counter(
                "dray_ledger_regression_total",
                "Ledger writes whose revision was not above that of an earlier write: entries were lost.",
            ),
            dead_total: counter(
                "dray_dead_total",
                "Work given up as dead letters, by code of the last failure.",
            ),
            dead_oldest_seconds: seconds_gauge(
                "dray_dead_oldest_seconds",
                "Age of the oldest dead letter that was neither started again nor resolved; 0 without one. Set by the sweeper.",
            ),
            consumer_pending: gauge(
                "dray_consumer_pending",
                "Messages not handed out yet, by consumer.",
            ),
            ack_pending: gauge(
                "dray_ack_pending",
                "Messages handed out and not acknowledged, by consumer.",
            ),
            oldest_unfinished_seconds: seconds_gauge(
                "dray_oldest_unfinished_seconds",
                "Age of the oldest work without a terminal state. Alert on it.",
            ),
            stranded_total: counter(
                "dray_stranded_total",
                "Messages that the sweeper found without a terminal state. Alert on it.",
            ),
            sweep_failures_total: counter(
                "dray_sweep_failures_total",
                "Sweeps that did not check all work and all dead letters. The other metrics of the sweeper may be old then.",
            ),
            sweep_last_success_seconds: seconds_gauge(
                "dray_sweep_last_success_timestamp_seconds",
                "Unix time at which the sweeper last checked all work and all dead letters. Alert on its age and its absence.",
            ),
            disconnects_total: counter(
                "dray_bus_disconnects_total",
                "Connections to the bus that were lost.",
            ),
            slow_consumer_total: counter(
                "dray_slow_consumer_total",
                "Subscriptions that dropped messages. Each is a bug.",
            ),
            permission_violation_total: counter(
                "dray_permission_violation_total",
                "Subjects that the server refused to this identity.",
            ),
            foreign_entries_total: counter(
                "dray_foreign_entries_total",
                "Reads of keys that hold a message that was not written as a key. An identity overwrote them.",
            ),
            key_write_total: counter(
                "dray_key_write_total",
                "Writes of keys, by bucket and result (ok, stale, full, timeout, error).",
            ),
            stream_used_ratio: meter
                .f64_gauge("dray_stream_used_ratio")
                .with_description(
                    "Used part of the limit of a stream, by stream and by what it does when it is full (when_full: refuse, \
                     drop); 1 is full.",
                )
                .build(),
            topology_mismatch: gauge(
                "dray_topology_mismatch",
                "Fields of streams and consumers that differ from what they must be.",
            ),
        }
    }

    /// Creates the counters of the sweeper with 0, so that the first event is an increase and not a new series.
    pub(crate) fn start_sweeper_at_zero(&self) {
        for counter in [&self.stranded_total, &self.sweep_failures_total] {
            counter.add(0, &[]);
        }
    }

    /// Creates the counters of the connection with 0, so that the first event is an increase and not a new series.
    pub(crate) fn start_at_zero(&self) {
        for counter in [
            &self.disconnects_total,
            &self.slow_consumer_total,
            &self.permission_violation_total,
            &self.foreign_entries_total,
            &self.ledger_regression_total,
        ] {
            counter.add(0, &[]);
        }
    }

    pub(crate) fn published(&self, result: &'static str, seconds: f64) {
        self.publish_total
            .add(1, &[KeyValue::new("result", result)]);
        // The histogram has no label for the result, which would multiply its series; the counter has it.
        self.publish_seconds.record(seconds, &[]);
    }

    pub(crate) fn key_written(&self, bucket: &str, result: &'static str) {
        let bucket = KeyValue::new("bucket", bucket.to_owned());
        self.key_write_total
            .add(1, &[bucket, KeyValue::new("result", result)]);
    }

    pub(crate) fn used(&self, usage: &StreamUsage) {
        let stream = KeyValue::new("stream", usage.stream.clone());
        let when_full = match usage.when_full {
            FullStreamPolicy::New => "refuse",
            FullStreamPolicy::Old => "drop",
        };
        self.stream_used_ratio.record(
            usage.ratio(),
            &[stream, KeyValue::new("when_full", when_full)],
        );
    }

    pub(crate) fn called(&self, area: &'static str, result: &'static str, seconds: f64) {
        let area = KeyValue::new("area", area);
        self.call_seconds
            .record(seconds, std::slice::from_ref(&area));
        self.call_total
            .add(1, &[area, KeyValue::new("result", result)]);
    }

    pub(crate) fn retried(&self, area: &'static str) {
        self.call_retries_total
            .add(1, &[KeyValue::new("area", area)]);
    }

    pub(crate) fn processed(&self, outcome: &'static str, seconds: f64) {
        self.process_total
            .add(1, &[KeyValue::new("outcome", outcome)]);
        self.process_seconds.record(seconds, &[]);
    }

    pub(crate) fn dead(&self, code: dray_types::FaultCode) {
        self.dead_total
            .add(1, &[KeyValue::new("code", code.as_str())]);
    }

    pub(crate) fn backlog(&self, durable: &str, pending: u64, ack_pending: u64) {
        let consumer = [KeyValue::new("consumer", durable.to_owned())];
        self.consumer_pending.record(pending, &consumer);
        self.ack_pending.record(ack_pending, &consumer);
    }
}
