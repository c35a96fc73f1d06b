//! Waits before a send: for the platform's rate limits, and between attempts.

use std::sync::Arc;
use std::time::Duration;

use crate::rate_limit::RateLimiter;

/// Delays of one replica.
#[derive(Debug)]
pub(crate) struct SendDelays {
    pub(crate) limiter: Arc<RateLimiter>,
    /// Upper bound of the delay before the first retry: a second, and less in tests.
    pub(crate) retry_unit: Duration,
}

impl SendDelays {
    /// A random delay (full jitter) below a bound that doubles with every attempt, up to 32 units (platform-delivery
    /// 10.2).
    pub(crate) fn backoff(&self, attempts: u32) -> Duration {
        let bound = self.retry_unit * (1 << attempts.saturating_sub(1).min(5));
        rand::random_range(Duration::ZERO..=bound)
    }

    /// A random addition to a delay that a platform requested, so that workers do not return together.
    pub(crate) fn jitter(&self) -> Duration {
        rand::random_range(Duration::ZERO..=self.retry_unit / 4)
    }
}
