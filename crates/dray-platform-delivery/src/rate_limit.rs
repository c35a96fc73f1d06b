//! Limits on sending: token buckets for each chat and account, and delays that a platform requested (platform-delivery
//! 10.2).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_delivery_rules::buckets::RateBuckets;
use dray_platform::RateLimits;
use dray_types::Clock;
use tokio::time::Instant;

/// The buckets of one process. Replicas do not share them, so the platform's own limit may still refuse a request.
#[derive(Debug)]
pub struct RateLimiter {
    buckets: Mutex<RateBuckets>,
    /// The origin of the buckets' monotonic time.
    origin: Instant,
    clock: Clock,
}

impl RateLimiter {
    /// Makes a limiter with full buckets.
    pub fn new(clock: Clock) -> Self {
        Self {
            buckets: Mutex::default(),
            origin: Instant::now(),
            clock,
        }
    }

    /// Takes a token for one visible request, and returns how long the caller must wait before it sends.
    pub fn reserve(&self, account: &str, chat: &str, rates: RateLimits) -> Duration {
        let (now, now_ms) = (self.origin.elapsed(), self.clock.now_ms());
        self.lock().reserve(account, chat, rates, now, now_ms)
    }

    /// Records that the platform accepts no message for this chat during `delay`.
    pub fn hold(&self, account: &str, chat: &str, delay: Duration) {
        let now_ms = self.clock.now_ms();
        self.lock().hold(account, chat, delay, now_ms);
    }

    /// How much longer the platform accepts no message for this chat; zero if it does.
    pub fn held(&self, account: &str, chat: &str) -> Duration {
        let now_ms = self.clock.now_ms();
        self.lock().held(account, chat, now_ms)
    }

    fn lock(&self) -> MutexGuard<'_, RateBuckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_RATES: RateLimits = RateLimits {
        account_per_minute: 1200,
        chat_per_minute: 60,
    };

    // paused clock
    #[tokio::test(start_paused = true)]
    async fn a_chat_has_its_burst_and_then_its_rate() {
        let pace = RateLimiter::new(Clock::manual(1));
        for _ in 0..5 {
            assert_eq!(pace.reserve("a", "1", TEST_RATES), Duration::ZERO);
        }
        assert_eq!(pace.reserve("a", "1", TEST_RATES), Duration::from_secs(1));
        assert_eq!(pace.reserve("a", "1", TEST_RATES), Duration::from_secs(2));
        assert_eq!(
            pace.reserve("a", "2", TEST_RATES),
            Duration::ZERO,
            "another chat"
        );
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(pace.reserve("a", "1", TEST_RATES), Duration::ZERO);
    }

    // paused clock
    #[tokio::test(start_paused = true)]
    async fn an_account_has_a_rate_over_all_its_chats() {
        let pace = RateLimiter::new(Clock::manual(1));
        let rates = RateLimits {
            account_per_minute: 60,
            chat_per_minute: 60,
        };
        let waits: Vec<_> = (0..7)
            .map(|chat| pace.reserve("a", &chat.to_string(), rates).as_secs())
            .collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn a_wait_is_kept_for_its_chat_until_it_is_over() {
        let clock = Clock::manual(1);
        let pace = RateLimiter::new(clock.clone());
        pace.hold("a", "1", Duration::from_secs(90));
        pace.hold("a", "1", Duration::from_secs(10));
        assert_eq!(pace.held("a", "1"), Duration::from_secs(90));
        assert_eq!(pace.held("a", "2"), Duration::ZERO);
        clock.advance(Duration::from_secs(90));
        assert_eq!(pace.held("a", "1"), Duration::ZERO);
    }
}
