//! Metrics of the orchestrator. Labels come from closed sets and never hold a name, a URL or a tenant.

use std::time::Instant;

use dray_agent::failure::RequestFailure;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

/// The instruments of one orchestrator.
#[derive(Clone, Debug)]
pub struct OrchestratorMetrics {
    turns: Counter<u64>,
    running: UpDownCounter<i64>,
    duration: Histogram<f64>,
    models: Counter<u64>,
    tools: Counter<u64>,
}

impl OrchestratorMetrics {
    /// Registers the instruments `dray_chat_*` with the meter.
    pub fn new(meter: &Meter) -> Self {
        Self {
            turns: meter
                .u64_counter("dray_chat_turns_total")
                .with_description(
                    "Chat requests that ended, by outcome (ok, refused, failed, gone).",
                )
                .build(),
            running: meter
                .i64_up_down_counter("dray_chat_turns_running")
                .with_description("Chat requests that are being answered.")
                .build(),
            duration: meter
                .f64_histogram("dray_chat_turn_duration_seconds")
                .with_description("Time from a chat request to its ending, by outcome.")
                .build(),
            models: meter
                .u64_counter("dray_chat_model_calls_total")
                .with_description("Calls of models, by outcome (ok, failed).")
                .build(),
            tools: meter
                .u64_counter("dray_chat_tool_calls_total")
                .with_description("Calls of tools, by outcome (ok, failed).")
                .build(),
        }
    }

    /// Counts a turn from here on.
    pub(crate) fn begin(&self) -> TurnTimer {
        self.running.add(1, &[]);
        TurnTimer {
            metrics: self.clone(),
            at: Instant::now(),
            // Stays when the future of the turn is dropped before its end: the client went away.
            outcome: "gone",
        }
    }

    /// Counts a call of a model.
    pub(crate) fn model(&self, is_ok: bool) {
        self.models.add(1, &[outcome_label(is_ok)]);
    }

    /// Counts a call of a tool.
    pub(crate) fn tool(&self, is_ok: bool) {
        self.tools.add(1, &[outcome_label(is_ok)]);
    }
}

fn outcome_label(is_ok: bool) -> KeyValue {
    KeyValue::new("outcome", if is_ok { "ok" } else { "failed" })
}

/// A turn that runs; one that is dropped before its end lost its client.
#[derive(Debug)]
pub(crate) struct TurnTimer {
    metrics: OrchestratorMetrics,
    at: Instant,
    outcome: &'static str,
}

impl TurnTimer {
    /// Sets the outcome that is recorded when the timer is dropped.
    pub(crate) fn end(mut self, failure: Option<&RequestFailure>) {
        self.outcome = match failure.map(|failure| failure.status) {
            None => "ok",
            // Not in RFC 9110: nginx's status for a client that closed the request.
            Some(499) => "gone",
            Some(status) if status < 500 => "refused",
            Some(_) => "failed",
        };
    }
}

impl Drop for TurnTimer {
    fn drop(&mut self) {
        let labels = [KeyValue::new("outcome", self.outcome)];
        self.metrics.running.add(-1, &[]);
        self.metrics.turns.add(1, &labels);
        let seconds = self.at.elapsed().as_secs_f64();
        self.metrics.duration.record(seconds, &labels);
        tracing::info!(outcome = self.outcome, seconds, "request completed");
    }
}
