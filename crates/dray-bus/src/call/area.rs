//! State that the callers of one area share: a circuit breaker, a retry budget, and the duration of responses.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::RetryBudget;

/// Timeouts in a row that open the circuit (C-10).
const MAX_TIMEOUTS_IN_A_ROW: u32 = 20;
/// How long an open circuit refuses calls before it allows one probe.
const OPEN_DURATION: Duration = Duration::from_secs(2);

/// Shared by all callers of an area.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    timeouts_in_a_row: u32,
    open_until: Option<Instant>,
    probing: bool,
    budget: RetryBudget,
    /// The longest recent response time; it declines slowly.
    longest: Duration,
}

impl CircuitBreaker {
    /// Whether a call may be made now; counts it as a request when it may.
    pub(crate) fn admit_call(&self) -> bool {
        let mut state = self.lock();
        if let Some(until) = state.open_until {
            // Only one probe is allowed at a time, because all waiting calls together would overload an area that has
            // just restarted.
            if Instant::now() < until || state.probing {
                return false;
            }
            state.probing = true;
        }
        state.budget.record_request();
        true
    }

    /// Takes a retry from the budget.
    pub(crate) fn admit_retry(&self) -> bool {
        self.lock().budget.take_retry()
    }

    /// Whether the longest recent response took at most half of `share` (C-6).
    pub(crate) fn responds_well_within(&self, share: Duration) -> bool {
        self.lock().longest * 2 <= share
    }

    /// Records a response after `took`; zero if its duration says nothing about other responses.
    pub(crate) fn record_response(&self, took: Duration) {
        let mut state = self.lock();
        state.timeouts_in_a_row = 0;
        state.open_until = None;
        state.probing = false;
        if !took.is_zero() {
            // The value decays by 1/64 with each response: one slow response has an effect on about the next hundred.
            let declined = state.longest.saturating_sub(state.longest / 64);
            state.longest = declined.max(took);
        }
    }

    /// Records that no response arrived in time.
    pub(crate) fn record_timeout(&self) {
        let mut state = self.lock();
        state.timeouts_in_a_row = state.timeouts_in_a_row.saturating_add(1);
        if state.timeouts_in_a_row >= MAX_TIMEOUTS_IN_A_ROW {
            // This includes a probe without a response, which opens the circuit for another period.
            state.open_until = Some(Instant::now() + OPEN_DURATION);
        }
        state.probing = false;
    }

    /// Records that a call ended, but neither with a response nor with a timeout.
    pub(crate) fn release_probe(&self) {
        self.lock().probing = false;
    }

    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn twenty_timeouts_in_a_row_open_the_circuit_and_one_answered_probe_closes_it() {
        let area = CircuitBreaker::default();
        for _ in 0..MAX_TIMEOUTS_IN_A_ROW {
            assert!(area.admit_call());
            area.record_timeout();
        }
        assert!(!area.admit_call());
        tokio::time::advance(OPEN_DURATION).await;
        assert!(area.admit_call(), "one probe");
        assert!(!area.admit_call(), "no second probe at the same time");
        area.record_timeout();
        assert!(
            !area.admit_call(),
            "a probe without a response opens the circuit again"
        );
        tokio::time::advance(OPEN_DURATION).await;
        assert!(area.admit_call());
        area.record_response(Duration::from_millis(1));
        assert!(area.admit_call() && area.admit_call());
    }

    #[test]
    fn a_response_sets_the_count_of_timeouts_to_zero() {
        let area = CircuitBreaker::default();
        for _ in 0..MAX_TIMEOUTS_IN_A_ROW - 1 {
            area.record_timeout();
        }
        area.record_response(Duration::ZERO);
        area.record_timeout();
        assert!(area.admit_call());
    }

    #[test]
    fn after_a_slow_response_a_short_share_does_not_fit_for_a_while() {
        let area = CircuitBreaker::default();
        assert!(
            area.responds_well_within(Duration::from_millis(10)),
            "nothing known yet"
        );
        area.record_response(Duration::from_secs(6));
        assert!(!area.responds_well_within(Duration::from_secs(10)));
        for _ in 0..64 {
            area.record_response(Duration::from_millis(1));
        }
        assert!(
            area.responds_well_within(Duration::from_secs(10)),
            "after 64 fast responses it has decayed"
        );
    }
}
