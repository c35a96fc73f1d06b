//! Computes how long the server keeps a returned message, one that was pulled but can neither start nor be held.
//!
//! Returned messages are redelivered about twice as fast as the loop completes work, so that it always has work, and at
//! least every 10 s.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::random_between;

const MIN_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(10);
/// Longest delay of the first return of a message; each further one may take twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Added for each delivery, so that no message reaches the delivery limit of its consumer before its deadline.
const DELAY_PER_DELIVERY: Duration = Duration::from_millis(100);
/// Time over which ended work is counted.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Ratio of the redelivery rate to the rate at which work ends.
const SUPPLY_FACTOR: f64 = 2.0;

/// Messages that one loop returned, and work that it ended, within the last seconds.
#[derive(Debug, Default)]
pub(super) struct ReturnDelays {
    /// When the returned messages are due for redelivery.
    due: BinaryHeap<Reverse<Instant>>,
    ended: VecDeque<Instant>,
}

impl ReturnDelays {
    /// Records that work ended.
    pub(super) fn work_ended(&mut self, now: Instant) {
        self.ended.push_back(now);
        self.drop_past_entries(now);
    }

    /// The delay of a message that was handed out `delivered` times and has `remaining` until its deadline.
    pub(super) fn next_delay(
        &mut self,
        delivered: u64,
        remaining: Duration,
        now: Instant,
    ) -> Duration {
        self.drop_past_entries(now);
        let half = remaining / 2;
        // Half of the remaining time, so that there is time for the work after the redelivery. If that is too short,
        // the message waits like the others: short delays until it expires would use up its deliveries.
        let longest = if half < MIN_DELAY { MAX_DELAY } else { half };
        let bound = self
            .supply_delay()
            .min(growing_delay(delivered))
            .max(floor_delay(delivered))
            .min(longest)
            .clamp(MIN_DELAY, MAX_DELAY);
        let delay = random_between(bound / 2, bound);
        self.due.push(Reverse(now + delay));
        delay
    }

    /// The delay at which all returned messages together are redelivered at the intended rate.
    fn supply_delay(&self) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "counts of thousands at most")]
        let (returned, ended) = ((self.due.len() + 1) as f64, self.ended.len() as f64);
        let rate = SUPPLY_FACTOR * ended / RATE_WINDOW.as_secs_f64();
        Duration::try_from_secs_f64(returned / rate).unwrap_or(MAX_DELAY)
    }

    fn drop_past_entries(&mut self, now: Instant) {
        while self.due.peek().is_some_and(|due| due.0 <= now) {
            self.due.pop();
        }
        while self
            .ended
            .front()
            .is_some_and(|time| now.duration_since(*time) > RATE_WINDOW)
        {
            self.ended.pop_front();
        }
    }
}

fn growing_delay(delivered: u64) -> Duration {
    // Five doublings pass the limit; more would overflow the shift.
    let doublings = u32::try_from(delivered.saturating_sub(1).min(5)).unwrap_or(5);
    FIRST_DELAY * (1 << doublings)
}

fn floor_delay(delivered: u64) -> Duration {
    DELAY_PER_DELIVERY * u32::try_from(delivered.min(100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_DELAY: Duration = Duration::from_hours(1);

    #[tokio::test(start_paused = true)]
    async fn returned_messages_are_redelivered_at_least_as_fast_as_work_ends() {
        let mut delays = ReturnDelays::default();
        let now = Instant::now();
        for _ in 0..100 {
            delays.work_ended(now);
        }
        // 20 ended within a second, so 40 returned messages per second are redelivered.
        let longest = (0..200)
            .map(|_| delays.next_delay(6, LONG_DELAY, now))
            .max()
            .unwrap();
        assert!(longest >= Duration::from_millis(2_500), "{longest:?}");
        assert!(longest <= Duration::from_millis(5_025), "{longest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_does_not_reach_the_delivery_limit_of_its_consumer_within_an_hour() {
        let mut delays = ReturnDelays::default();
        let started = Instant::now();
        let mut now = started;
        let mut delivered = 0;
        while now.duration_since(started) < LONG_DELAY {
            delivered += 1;
            // The loop ends so much work that the supply alone would result in the shortest delay.
            for _ in 0..1_000 {
                delays.work_ended(now);
            }
            now += delays.next_delay(delivered, LONG_DELAY, now);
        }
        assert!(delivered < 900, "{delivered}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_delays_grow_to_their_limit_while_no_work_ends() {
        let mut delays = ReturnDelays::default();
        let now = Instant::now();
        let mut bounds = Vec::new();
        for delivered in 1..10 {
            bounds.push(delays.next_delay(delivered, LONG_DELAY, now));
        }
        assert!(bounds[0] <= FIRST_DELAY, "{bounds:?}");
        assert!(bounds[8] >= MAX_DELAY / 2, "{bounds:?}");
        assert!(bounds.iter().all(|delay| *delay <= MAX_DELAY), "{bounds:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_redelivered_before_its_deadline() {
        let mut delays = ReturnDelays::default();
        let remaining = Duration::from_secs(2);
        let delay = delays.next_delay(9, remaining, Instant::now());
        assert!(delay <= remaining / 2, "{delay:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn redelivered_messages_and_old_ends_are_forgotten() {
        let mut delays = ReturnDelays::default();
        let now = Instant::now();
        delays.work_ended(now);
        delays.next_delay(1, LONG_DELAY, now);
        delays.drop_past_entries(now + RATE_WINDOW + MAX_DELAY);
        assert!(delays.due.is_empty() && delays.ended.is_empty());
    }
}
