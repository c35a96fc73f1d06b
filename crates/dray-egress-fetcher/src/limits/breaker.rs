//! Refuses a dead host for a while instead of waiting for it again and again (egress-security 15).
//!
//! Counts per host and port, so that a closed port does not shut out the rest of a host. Only failures of a target
//! that was allowed are reported to it, so it reveals nothing about refused ones (I-8).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that open the breaker.
const FAILURE_THRESHOLD: usize = 5;
/// Time within which they must happen.
const FAILURE_WINDOW: Duration = Duration::from_mins(1);
/// Time for which an open breaker refuses.
const OPEN_DURATION: Duration = Duration::from_secs(30);
/// Most entries that are kept. Beyond that, entries that no longer matter are removed first, then the oldest ones.
const MAX_ENTRIES: usize = 4096;

/// Consecutive failures, by host and port. Clones share them.
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

    fn matters(&self, now: Instant) -> bool {
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
    /// Whether `target` is refused at the moment.
    pub fn is_open(&self, target: &str) -> bool {
        let now = Instant::now();
        self.lock()
            .get(target)
            .and_then(|record| record.open_until)
            .is_some_and(|until| now < until)
    }

    /// A connection failed, or a phase timed out.
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
        // An open time that is over starts a new count.
        if !record.matters(now) {
            *record = HostFailures::new(now);
        }
        record.failed(now);
    }

    /// A response arrived, and its body to the end if it was wanted.
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

/// Removes entries that no longer matter. If all of them do, the oldest closed one is removed, or else the oldest open
/// one.
fn make_room(hosts: &mut HashMap<String, HostFailures>, now: Instant) {
    hosts.retain(|_, record| record.matters(now));
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
        assert!(!breaker.is_open("a:80"), "counting began anew");
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
        for at in [0, 50, 55, 58, 61, 62] {
            assert!(!breaker.is_open("a:80"), "before {at} s");
            advance(Duration::from_secs(at - now)).await;
            now = at;
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
        assert!(hosts.contains_key("dead:80"), "what is open stays");
        assert!(hosts.contains_key(&format!("host-{}:80", MAX_ENTRIES + 9)));
        assert!(!hosts.contains_key("host-0:80"), "the oldest went");
    }

    #[tokio::test(start_paused = true)]
    async fn entries_are_bounded_once_they_no_longer_matter() {
        let breaker = CircuitBreaker::default();
        for index in 0..MAX_ENTRIES {
            breaker.failed(&format!("host-{index}:80"));
        }
        advance(FAILURE_WINDOW).await;
        breaker.failed("one-more:80");
        assert_eq!(breaker.lock().len(), 1);
    }
}
