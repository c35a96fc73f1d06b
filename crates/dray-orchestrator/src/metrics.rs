//! Metrics of the orchestrator. Labels come from closed sets, or are names of models, agents and clients, of which each
//! process reports a limited number. No label contains a URL, a user or a tenant.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dray_agent::budget::MoneyAmount;
use dray_agent::event::TokenUsage;
use dray_agent::failure::RequestFailure;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

/// Most names of one kind that labels show.
const MAX_NAMES: usize = 64;
/// The label of all further names.
const OTHER_NAMES: &str = "other";
/// Bounds of the histogram of turns: from answers without a tool to turns of an hour.
const TURN_BOUNDS_SECONDS: [f64; 14] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];
/// Bounds by OpenTelemetry's convention for `gen_ai.client.operation.duration`.
const CALL_BOUNDS_SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
/// Bounds by OpenTelemetry's convention for `gen_ai.client.token.usage`.
const TOKEN_BOUNDS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The instruments of one orchestrator.
#[derive(Clone, Debug)]
pub struct OrchestratorMetrics {
    turns: Counter<u64>,
    running: UpDownCounter<i64>,
    duration: Histogram<f64>,
    models: Counter<u64>,
    tools: Counter<u64>,
    guardrails: Counter<u64>,
    call_duration: Histogram<f64>,
    call_tokens: Histogram<u64>,
    tokens: Counter<u64>,
    cost: Counter<f64>,
    unreadable_runs: Counter<u64>,
    lost_turn_events: Counter<u64>,
    names: Arc<LabelNames>,
}

/// The names that labels show so far: callers can name any model and any application of DIAL.
#[derive(Debug, Default)]
struct LabelNames {
    models: Mutex<BTreeSet<String>>,
    agents: Mutex<BTreeSet<String>>,
    clients: Mutex<BTreeSet<String>>,
}

/// A name for a label: the name itself while few are known.
fn bounded_label(shown_names: &Mutex<BTreeSet<String>>, name: &str) -> String {
    let mut shown_names = shown_names.lock().unwrap_or_else(PoisonError::into_inner);
    if !shown_names.contains(name) {
        if shown_names.len() >= MAX_NAMES {
            return OTHER_NAMES.to_owned();
        }
        shown_names.insert(name.to_owned());
    }
    name.to_owned()
}

fn guardrails(meter: &Meter) -> Counter<u64> {
    meter
        .u64_counter("dray_chat_guardrail_verdicts_total")
        .with_description(
            "Verdicts of guardrails, by event (before_model, after_model, before_tool, after_tool) and verdict (allow, \
             block, replace, or failure if no verdict was given).",
        )
        .build()
}

fn unreadable_runs(meter: &Meter) -> Counter<u64> {
    meter
        .u64_counter("dray_chat_unreadable_runs_total")
        .with_description(
            "Records of background responses that this version could not read when it looked for responses without a \
             process. The records are left as they are.",
        )
        .build()
}

fn lost_turn_events(meter: &Meter) -> Counter<u64> {
    meter
        .u64_counter("dray_chat_turn_events_lost_total")
        .with_description(
            "Events about turns and their calls of tools that were not published, by reason: queue_full, publish_failed, stopped.",
        )
        .build()
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
                .with_boundaries(TURN_BOUNDS_SECONDS.to_vec())
                .build(),
            models: meter
                .u64_counter("dray_chat_model_calls_total")
                .with_description("Calls of models, by outcome (ok, failed).")
                .build(),
            tools: meter
                .u64_counter("dray_chat_tool_calls_total")
                .with_description("Calls of tools, by outcome (ok, failed).")
                .build(),
            guardrails: guardrails(meter),
            call_duration: meter
                .f64_histogram("dray_gen_ai_client_operation_duration_seconds")
                .with_description(
                    "Duration of calls of models to the end of the answer (`gen_ai.client.operation.duration`), by \
                     provider, model (at most 64 names) and error type.",
                )
                .with_boundaries(CALL_BOUNDS_SECONDS.to_vec())
                .build(),
            call_tokens: meter
                .u64_histogram("dray_gen_ai_client_token_usage_tokens")
                .with_description(
                    "Tokens of calls of models (`gen_ai.client.token.usage`), by provider, model (at most 64 names) and \
                     token type (input, output).",
                )
                .with_boundaries(TOKEN_BOUNDS.to_vec())
                .build(),
            tokens: meter
                .u64_counter("dray_chat_tokens_total")
                .with_description(
                    "Tokens that models and tools reported, by agent and client (at most 64 names each) and type (input, \
                     output).",
                )
                .build(),
            cost: meter
                .f64_counter("dray_chat_cost_total")
                .with_description(
                    "Cost of the tokens in `dray_chat_tokens_total`, in the currency of `budgets.prices`, by agent and client. \
                     Models without a price add nothing.",
                )
                .build(),
            unreadable_runs: unreadable_runs(meter),
            lost_turn_events: lost_turn_events(meter),
            names: Arc::default(),
        }
    }

    /// Agent and client as metric labels. Names beyond a bounded number share one label, so that callers cannot create
    /// series.
    pub(crate) fn turn_labels(&self, agent: &str, client: &str) -> [KeyValue; 2] {
        [
            KeyValue::new("agent", bounded_label(&self.names.agents, agent)),
            KeyValue::new("client", bounded_label(&self.names.clients, client)),
        ]
    }

    /// Counts tokens of a turn, and their cost where it is known.
    pub(crate) fn turn_usage(
        &self,
        labels: &[KeyValue; 2],
        tokens: TokenUsage,
        cost: Option<MoneyAmount>,
    ) {
        for (kind, count) in [("input", tokens.prompt), ("output", tokens.completion)] {
            let [agent, client] = labels.clone();
            self.tokens
                .add(count, &[agent, client, KeyValue::new("type", kind)]);
        }
        if let Some(cost) = cost {
            self.cost.add(cost.as_units(), labels);
        }
    }

    /// Records the tokens of a call of a model.
    pub(crate) fn chat_tokens(&self, provider: &'static str, model: &str, tokens: TokenUsage) {
        for (kind, count) in [("input", tokens.prompt), ("output", tokens.completion)] {
            let mut labels = self.chat_labels(provider, model);
            labels.push(KeyValue::new("gen_ai.token.type", kind));
            self.call_tokens.record(count, &labels);
        }
    }

    /// Records the duration of a call of a model.
    pub(crate) fn chat_duration(
        &self,
        provider: &'static str,
        model: &str,
        error: Option<&'static str>,
        elapsed: Duration,
    ) {
        let mut labels = self.chat_labels(provider, model);
        labels.extend(error.map(|kind| KeyValue::new("error.type", kind)));
        self.call_duration.record(elapsed.as_secs_f64(), &labels);
    }

    fn chat_labels(&self, provider: &'static str, model: &str) -> Vec<KeyValue> {
        vec![
            KeyValue::new("gen_ai.operation.name", "chat"),
            KeyValue::new("gen_ai.provider.name", provider),
            KeyValue::new(
                "gen_ai.request.model",
                bounded_label(&self.names.models, model),
            ),
        ]
    }

    /// Counts records of responses in the background that cannot be read.
    pub(crate) fn unreadable_runs(&self, count: usize) {
        self.unreadable_runs
            .add(u64::try_from(count).unwrap_or(u64::MAX), &[]);
    }

    /// Counts events about turns that were not published.
    pub(crate) fn lost_turn_events(&self, reason: &'static str, count: u64) {
        self.lost_turn_events
            .add(count, &[KeyValue::new("reason", reason)]);
    }

    /// Counts a turn from here on.
    pub(crate) fn begin(&self) -> TurnTimer {
        self.running.add(1, &[]);
        TurnTimer {
            metrics: self.clone(),
            started_at: Instant::now(),
            // This value remains if the future of the turn is dropped before its end: the client disconnected.
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

    /// Counts a verdict of a guardrail.
    pub(crate) fn guardrail(&self, event: &'static str, verdict: &'static str) {
        let labels = [
            KeyValue::new("event", event),
            KeyValue::new("verdict", verdict),
        ];
        self.guardrails.add(1, &labels);
    }
}

fn outcome_label(is_ok: bool) -> KeyValue {
    KeyValue::new("outcome", if is_ok { "ok" } else { "failed" })
}

/// A turn that runs. If it is dropped before its end, its client disconnected.
#[derive(Debug)]
pub(crate) struct TurnTimer {
    metrics: OrchestratorMetrics,
    started_at: Instant,
    outcome: &'static str,
}

impl TurnTimer {
    /// Sets the outcome that is recorded when the timer is dropped.
    pub(crate) fn end(mut self, failure: Option<&RequestFailure>) {
        self.outcome = match failure.map(|failure| failure.status) {
            None => "ok",
            // This status is not in RFC 9110. It is nginx's status for a client that closed the request.
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
        let seconds = self.started_at.elapsed().as_secs_f64();
        self.metrics.duration.record(seconds, &labels);
        tracing::info!(outcome = self.outcome, seconds, "request completed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_show_a_limited_number_of_names() {
        let known = Mutex::default();
        for number in 0..MAX_NAMES {
            let name = format!("model-{number}");
            assert_eq!(bounded_label(&known, &name), name);
        }
        assert_eq!(bounded_label(&known, "one-more"), OTHER_NAMES);
        assert_eq!(
            bounded_label(&known, "model-3"),
            "model-3",
            "known names stay"
        );
    }
}
