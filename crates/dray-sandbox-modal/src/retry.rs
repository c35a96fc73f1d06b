//! Repeats requests that failed. All requests are idempotent: this side chooses the ids of commands, and streams have
//! offsets.

use std::time::Duration;

use tonic::Status;

use crate::fault;

/// Most repetitions in a row after transient failures.
const MAX_ATTEMPTS: u32 = 5;
/// Wait before the first repetition; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// Most repetitions after the provider requested a delay.
const MAX_THROTTLES: u32 = 3;
/// Longest requested delay that is waited for; with a longer one the request fails.
const MAX_THROTTLE_DELAY: Duration = Duration::from_secs(5);

/// State of the repetitions of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestRetries {
    failures: u32,
    throttles: u32,
}

impl RequestRetries {
    /// Waits until the next repetition is due and returns true, or returns false when there is none.
    pub(crate) async fn wait_for_retry(&mut self, status: &Status) -> bool {
        if let Some(wait) = fault::retry_delay(status) {
            // A longer wait is left to the caller, who can report it.
            if self.throttles == MAX_THROTTLES || wait > MAX_THROTTLE_DELAY {
                return false;
            }
            self.throttles += 1;
            tokio::time::sleep(wait).await;
            return true;
        }
        if !fault::is_transient(status.code()) || self.failures == MAX_ATTEMPTS {
            return false;
        }
        tokio::time::sleep(FIRST_WAIT * 2_u32.pow(self.failures)).await;
        self.failures += 1;
        true
    }

    /// Resets the counts after a success.
    pub(crate) fn progress(&mut self) {
        *self = Self::default();
    }

    /// How often the provider has asked to wait; it expects the number with the next attempt.
    pub(crate) const fn throttles(&self) -> u32 {
        self.throttles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_retried_a_limited_number_of_times() {
        // paused clock
        let mut retry = RequestRetries::default();
        let down = Status::unavailable("down");
        let mut attempts = 0;
        while retry.wait_for_retry(&down).await {
            attempts += 1;
        }
        assert_eq!(attempts, MAX_ATTEMPTS);
        retry.progress();
        assert!(retry.wait_for_retry(&down).await);
    }

    #[tokio::test]
    async fn permanent_failures_are_not_retried() {
        for status in [
            Status::not_found("x"),
            Status::permission_denied("x"),
            Status::resource_exhausted("x"),
            Status::failed_precondition("x"),
        ] {
            assert!(!RequestRetries::default().wait_for_retry(&status).await);
        }
    }
}
