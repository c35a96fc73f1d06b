//! Counters, histograms and gauges (egress-security 19), fed from [`FetchRecord`]s. Host names are never labels.

use std::sync::Arc;
use std::time::Duration;

use dray_guard::{Class, Code};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter, UpDownCounter};

use crate::error::FetchPhase;
use crate::limits::FetchAdmission;
use crate::record::{CacheUse, FetchEnd, FetchRecord, PhaseTimes};
use crate::resolve::{DnsError, QuestionEnd, QuestionObserver};

mod instruments;
mod proxy;

pub use proxy::{ProxyMetrics, UNKNOWN_PROTOCOL};

use instruments::{CounterSet, GaugeSet, HistogramSet};

/// A destination of audit events in addition to log and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// A rotated file of lines.
    File,
    /// A server that speaks RFC 5424.
    Syslog,
}

impl AuditDestination {
    /// The name in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Syslog => "syslog",
        }
    }
}

/// The reason for which an audit event did not reach a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Too many events waited.
    QueueFull,
    /// The event could not be written or sent.
    WriteFailed,
}

impl DropReason {
    /// Every reason.
    const ALL: [Self; 2] = [Self::QueueFull, Self::WriteFailed];

    /// The label in the metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WriteFailed => "write_failed",
        }
    }
}

/// How long DNS servers take. They are those of the configuration, so their number is bounded.
#[derive(Debug)]
struct DnsServerMetrics(Histogram<f64>);

impl QuestionObserver for DnsServerMetrics {
    fn question_ended(&self, server: &str, end: QuestionEnd, time: Duration) {
        let labels = [
            KeyValue::new("server", server.to_owned()),
            KeyValue::new("result", end.as_str()),
        ];
        self.0.record(time.as_secs_f64(), &labels);
    }
}

/// The instruments of the service.
#[derive(Clone, Debug)]
pub struct EgressMetrics {
    counters: CounterSet,
    histograms: HistogramSet,
    gauges: GaugeSet,
}

impl EgressMetrics {
    /// Creates every instrument on `meter`, without any value.
    pub fn new(meter: &Meter) -> Self {
        Self {
            counters: CounterSet::new(meter),
            histograms: HistogramSet::new(meter),
            gauges: GaugeSet::new(meter),
        }
    }

    /// Records the times of DNS servers, for a resolver.
    pub fn dns_servers(&self) -> Arc<dyn QuestionObserver> {
        Arc::new(DnsServerMetrics(self.histograms.server_seconds.clone()))
    }

    /// Creates every counter with 0, so that the first event is an increase and not a new series.
    pub fn start_at_zero(&self) {
        let counters = &self.counters;
        let fetch = |verdict: &'static str, code: &'static str| {
            let labels = [
                KeyValue::new("verdict", verdict),
                KeyValue::new("code", code),
            ];
            counters.fetches.add(0, &labels);
        };
        fetch("allow", "ok");
        fetch("deny", "cancelled");
        for code in Code::ALL_REASONS {
            fetch("deny", code.as_str());
        }
        for cache_use in CacheUse::ALL_USES {
            counters
                .cache
                .add(0, &[KeyValue::new("use", cache_use.as_str())]);
        }
        for kind in ["wire", "stored"] {
            counters.bytes.add(0, &[KeyValue::new("kind", kind)]);
        }
        for kind in DnsError::ERROR_KINDS {
            counters.dns_errors.add(0, &[KeyValue::new("kind", kind)]);
        }
        for class in dray_guard::blocked_classes() {
            counters.blocked.add(0, &[KeyValue::new("class", class)]);
        }
        for reason in DropReason::ALL {
            let labels = [KeyValue::new("reason", reason.as_str())];
            counters.audit_file.add(0, &labels);
            counters.audit_syslog.add(0, &labels);
        }
        for counter in [
            &counters.pin_mismatches,
            &counters.sink_failures,
            &counters.audit_failures,
            &counters.opened,
            &counters.retries,
        ] {
            counter.add(0, &[]);
        }
    }

    /// Shows the state of the limits whenever metrics are read.
    pub fn observe(meter: &Meter, limits: &FetchAdmission) {
        let gauge =
            |name: &'static str, description: &'static str, read: fn(&FetchAdmission) -> usize| {
                let limits = limits.clone();
                meter
                    .u64_observable_gauge(name)
                    .with_description(description)
                    .with_callback(move |observer| observer.observe(read(&limits) as u64, &[]))
                    .build();
            };
        gauge(
            "dray_egress_queue_depth",
            "Fetches that wait for a slot.",
            FetchAdmission::waiting,
        );
        gauge(
            "dray_egress_host_breaker_open",
            "Targets that are refused after repeated failures.",
            |limits| limits.breaker().open(),
        );
    }

    /// Reports the operator's policy and the edition of the address tables.
    pub fn policy(&self, digest: &str, allowlist: bool, private_ranges: bool) {
        let set = |is_set| if is_set { "set" } else { "unset" };
        self.gauges.policy.record(
            1,
            &[
                KeyValue::new("digest", digest.to_owned()),
                KeyValue::new("admin_allowlist", set(allowlist)),
                KeyValue::new("private_ranges", set(private_ranges)),
            ],
        );
        self.gauges
            .edition
            .record(1, &[KeyValue::new("edition", dray_guard::TABLE_EDITION)]);
    }

    /// Records whether the policy files with this digest are in force.
    pub fn rules_in_force(&self, digest: &str, is_in_force: bool) {
        let labels = [KeyValue::new("digest", digest.to_owned())];
        self.gauges.rules.record(u64::from(is_in_force), &labels);
        for result in ["applied", "failed"] {
            self.counters
                .reloads
                .add(0, &[KeyValue::new("result", result)]);
        }
    }

    /// Records whether the policy files are wrong and older rules are in force.
    pub fn rules_stale(&self, is_stale: bool) {
        self.gauges.rules_stale.record(u64::from(is_stale), &[]);
    }

    /// Counts a change of the policy files.
    pub fn rules_reloaded(&self, is_applied: bool) {
        let result = if is_applied { "applied" } else { "failed" };
        self.counters
            .reloads
            .add(1, &[KeyValue::new("result", result)]);
    }

    /// Counts an event that did not reach a destination in addition to log and stream.
    pub fn audit_dropped(&self, destination: AuditDestination, reason: DropReason) {
        let counter = match destination {
            AuditDestination::File => &self.counters.audit_file,
            AuditDestination::Syslog => &self.counters.audit_syslog,
        };
        counter.add(1, &[KeyValue::new("reason", reason.as_str())]);
    }

    /// Counts events that the file did not take at the first attempt.
    pub fn audit_delayed(&self, events: usize) {
        self.counters.audit_file_delayed.add(events as u64, &[]);
    }

    /// Counts an event of a question about a host.
    pub fn questioned(&self, event: &'static str) {
        let label = KeyValue::new("event", event);
        self.counters.questions.add(1, &[label]);
    }

    /// Counts a fetch as under way until the value is dropped. A fetch that waits for a slot counts too.
    pub fn begin(&self) -> InFlight {
        self.gauges.inflight.add(1, &[]);
        InFlight(self.gauges.inflight.clone())
    }

    /// Counts an audit event that was not published.
    pub fn audit_failed(&self) {
        self.counters.audit_failures.add(1, &[]);
    }

    /// Counts a fetch that ended; one without an end counts as `cancelled`.
    pub fn ended(&self, record: &FetchRecord) {
        let (verdict, code) = match record.end {
            Some(FetchEnd::Stored | FetchEnd::Judged) => ("allow", "ok"),
            Some(FetchEnd::Failed { code, phase }) => {
                if phase == FetchPhase::Sink {
                    self.counters.sink_failures.add(1, &[]);
                }
                ("deny", code.as_str())
            }
            Some(FetchEnd::Cancelled { .. }) | None => ("deny", "cancelled"),
        };
        // Only fetches count here. DNS errors and blocked addresses of an explanation count below.
        let fetches = u64::from(!record.lookup_only);
        self.counters.fetches.add(
            fetches,
            &[
                KeyValue::new("verdict", verdict),
                KeyValue::new("code", code),
            ],
        );
        if let Some(cache_use) = record.cache {
            let label = KeyValue::new("use", cache_use.as_str());
            self.counters.cache.add(1, &[label]);
        }
        self.times(&record.times);
        self.counters
            .bytes
            .add(record.counts.wire, &[KeyValue::new("kind", "wire")]);
        self.counters
            .bytes
            .add(record.counts.stored, &[KeyValue::new("kind", "stored")]);
        self.histograms.hops.record(record.hops.len() as u64, &[]);
        self.counters.retries.add(u64::from(record.retries), &[]);
        self.judged(record);
    }

    /// Counts the results of DNS and of the judge, and those for connections of the proxy, which are not fetches.
    pub fn judged(&self, record: &FetchRecord) {
        self.counters
            .pin_mismatches
            .add(u64::from(record.pin_mismatches), &[]);
        let reports = [&record.reported, &record.robots_reported];
        for rule in reports
            .into_iter()
            .flatten()
            .filter(|_| !record.lookup_only)
        {
            let labels = [KeyValue::new("rule", rule.name.clone())];
            self.counters.reports.add(1, &labels);
        }
        for kind in &record.dns_errors {
            self.counters
                .dns_errors
                .add(1, &[KeyValue::new("kind", *kind)]);
        }
        self.addresses(record);
    }

    fn times(&self, times: &PhaseTimes) {
        let PhaseTimes {
            total,
            dns,
            connect,
            tls,
            head,
            body,
        } = times;
        for (phase, time) in [
            (FetchPhase::Total, total),
            (FetchPhase::Dns, dns),
            (FetchPhase::Connect, connect),
            (FetchPhase::Tls, tls),
            (FetchPhase::Head, head),
            (FetchPhase::Body, body),
        ] {
            // Phases that were not reached would pull the distribution to zero.
            if phase == FetchPhase::Total || !time.is_zero() {
                self.histograms.seconds.record(
                    time.as_secs_f64(),
                    &[KeyValue::new("phase", phase.as_str())],
                );
            }
        }
    }

    fn addresses(&self, record: &FetchRecord) {
        for hop in record.hops.iter().filter(|hop| !hop.answers.is_empty()) {
            self.histograms
                .answers
                .record(hop.answers.len() as u64, &[]);
            for judged in &hop.answers {
                if let Class::Blocked(class) = judged.class {
                    self.counters
                        .blocked
                        .add(1, &[KeyValue::new("class", class)]);
                }
            }
        }
        let is_in_opened_range = |hop: &crate::record::HopRecord| {
            let is_opened =
                |judged: &dray_guard::ClassifiedAddress| matches!(judged.class, Class::Opened(_));
            // A refused DNS response with an address in an opened range is not a fetch into that range.
            hop.peer.is_some() && hop.answers.iter().any(is_opened)
        };
        if record.hops.iter().any(is_in_opened_range) {
            self.counters.opened.add(1, &[]);
        }
    }
}

/// A fetch that is under way; the gauge falls when it is dropped.
#[derive(Debug)]
pub struct InFlight(UpDownCounter<i64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.add(-1, &[]);
    }
}
