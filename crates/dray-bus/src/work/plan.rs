//! Decides what a worker does with a delivery, from the ledger entry that it has read (messaging-reliability 6.2).
//! Other modules write the ledger and acknowledge.

use std::time::Duration;

use dray_proto::v1::{self, TerminalState};

use crate::ledger::record::ClaimDecision;

/// Detail of the fault for a panic of a handler.
pub(super) const PANIC_DETAIL: &str = "panic";

/// The next step for a delivery, by its ledger entry.
#[derive(Clone, Debug, PartialEq)]
pub enum DeliveryPlan {
    /// Write this entry, then do the work.
    Work(Box<v1::LedgerRecord>),
    /// Another worker has the work: return the message to the server for this long.
    Wait(Duration),
    /// Record this outcome without doing the work, then report it.
    End(TerminalState),
    /// The attempts are used up: publish the dead letter, then report that end.
    DeadLetter,
    /// The outcome is recorded: publish the event, then acknowledge.
    Report,
    /// The outcome is published: acknowledge.
    Finish,
}

/// Steps 2 and 3: the work has expired or ended, another worker has it, or this worker does it.
pub fn plan_delivery(decision: ClaimDecision, is_expired: bool) -> DeliveryPlan {
    match decision {
        ClaimDecision::Held(left) => DeliveryPlan::Wait(left),
        ClaimDecision::Report => DeliveryPlan::Report,
        ClaimDecision::Finish => DeliveryPlan::Finish,
        ClaimDecision::Ambiguous => DeliveryPlan::End(TerminalState::Unknown),
        // This arm comes after the states that need no work: an effect that happened is reported even after its
        // deadline.
        ClaimDecision::Work(_) | ClaimDecision::Exhausted if is_expired => {
            DeliveryPlan::End(TerminalState::Expired)
        }
        ClaimDecision::Exhausted => DeliveryPlan::DeadLetter,
        ClaimDecision::Work(record) => DeliveryPlan::Work(record),
    }
}

/// Whether a panic of the handler ends the work: the second one in a row is poison, because the message would only use
/// up attempts (8).
pub fn is_last_panic(record: &v1::LedgerRecord, max_attempts: u32) -> bool {
    let panicked_before = record
        .last_error
        .as_ref()
        .is_some_and(|fault| fault.detail == PANIC_DETAIL);
    panicked_before || record.attempts >= max_attempts
}

/// Whether a handler may continue although its lease was last renewed this long ago, because the bus has not responded
/// since. The revision of the ledger entry then decides which worker's outcome counts.
pub fn may_continue_unrenewed(since_renewal: Duration, outage: Duration) -> bool {
    since_renewal < outage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_that_has_not_ended_can_expire() {
        let record = Box::<v1::LedgerRecord>::default();
        let work = ClaimDecision::Work(record.clone());
        assert_eq!(
            plan_delivery(work.clone(), false),
            DeliveryPlan::Work(record)
        );
        for decision in [work, ClaimDecision::Exhausted] {
            assert_eq!(
                plan_delivery(decision, true),
                DeliveryPlan::End(TerminalState::Expired)
            );
        }
        assert_eq!(
            plan_delivery(ClaimDecision::Report, true),
            DeliveryPlan::Report
        );
        assert_eq!(
            plan_delivery(ClaimDecision::Ambiguous, true),
            DeliveryPlan::End(TerminalState::Unknown)
        );
    }

    #[test]
    fn the_second_panic_in_a_row_ends_the_work() {
        let fault = dray_types::Fault::internal().detail(PANIC_DETAIL);
        let first = v1::LedgerRecord {
            attempts: 1,
            ..v1::LedgerRecord::default()
        };
        let second = v1::LedgerRecord {
            last_error: Some(fault.into()),
            ..first.clone()
        };
        assert!(!is_last_panic(&first, 5) && is_last_panic(&second, 5));
        assert!(is_last_panic(&first, 1));
    }
}
