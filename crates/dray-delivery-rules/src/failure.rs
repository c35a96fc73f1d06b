//! Decides the action after a failed visible request, above all after an ambiguous outcome, and the delay before it
//! (platform-delivery 10, messaging-reliability 12).

use std::time::Duration;

use dray_platform::{ErrorKind, SendOutcome};
use dray_types::whole_millis;

use crate::machine::{MAX_LOST_RESPONSES, SendingStep};

/// Longest time that a worker waits without parking the delivery (platform-delivery 10.2).
pub const MAX_INLINE_WAIT: Duration = Duration::from_mins(1);

/// The part of a deadline that is reserved for the record and the report of the end.
pub const REPORT_MARGIN: Duration = Duration::from_secs(5);

/// Most attempts of one write of a record whose outcome is unknown.
pub const MAX_WRITE_ATTEMPTS: u32 = 3;

/// Delay between two attempts of one write.
pub const WRITE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Whether an earlier request of the step may be visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// No request of this step was sent before.
    First,
    /// The same request was sent before, and its response was lost.
    Repeated,
}

/// The action after a failed visible request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// No part of the request is visible: the step is ready again, and the refusal determines how it continues.
    Refused,
    /// The message may be visible, and a retry cannot succeed: report that the outcome is unknown.
    LeaveUnknown,
    /// The message may be visible: determine the outcome after a wait.
    Resolve,
}

/// Decides what to do after a visible request failed.
pub fn decide_failure(outcome: SendOutcome, mode: SendMode, kind: ErrorKind) -> FailureAction {
    match (outcome, mode) {
        (SendOutcome::NotSent, SendMode::First) => FailureAction::Refused,
        // This attempt was refused, but an earlier one may be visible.
        (SendOutcome::NotSent, SendMode::Repeated) if !may_succeed_later(kind) => {
            FailureAction::LeaveUnknown
        }
        // The response is a redirect, but the request may have been processed. A repeated request would be redirected
        // too.
        (SendOutcome::Ambiguous, _) if kind == ErrorKind::NotFound => FailureAction::LeaveUnknown,
        (SendOutcome::NotSent | SendOutcome::Ambiguous | SendOutcome::Partial, _) => {
            FailureAction::Resolve
        }
    }
}

/// Whether the same request may succeed later.
pub const fn may_succeed_later(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::RateLimited | ErrorKind::Transient | ErrorKind::Source
    )
}

/// Longest time from storing the state `sending` to the start of the visible request. A worker that was suspended for
/// longer does not send, because another worker may have continued the delivery.
pub const MAX_SEND_START: Duration = Duration::from_secs(10);

/// Time from storing the state `sending` until the platform can no longer execute the request: its latest start, the
/// response timeout of 2 minutes, and 20 s for the difference of two clocks.
pub const REQUEST_LIFETIME: Duration = Duration::from_secs(150);

/// Whether a visible request that was stored as `sending` at `started_ms`, by the same clock, may begin now.
pub fn may_begin_request(started_ms: u64, now_ms: u64) -> bool {
    // If the clock was set back, the elapsed time is unknown.
    now_ms >= started_ms && now_ms - started_ms <= whole_millis(MAX_SEND_START)
}

/// The action when the platform does not find the message of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFoundAction {
    /// No message is visible or will be: send once more.
    SendAgain,
    /// The request of another worker may still arrive: ask again at this time, in Unix milliseconds.
    AskAt(u64),
    /// Report that the outcome is unknown.
    LeaveUnknown,
}

/// Decides what to do when the platform does not find the message of a step. `is_own_request` says whether this worker
/// made the last request, so that it has certainly ended.
pub fn decide_not_found(step: &SendingStep, is_own_request: bool, now_ms: u64) -> NotFoundAction {
    // A step that was answered may be visible in some form, so another request could show it twice.
    if step.lost >= MAX_LOST_RESPONSES || !step.has_attempts_left() || step.was_answered() {
        return NotFoundAction::LeaveUnknown;
    }
    let lifetime = whole_millis(REQUEST_LIFETIME);
    let settled_ms = step.since_ms().saturating_add(lifetime);
    if is_own_request || now_ms >= settled_ms {
        NotFoundAction::SendAgain
    } else {
        NotFoundAction::AskAt(settled_ms)
    }
}

/// Where a delay before the next attempt is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitAction {
    /// No time is left after the delay.
    GiveUp,
    /// The delivery continues after the delay as new work.
    Park,
    /// This worker waits and then tries again.
    Wait,
}

/// Decides how to wait for `delay` before a ready step is tried again. `left` is the remaining time of the delivery,
/// and `tolerance` the jitter that an inline wait may add.
pub fn decide_wait(delay: Duration, left: Duration, tolerance: Duration) -> WaitAction {
    if delay >= left {
        WaitAction::GiveUp
    } else if delay > MAX_INLINE_WAIT + tolerance {
        WaitAction::Park
    } else {
        WaitAction::Wait
    }
}

#[cfg(test)]
mod tests {
    use dray_platform::Route;

    use super::*;
    use crate::machine::{ReadyStep, StepPlan};

    #[test]
    fn only_a_first_request_that_was_not_sent_is_certainly_not_visible() {
        let (first, repeated) = (SendMode::First, SendMode::Repeated);
        let transient = ErrorKind::Transient;
        assert_eq!(
            decide_failure(SendOutcome::NotSent, first, transient),
            FailureAction::Refused
        );
        assert_eq!(
            decide_failure(SendOutcome::NotSent, repeated, transient),
            FailureAction::Resolve
        );
        assert_eq!(
            decide_failure(SendOutcome::NotSent, repeated, ErrorKind::Forbidden),
            FailureAction::LeaveUnknown
        );
        for mode in [first, repeated] {
            assert_eq!(
                decide_failure(SendOutcome::Ambiguous, mode, transient),
                FailureAction::Resolve
            );
            assert_eq!(
                decide_failure(SendOutcome::Ambiguous, mode, ErrorKind::NotFound),
                FailureAction::LeaveUnknown
            );
        }
    }

    #[test]
    fn a_request_of_another_worker_is_sent_again_only_when_it_cannot_arrive_any_more() {
        let plan = StepPlan::text(Route::Text, "x".to_owned());
        let mut step = ReadyStep::new(plan, Vec::new()).begin(1_000);
        step.count_lost();
        let decide = |step: &SendingStep, is_own, now_ms| decide_not_found(step, is_own, now_ms);
        assert_eq!(
            decide(&step, false, 40_000),
            NotFoundAction::AskAt(151_000),
            "a stalled platform may still execute it"
        );
        assert_eq!(decide(&step, false, 151_000), NotFoundAction::SendAgain);
        assert_eq!(decide(&step, true, 2_000), NotFoundAction::SendAgain);
        step.count_lost();
        assert_eq!(decide(&step, false, 151_000), NotFoundAction::LeaveUnknown);
    }

    #[test]
    fn a_worker_that_was_suspended_after_its_record_does_not_send() {
        assert!(may_begin_request(1_000, 1_000) && may_begin_request(1_000, 11_000));
        assert!(!may_begin_request(1_000, 11_001));
        assert!(!may_begin_request(1_000, 999), "the clock was set back");
    }

    #[test]
    fn a_long_delay_is_parked_and_one_past_the_end_is_given_up() {
        let decide = |delay, left| {
            decide_wait(
                Duration::from_secs(delay),
                Duration::from_secs(left),
                Duration::from_secs(1),
            )
        };
        assert_eq!(decide(61, 600), WaitAction::Wait);
        assert_eq!(decide(62, 600), WaitAction::Park);
        assert_eq!(decide(10, 10), WaitAction::GiveUp);
    }
}
