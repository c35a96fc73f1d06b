//! Decides the action after a lost response to a visible request (the table of messaging-reliability 12).

use dray_platform::DuplicateProtection;

use super::SendingStep;

/// The action for a step whose response was lost, in this process or in an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeAction {
    /// Send the same request with the same key: the platform shows at most one message.
    Send,
    /// Ask the platform whether the message is visible.
    Reconcile,
    /// Report that the outcome is unknown.
    GiveUp,
}

/// Decides by the platform's protection against duplicates.
pub fn decide_resume(
    step: &SendingStep,
    protection: DuplicateProtection,
    now_ms: u64,
) -> ResumeAction {
    let has_attempts_left = step.has_attempts_left();
    match protection {
        DuplicateProtection::ResendAlways if has_attempts_left => ResumeAction::Send,
        DuplicateProtection::Resend(window) if has_attempts_left => {
            let since = u128::from(now_ms.saturating_sub(step.since_ms()));
            // If the clock was set back, the elapsed time is unknown.
            if step.since_ms() <= now_ms && since < window.as_millis() {
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

    use dray_platform::{ErrorKind, Route};

    use super::*;
    use crate::machine::{ReadyStep, StepPlan};

    fn sending(since: u64) -> SendingStep {
        let plan = StepPlan::text(Route::Text, "x".to_owned());
        ReadyStep::new(plan, Vec::new()).begin(since)
    }

    #[test]
    fn the_time_counts_from_the_first_attempt_that_may_be_visible() {
        let step = sending(100).begin_again();
        assert_eq!((step.since_ms(), step.attempts), (100, 2));
        let step = step.not_visible().begin(900);
        assert_eq!((step.since_ms(), step.attempts), (900, 3));
    }

    #[test]
    fn a_confirmation_clears_the_failure_of_an_earlier_attempt() {
        let mut step = sending(1);
        step.note_error(ErrorKind::Transient, "7");
        let done = step.confirm(Vec::new());
        assert_eq!((done.error_kind, done.platform_code.as_str()), (None, ""));
        assert_eq!(done.deny().attempts, 0);
    }

    #[test]
    fn a_lost_response_is_resolved_by_the_platforms_protection() {
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
    fn a_step_has_at_most_five_attempts_even_if_repeating_is_harmless() {
        let mut step = sending(1_000);
        while step.attempts < crate::machine::MAX_VISIBLE_ATTEMPTS {
            step = step.begin_again();
        }
        assert_eq!(
            decide_resume(&step, DuplicateProtection::ResendAlways, 1_001),
            ResumeAction::GiveUp
        );
    }
}
