//! Reads the streams of events and audit events into the index, for as long as the console runs.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, EventFilter};
use dray_types::{ErrorChain, TenantId};
use tokio_util::sync::CancellationToken;

use super::EventIndex;
use super::read::read_row;
use super::row::EventSource;
use crate::health::{HealthReporter, PartHealth};

/// Delay after the first failed attempt to open a stream; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Longest delay between two attempts to open a stream.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(8);

/// Fills the index from one stream until `stop`, beginning with the oldest event that the stream keeps.
pub(crate) async fn follow_events(
    bus: Bus,
    tenant: TenantId,
    source: EventSource,
    index: Arc<EventIndex>,
    reporter: HealthReporter,
    stop: CancellationToken,
) {
    // The tenant is in the subject, so the server sends no event of another tenant.
    let subject = format!("dray.{}.*.v1.*.{}", source.as_str(), tenant.token());
    // Reading begins at the first sequence, because a restarted console has no other source for its index.
    let mut next_sequence = 1;
    let mut delay = Duration::ZERO;
    loop {
        let reading = follow_once(
            &bus,
            &subject,
            source,
            &index,
            &reporter,
            &mut next_sequence,
        );
        let Some(end) = stop.run_until_cancelled(reading).await else {
            return;
        };
        tracing::warn!(%subject, reason = end.reason, "events are not read; trying again");
        delay = retry_delay(delay, end.was_open);
        reporter.report(|health| *health.reader_of(source) = PartHealth::Failing(end.reason));
        let pause = tokio::time::sleep(delay);
        if stop.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// The end of one attempt to read a stream.
struct ReadingEnd {
    reason: String,
    /// Whether the stream was open before.
    was_open: bool,
}

/// The delay before the next attempt: the shortest one if the stream was open before, otherwise twice the last one.
fn retry_delay(last: Duration, was_open: bool) -> Duration {
    if was_open {
        FIRST_RETRY_DELAY
    } else {
        (last * 2).clamp(FIRST_RETRY_DELAY, MAX_RETRY_DELAY)
    }
}

/// Reads until the bus refuses, and returns why. `next_sequence` is the sequence of the next event to
/// read.
async fn follow_once(
    bus: &Bus,
    subject: &str,
    source: EventSource,
    index: &EventIndex,
    reporter: &HealthReporter,
    next_sequence: &mut u64,
) -> ReadingEnd {
    let filter = EventFilter::new(subject).from_sequence(*next_sequence);
    let mut stream = match bus.events(filter).await {
        Ok(stream) => stream,
        Err(error) => {
            return ReadingEnd {
                reason: ErrorChain(&error).to_string(),
                was_open: false,
            };
        }
    };
    reporter.report(|health| *health.reader_of(source) = PartHealth::Working);
    loop {
        match stream.next().await {
            Ok(event) => {
                *next_sequence = event.sequence + 1;
                if source == EventSource::Audit {
                    index.note_audit(event.time_ms, event.sequence);
                }
                index.add(read_row(&event, source));
            }
            Err(error) => {
                return ReadingEnd {
                    reason: ErrorChain(&error).to_string(),
                    was_open: true,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_after_a_stream_that_was_open_begin_with_the_shortest_delay() {
        let mut delay = Duration::ZERO;
        let mut delays = Vec::new();
        for was_open in [false, false, false, true, false] {
            delay = retry_delay(delay, was_open);
            delays.push(delay.as_millis());
        }
        assert_eq!(delays, [250, 500, 1000, 250, 500]);
        assert_eq!(retry_delay(MAX_RETRY_DELAY, false), MAX_RETRY_DELAY);
    }
}
