//! A circuit breaker: refuses a host for a while after failures in a row (egress-security 15).
//!
//! A target is a host and port, so that a closed port does not block the rest of a host, and for responses that do not
//! arrive also a tenant. Only failures of allowed targets are reported to it, so it reveals nothing about refused ones
//! (I-8).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Consecutive failures that open the breaker.
const FAILURE_THRESHOLD: usize = 5;
/// Time within which these failures must happen.
const FAILURE_WINDOW: Duration = Duration::from_mins(1);
/// Time for which an open breaker refuses.
const OPEN_DURATION: Duration = Duration::from_secs(30);
/// Most entries that are stored. When there are more, expired entries are removed first, then the oldest ones.
const MAX_ENTRIES: usize = 4096;

/// Consecutive failures, by target. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CircuitBreaker {
    hosts: Arc<Mutex<HashMap<String, HostFailures>>>,
}

#[derive(Clone, Debug)]
struct HostFailures {
    /// The last failures in a row, at most [`FAILURE_THRESHOLD`], oldest first.
    failures: VecDeque<Instant>,
    last: Instant,
    open_until: Option<Instant>,
}

impl HostFailures {
    fn new(now: Instant) -> Self {
        Self {
            failures: VecDeque::with_capacity(FAILURE_THRESHOLD),
            last: now,
            open_until: None,
        }
    }

    /// Whether the entry can still refuse its target, or contribute to that.
    fn is_relevant(&self, now: Instant) -> bool {
        match self.open_until {
            Some(until) => now < until,
            None => now < self.last + FAILURE_WINDOW,
        }
    }

    fn failed(&mut self, now: Instant) {
        self.last = now;
        self.failures.push_back(now);
        // Failures older than the window do not count, even if nothing succeeded since.
        while self.failures.len() > FAILURE_THRESHOLD
            || self
                .failures
                .front()
                .is_some_and(|first| now >= *first + FAILURE_WINDOW)
        {
            self.failures.pop_front();
        }
        if self.failures.len() == FAILURE_THRESHOLD && self.open_until.is_none() {
            self.open_until = Some(now + OPEN_DURATION);
        }
    }
}

impl CircuitBreaker {
    /// Whether `target` is refused now.
    pub fn is_open(&self, target: &str) -> bool {
        let now = Instant::now();
        self.lock()
            .get(target)
            .and_then(|record| record.open_until)
            .is_some_and(|until| now < until)
    }

    /// Counts a failed connection, or a phase that timed out.
    pub fn failed(&self, target: &str) {
        let now = Instant::now();
        let mut hosts = self.lock();
        // Targets are named by agents, so their number has to be bounded.
        if hosts.len() >= MAX_ENTRIES && !hosts.contains_key(target) {
            make_room(&mut hosts, now);
        }
        let record = hosts
            .entry(target.to_owned())
            .or_insert_with(|| HostFailures::new(now));
        // After the end of an open breaker the count starts again.
        if !record.is_relevant(now) {
            *record = HostFailures::new(now);
        }
        record.failed(now);
    }

    /// Clears the failures of `target`: a response arrived, with its whole body if that was received.
    pub fn succeeded(&self, target: &str) {
        // Failures have to be consecutive, so one success clears them.
        self.lock().remove(target);
    }

    /// Number of targets that are refused now.
    pub fn open(&self) -> usize {
        let now = Instant::now();
        self.lock()
            .values()
            .filter(|record| record.open_until.is_some_and(|until| now < until))
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HostFailures>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes expired entries. If there are none, the oldest closed entry is removed, or else the oldest open one.
fn make_room(hosts: &mut HashMap<String, HostFailures>, now: Instant) {
    hosts.retain(|_, record| record.is_relevant(now));
    if hosts.len() < MAX_ENTRIES {
        return;
    }
    let oldest = hosts
        .iter()
        .min_by_key(|(_, record)| (record.open_until.is_some(), record.last))
        .map(|(target, _)| target.clone());
    if let Some(oldest) = oldest {
        hosts.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_failures_within_a_minute_open_it_for_thirty_seconds() {
        let breaker = CircuitBreaker::default();
        for _ in 0..4 {
            breaker.failed("a:80");
        }
        assert!(!breaker.is_open("a:80"));
        breaker.failed("a:80");
        assert!(breaker.is_open("a:80"));
        assert!(!breaker.is_open("b:80"));
        assert_eq!(breaker.open(), 1);
        advance(OPEN_DURATION).await;
        assert!(!breaker.is_open("a:80"));
        breaker.failed("a:80");
        assert!(!breaker.is_open("a:80"), "the count starts again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_or_a_minute_between_starts_the_count_again() {
        let breaker = CircuitBreaker::default();
        for _ in 0..4 {
            breaker.failed("a:80");
        }
        breaker.succeeded("a:80");
        breaker.failed("a:80");
        assert!(!breaker.is_open("a:80"));
        for _ in 0..3 {
            breaker.failed("a:80");
        }
        advance(FAILURE_WINDOW).await;
        breaker.failed("a:80");
        assert!(!breaker.is_open("a:80"));
    }

    #[tokio::test(start_paused = true)]
    async fn section_15_any_five_failures_within_a_minute_open_it() {
        let breaker = CircuitBreaker::default();
        let mut now = 0;
        for second in [0, 50, 55, 58, 61, 62] {
            assert!(!breaker.is_open("a:80"), "before {second} s");
            advance(Duration::from_secs(second - now)).await;
            now = second;
            breaker.failed("a:80");
        }
        assert!(breaker.is_open("a:80"));
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_bounded_for_any_number_of_failing_names() {
        let breaker = CircuitBreaker::default();
        for _ in 0..FAILURE_THRESHOLD {
            breaker.failed("dead:80");
        }
        for index in 0..MAX_ENTRIES + 10 {
            advance(Duration::from_millis(1)).await;
            breaker.failed(&format!("host-{index}:80"));
        }
        let hosts = breaker.lock();
        assert_eq!(hosts.len(), MAX_ENTRIES);
        assert!(hosts.contains_key("dead:80"), "an open breaker stays");
        assert!(hosts.contains_key(&format!("host-{}:80", MAX_ENTRIES + 9)));
        assert!(
            !hosts.contains_key("host-0:80"),
            "the oldest entry is removed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn expired_entries_are_removed_when_there_are_too_many() {
        let breaker = CircuitBreaker::default();
        for index in 0..MAX_ENTRIES {
            breaker.failed(&format!("host-{index}:80"));
        }
        advance(FAILURE_WINDOW).await;
        breaker.failed("one-more:80");
        assert_eq!(breaker.lock().len(), 1);
    }
}
