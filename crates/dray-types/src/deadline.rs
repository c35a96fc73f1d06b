//! Absolute instants after which a response is no longer wanted.

use std::time::Duration;

use crate::period::whole_millis;

/// An absolute instant in Unix milliseconds, carried in `Dray-Deadline` and passed on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// The deadline at this Unix time in milliseconds; it may lie in the past.
    pub const fn from_unix_ms(unix_ms: u64) -> Self {
        Self(unix_ms)
    }

    /// The deadline `after` from `now_ms` (Unix milliseconds).
    pub fn after(now_ms: u64, after: Duration) -> Self {
        // The sum saturates: a duration of centuries means no limit and must not wrap into the past.
        Self(now_ms.saturating_add(whole_millis(after)))
    }

    /// The instant in Unix milliseconds.
    pub const fn unix_ms(self) -> u64 {
        self.0
    }

    /// Time left at `now_ms`; zero after the deadline.
    pub const fn remaining(self, now_ms: u64) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now_ms))
    }

    /// Whether the instant has passed at `now_ms`.
    pub const fn has_passed(self, now_ms: u64) -> bool {
        // Equality counts as expired: the remaining time is zero at that instant.
        now_ms >= self.0
    }

    /// The same deadline moved `by` earlier: the deadline that a responder sets for its own work (messaging-reliability
    /// C-3).
    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(whole_millis(by)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_never_goes_below_zero() {
        let deadline = Deadline::after(1_000, Duration::from_millis(500));
        assert_eq!(deadline.remaining(1_200), Duration::from_millis(300));
        assert_eq!(deadline.remaining(9_000), Duration::ZERO);
        assert!(deadline.has_passed(1_500));
        assert!(!deadline.has_passed(1_499));
    }
}
