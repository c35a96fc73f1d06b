//! Waits before a send: for the platform's rate limits, and between attempts.

use std::sync::Arc;
use std::time::Duration;

use crate::rate_limit::RateLimiter;

/// Delays of one replica.
#[derive(Debug)]
pub(crate) struct SendPace {
    pub(crate) limiter: Arc<RateLimiter>,
    /// Bound of the delay before the first repetition: a second, and less in tests.
    pub(crate) retry_unit: Duration,
}

impl SendPace {
    /// Full jitter below a bound that doubles with every try (platform-delivery 10.2).
    pub(crate) fn backoff(&self, tries: u32) -> Duration {
        let bound = self.retry_unit * (1 << tries.saturating_sub(1).min(5));
        rand::random_range(Duration::ZERO..=bound)
    }

    /// What is added to a delay that a platform asked for.
    pub(crate) fn jitter(&self) -> Duration {
        rand::random_range(Duration::ZERO..=self.retry_unit / 4)
    }
}
