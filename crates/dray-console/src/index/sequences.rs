//! Sequences of the audit stream by the minute, so that a reader of the last hour does not begin with the oldest event.

use std::collections::BTreeMap;

const MINUTE_MS: u64 = 60_000;
/// Minutes that are kept: more than a month in which every minute has an event.
const MAX_MINUTES: usize = 50_000;

/// The first event of each minute.
#[derive(Debug, Default)]
pub(super) struct MinuteSequences {
    /// Sequence of the first event, by minutes since the start of 1970.
    first: BTreeMap<u64, u64>,
    /// Sequence of the newest event; 0 before any.
    last: u64,
}

impl MinuteSequences {
    /// Notes an event that was read.
    pub(super) fn note(&mut self, time_ms: u64, sequence: u64) {
        // A recreated stream begins with small numbers. The numbers of the old stream would skip its events.
        if sequence <= self.last {
            self.first.clear();
        }
        self.last = sequence;
        self.first.entry(time_ms / MINUTE_MS).or_insert(sequence);
        if self.first.len() > MAX_MINUTES {
            self.first.pop_first();
        }
    }

    /// The latest known sequence from which all events since this time can be read.
    pub(super) fn start_of(&self, since_ms: u64) -> u64 {
        let minute = since_ms / MINUTE_MS;
        // Earlier minutes may have been removed.
        if self.first.range(..minute).next().is_none() {
            return 1;
        }
        // The smallest, because the clock of a server may have been set back.
        let start = self.first.range(minute..).map(|(_, first)| *first).min();
        start.unwrap_or(self.last).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_with_the_first_event_of_its_minute() {
        let mut sequences = MinuteSequences::default();
        assert_eq!(sequences.start_of(0), 1);
        for (minute, sequence) in [(10, 5), (10, 6), (12, 7), (11, 9), (15, 20)] {
            sequences.note(minute * MINUTE_MS + 1, sequence);
        }
        for (minute, start) in [
            (9, 1),
            (10, 1),
            (11, 7),
            (12, 7),
            (13, 20),
            (15, 20),
            (16, 20),
        ] {
            assert_eq!(sequences.start_of(minute * MINUTE_MS), start, "{minute}");
        }
    }

    #[test]
    fn sequences_of_a_lost_stream_are_dropped() {
        let mut sequences = MinuteSequences::default();
        for (minute, sequence) in [(10, 500), (11, 600), (12, 1), (13, 2)] {
            sequences.note(minute * MINUTE_MS, sequence);
        }
        assert_eq!(sequences.start_of(11 * MINUTE_MS), 1);
        assert_eq!(sequences.start_of(13 * MINUTE_MS), 2);
        assert_eq!(sequences.start_of(14 * MINUTE_MS), 2);
    }

    #[test]
    fn a_window_before_the_kept_minutes_begins_with_the_stream() {
        let mut sequences = MinuteSequences::default();
        let minutes = MAX_MINUTES as u64 + 10;
        for minute in 0..minutes {
            sequences.note(minute * MINUTE_MS, minute + 1);
        }
        assert_eq!(sequences.first.len(), MAX_MINUTES);
        assert_eq!(sequences.start_of(5 * MINUTE_MS), 1);
        assert_eq!(sequences.start_of((minutes - 1) * MINUTE_MS), minutes);
    }
}
