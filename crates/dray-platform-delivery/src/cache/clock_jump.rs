//! Detects jumps of the wall clock, after which all objects seem too old or too young. After a jump, no object is
//! removed until running deliveries have had time to end.

use dray_types::whole_millis;
use std::time::Duration;

use tokio::time::Instant;

use super::plan::PROTECTED_MS;

/// Largest difference between the two clocks that does not count as a jump, in milliseconds.
const MAX_CLOCK_DIFFERENCE_MS: u64 = 60_000;

/// Compares the wall clock with the monotonic clock of the process.
#[derive(Debug, Default)]
pub(super) struct ClockJumpDetector {
    last: Option<(Instant, u64)>,
    quiet_until: Option<Instant>,
}

impl ClockJumpDetector {
    /// Whether the wall clock can be trusted now. Call it before each sweep.
    pub(super) fn may_sweep(&mut self, now: Instant, wall_ms: u64) -> bool {
        if let Some((last_instant, last_wall_ms)) = self.last.replace((now, wall_ms)) {
            let passed_ms = whole_millis(now.saturating_duration_since(last_instant));
            // Jumps in both directions count, because a clock that was set back may be set forward again.
            if wall_ms.abs_diff(last_wall_ms.saturating_add(passed_ms)) > MAX_CLOCK_DIFFERENCE_MS {
                tracing::warn!("the clock jumped: the cache is not swept for a while");
                self.quiet_until = Some(now + Duration::from_millis(PROTECTED_MS));
            }
        }
        self.quiet_until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    fn sweeps(steps: &[(u64, u64)]) -> Vec<bool> {
        let begin = Instant::now();
        let mut jumps = ClockJumpDetector::default();
        let at = |minutes: u64| begin + Duration::from_millis(minutes * MINUTE_MS);
        steps
            .iter()
            .map(|(minute, wall)| jumps.may_sweep(at(*minute), wall * MINUTE_MS))
            .collect()
    }

    #[test]
    fn clocks_that_agree_allow_sweeps() {
        assert_eq!(sweeps(&[(0, 100), (5, 105), (10, 110)]), [true; 3]);
    }

    #[test]
    fn after_a_jump_nothing_is_removed_for_a_quarter_of_an_hour() {
        for jumped in [900, 5] {
            let steps = [
                (0, 100),
                (5, jumped),
                (10, jumped + 5),
                (19, jumped + 14),
                (20, jumped + 15),
            ];
            assert_eq!(
                sweeps(&steps),
                [true, false, false, false, true],
                "{jumped}"
            );
        }
    }
}
