//! Delays between two reads of a state that another replica may change.

use std::time::Duration;

/// The first delay: a small file is often delivered within it.
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// The longest delay: a change is noticed at most this much later.
const MAX_DELAY: Duration = Duration::from_millis(200);

/// Delays that double from 10 ms to 200 ms: an early change is noticed early, and a long wait costs five reads per
/// second.
#[derive(Debug)]
pub(crate) struct PollDelay {
    next: Duration,
}

impl PollDelay {
    pub(crate) const fn new() -> Self {
        Self { next: FIRST_DELAY }
    }

    /// The delay before the next read.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(MAX_DELAY);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::PollDelay;

    #[test]
    fn delays_double_up_to_a_fifth_of_a_second() {
        let mut delay = PollDelay::new();
        let delays: Vec<_> = (0..7).map(|_| delay.next_delay().as_millis()).collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 200, 200]);
    }
}
