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
    /// Waits before the next attempt; returns `false` if no attempt is left. `attempt` is the number of the failed
    /// attempt, from 1; `retry_after` is the peer's `Retry-After`.
    pub(crate) async fn wait_for_retry(self, attempt: u32, retry_after: Option<Duration>) -> bool {
        if attempt > self.retries {
            return false;
        }
        let own = self.base.saturating_mul(2_u32.saturating_pow(attempt - 1));
        // The peer's delay is used, but it must not block a turn for minutes.
        tokio::time::sleep(retry_after.unwrap_or(own).min(MAX_RETRY_AFTER)).await;
        true
    }
}
