//! The decision about one message: whether its work has ended, may still end, or is ended by the sweeper.

use std::time::Duration;

use dray_proto::v1;

use crate::ledger::record;

/// The decision of the sweeper about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepPlan {
    /// The work has ended and its outcome was published.
    Forget,
    /// A worker may still end the work: check again after this time.
    Wait(Duration),
    /// The work ended, but its worker died before it published the event (between steps 6 and 8).
    Report,
    /// No worker will end it.
    DeadLetter,
}

/// Decides about a message by its ledger entry. `time_left` is the time until the work counts as stranded.
pub fn plan_sweep(
    record: &v1::LedgerRecord,
    redrives: u32,
    now_ms: u64,
    time_left: Duration,
) -> SweepPlan {
    // The most frequent case comes first: most of the stream is work that has ended and been reported.
    if record::is_over(record, redrives) {
        return SweepPlan::Forget;
    }
    // A live lease is respected even after the deadline: its worker is about to write the end itself.
    let lease = record::lease_left(record, now_ms);
    if !lease.is_zero() {
        return SweepPlan::Wait(lease);
    }
    if !time_left.is_zero() {
        return SweepPlan::Wait(time_left);
    }
    if record::is_terminal(record) && redrives == record.redrives {
        return SweepPlan::Report;
    }
    SweepPlan::DeadLetter
}
