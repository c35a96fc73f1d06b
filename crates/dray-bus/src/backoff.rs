//! The retry policy of calls: waits with jitter, so that callers that failed together do not return together
//! (thundering herd), and a limit on the retries of a dependency (retry budget).

use std::collections::VecDeque;
use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

/// A uniformly random time between both bounds.
pub(crate) fn random_between(from: Duration, to: Duration) -> Duration {
    draw_between(from, to, &mut rand::rng())
}

fn draw_between(from: Duration, to: Duration, random: &mut impl Rng) -> Duration {
    random.random_range(from..=to.max(from))
}

/// Full jitter below a bound that doubles with every use.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
    ceiling: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, ceiling: Duration) -> Self {
        Self {
            bound: first,
            ceiling,
        }
    }

    /// The next delay: between 10 ms and the bound, which doubles afterwards up to the ceiling.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = random_between(MIN_DELAY, self.bound);
        self.bound = (self.bound * 2).min(self.ceiling);
        delay
    }
}

/// Shortest delay, so that a jitter near zero does not cause a retry without a pause.
const MIN_DELAY: Duration = Duration::from_millis(10);

/// The delay before attempt `attempt + 1` of work: at most `min(30 s, 1 s × 2^(attempt − 1))`, full jitter
/// (messaging-reliability 8).
pub fn work_delay(attempt: u32, random: &mut impl Rng) -> Duration {
    const MAX_DELAY: Duration = Duration::from_secs(30);
    // Five doublings of a second pass the bound already; more would overflow the shift.
    let doublings = attempt.saturating_sub(1).min(5);
    let bound = Duration::from_secs(1 << doublings).min(MAX_DELAY);
    draw_between(MIN_DELAY, bound, random)
}

/// The delay of work that is parked for the `parked`-th time because a dependency is unavailable: between 50 % and 100
/// % of `min(10 s, 0.5 s × 2^(parked − 1))`. It is short, because it delays the recovery.
pub fn park_delay(parked: u64, random: &mut impl Rng) -> Duration {
    const FIRST_DELAY: Duration = Duration::from_millis(500);
    const MAX_DELAY: Duration = Duration::from_secs(10);
    let doublings = u32::try_from(parked.saturating_sub(1).min(5)).unwrap_or(5);
    let bound = (FIRST_DELAY * (1 << doublings)).min(MAX_DELAY);
    // The minimum is not zero: parked deliveries are not counted as attempts, so only this delay limits their rate.
    draw_between(bound / 2, bound, random)
}

/// Retries are at most a fifth of the requests of the last minute (messaging-reliability 8).
///
/// Ten retries a minute are always free: a caller of few requests needs them to survive a rolling
/// update of its responder.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    requests: VecDeque<Instant>,
    retries: VecDeque<Instant>,
}

impl RetryBudget {
    const BUDGET_WINDOW: Duration = Duration::from_mins(1);
    const FREE_RETRIES: usize = 10;
    /// Requests that are remembered; above it the share is exact enough.
    const MAX_REMEMBERED_REQUESTS: usize = 10_000;

    /// Records the first attempt of a request.
    pub(crate) fn record_request(&mut self) {
        self.drop_old_entries();
        if self.requests.len() >= Self::MAX_REMEMBERED_REQUESTS {
            // Dropping the oldest request can only make the budget smaller.
            self.requests.pop_front();
        }
        self.requests.push_back(Instant::now());
    }

    /// Takes a retry from the budget; `false` if the budget is exhausted.
    pub(crate) fn take_retry(&mut self) -> bool {
        self.drop_old_entries();
        let allowed = (self.requests.len() / 5).max(Self::FREE_RETRIES);
        if self.retries.len() >= allowed {
            return false;
        }
        self.retries.push_back(Instant::now());
        true
    }

    fn drop_old_entries(&mut self) {
        for times in [&mut self.requests, &mut self.retries] {
            while times
                .front()
                .is_some_and(|time| time.elapsed() >= Self::BUDGET_WINDOW)
            {
                times.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_longer_after_each_attempt_and_never_over_half_a_minute() {
        for (attempt, bound) in [(0, 1), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (99, 30)] {
            for _ in 0..50 {
                assert!(
                    work_delay(attempt, &mut rand::rng()) <= Duration::from_secs(bound),
                    "{attempt}"
                );
            }
        }
    }

    #[test]
    fn parked_work_is_redelivered_within_ten_seconds_but_not_immediately() {
        for (parked, bound) in [(0, 500), (1, 500), (2, 1_000), (5, 8_000), (900, 10_000)] {
            let bound = Duration::from_millis(bound);
            for _ in 0..50 {
                let delay = park_delay(parked, &mut rand::rng());
                assert!(delay >= bound / 2 && delay <= bound, "{parked}: {delay:?}");
            }
        }
    }

    #[test]
    fn backoff_doubles_up_to_its_ceiling() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(120));
        for bound in [50, 100, 120, 120] {
            assert!(backoff.next_delay() <= Duration::from_millis(bound));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retries_are_a_fifth_of_the_requests_of_a_minute() {
        let mut budget = RetryBudget::default();
        for _ in 0..100 {
            budget.record_request();
        }
        let granted = (0..100).filter(|_| budget.take_retry()).count();
        assert_eq!(granted, 20);
        tokio::time::advance(RetryBudget::BUDGET_WINDOW).await;
        let granted = (0..100).filter(|_| budget.take_retry()).count();
        assert_eq!(granted, RetryBudget::FREE_RETRIES);
    }
}
