//! Converts the events about turns of agents to rows.

use std::fmt::Write as _;

use dray_proto::NamedCode as _;
use dray_proto::v1::{self, TurnCause, TurnOutcome};
use dray_types::FaultCode;

use super::read::set_session;
use super::row::{EventRow, RowOutcome, TurnFacts};
use crate::text::{duration_text, shown};

/// Models and tools of one turn that are named.
const MAX_NAMED: usize = 6;
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
        is_end,
        ..TurnFacts::default()
    };
    let details = [("Client", &turn.client), ("Request", &turn.request_id)];
    let details = details.iter().filter(|(_, value)| !value.is_empty());
    facts
        .details
        .extend(details.map(|(name, value)| (*name, (*value).clone())));
    row.turn = Some(facts);
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

/// A turn that waits has done what its request asked; the request that continues it has a turn of its own. Of a
/// cancelled one nothing is known beside what its steps report.
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
