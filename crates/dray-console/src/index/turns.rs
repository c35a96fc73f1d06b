//! Converts the events about turns of agents and their calls of tools to rows.

use std::fmt::Write as _;

use dray_proto::NamedCode as _;
use dray_proto::v1::{self, TurnCallOutcome, TurnCause, TurnOutcome};
use dray_types::FaultCode;

use super::read::set_session;
use super::row::{EventRow, RowOutcome, SpanFacts, TurnFacts};
use crate::text::{duration_text, shown};

/// Models and tools of one turn that are named.
const MAX_NAMED: usize = 6;
/// Most characters of the names of a tool and of an agent in the sentence about a call.
const MAX_CALL_NAME_CHARACTERS: usize = 80;
/// Millionths of a unit of the currency.
const MICROS_PER_UNIT: u64 = 1_000_000;

/// The row of the event that a turn began.
pub(super) fn turn_begun(row: &mut EventRow, begun: &v1::TurnBegun) {
    let turn = begun.turn.clone().unwrap_or_default();
    let verb = if turn.continues { "continued" } else { "began" };
    row.outcome = RowOutcome::Working;
    row.summary = format!("{} {verb}", description(&turn));
    fill_turn(row, &turn, false);
}

/// The row of the event that a turn ended.
pub(super) fn turn_ended(row: &mut EventRow, ended: &v1::TurnEnded) {
    let turn = ended.turn.clone().unwrap_or_default();
    row.outcome = row_outcome(ended);
    row.duration_ms = Some(ended.duration_ms);
    row.summary = format!(
        "{} {}: {}, {}",
        description(&turn),
        outcome_text(ended),
        count_text(ended.model_calls, "call of a model", "calls of models"),
        count_text(ended.tool_calls, "call of a tool", "calls of tools"),
    );
    fill_turn(row, &turn, true);
    row.prove("tokens", tokens_text(&ended.tokens.unwrap_or_default()));
    row.prove("cost", ended.cost_micros.map(cost_text).unwrap_or_default());
    let models = ended.models.iter().take(MAX_NAMED);
    let models = models.map(|model| ("Model", model_text(model)));
    let tools = ended.tools.iter().take(MAX_NAMED);
    let tools = tools.map(|tool| ("Tool", tool_text(tool)));
    if let Some(facts) = &mut row.turn {
        facts.details.extend(models.chain(tools));
    }
}

fn fill_turn(row: &mut EventRow, turn: &v1::AgentTurn, is_end: bool) {
    set_session(row, &turn.session);
    let mut facts = TurnFacts {
        agent: shown(&turn.agent),
        parent: shown(&turn.parent_operation_id),
        ..TurnFacts::default()
    };
    let details = [("Client", &turn.client), ("Request", &turn.request_id)];
    let details = details.iter().filter(|(_, value)| !value.is_empty());
    facts
        .details
        .extend(details.map(|(name, value)| (*name, (*value).clone())));
    row.turn = Some(facts);
    set_span(row, None, is_end);
}

/// Ties the end of a turn, or of the call with this number in it, to its beginning.
fn set_span(row: &mut EventRow, call: Option<u32>, is_end: bool) {
    // Operations contain no `/`.
    let key = match call {
        Some(number) => format!("{}/{number}", row.operation),
        None => row.operation.clone(),
    };
    row.span = Some(SpanFacts {
        key,
        is_end,
        is_open: false,
    });
}

/// The row of the event that a call of a tool runs.
pub(super) fn call_begun(row: &mut EventRow, begun: &v1::TurnCallBegun) {
    let call = begun.call.clone().unwrap_or_default();
    row.outcome = RowOutcome::Working;
    row.summary = format!("{} began", call_text(&call));
    fill_call(row, &call, false);
}

/// The row of the event that a call of a tool ended.
pub(super) fn call_ended(row: &mut EventRow, ended: &v1::TurnCallEnded) {
    let call = ended.call.clone().unwrap_or_default();
    let (outcome, text) = match ended.outcome() {
        TurnCallOutcome::Finished => (RowOutcome::Done, "finished".to_owned()),
        TurnCallOutcome::Asked => (RowOutcome::Done, "asked a person".to_owned()),
        TurnCallOutcome::Failed => (RowOutcome::Failed, call_failure_text(ended)),
        TurnCallOutcome::Cancelled => (RowOutcome::Unknown, "was cancelled".to_owned()),
        TurnCallOutcome::Unspecified => (
            RowOutcome::Unknown,
            "ended with an unknown outcome".to_owned(),
        ),
    };
    row.outcome = outcome;
    row.duration_ms = Some(ended.duration_ms);
    row.summary = format!("{} {text}", call_text(&call));
    fill_call(row, &call, true);
}

fn call_failure_text(ended: &v1::TurnCallEnded) -> String {
    let mut text = "failed".to_owned();
    let kind = ended.error().name();
    if !kind.is_empty() {
        let _ = write!(text, " with {kind}");
    }
    if ended.http_status > 0 {
        let _ = write!(text, " (status {})", ended.http_status);
    }
    text
}

/// The tool and the agent that called it. Both are cut, so that a long name does not hide how the call ended.
fn call_text(call: &v1::TurnCall) -> String {
    let (tool, agent) = (shown(&call.tool), shown(&call.agent));
    let cut = |name: &str| {
        name.chars()
            .take(MAX_CALL_NAME_CHARACTERS)
            .collect::<String>()
    };
    format!("Call of {} by {}", cut(&tool), cut(&agent))
}

fn fill_call(row: &mut EventRow, call: &v1::TurnCall, is_end: bool) {
    row.prove("call", shown(&call.call_id));
    row.prove("round", call.round.to_string());
    set_span(row, Some(call.number), is_end);
}

/// The agent, and how it got the turn.
fn description(turn: &v1::AgentTurn) -> String {
    let mut text = format!("Turn of {}", shown(&turn.agent));
    let parent = shown(&turn.parent_agent);
    let _ = match turn.cause() {
        TurnCause::Call => write!(text, " (called by {parent})"),
        TurnCause::Handoff => write!(text, " (handed over by {parent})"),
        TurnCause::Request | TurnCause::Unspecified => Ok(()),
    };
    text
}

/// A turn that waits has done what its request asked; the request that continues it has a turn of its own. What a
/// cancelled turn did is only known from the reports of its steps.
fn row_outcome(ended: &v1::TurnEnded) -> RowOutcome {
    match ended.outcome() {
        TurnOutcome::Finished
        | TurnOutcome::WaitsForClient
        | TurnOutcome::WaitsForPerson
        | TurnOutcome::HandedOver => RowOutcome::Done,
        TurnOutcome::BudgetReached => RowOutcome::Refused,
        TurnOutcome::Failed if ended.fault_code() == v1::FaultCode::Denied => RowOutcome::Refused,
        TurnOutcome::Failed => RowOutcome::Failed,
        TurnOutcome::Cancelled | TurnOutcome::Unspecified => RowOutcome::Unknown,
    }
}

fn outcome_text(ended: &v1::TurnEnded) -> String {
    match ended.outcome() {
        TurnOutcome::Finished if ended.finish_reason == "content_filter" => {
            "ended at a filter".to_owned()
        }
        TurnOutcome::Finished => "finished".to_owned(),
        TurnOutcome::WaitsForClient => "waits for calls of its client".to_owned(),
        TurnOutcome::WaitsForPerson => "waits for a person".to_owned(),
        TurnOutcome::Failed => format!(
            "failed with {} (status {})",
            FaultCode::from(ended.fault_code()).as_str(),
            ended.http_status
        ),
        TurnOutcome::BudgetReached => "reached a budget".to_owned(),
        TurnOutcome::HandedOver => "was handed over".to_owned(),
        outcome @ TurnOutcome::Cancelled => format!("was {}", outcome.name()),
        TurnOutcome::Unspecified => "ended with an unknown outcome".to_owned(),
    }
}

fn model_text(model: &v1::TurnModel) -> String {
    let name = match model.model.as_str() {
        "" => "reported by tools".to_owned(),
        name => shown(name),
    };
    let mut text = format!("{name}: {}", calls_text(model.calls, model.failed_calls));
    let tokens = tokens_text(&model.tokens.unwrap_or_default());
    for part in [
        Some(tokens),
        model
            .cost_micros
            .map(|cost| format!("cost {}", cost_text(cost))),
    ] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            let _ = write!(text, ", {part}");
        }
    }
    text
}

fn tool_text(tool: &v1::TurnTool) -> String {
    format!(
        "{}: {}, {}",
        shown(&tool.tool),
        calls_text(tool.calls, tool.failed_calls),
        duration_text(tool.duration_ms)
    )
}

fn calls_text(calls: u32, failed: u32) -> String {
    let calls = count_text(calls, "call", "calls");
    match failed {
        0 => calls,
        failed => format!("{calls} ({failed} failed)"),
    }
}

fn count_text(count: u32, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Tokens in and out; nothing where no number is known.
fn tokens_text(tokens: &v1::TokenCounts) -> String {
    let part = |count: u64, name: &str| match count {
        0 => String::new(),
        count => format!(" ({count} {name})"),
    };
    if (tokens.input, tokens.output) == (0, 0) {
        return String::new();
    }
    format!(
        "{} in{}, {} out{}",
        tokens.input,
        part(tokens.cached_input, "cached"),
        tokens.output,
        part(tokens.reasoning, "reasoning")
    )
}

/// An amount in units of the currency, exact to a millionth.
fn cost_text(micros: u64) -> String {
    let text = format!(
        "{}.{:06}",
        micros / MICROS_PER_UNIT,
        micros % MICROS_PER_UNIT
    );
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact_and_short() {
        assert_eq!(cost_text(0), "0");
        assert_eq!(cost_text(1_500), "0.0015");
        assert_eq!(cost_text(12_000_000), "12");
        assert_eq!(cost_text(100_000_001), "100.000001");
    }

    #[test]
    fn a_model_is_shown_with_its_failed_calls_tokens_and_cost() {
        let mut model = v1::TurnModel {
            model: "lead".to_owned(),
            calls: 3,
            failed_calls: 1,
            tokens: Some(v1::TokenCounts {
                input: 600,
                output: 15,
                cached_input: 100,
                reasoning: 0,
            }),
            cost_micros: Some(1_500),
        };
        let text = "lead: 3 calls (1 failed), 600 in (100 cached), 15 out, cost 0.0015";
        assert_eq!(model_text(&model), text);
        model = v1::TurnModel {
            model: String::new(),
            calls: 1,
            ..v1::TurnModel::default()
        };
        assert_eq!(model_text(&model), "reported by tools: 1 call");
    }
}
