//! The events of one turn: that it began, which tools it called, and how it ended. They contain names, numbers and
//! codes, and no text of messages, arguments or results.

mod calls;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_agent::budget::MoneyAmount;
use dray_agent::event::{AnswerEnd, TokenUsage};
use dray_agent::failure::RequestFailure;
use dray_proto::v1::{self, TurnCause, TurnOutcome};
use dray_types::{OperationId, TraceContext, whole_millis};
use tokio::time::Instant;

use super::budget::EXHAUSTED_CODE;
use super::failures::{CLIENT_GONE_STATUS, client_gone_failure};
use super::rounds::LoopEnd;
use crate::turn_events::{TurnEvent, TurnEventQueue};

/// Most characters of a name in an event.
const MAX_NAME_CHARACTERS: usize = 128;
/// Most entries for models in one event, including the one for all others.
const MAX_MODELS: usize = 16;
/// Most entries for tools in one event, including the one for all others.
const MAX_TOOLS: usize = 32;
/// Name of the entry for all further names.
const OTHER_NAMES: &str = "other";

/// The end of a turn: for its client, and for its event.
#[derive(Debug)]
pub(super) struct TurnEnd {
    pub(super) answer: AnswerEnd,
    pub(super) outcome: TurnOutcome,
}

/// The agent that called another one or handed over to it.
#[derive(Clone, Debug)]
pub(super) struct ParentTurn {
    cause: TurnCause,
    operation: OperationId,
    agent: String,
    /// Its events keep to one queue with those of its parent, so that they stay in order.
    queue: TurnEventQueue,
}

/// Collects what the events of one turn say, and sends them. A turn that is dropped before its end was cancelled.
#[derive(Debug)]
pub(super) struct TurnReport {
    queue: TurnEventQueue,
    operation: OperationId,
    cause: TurnCause,
    started_at: Instant,
    state: Mutex<ReportState>,
}

#[derive(Debug)]
struct ReportState {
    turn: v1::AgentTurn,
    trace: TraceContext,
    stage: ReportStage,
    models: Vec<v1::TurnModel>,
    tools: Vec<v1::TurnTool>,
    /// Number of the newest call of a tool.
    last_call: u32,
}

/// The events that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportStage {
    None,
    Begin,
    End,
}

impl TurnReport {
    /// A turn that begins now. `queue` is that of a new request; a turn with a parent uses its parent's.
    pub(super) fn new(
        (agent, client, request_id): (&str, &str, &str),
        trace: TraceContext,
        parent: Option<ParentTurn>,
        queue: impl FnOnce() -> TurnEventQueue,
    ) -> Self {
        let mut turn = v1::AgentTurn {
            agent: cut_name(agent),
            client: cut_name(client),
            request_id: request_id.to_owned(),
            ..v1::AgentTurn::default()
        };
        let mut cause = TurnCause::Request;
        let queue = match parent {
            Some(parent) => {
                cause = parent.cause;
                turn.parent_operation_id = parent.operation.to_string();
                turn.parent_agent = parent.agent;
                parent.queue
            }
            None => queue(),
        };
        turn.cause = cause.into();
        turn.begun_at_ms = queue.now_ms();
        Self {
            queue,
            operation: OperationId::mint(),
            cause,
            started_at: Instant::now(),
            state: Mutex::new(ReportState {
                turn,
                trace,
                stage: ReportStage::None,
                models: Vec::new(),
                tools: Vec::new(),
                last_call: 0,
            }),
        }
    }

    /// This turn as the parent of another one.
    pub(super) fn as_parent(&self, cause: TurnCause) -> ParentTurn {
        ParentTurn {
            cause,
            operation: self.operation.clone(),
            agent: self.state().turn.agent.clone(),
            queue: self.queue.clone(),
        }
    }

    /// The trace of all calls that the turn makes.
    pub(super) fn trace(&self) -> TraceContext {
        self.state().trace.clone()
    }

    /// Reports the beginning, once the session is known. `recorded` is the trace of the turn's span, if it is recorded.
    pub(super) fn begin(&self, session: &str, continues: bool, recorded: Option<TraceContext>) {
        let mut state = self.state();
        session.clone_into(&mut state.turn.session);
        state.turn.continues = continues;
        if let Some(recorded) = recorded {
            state.trace = recorded;
        }
        self.send_begin(&mut state);
    }

    /// Counts a call of a model.
    pub(super) fn model_call(&self, model: &str, is_failed: bool) {
        let mut state = self.state();
        let entry = state.model(model);
        entry.calls += 1;
        entry.failed_calls += u32::from(is_failed);
    }

    /// Adds tokens, and their cost for a model with a price.
    pub(super) fn usage(&self, model: &str, tokens: TokenUsage, cost: Option<MoneyAmount>) {
        let mut state = self.state();
        let entry = state.model(model);
        add_tokens(entry.tokens.get_or_insert_default(), &counts(tokens));
        entry.cost_micros = add_cost(entry.cost_micros, cost.map(MoneyAmount::as_micros));
    }

    /// Counts a call of a tool.
    fn count_call(&self, tool: &str, is_failed: bool, elapsed: Duration) {
        let mut state = self.state();
        let entry = state.tool(tool);
        entry.calls += 1;
        entry.failed_calls += u32::from(is_failed);
        entry.duration_ms = entry.duration_ms.saturating_add(whole_millis(elapsed));
    }

    /// Reports the end. Only the first end of a turn counts.
    pub(super) fn end(&self, ended: Result<&TurnEnd, &RequestFailure>) {
        let mut event = v1::TurnEnded::default();
        match ended {
            Ok(end) => {
                event.outcome = end.outcome.into();
                end.answer
                    .reason
                    .as_str()
                    .clone_into(&mut event.finish_reason);
            }
            Err(failure) => {
                let outcome = failure_outcome(failure);
                event.outcome = outcome.into();
                if outcome != TurnOutcome::Cancelled {
                    event.fault_code = fault_code(failure.status).into();
                    event.http_status = failure.status.into();
                }
            }
        }
        self.send_end(event);
    }

    /// Reports that another agent answers the rest. The turn of a request or of a call ends with the last of its
    /// agents.
    pub(super) fn hand_over(&self) {
        if self.cause == TurnCause::Handoff {
            self.send_end(v1::TurnEnded {
                outcome: TurnOutcome::HandedOver.into(),
                ..v1::TurnEnded::default()
            });
        }
    }

    fn send_begin(&self, state: &mut ReportState) {
        if state.stage != ReportStage::None {
            return;
        }
        state.stage = ReportStage::Begin;
        let begun = v1::TurnBegun {
            operation_id: self.operation.to_string(),
            turn: Some(state.turn.clone()),
        };
        self.send(state, TurnEvent::Begin(Box::new(begun)));
    }

    fn send_end(&self, event: v1::TurnEnded) {
        let mut state = self.state();
        if state.stage == ReportStage::End {
            return;
        }
        // A turn that failed before its session was known has both events too.
        self.send_begin(&mut state);
        state.stage = ReportStage::End;
        let mut tokens = v1::TokenCounts::default();
        let mut cost_micros = None;
        for model in &state.models {
            add_tokens(&mut tokens, &model.tokens.unwrap_or_default());
            cost_micros = add_cost(cost_micros, model.cost_micros);
        }
        let ended = v1::TurnEnded {
            operation_id: self.operation.to_string(),
            turn: Some(state.turn.clone()),
            model_calls: state.models.iter().map(|model| model.calls).sum(),
            tool_calls: state.tools.iter().map(|tool| tool.calls).sum(),
            models: std::mem::take(&mut state.models),
            tools: std::mem::take(&mut state.tools),
            tokens: Some(tokens),
            cost_micros,
            duration_ms: whole_millis(self.started_at.elapsed()),
            ..event
        };
        self.send(&state, TurnEvent::End(Box::new(ended)));
    }

    fn send(&self, state: &ReportState, event: TurnEvent) {
        let (session, trace) = (&state.turn.session, &state.trace);
        self.queue.send(&self.operation, session, trace, event);
    }

    fn state(&self) -> MutexGuard<'_, ReportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TurnReport {
    fn drop(&mut self) {
        // The future of a turn is dropped when its client disconnects, and when the process stops. A panic drops it
        // too.
        let failure = if std::thread::panicking() {
            RequestFailure::unexpected()
        } else {
            client_gone_failure()
        };
        self.end(Err(&failure));
    }
}

impl ReportState {
    fn model(&mut self, name: &str) -> &mut v1::TurnModel {
        let new = |model| v1::TurnModel {
            model,
            ..v1::TurnModel::default()
        };
        named_entry(
            &mut self.models,
            name,
            MAX_MODELS,
            |entry| &entry.model,
            new,
        )
    }

    fn tool(&mut self, name: &str) -> &mut v1::TurnTool {
        let new = |tool| v1::TurnTool {
            tool,
            ..v1::TurnTool::default()
        };
        named_entry(&mut self.tools, name, MAX_TOOLS, |entry| &entry.tool, new)
    }
}

/// The entry with this name, which is added if it is new. Once the list is full, that is the entry for all other names.
fn named_entry<'a, T>(
    entries: &'a mut Vec<T>,
    name: &str,
    max_entries: usize,
    name_of: impl Fn(&T) -> &str,
    new: impl FnOnce(String) -> T,
) -> &'a mut T {
    let name = cut_name(name);
    let find = |entries: &[T], name: &str| entries.iter().position(|entry| name_of(entry) == name);
    let position = find(entries, &name).unwrap_or_else(|| {
        let name = if entries.len() + 1 < max_entries {
            name
        } else {
            OTHER_NAMES.to_owned()
        };
        find(entries, &name).unwrap_or_else(|| {
            entries.push(new(name));
            entries.len() - 1
        })
    });
    #[expect(
        clippy::indexing_slicing,
        reason = "the position of an entry that was found or just added"
    )]
    &mut entries[position]
}

/// The outcome of a loop that did not fail.
pub(super) const fn loop_outcome(end: &LoopEnd) -> TurnOutcome {
    if !end.pending.is_empty() {
        TurnOutcome::WaitsForClient
    } else if !end.questions.is_empty() {
        TurnOutcome::WaitsForPerson
    } else if end.is_budget_reached {
        TurnOutcome::BudgetReached
    } else {
        TurnOutcome::Finished
    }
}

fn failure_outcome(failure: &RequestFailure) -> TurnOutcome {
    if failure.status == CLIENT_GONE_STATUS {
        TurnOutcome::Cancelled
    } else if failure.code.as_deref() == Some(EXHAUSTED_CODE) {
        TurnOutcome::BudgetReached
    } else {
        TurnOutcome::Failed
    }
}

/// The code of the contracts for a status of HTTP.
const fn fault_code(status: u16) -> v1::FaultCode {
    match status {
        401 | 403 => v1::FaultCode::Denied,
        404 | 410 => v1::FaultCode::NotFound,
        408 | 504 => v1::FaultCode::Timeout,
        413 => v1::FaultCode::TooLarge,
        415 | 501 => v1::FaultCode::Unsupported,
        429 => v1::FaultCode::RateLimited,
        400..=499 => v1::FaultCode::InvalidArgument,
        502 | 503 => v1::FaultCode::Unavailable,
        _ => v1::FaultCode::Internal,
    }
}

fn cut_name(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARACTERS).collect()
}

const fn counts(tokens: TokenUsage) -> v1::TokenCounts {
    v1::TokenCounts {
        input: tokens.prompt,
        output: tokens.completion,
        cached_input: tokens.cached,
        reasoning: tokens.reasoning,
    }
}

const fn add_tokens(sum: &mut v1::TokenCounts, more: &v1::TokenCounts) {
    sum.input = sum.input.saturating_add(more.input);
    sum.output = sum.output.saturating_add(more.output);
    sum.cached_input = sum.cached_input.saturating_add(more.cached_input);
    sum.reasoning = sum.reasoning.saturating_add(more.reasoning);
}

/// The sum of two costs; unknown only if both are.
fn add_cost(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
        (sum, more) => sum.or(more),
    }
}

#[cfg(test)]
mod tests;
