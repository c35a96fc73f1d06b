//! Metrics that the skeleton counts for every service.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

/// Instruments of one host, shared by its services.
#[derive(Clone, Debug)]
pub(crate) struct CallMetrics {
    processed: Counter<u64>,
    seconds: Histogram<f64>,
    refused: Counter<u64>,
    panics: Counter<u64>,
    running: UpDownCounter<i64>,
}

impl CallMetrics {
    pub(crate) fn new(meter: &Meter) -> Self {
        Self {
            processed: meter
                .u64_counter("dray_answer_total")
                .with_description(
                    "Calls answered, by service, transport (bus, grpc) and outcome (ok or the fault's code).",
                )
                .build(),
            seconds: meter
                .f64_histogram("dray_answer_seconds")
                .with_description("Seconds from admission to answer, by service and outcome.")
                .with_boundaries(vec![
                    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
                ])
                .build(),
            refused: meter
                .u64_counter("dray_answer_refused_total")
                .with_description(
                    "Calls answered without work, by service and reason (overloaded, expired, stopping, \
                     envelope, unauthenticated, forbidden, incomplete).",
                )
                .build(),
            panics: meter
                .u64_counter("dray_panics_total")
                .with_description("Panics in handlers, by service. Each is a bug.")
                .build(),
            running: meter
                .i64_up_down_counter("dray_answer_running")
                .with_description("Calls being handled or waiting for a permit, by service.")
                .build(),
        }
    }

    /// Creates the counters of failures with 0, so that the first failure is an increase and not a new series.
    pub(crate) fn start_at_zero(&self, service: &'static str) {
        for reason in [
            "overloaded",
            "expired",
            "stopping",
            "envelope",
            "unauthenticated",
            "forbidden",
            "incomplete",
        ] {
            let labels = [
                KeyValue::new("service", service),
                KeyValue::new("reason", reason),
            ];
            self.refused.add(0, &labels);
        }
        self.panics.add(0, &[KeyValue::new("service", service)]);
    }

    pub(crate) fn answered(
        &self,
        service: &'static str,
        transport: CallTransport,
        outcome: &'static str,
        took: Duration,
    ) {
        self.processed.add(
            1,
            &[
                KeyValue::new("service", service),
                KeyValue::new("transport", transport.as_str()),
                KeyValue::new("outcome", outcome),
            ],
        );
        self.seconds.record(
            took.as_secs_f64(),
            &[
                KeyValue::new("service", service),
                KeyValue::new("outcome", outcome),
            ],
        );
    }

    pub(crate) fn refused(&self, service: &'static str, reason: &'static str) {
        self.refused.add(
            1,
            &[
                KeyValue::new("service", service),
                KeyValue::new("reason", reason),
            ],
        );
    }

    pub(crate) fn panicked(&self, service: &'static str) {
        self.panics.add(1, &[KeyValue::new("service", service)]);
    }

    /// Counts one running call until the returned guard is dropped.
    pub(crate) fn running(&self, service: &'static str) -> RunningCall {
        let label = [KeyValue::new("service", service)];
        self.running.add(1, &label);
        RunningCall {
            running: self.running.clone(),
            label,
        }
    }
}

/// One running call; the count falls when it is dropped.
#[derive(Debug)]
pub(crate) struct RunningCall {
    running: UpDownCounter<i64>,
    label: [KeyValue; 1],
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.running.add(-1, &self.label);
    }
}

/// How a call came in: over NATS or over gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallTransport {
    Bus,
    Grpc,
}

impl CallTransport {
    fn as_str(self) -> &'static str {
        match self {
            Self::Bus => "bus",
            Self::Grpc => "grpc",
        }
    }
}
