//! Records the events of a response in the background beside its stream, so that a client can resume the stream.
//!
//! The beginning and the end of an item are sent after they are recorded: the process that continues the response knows
//! each item of which a client knows, and does not use its place for another one. Other events are sent before they are
//! recorded, so a process that dies loses the text that it sent since its last batch. A response continues when
//! recording fails.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use crate::responses::{EventLog, EventLogError, MAX_BATCHES};

/// Most groups of events that wait to be recorded; a group has at most as many events as one write to a client.
const MAX_WAITING_GROUPS: usize = 256;
/// Time between the first event of a batch and its record. It grows with the number of batches, so that their list
/// can cover hours.
const BATCH_INTERVAL: Duration = Duration::from_millis(400);
/// How much each batch adds to the interval.
const INTERVAL_STEP: Duration = Duration::from_millis(10);
/// Most events of a batch that are taken without waiting for its time.
const MAX_BATCH_EVENTS: usize = 2_048;
/// Attempts to record a batch while the store or the bus fails.
const MAX_ATTEMPTS: u32 = 5;
/// Delay before the next attempt.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Collects the events of one response. A drop records the events so far.
#[derive(Debug)]
pub(super) struct EventRecorder {
    /// `None` once recording has ended early.
    sender: Option<mpsc::Sender<EventGroup>>,
}

/// Events that are sent together.
#[derive(Debug)]
struct EventGroup {
    events: Vec<Value>,
    /// Notified, or dropped when recording fails, for events that are sent after they are recorded.
    recorded: Option<oneshot::Sender<()>>,
}

/// Resolves when events are recorded, or recording has failed.
pub(super) type EventsRecorded = oneshot::Receiver<()>;

impl EventRecorder {
    /// A recorder whose task `tasks` counts.
    pub(super) fn new(log: EventLog, tasks: &TaskTracker) -> Self {
        let (sender, groups) = mpsc::channel(MAX_WAITING_GROUPS);
        tasks.spawn(record_groups(log, groups));
        Self {
            sender: Some(sender),
        }
    }

    /// Records events. Does not wait. Returns what must be waited for before they are sent.
    pub(super) fn record(&mut self, events: &[Value]) -> Option<EventsRecorded> {
        let sender = self.sender.as_ref().filter(|_| !events.is_empty())?;
        let (recorded, waits) = if events.iter().any(is_begin_or_end) {
            let (recorded, waits) = oneshot::channel();
            (Some(recorded), Some(waits))
        } else {
            (None, None)
        };
        let events = events.to_vec();
        if sender.try_send(EventGroup { events, recorded }).is_err() {
            // A log with a gap would look complete, so later events are not recorded.
            tracing::warn!("the events of a response are not recorded any more");
            self.sender = None;
            return None;
        }
        waits
    }
}

/// Whether an event begins or ends an item.
fn is_begin_or_end(event: &Value) -> bool {
    let kind = event.get("type").and_then(Value::as_str);
    matches!(
        kind,
        Some("response.output_item.added" | "response.output_item.done")
    )
}

async fn record_groups(mut log: EventLog, mut groups: mpsc::Receiver<EventGroup>) {
    while let Some(group) = groups.recv().await {
        let mut waiting: Vec<_> = group.recorded.into_iter().collect();
        let mut batch = group.events;
        let batches = u32::try_from(log.len().min(MAX_BATCHES)).unwrap_or(u32::MAX);
        let until = Instant::now() + BATCH_INTERVAL + INTERVAL_STEP * batches;
        while waiting.is_empty() && batch.len() < MAX_BATCH_EVENTS {
            match timeout_at(until, groups.recv()).await {
                Ok(Some(group)) => {
                    batch.extend(group.events);
                    waiting.extend(group.recorded);
                }
                // The response has ended, or the time of the batch has passed.
                Ok(None) | Err(_) => break,
            }
        }
        if !append(&mut log, &batch).await {
            return;
        }
        for recorded in waiting {
            // The response may have ended meanwhile.
            let _ = recorded.send(());
        }
    }
}

/// Returns whether more can be recorded.
async fn append(log: &mut EventLog, batch: &[Value]) -> bool {
    for _ in 0..MAX_ATTEMPTS {
        match log.append(batch).await {
            Ok(()) => return true,
            Err(EventLogError::Closed) => return false,
            Err(EventLogError::Failed(failure)) => {
                tracing::warn!(%failure, "events of a response were not recorded");
                sleep(RETRY_DELAY).await;
            }
        }
    }
    false
}
