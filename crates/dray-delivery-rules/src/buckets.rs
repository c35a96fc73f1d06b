//! Token buckets for chats and accounts, and delays that a platform requested (platform-delivery 10.2).
//!
//! Two clocks are used: the monotonic time since a fixed origin for the rates, and the wall clock for delays, which are
//! also written into records.

use std::collections::HashMap;
use std::time::Duration;

use dray_platform::RateLimits;
use dray_types::whole_millis;

use crate::refusal::unnamed_rate_limit_delay;

/// Number of buckets above which full ones are removed.
const MAX_BUCKETS: usize = 10_000;

/// Burst of a bucket: the requests of this many seconds may be sent without a wait.
const BURST_SECONDS: u32 = 5;

/// Most requests of a burst.
const MAX_BURST: u32 = 30;

/// The buckets of one process. Replicas do not share them, so the platform may still refuse a request.
#[derive(Debug, Default)]
pub struct RateBuckets {
    /// The time at which each bucket is full again, since the origin.
    full_at: HashMap<String, Duration>,
    /// Unix milliseconds until which the platform accepts no request for a chat or for an account.
    held_until_ms: HashMap<String, u64>,
    /// Refusals of a chat in a row for a rate limit that named no delay.
    unnamed_refusals: HashMap<String, u32>,
}

impl RateBuckets {
    /// Takes a token for one visible request, and returns how long the caller must wait before it sends. `now` is the
    /// time since the origin.
    pub fn reserve(
        &mut self,
        account: &str,
        chat: &str,
        rates: RateLimits,
        now: Duration,
        now_ms: u64,
    ) -> Duration {
        // Idle entries are removed here and not by a timer, because the maps grow only in this method and in `hold`.
        self.remove_idle(now, now_ms);
        let account_wait = self.take_token(account_key(account), rates.account_per_minute, now);
        let chat_wait = self.take_token(bucket_key(account, chat), rates.chat_per_minute, now);
        account_wait.max(chat_wait)
    }

    /// How long the next request would wait. It takes no token.
    pub fn next_wait(
        &self,
        account: &str,
        chat: &str,
        rates: RateLimits,
        now: Duration,
    ) -> Duration {
        let token_wait = |key: &str, per_minute: u32| {
            let full_at = self.full_at.get(key).copied().unwrap_or(now);
            TokenRate::new(per_minute).token_wait(full_at, now)
        };
        let account_wait = token_wait(&account_key(account), rates.account_per_minute);
        account_wait.max(token_wait(
            &bucket_key(account, chat),
            rates.chat_per_minute,
        ))
    }

    /// Records that the platform accepts no request for this chat for `delay`.
    pub fn hold(&mut self, account: &str, chat: &str, delay: Duration, now_ms: u64) {
        self.hold_key(bucket_key(account, chat), delay, now_ms);
    }

    /// Records that the platform accepts no request of this account for `delay`, in any chat.
    pub fn hold_account(&mut self, account: &str, delay: Duration, now_ms: u64) {
        self.hold_key(account_key(account), delay, now_ms);
    }

    fn hold_key(&mut self, key: String, delay: Duration, now_ms: u64) {
        let delay = whole_millis(delay);
        let until = now_ms.saturating_add(delay);
        let held_until = self.held_until_ms.entry(key).or_insert(until);
        // A shorter delay that comes later does not shorten the earlier one.
        *held_until = (*held_until).max(until);
    }

    /// Records a refusal for a rate limit that names no delay, and returns how long this chat is held for it.
    pub fn hold_unnamed(&mut self, account: &str, chat: &str, now_ms: u64) -> Duration {
        let refusals = self
            .unnamed_refusals
            .entry(bucket_key(account, chat))
            .or_default();
        let delay = unnamed_rate_limit_delay(*refusals);
        *refusals = refusals.saturating_add(1);
        self.hold(account, chat, delay, now_ms);
        delay
    }

    /// Records that the platform accepted a message for this chat.
    pub fn record_accepted(&mut self, account: &str, chat: &str) {
        self.unnamed_refusals.remove(&bucket_key(account, chat));
    }

    /// How long the platform still accepts no request for this chat; zero if it accepts one now.
    pub fn held(&self, account: &str, chat: &str, now_ms: u64) -> Duration {
        let until_ms = |key: &str| self.held_until_ms.get(key).copied().unwrap_or_default();
        let until = until_ms(&bucket_key(account, chat)).max(until_ms(&account_key(account)));
        Duration::from_millis(until.saturating_sub(now_ms))
    }

    fn take_token(&mut self, key: String, per_minute: u32, now: Duration) -> Duration {
        let rate = TokenRate::new(per_minute);
        // Each token moves the time at which the bucket is full by one interval.
        let full_at = self.full_at.entry(key).or_insert(now);
        let wait = rate.token_wait(*full_at, now);
        *full_at = (*full_at).max(now) + rate.interval;
        wait
    }

    fn remove_idle(&mut self, now: Duration, now_ms: u64) {
        if self.full_at.len() > MAX_BUCKETS {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        if self.held_until_ms.len() > MAX_BUCKETS {
            self.held_until_ms.retain(|_, until| *until > now_ms);
        }
        if self.unnamed_refusals.len() > MAX_BUCKETS {
            let held = &self.held_until_ms;
            self.unnamed_refusals
                .retain(|key, _| held.get(key).is_some_and(|until| *until > now_ms));
        }
    }
}

/// The rate at which a bucket fills.
#[derive(Clone, Copy, Debug)]
struct TokenRate {
    /// Time for one token.
    interval: Duration,
    /// Tokens of a full bucket.
    burst: u32,
}

impl TokenRate {
    fn new(per_minute: u32) -> Self {
        let per_minute = per_minute.max(1);
        Self {
            interval: Duration::from_mins(1) / per_minute,
            burst: (per_minute * BURST_SECONDS / 60).clamp(1, MAX_BURST),
        }
    }

    /// The wait for a token of a bucket that is full again at `full_at`; zero while the burst lasts.
    fn token_wait(self, full_at: Duration, now: Duration) -> Duration {
        full_at
            .saturating_sub(now)
            .saturating_sub(self.interval * (self.burst - 1))
    }
}

fn account_key(account: &str) -> String {
    format!("a\0{account}")
}

fn bucket_key(account: &str, chat: &str) -> String {
    format!("c\0{account}\0{chat}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_deliveries_states_the_burst() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deliveries.md");
        let page = std::fs::read_to_string(page).unwrap();
        let burst =
            format!("The messages of {BURST_SECONDS} seconds, at least 1 and at most {MAX_BURST},");
        assert!(page.contains(&burst), "the page does not state: {burst}");
    }

    #[test]
    fn reading_the_next_wait_consumes_no_token() {
        let rates = RateLimits {
            account_per_minute: 1200,
            chat_per_minute: 60,
        };
        let mut buckets = RateBuckets::default();
        for expected in [0, 0, 0, 0, 0, 1, 2] {
            for _ in 0..3 {
                let wait = buckets.next_wait("a", "1", rates, Duration::ZERO);
                assert_eq!(wait.as_secs(), expected);
            }
            let wait = buckets.reserve("a", "1", rates, Duration::ZERO, 0);
            assert_eq!(wait.as_secs(), expected);
        }
    }

    #[test]
    fn a_delay_of_an_account_applies_to_all_of_its_chats() {
        let mut buckets = RateBuckets::default();
        buckets.hold_account("a", Duration::from_secs(9), 1_000);
        buckets.hold("a", "1", Duration::from_secs(20), 1_000);
        let held = |account: &str, chat: &str| buckets.held(account, chat, 1_000).as_secs();
        assert_eq!([held("a", "1"), held("a", "2"), held("b", "2")], [20, 9, 0]);
    }

    #[test]
    fn delays_that_no_refusal_names_grow_until_a_message_is_accepted() {
        let mut buckets = RateBuckets::default();
        let mut hold = |chat: &str| buckets.hold_unnamed("a", chat, 0).as_secs();
        assert_eq!([hold("1"), hold("1"), hold("1")], [1, 4, 16]);
        assert_eq!(hold("2"), 1, "another chat");
        assert_eq!(buckets.held("a", "1", 0), Duration::from_secs(16));
        buckets.record_accepted("a", "1");
        assert_eq!(buckets.hold_unnamed("a", "1", 0), Duration::from_secs(1));
    }

    #[test]
    fn only_requests_above_the_burst_wait_and_the_longest_delay_applies() {
        let rates = RateLimits {
            account_per_minute: 1200,
            chat_per_minute: 60,
        };
        let mut buckets = RateBuckets::default();
        let mut waits = (0..7).map(|_| buckets.reserve("a", "1", rates, Duration::ZERO, 0));
        let waits: Vec<_> = waits.by_ref().map(|wait| wait.as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2]);
        buckets.hold("a", "1", Duration::from_secs(90), 1_000);
        buckets.hold("a", "1", Duration::from_secs(10), 1_000);
        assert_eq!(buckets.held("a", "1", 1_000), Duration::from_secs(90));
        assert_eq!(buckets.held("a", "1", 91_000), Duration::ZERO);
        assert_eq!(buckets.held("a", "2", 1_000), Duration::ZERO);
    }
}
