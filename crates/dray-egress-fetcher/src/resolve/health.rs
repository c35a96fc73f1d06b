//! Which servers do not respond, so that a lookup does not wait for one again (RFC 9520, section 3.2).
//!
//! Callers choose the names, so a slow response does not make a server silent: otherwise a caller could exclude a
//! validating server by names of slow zones. A server that is slow for a question gets a probe that every resolver
//! answers from its cache. Only a server that does not respond to the probe either counts as silent. A silent server
//! gets further probes at growing intervals, and any response ends its silence.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Longest wait for the response to a probe.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after a probe before the next one; doubled after each one without a response (RFC 9520, section 3.2).
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two probes.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// Whether one server responds.
#[derive(Debug, Default)]
pub(super) struct ServerHealth(Mutex<HealthState>);

#[derive(Debug, Default)]
struct HealthState {
    /// Probes without a response since the last response.
    failed_probes: u32,
    is_probing: bool,
    /// No probe before this time.
    next_probe: Option<Instant>,
}

/// A change of the state, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthChange {
    BecameSilent,
    Recovered,
}

impl ServerHealth {
    /// Whether the last probe had no response, and nothing has come since.
    pub(super) fn is_silent(&self) -> bool {
        self.lock().failed_probes > 0
    }

    /// Returns whether the caller may send a probe now, and then counts it as under way. Only one is under way at a
    /// time.
    pub(super) fn begin_probe(&self) -> bool {
        let mut state = self.lock();
        let is_due = state.next_probe.is_none_or(|next| Instant::now() >= next);
        let begins = is_due && !state.is_probing;
        state.is_probing |= begins;
        begins
    }

    /// Notes the result of the probe.
    pub(super) fn end_probe(&self, has_responded: bool) -> Option<HealthChange> {
        let mut state = self.lock();
        state.is_probing = false;
        let doublings = state.failed_probes.min(16);
        let interval = MIN_PROBE_INTERVAL * 2_u32.pow(doublings);
        state.next_probe = Some(Instant::now() + interval.min(MAX_PROBE_INTERVAL));
        if has_responded {
            return state.recover();
        }
        state.failed_probes = state.failed_probes.saturating_add(1);
        (state.failed_probes == 1).then_some(HealthChange::BecameSilent)
    }

    /// Notes the end of a question: by a response, or by a failure that needed no timeout. Either one ends a silence.
    pub(super) fn note_response(&self) -> Option<HealthChange> {
        self.lock().recover()
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HealthState {
    fn recover(&mut self) -> Option<HealthChange> {
        let was_silent = std::mem::take(&mut self.failed_probes) > 0;
        was_silent.then_some(HealthChange::Recovered)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_probe_without_a_response_makes_a_server_silent_and_any_response_ends_that() {
        let health = ServerHealth::default();
        assert!(health.begin_probe());
        assert!(!health.begin_probe(), "one is under way");
        assert!(!health.is_silent());
        assert_eq!(health.end_probe(false), Some(HealthChange::BecameSilent));
        assert!(health.is_silent());
        assert_eq!(health.note_response(), Some(HealthChange::Recovered));
        assert_eq!(health.note_response(), None);
        assert!(!health.is_silent());
    }

    #[tokio::test(start_paused = true)]
    async fn probes_of_a_silent_server_become_rarer_up_to_a_limit() {
        let health = ServerHealth::default();
        for seconds in [1, 2, 4, 8, 16, 30, 30, 30] {
            assert!(health.begin_probe(), "{seconds}");
            health.end_probe(false);
            advance(Duration::from_millis(seconds * 1000 - 1)).await;
            assert!(!health.begin_probe(), "before {seconds} s");
            advance(Duration::from_millis(1)).await;
        }
        assert!(health.begin_probe());
        assert_eq!(health.end_probe(true), Some(HealthChange::Recovered));
        // A server that responds gets no probe for each slow name either.
        assert!(!health.begin_probe());
    }
}
