//! Faults of work that ended without a result of its handler.

use dray_proto::v1;
use dray_types::{Fault, FaultCode};

/// The deadline passed before the work ended.
pub(super) fn expiry_fault() -> Fault {
    Fault::new(FaultCode::Timeout, "The operation did not finish in time.")
        .detail("expired")
        .advice("Try again, with more time if possible.")
}

/// A visible send was interrupted.
pub(super) fn unknown_outcome_fault() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "It is not known whether the operation happened.",
    )
    .detail("unknown")
    .advice("Check the result before doing it again.")
}

/// The recorded fault of the last attempt; an internal fault if a crash prevented its recording.
pub(super) fn last_fault(record: &v1::LedgerRecord) -> Fault {
    record
        .last_error
        .clone()
        .map_or_else(Fault::internal, Fault::from)
}
