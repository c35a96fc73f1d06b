//! Counts by the minute, for the charts of the last hour.

use std::collections::VecDeque;

use super::row::{EventRow, RowOutcome};

/// Minutes that are kept and shown.
pub(crate) const MINUTES_SHOWN: u64 = 60;
/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// Number of latency buckets. Bucket n counts durations below 2^n ms; longer ones than the last bound count into the
/// last bucket.
const LATENCY_BUCKETS: usize = 22;

/// Counts of the events of one minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MinuteCounts {
    /// Minutes since the start of 1970 (Unix time divided by 60 s).
    pub(crate) minute: u64,
    /// Events, without reports of progress.
    pub(crate) events: u64,
    /// Events that were refused or failed.
    pub(crate) failures: u64,
    /// Number of durations in each bucket; see [`LATENCY_BUCKETS`].
    pub(crate) latencies: [u32; LATENCY_BUCKETS],
}

impl MinuteCounts {
    fn count(&mut self, row: &EventRow) {
        self.events += 1;
        self.failures += u64::from(matches!(
            row.outcome,
            RowOutcome::Failed | RowOutcome::Refused
        ));
        if let Some(duration_ms) = row.duration_ms {
            // The bounds are powers of two: 22 counters cover a millisecond to half an hour, and a minute stays small.
            let bits = u64::BITS - duration_ms.leading_zeros();
            let bucket = usize::try_from(bits).unwrap_or(0).min(LATENCY_BUCKETS - 1);
            if let Some(count) = self.latencies.get_mut(bucket) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// An upper bound, in milliseconds, of the duration that `percent` of the operations did not exceed; `None` where
    /// no event had a duration.
    pub(crate) fn latency_bound_ms(&self, percent: u64) -> Option<u64> {
        let total: u64 = self.latencies.iter().map(|count| u64::from(*count)).sum();
        let rank = (total * percent).div_ceil(100).max(1);
        let mut cumulative = 0;
        for (bits, count) in self.latencies.iter().enumerate() {
            cumulative += u64::from(*count);
            if cumulative >= rank {
                // The bucket of n bits is for durations below 2^n.
                return Some((1_u64 << bits) - 1);
            }
        }
        None
    }
}

/// The minutes of the last hour that had events.
#[derive(Debug, Default)]
pub(crate) struct MinuteSeries(VecDeque<MinuteCounts>);

impl MinuteSeries {
    /// Counts a row into the minute of its time. Rows of the two streams arrive slightly out of order. A row that is
    /// more than an hour older than the newest one is not counted.
    pub(crate) fn count(&mut self, row: &EventRow) {
        if row.outcome == RowOutcome::Working {
            return;
        }
        // The time of the stream, not of this machine: after a start, the events of the last hour are read from the
        // stream again.
        let minute = row.time_ms / MINUTE_MS;
        let newest = self.0.back().map_or(minute, |last| last.minute.max(minute));
        let oldest = (newest + 1).saturating_sub(MINUTES_SHOWN);
        self.0.retain(|counts| counts.minute >= oldest);
        if minute < oldest {
            return;
        }
        // There are at most 60 entries, so an insertion in the middle is cheap.
        let position = self.0.partition_point(|counts| counts.minute < minute);
        if self
            .0
            .get(position)
            .is_none_or(|counts| counts.minute != minute)
        {
            let counts = MinuteCounts {
                minute,
                ..MinuteCounts::default()
            };
            self.0.insert(position, counts);
        }
        if let Some(counts) = self.0.get_mut(position) {
            counts.count(row);
        }
    }

    /// Every minute of the hour before `now_ms`, oldest first; a minute without events has zeros.
    pub(crate) fn last_hour(&self, now_ms: u64) -> Vec<MinuteCounts> {
        let newest = now_ms / MINUTE_MS;
        let oldest = (newest + 1).saturating_sub(MINUTES_SHOWN);
        let counts_of = |minute| {
            let found = self.0.iter().find(|counts| counts.minute == minute);
            found.cloned().unwrap_or(MinuteCounts {
                minute,
                ..MinuteCounts::default()
            })
        };
        (oldest..=newest).map(counts_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(minute: u64, outcome: RowOutcome, duration_ms: Option<u64>) -> EventRow {
        EventRow {
            time_ms: minute * MINUTE_MS + 5,
            outcome,
            duration_ms,
            ..EventRow::default()
        }
    }

    #[test]
    fn minutes_are_counted_in_any_order_and_removed_after_an_hour() {
        let mut series = MinuteSeries::default();
        series.count(&row(1_000, RowOutcome::Done, None));
        series.count(&row(1_002, RowOutcome::Failed, None));
        series.count(&row(1_001, RowOutcome::Refused, None));
        series.count(&row(1_001, RowOutcome::Working, None));
        let hour = series.last_hour(1_002 * MINUTE_MS);
        assert_eq!(hour.len(), 60);
        let last: Vec<_> = hour.iter().rev().take(4).collect();
        let counts: Vec<_> = last
            .iter()
            .map(|counts| (counts.minute, counts.events, counts.failures))
            .collect();
        assert_eq!(
            counts,
            [(1_002, 1, 1), (1_001, 1, 1), (1_000, 1, 0), (999, 0, 0)]
        );
        series.count(&row(1_061, RowOutcome::Done, None));
        series.count(&row(1_000, RowOutcome::Done, None));
        assert_eq!(series.0.len(), 2, "{series:?}");
    }

    #[test]
    fn the_latency_of_a_share_of_operations_is_an_upper_bound() {
        let mut counts = MinuteCounts::default();
        assert_eq!(counts.latency_bound_ms(50), None);
        for duration_ms in [0, 3, 3, 100, 5_000] {
            counts.count(&row(0, RowOutcome::Done, Some(duration_ms)));
        }
        assert_eq!(counts.latency_bound_ms(50), Some(3));
        assert_eq!(counts.latency_bound_ms(80), Some(127));
        assert_eq!(counts.latency_bound_ms(95), Some(8_191));
        counts.count(&row(0, RowOutcome::Done, Some(u64::MAX)));
        assert_eq!(counts.latency_bound_ms(100), Some((1 << 21) - 1));
    }
}
