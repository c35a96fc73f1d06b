//! What the bus counts (messaging-reliability 17). Labels come from closed sets: results, outcomes, codes,
//! areas of the contracts and names of durables; never ids, tenants or subjects.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};

/// Every instrument of the bus.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    /// `dray_publish_total{result=ok|duplicate|timeout|full|error}`
    publish_total: Counter<u64>,
    /// `dray_publish_seconds`
    publish_seconds: Histogram<f64>,
    /// `dray_call_total{area,result}`
    call_total: Counter<u64>,
    /// `dray_call_seconds{area}`
    call_seconds: Histogram<f64>,
    /// `dray_call_retries_total{area}`
    call_retries_total: Counter<u64>,
    /// `dray_call_late_replies_total`: replies that nobody waited for any more.
    pub(crate) call_late_replies_total: Counter<u64>,
    /// `dray_process_total{outcome}`
    process_total: Counter<u64>,
    /// `dray_process_seconds`
    process_seconds: Histogram<f64>,
    /// `dray_redelivered_total`
    pub(crate) redelivered_total: Counter<u64>,
    /// `dray_attempts`
    pub(crate) attempts: Histogram<u64>,
    /// `dray_lease_lost_total`
    pub(crate) lease_lost_total: Counter<u64>,
    /// `dray_ledger_regression_total`: a redelivered message is older than its ledger entry (7.2).
    pub(crate) ledger_regression_total: Counter<u64>,
    /// `dray_dead_total{code}`
    dead_total: Counter<u64>,
    /// `dray_dead_oldest_seconds`
    pub(crate) dead_oldest_seconds: Gauge<f64>,
    /// `dray_consumer_pending{consumer}`
    consumer_pending: Gauge<u64>,
    /// `dray_ack_pending{consumer}`
    ack_pending: Gauge<u64>,
    /// `dray_oldest_unfinished_seconds`
    pub(crate) oldest_unfinished_seconds: Gauge<f64>,
    /// `dray_stranded_total`: messages that the sweeper found without a terminal state.
    pub(crate) stranded_total: Counter<u64>,
    /// `dray_bus_disconnects_total`
    pub(crate) disconnects_total: Counter<u64>,
    /// `dray_slow_consumer_total`
    pub(crate) slow_consumer_total: Counter<u64>,
    /// `dray_permission_violation_total`
    pub(crate) permission_violation_total: Counter<u64>,
    /// `dray_topology_mismatch`
    pub(crate) topology_mismatch: Gauge<u64>,
}

impl Metrics {
    pub(crate) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str| meter.u64_counter(name).build();
        let seconds = |name: &'static str| meter.f64_histogram(name).with_unit("s").build();
        Self {
            publish_total: counter("dray_publish_total"),
            publish_seconds: seconds("dray_publish_seconds"),
            call_total: counter("dray_call_total"),
            call_seconds: seconds("dray_call_seconds"),
            call_retries_total: counter("dray_call_retries_total"),
            call_late_replies_total: counter("dray_call_late_replies_total"),
            process_total: counter("dray_process_total"),
            process_seconds: seconds("dray_process_seconds"),
            redelivered_total: counter("dray_redelivered_total"),
            attempts: meter.u64_histogram("dray_attempts").build(),
            lease_lost_total: counter("dray_lease_lost_total"),
            ledger_regression_total: counter("dray_ledger_regression_total"),
            dead_total: counter("dray_dead_total"),
            dead_oldest_seconds: meter.f64_gauge("dray_dead_oldest_seconds").build(),
            consumer_pending: meter.u64_gauge("dray_consumer_pending").build(),
            ack_pending: meter.u64_gauge("dray_ack_pending").build(),
            oldest_unfinished_seconds: meter.f64_gauge("dray_oldest_unfinished_seconds").build(),
            stranded_total: counter("dray_stranded_total"),
            disconnects_total: counter("dray_bus_disconnects_total"),
            slow_consumer_total: counter("dray_slow_consumer_total"),
            permission_violation_total: counter("dray_permission_violation_total"),
            topology_mismatch: meter.u64_gauge("dray_topology_mismatch").build(),
        }
    }

    pub(crate) fn published(&self, result: &'static str, seconds: f64) {
        self.publish_total
            .add(1, &[KeyValue::new("result", result)]);
        self.publish_seconds.record(seconds, &[]);
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
