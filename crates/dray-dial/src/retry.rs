//! Rules for retries of calls: conditions, number and waits.

use std::time::Duration;

/// Number and delays of retries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// Delay before the first retry; it doubles with each attempt.
    pub(crate) base: Duration,
    /// Retries after the first attempt.
    pub(crate) retries: u32,
}

/// Longest delay that a peer can request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

impl RetryPolicy {
    /// Waits before the next attempt; returns `false` if no attempt is left, or none that can succeed. `attempt` is the
    /// number of the failed attempt, from 1; `retry_after` is the peer's `Retry-After`.
    pub(crate) async fn wait_for_retry(self, attempt: u32, retry_after: Option<Duration>) -> bool {
        if attempt > self.retries {
            return false;
        }
        let left = self.retries.saturating_sub(attempt).saturating_add(1);
        // The peer refuses all attempts that are left, so the turn must not wait for them.
        if retry_after.is_some_and(|delay| delay > MAX_RETRY_AFTER.saturating_mul(left)) {
            return false;
        }
        let own = self.base.saturating_mul(2_u32.saturating_pow(attempt - 1));
        // The peer's delay is used, but it must not block a turn for minutes.
        tokio::time::sleep(retry_after.unwrap_or(own).min(MAX_RETRY_AFTER)).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_delay_that_no_attempt_reaches_is_not_waited_for() {
        let policy = RetryPolicy {
            base: Duration::from_millis(500),
            retries: 2,
        };
        for (attempt, delay, expected) in [
            (1, None, Some(500)),
            (2, None, Some(1_000)),
            (3, None, None),
            (1, Some(7), Some(7_000)),
            // The second retry comes 20 s after the first attempt.
            (1, Some(20), Some(10_000)),
            (2, Some(10), Some(10_000)),
            (1, Some(21), None),
            (2, Some(11), None),
        ] {
            let began = Instant::now();
            let delay = delay.map(Duration::from_secs);
            let waited = policy.wait_for_retry(attempt, delay).await;
            let waited = waited.then(|| began.elapsed());
            let expected = expected.map(Duration::from_millis);
            // Timers of paused time are exact to the millisecond.
            assert_eq!(
                waited.map(|time| time.as_millis()),
                expected.map(|time| time.as_millis())
            );
        }
    }
}
