//! The time of a whole fetch, and of its phases within it (egress-security 14).

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::{FetchError, FetchPhase};

/// The instant at which a fetch ends, for its whole redirect chain.
#[derive(Clone, Copy, Debug)]
pub struct TimeBudget {
    end: Instant,
}

impl TimeBudget {
    /// A budget that ends `total` from now.
    pub fn starting_now(total: Duration) -> Self {
        Self::starting_at(Instant::now(), total)
    }

    /// A budget that ends `total` after `start`.
    pub fn starting_at(start: Instant, total: Duration) -> Self {
        Self { end: start + total }
    }

    /// The end of the whole fetch. It stays the same, even when a body is resumed.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Time until the end of the whole fetch; zero afterwards.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Waits for `future`, at most `limit` and never beyond the end of the whole fetch.
    ///
    /// # Errors
    ///
    /// `timeout` in `phase`, or in [`FetchPhase::Total`] when the time of the whole fetch ends first.
    pub async fn within<F: Future>(
        &self,
        phase: FetchPhase,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, FetchError> {
        self.until(phase, Instant::now() + limit, future).await
    }

    /// Waits for `future` until `phase_end`, and never beyond the end of the whole fetch.
    pub async fn until<F: Future>(
        &self,
        phase: FetchPhase,
        phase_end: Instant,
        future: F,
    ) -> Result<F::Output, FetchError> {
        let (end, phase) = if self.end < phase_end {
            (self.end, FetchPhase::Total)
        } else {
            (phase_end, phase)
        };
        timeout_at(end, future)
            .await
            .map_err(|_| FetchError::timeout(phase))
    }

    /// Waits for `future` until the end of the whole fetch.
    pub async fn within_total<F: Future>(&self, future: F) -> Result<F::Output, FetchError> {
        timeout_at(self.end, future)
            .await
            .map_err(|_| FetchError::timeout(FetchPhase::Total))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    async fn check(total: u64, limit: u64, expected: FetchPhase) {
        let budget = TimeBudget::starting_now(Duration::from_secs(total));
        let started = Instant::now();
        let failure = budget
            .within(
                FetchPhase::Head,
                Duration::from_secs(limit),
                pending::<()>(),
            )
            .await
            .unwrap_err();
        assert_eq!(failure.phase, expected);
        assert_eq!(started.elapsed(), Duration::from_secs(total.min(limit)));
    }

    #[tokio::test(start_paused = true)]
    async fn every_phase_uses_the_smaller_of_its_limit_and_what_is_left() {
        check(60, 10, FetchPhase::Head).await;
        check(4, 10, FetchPhase::Total).await;
        check(0, 10, FetchPhase::Total).await;
    }
}
