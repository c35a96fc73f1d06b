//! Counters and percentiles of a run.

use std::time::Duration;

use serde::Serialize;

/// A kind of request that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; docs/scale.md has a table")]
pub enum RequestKind {
    Publish,
    Pull,
    Message,
    LedgerRead,
    LedgerWrite,
    RecordRead,
    RecordWrite,
    ChatLease,
    ChatOrder,
    IndexRead,
    Acknowledge,
    Heartbeat,
    Sweeper,
    Monitoring,
    StoreWrite,
    StoreRead,
}

impl RequestKind {
    /// Every kind, in the order of the report.
    pub const ALL: [Self; 16] = [
        Self::Publish,
        Self::Pull,
        Self::Message,
        Self::LedgerRead,
        Self::LedgerWrite,
        Self::RecordRead,
        Self::RecordWrite,
        Self::ChatLease,
        Self::ChatOrder,
        Self::IndexRead,
        Self::Acknowledge,
        Self::Heartbeat,
        Self::Sweeper,
        Self::Monitoring,
        Self::StoreWrite,
        Self::StoreRead,
    ];

    /// Whether the object store gets it, and not the bus.
    pub const fn is_store(self) -> bool {
        matches!(self, Self::StoreWrite | Self::StoreRead)
    }

    /// Name in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Pull => "pull",
            Self::Message => "message",
            Self::LedgerRead => "ledger_read",
            Self::LedgerWrite => "ledger_write",
            Self::RecordRead => "record_read",
            Self::RecordWrite => "record_write",
            Self::ChatLease => "chat_lease",
            Self::ChatOrder => "chat_order",
            Self::IndexRead => "index_read",
            Self::Acknowledge => "acknowledge",
            Self::Heartbeat => "heartbeat",
            Self::Sweeper => "sweeper",
            Self::Monitoring => "monitoring",
            Self::StoreWrite => "store_write",
            Self::StoreRead => "store_read",
        }
    }
}

/// Sub-buckets of each power of two: percentiles are exact to about 3 %.
const SUB_BUCKETS: u64 = 32;

/// Durations with a bounded relative error, in constant memory.
#[derive(Clone, Debug)]
pub(crate) struct DurationHistogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl DurationHistogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; 64 * usize::try_from(SUB_BUCKETS).unwrap_or(32)],
            total: 0,
            max: 0,
        }
    }

    pub(crate) fn record(&mut self, micros: u64) {
        self.total += 1;
        self.max = self.max.max(micros);
        if let Some(count) = self.counts.get_mut(bucket_of(micros)) {
            *count += 1;
        }
    }

    /// Milliseconds below which this share of the durations is.
    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts of millions"
        )]
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut counted = 0;
        for (index, count) in self.counts.iter().enumerate() {
            counted += count;
            if counted >= rank && counted > 0 {
                // The value is rounded up, so that a percentile is never reported too low, but not above the longest
                // one.
                return millis(upper_bound(index).min(self.max));
            }
        }
        millis(self.max)
    }

    pub(crate) fn summary(&self) -> DurationSummary {
        DurationSummary {
            p50_ms: self.percentile_ms(0.5),
            p90_ms: self.percentile_ms(0.9),
            p99_ms: self.percentile_ms(0.99),
            p999_ms: self.percentile_ms(0.999),
            max_ms: millis(self.max),
        }
    }
}

fn millis(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64() * 1_000.0
}

fn bucket_of(micros: u64) -> usize {
    let power = micros.max(1).ilog2();
    // The five bits below the highest one; durations below 32 microseconds have fewer.
    let sub = if power >= 5 {
        (micros >> (power - 5)) % SUB_BUCKETS
    } else {
        micros % SUB_BUCKETS
    };
    usize::try_from(u64::from(power) * SUB_BUCKETS + sub).unwrap_or(0)
}

fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    let (power, sub) = (index / SUB_BUCKETS, index % SUB_BUCKETS);
    if power >= 5 {
        ((SUB_BUCKETS + sub + 1) << (power - 5)) - 1
    } else {
        sub
    }
}

/// Percentiles of a duration, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DurationSummary {
    /// Half of the durations are at most this.
    pub p50_ms: f64,
    /// 90 % of them are at most this.
    pub p90_ms: f64,
    /// 99 % of them are at most this.
    pub p99_ms: f64,
    /// 99.9 % of them are at most this.
    pub p999_ms: f64,
    /// The longest of the durations.
    pub max_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_a_few_percent() {
        let mut histogram = DurationHistogram::new();
        for micros in 1..=100_000 {
            histogram.record(micros);
        }
        for (share, expected) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = histogram.percentile_ms(share);
            assert!(
                (found - expected).abs() < expected * 0.04,
                "{share}: {found}"
            );
        }
        assert!(DurationHistogram::new().percentile_ms(0.5) < f64::EPSILON);
    }
}
