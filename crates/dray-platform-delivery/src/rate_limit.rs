//! Limits on sending: token buckets for each chat and account, and delays that a platform requested (platform-delivery
//! 10.2).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_delivery_rules::buckets::RateBuckets;
use dray_platform::{PlatformError, RateLimits};
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

    /// How long a message to this chat would wait now: for a token, and for a delay that the platform requested. It
    /// takes no token.
    pub(crate) fn next_wait(&self, account: &str, chat: &str, rates: RateLimits) -> Duration {
        let (now, now_ms) = (self.origin.elapsed(), self.clock.now_ms());
        let buckets = self.lock();
        let wait = buckets.next_wait(account, chat, rates, now);
        wait.max(buckets.held(account, chat, now_ms))
    }

    /// Takes a token for one visible request if it waits less than `limit`, and returns the wait.
    ///
    /// # Errors
    ///
    /// A wait of `limit` or longer, for which no token is taken.
    pub(crate) fn reserve_within(
        &self,
        account: &str,
        chat: &str,
        rates: RateLimits,
        limit: Duration,
    ) -> Result<Duration, Duration> {
        let (now, now_ms) = (self.origin.elapsed(), self.clock.now_ms());
        let mut buckets = self.lock();
        let wait = buckets.next_wait(account, chat, rates, now);
        let wait = wait.max(buckets.held(account, chat, now_ms));
        if wait >= limit {
            return Err(wait);
        }
        buckets.reserve(account, chat, rates, now, now_ms);
        Ok(wait)
    }

    /// Records that the platform accepts no message for this chat during `delay`.
    pub fn hold(&self, account: &str, chat: &str, delay: Duration) {
        let now_ms = self.clock.now_ms();
        self.lock().hold(account, chat, delay, now_ms);
    }

    /// Records a refusal for a rate limit, and returns how long this chat waits for it: for the delay that the refusal
    /// names, or for one that grows with each refusal in a row that names none. The other chats of the account wait as
    /// well if the limit applies to all of them.
    pub(crate) fn hold_refused(
        &self,
        account: &str,
        chat: &str,
        refusal: &PlatformError,
    ) -> Duration {
        let now_ms = self.clock.now_ms();
        let mut buckets = self.lock();
        let delay = match refusal.retry_after() {
            Some(delay) => {
                buckets.hold(account, chat, delay, now_ms);
                delay
            }
            None => buckets.hold_unnamed(account, chat, now_ms),
        };
        if refusal.is_account_wide() {
            buckets.hold_account(account, delay, now_ms);
        }
        delay
    }

    /// Records that the platform accepted a message for this chat.
    pub(crate) fn record_accepted(&self, account: &str, chat: &str) {
        self.lock().record_accepted(account, chat);
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
    use dray_platform::ErrorKind;

    use super::*;

    const TEST_RATES: RateLimits = RateLimits {
        account_per_minute: 1200,
        chat_per_minute: 60,
    };

    // paused clock
    #[tokio::test(start_paused = true)]
    async fn a_chat_has_its_burst_and_then_its_rate() {
        let limiter = RateLimiter::new(Clock::manual(1));
        for _ in 0..5 {
            assert_eq!(limiter.reserve("a", "1", TEST_RATES), Duration::ZERO);
        }
        assert_eq!(
            limiter.reserve("a", "1", TEST_RATES),
            Duration::from_secs(1)
        );
        assert_eq!(
            limiter.reserve("a", "1", TEST_RATES),
            Duration::from_secs(2)
        );
        assert_eq!(
            limiter.reserve("a", "2", TEST_RATES),
            Duration::ZERO,
            "another chat"
        );
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(limiter.reserve("a", "1", TEST_RATES), Duration::ZERO);
    }

    // paused clock
    #[tokio::test(start_paused = true)]
    async fn an_account_has_a_rate_over_all_its_chats() {
        let limiter = RateLimiter::new(Clock::manual(1));
        let rates = RateLimits {
            account_per_minute: 60,
            chat_per_minute: 60,
        };
        let waits: Vec<_> = (0..7)
            .map(|chat| limiter.reserve("a", &chat.to_string(), rates).as_secs())
            .collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2]);
    }

    // paused clock
    #[tokio::test(start_paused = true)]
    async fn a_request_that_would_wait_too_long_consumes_no_token() {
        let limiter = RateLimiter::new(Clock::manual(1));
        let limit = Duration::from_secs(2);
        let reserve = || limiter.reserve_within("a", "1", TEST_RATES, limit);
        let waits: Vec<_> = (0..6).map(|_| reserve()).collect();
        assert_eq!(waits.last(), Some(&Ok(Duration::from_secs(1))));
        for _ in 0..100 {
            assert_eq!(reserve(), Err(limit));
        }
        assert_eq!(limiter.next_wait("a", "1", TEST_RATES), limit);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(reserve(), Ok(Duration::from_secs(1)));
        limiter.hold("a", "1", Duration::from_secs(9));
        assert_eq!(reserve(), Err(Duration::from_secs(9)));
    }

    #[test]
    fn a_refusal_for_the_account_holds_all_of_its_chats() {
        let limiter = RateLimiter::new(Clock::manual(1));
        let slower = || PlatformError::new(ErrorKind::RateLimited, "slower");
        let named = slower().with_retry_after(Duration::from_secs(90));
        limiter.hold_refused("a", "1", &named);
        assert_eq!(limiter.held("a", "2"), Duration::ZERO);
        limiter.hold_refused("a", "1", &named.account_wide());
        assert_eq!(limiter.held("a", "2"), Duration::from_secs(90));
        assert_eq!(limiter.held("b", "1"), Duration::ZERO);
        // The refusal names no delay.
        limiter.hold_refused("b", "1", &slower().account_wide());
        assert_eq!(limiter.held("b", "2"), Duration::from_secs(1));
    }

    #[test]
    fn a_delay_applies_to_its_chat_until_it_is_over() {
        let clock = Clock::manual(1);
        let limiter = RateLimiter::new(clock.clone());
        limiter.hold("a", "1", Duration::from_secs(90));
        limiter.hold("a", "1", Duration::from_secs(10));
        assert_eq!(limiter.held("a", "1"), Duration::from_secs(90));
        assert_eq!(limiter.held("a", "2"), Duration::ZERO);
        clock.advance(Duration::from_secs(90));
        assert_eq!(limiter.held("a", "1"), Duration::ZERO);
    }
}
