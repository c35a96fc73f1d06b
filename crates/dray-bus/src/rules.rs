//! The decisions about work: claims, leases, attempts, ends, the sweeper. They are functions of values; the bus reads
//! and writes around them.
//!
//! For programs that check the rules, as `dray-simulation` does. A service needs none of them: [`crate::Bus::work`]
//! applies them.

pub use crate::backoff::{park_delay, work_delay};
pub use crate::health::lease_grace;
pub use crate::ledger::MAX_WRITE_ATTEMPTS;
pub use crate::ledger::record::{
    ClaimDecision, ClaimRequest, decide_claim, ended_record, is_over, is_own_claim, is_terminal,
    lease_left, released_record, renewed_record, reported_record,
};
pub use crate::sweeper::{STRANDED_AFTER, SweepPlan, plan_sweep};
pub use crate::work::MAX_LEDGER_READS;
pub use crate::work::plan::{DeliveryPlan, is_last_panic, may_continue_unrenewed, plan_delivery};
pub use crate::work::retry::{FailedAttempt, NextStep};
