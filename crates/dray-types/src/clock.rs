//! The only place that reads the wall clock, so that tests can set the time for all other code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::period::whole_millis;

/// Wall-clock time as a value, so that tests can move it.
///
/// Cheap to clone. Clones of a manual clock move together.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    manual: Option<Arc<ManualTime>>,
}

/// The times of a manual clock, in milliseconds.
#[derive(Debug)]
struct ManualTime {
    wall_ms: AtomicU64,
    elapsed_ms: AtomicU64,
}

/// An instant of this process, of which [`Clock::age`] gives the age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark {
    wall_ms: u64,
    monotonic: MonotonicTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MonotonicTime {
    System(Instant),
    Manual(u64),
}

impl Clock {
    /// The clock of the machine, which may jump when it is set.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that is at `unix_ms` until it is set.
    pub fn manual(unix_ms: u64) -> Self {
        Self {
            manual: Some(Arc::new(ManualTime {
                wall_ms: AtomicU64::new(unix_ms),
                elapsed_ms: AtomicU64::new(0),
            })),
        }
    }

    /// Milliseconds since the Unix epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else uses"
    )]
    pub fn now_ms(&self) -> u64 {
        match &self.manual {
            Some(manual) => manual.wall_ms.load(Ordering::SeqCst),
            None => SystemTime::now()
                // A clock before 1970 reads as zero: deadlines are then far in the future, and no call fails because of
                // the clock.
                .duration_since(UNIX_EPOCH)
                .map_or(0, whole_millis),
        }
    }

    /// The present instant, for an age within this process.
    pub fn mark(&self) -> TimeMark {
        TimeMark {
            wall_ms: self.now_ms(),
            monotonic: match &self.manual {
                Some(manual) => MonotonicTime::Manual(manual.elapsed_ms.load(Ordering::SeqCst)),
                None => MonotonicTime::System(Instant::now()),
            },
        }
    }

    /// Time since a mark of this clock. It grows also after the wall clock was set back, and includes the time for which
    /// the machine slept: it is the longer one of the ages by the wall clock and by the monotonic clock.
    pub fn age(&self, mark: TimeMark) -> Duration {
        let now = self.mark();
        let wall = Duration::from_millis(now.wall_ms.saturating_sub(mark.wall_ms));
        let monotonic = match (now.monotonic, mark.monotonic) {
            (MonotonicTime::System(now), MonotonicTime::System(then)) => {
                now.saturating_duration_since(then)
            }
            (MonotonicTime::Manual(now), MonotonicTime::Manual(then)) => {
                Duration::from_millis(now.saturating_sub(then))
            }
            // The mark is of another clock.
            _ => Duration::ZERO,
        };
        wall.max(monotonic)
    }

    /// Moves a manual clock forward; the system clock cannot be moved and stays as it is.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.manual {
            manual.wall_ms.fetch_add(whole_millis(by), Ordering::SeqCst);
            manual
                .elapsed_ms
                .fetch_add(whole_millis(by), Ordering::SeqCst);
        }
    }

    /// Sets the wall-clock time of a manual clock, as a person or NTP does; ages of marks go on.
    pub fn set(&self, unix_ms: u64) {
        if let Some(manual) = &self.manual {
            manual.wall_ms.store(unix_ms, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_grows_after_the_clock_was_set_back_and_jumps_with_it_forward() {
        let clock = Clock::manual(10_000_000);
        let mark = clock.mark();
        clock.set(1_000_000);
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.age(mark), Duration::from_secs(5));
        clock.set(10_060_000);
        assert_eq!(clock.age(mark), Duration::from_mins(1));
    }
}
