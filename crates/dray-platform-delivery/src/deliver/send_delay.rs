//! Waits before a send: for the platform's rate limits, and between attempts.

use std::sync::Arc;
use std::time::Duration;

use dray_delivery_rules::refusal::backoff_bound;

use crate::rate_limit::RateLimiter;

/// Delays of one replica.
#[derive(Debug)]
pub(crate) struct SendDelays {
    pub(crate) limiter: Arc<RateLimiter>,
    /// Bound of the delay before the first retry: [`dray_delivery_rules::refusal::FIRST_RETRY_DELAY`], and less in
    /// tests.
    pub(crate) retry_unit: Duration,
}

impl SendDelays {
    /// A random delay (full jitter) after this number of attempts (platform-delivery 10.2).
    pub(crate) fn backoff(&self, attempts: u32) -> Duration {
        let bound = backoff_bound(self.retry_unit, attempts);
        rand::random_range(Duration::ZERO..=bound)
    }

    /// A random addition to a delay that a platform requested, so that workers do not return together.
    pub(crate) fn jitter(&self) -> Duration {
        rand::random_range(Duration::ZERO..=self.retry_unit / 4)
    }
}
