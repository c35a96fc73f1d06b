//! The states of one visible request (messaging-reliability 12), as pure changes of its record.
//!
//! `READY → SENDING → DONE | UNKNOWN | FAILED`. `SENDING` is written before the first byte of the visible request
//! leaves, so that a later reader knows that something may be visible.

use dray_platform::DuplicateProtection;
use dray_proto::v1;

/// Visible tries of one step, those that waits for a rate limit cost not counted (platform-delivery 10.2).
pub const MAX_VISIBLE_ATTEMPTS: u32 = 5;

/// Answers that may be lost of one step before it is not asked any more.
pub const MAX_LOST_RESPONSES: u32 = 2;

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPhase {
    /// Nothing of it is visible.
    Ready,
    /// Something of it may be visible.
    Sending,
    /// The platform confirmed it.
    Done,
    /// It may be visible; this cannot be found out.
    Unknown,
    /// It is not visible and will not be.
    Failed,
}

impl StepPhase {
    /// As records spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Sending => "sending",
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing happens any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Unknown | Self::Failed)
    }
}

/// Where this step stands. An unknown spelling counts as the most careful one.
pub fn step_phase(step: &v1::DeliveryStep) -> StepPhase {
    match step.state.as_str() {
        "" | "ready" => StepPhase::Ready,
        "done" => StepPhase::Done,
        "unknown" => StepPhase::Unknown,
        "failed" => StepPhase::Failed,
        _ => StepPhase::Sending,
    }
}

fn set_phase(step: &mut v1::DeliveryStep, phase: StepPhase) {
    phase.as_str().clone_into(&mut step.state);
}

/// One more visible try begins. The time of the first one is kept while its outcome is open.
pub fn begin_attempt(step: &mut v1::DeliveryStep, now_ms: u64) {
    if step_phase(step) == StepPhase::Ready {
        step.sending_since_ms = now_ms.max(1);
    }
    step.attempts += 1;
    set_phase(step, StepPhase::Sending);
}

/// The platform confirmed it.
pub fn mark_done(step: &mut v1::DeliveryStep, confirmed: Vec<v1::StepConfirmation>) {
    step.confirmed = confirmed;
    step.error_kind.clear();
    step.platform_code.clear();
    set_phase(step, StepPhase::Done);
}

/// It is certain that nothing is visible: it may be tried again.
pub fn mark_ready(step: &mut v1::DeliveryStep) {
    step.sending_since_ms = 0;
    set_phase(step, StepPhase::Ready);
}

/// It cannot be known whether it is visible.
pub fn mark_unknown(step: &mut v1::DeliveryStep) {
    set_phase(step, StepPhase::Unknown);
}

/// It is not visible and is given up.
pub fn mark_failed(step: &mut v1::DeliveryStep) {
    set_phase(step, StepPhase::Failed);
}

/// What to do with a step whose answer was lost, in this process or in an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeAction {
    /// The same request with the same key: at most one message comes of it.
    Send,
    /// Ask the platform.
    Reconcile,
    /// Report that the outcome is unknown.
    GiveUp,
}

/// Decides it by what the platform offers (the table of messaging-reliability 12).
pub fn decide_resume(
    step: &v1::DeliveryStep,
    ambiguity: DuplicateProtection,
    now_ms: u64,
) -> ResumeAction {
    let may_try = step.attempts < MAX_VISIBLE_ATTEMPTS;
    match ambiguity {
        DuplicateProtection::ResendAlways if may_try => ResumeAction::Send,
        DuplicateProtection::Resend(window) if may_try => {
            let since = u128::from(now_ms.saturating_sub(step.sending_since_ms));
            // A clock that went backwards proves nothing.
            if step.sending_since_ms <= now_ms && since < window.as_millis() {
                ResumeAction::Send
            } else {
                ResumeAction::GiveUp
            }
        }
        DuplicateProtection::Reconcile => ResumeAction::Reconcile,
        DuplicateProtection::Resend(_)
        | DuplicateProtection::ResendAlways
        | DuplicateProtection::Unknown => ResumeAction::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sending(since: u64) -> v1::DeliveryStep {
        let mut step = v1::DeliveryStep::default();
        begin_attempt(&mut step, since);
        step
    }

    #[test]
    fn a_step_begins_ready_and_an_unknown_word_is_taken_for_sending() {
        let mut step = v1::DeliveryStep::default();
        assert_eq!(step_phase(&step), StepPhase::Ready);
        step.state = "later".to_owned();
        assert_eq!(step_phase(&step), StepPhase::Sending);
        for phase_of in [
            StepPhase::Ready,
            StepPhase::Sending,
            StepPhase::Done,
            StepPhase::Unknown,
            StepPhase::Failed,
        ] {
            step.state = phase_of.as_str().to_owned();
            assert_eq!(step_phase(&step), phase_of);
        }
    }

    #[test]
    fn the_first_try_counts_the_time_until_it_is_certain_that_nothing_is_visible() {
        let mut step = sending(100);
        begin_attempt(&mut step, 900);
        assert_eq!((step.sending_since_ms, step.attempts), (100, 2));
        mark_ready(&mut step);
        begin_attempt(&mut step, 900);
        assert_eq!((step.sending_since_ms, step.attempts), (900, 3));
    }

    #[test]
    fn a_lost_answer_is_resolved_as_the_platform_offers() {
        let window = DuplicateProtection::Resend(Duration::from_mins(2));
        let step = sending(1_000);
        assert_eq!(
            decide_resume(&step, DuplicateProtection::Unknown, 1_001),
            ResumeAction::GiveUp
        );
        assert_eq!(
            decide_resume(&step, DuplicateProtection::Reconcile, 1_001),
            ResumeAction::Reconcile
        );
        assert_eq!(
            decide_resume(&step, DuplicateProtection::ResendAlways, 99_999_999),
            ResumeAction::Send
        );
        assert_eq!(decide_resume(&step, window, 120_999), ResumeAction::Send);
        assert_eq!(decide_resume(&step, window, 121_000), ResumeAction::GiveUp);
        assert_eq!(
            decide_resume(&step, window, 900),
            ResumeAction::GiveUp,
            "the clock went back"
        );
    }

    #[test]
    fn five_tries_are_enough_also_where_repeating_is_harmless() {
        let mut step = sending(1_000);
        while step.attempts < MAX_VISIBLE_ATTEMPTS {
            begin_attempt(&mut step, 1_000);
        }
        assert_eq!(
            decide_resume(&step, DuplicateProtection::ResendAlways, 1_001),
            ResumeAction::GiveUp
        );
    }
}
