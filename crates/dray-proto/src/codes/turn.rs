//! Names of the codes of turns of agents.

use super::NamedCode;
use crate::v1::{TurnCause, TurnOutcome};

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
