//! Names of the codes of turns of agents and of their calls of tools.

use super::NamedCode;
use crate::v1::{TurnCallError, TurnCallOutcome, TurnCause, TurnOutcome};

names!(TurnCause {
    Request => "request",
    Call => "call",
    Handoff => "handoff",
});

names!(TurnOutcome {
    Finished => "finished",
    WaitsForClient => "waits_for_client",
    WaitsForPerson => "waits_for_person",
    Failed => "failed",
    Cancelled => "cancelled",
    BudgetReached => "budget_reached",
    HandedOver => "handed_over",
});

names!(TurnCallOutcome {
    Finished => "finished",
    Failed => "failed",
    Cancelled => "cancelled",
    Asked => "asked",
});

names!(TurnCallError {
    InvalidArguments => "invalid_arguments",
    Timeout => "timeout",
    ToolFailure => "tool_failure",
});
