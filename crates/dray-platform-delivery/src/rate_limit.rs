//! Limits on sending: token buckets for each chat and account, and delays that a platform asked for
//! (platform-delivery 10.2).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_platform::RateLimits;
use dray_types::Clock;
use tokio::time::Instant;

/// Buckets that are kept before those that are full again are removed.
const MAX_BUCKETS: usize = 10_000;

/// Burst of a bucket: the number of seconds whose requests may leave together.
const BURST_SECONDS: u32 = 5;

/// The buckets of one process. Replicas do not share them; the platform's own limit is the last word.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<RateLimiterState>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct RateLimiterState {
    /// The time at which each bucket is full again.
    full_at: HashMap<String, Instant>,
    /// Unix milliseconds until which a platform accepts nothing for a chat.
    held_until_ms: HashMap<String, u64>,
}

impl RateLimiter {
    /// Makes a limiter with full buckets.
    pub fn new(clock: Clock) -> Self {
        Self {
            state: Mutex::default(),
            clock,
        }
    }

    /// Takes a token for one visible request, and returns how long the caller must wait before it sends.
    pub fn reserve(&self, account: &str, chat: &str, rates: RateLimits) -> Duration {
        let now = Instant::now();
        let mut state = self.lock();
        // Here and not on a timer: the maps only grow through this call and `hold`.
        state.forget(now, self.clock.now_ms());
        let account_wait = state.take(format!("a\0{account}"), rates.account_per_minute, now);
        let chat_wait = state.take(bucket_key(account, chat), rates.chat_per_minute, now);
        account_wait.max(chat_wait)
    }

    /// Records that the platform accepts nothing for this chat for so long.
    pub fn hold(&self, account: &str, chat: &str, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let until = self.clock.now_ms().saturating_add(delay);
        let mut state = self.lock();
        let held = state
            .held_until_ms
            .entry(bucket_key(account, chat))
            .or_insert(until);
        // A shorter delay that comes later does not shorten the earlier one.
        *held = (*held).max(until);
    }

    /// How long the platform still accepts nothing for this chat; zero when it does.
    pub fn held(&self, account: &str, chat: &str) -> Duration {
        let until = self
            .lock()
            .held_until_ms
            .get(&bucket_key(account, chat))
            .copied();
        let now_ms = self.clock.now_ms();
        Duration::from_millis(until.unwrap_or_default().saturating_sub(now_ms))
    }

    fn lock(&self) -> MutexGuard<'_, RateLimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bucket_key(account: &str, chat: &str) -> String {
    format!("c\0{account}\0{chat}")
}

impl RateLimiterState {
    fn take(&mut self, key: String, per_minute: u32, now: Instant) -> Duration {
        let per_minute = per_minute.max(1);
        let each = Duration::from_mins(1) / per_minute;
        let burst = (per_minute * BURST_SECONDS / 60).clamp(1, 30);
        // A virtual clock for each bucket: it runs ahead by one interval for each token, and only what exceeds the
        // burst is waited for.
        let full_at = self.full_at.entry(key).or_insert(now);
        let begins = (*full_at).max(now);
        *full_at = begins + each;
        (begins - now).saturating_sub(each * (burst - 1))
    }

    fn forget(&mut self, now: Instant, now_ms: u64) {
        if self.full_at.len() > MAX_BUCKETS {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.held_until_ms.len() > MAX_BUCKETS {
            self.held_until_ms.retain(|_, until| *until > now_ms);
        }
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
