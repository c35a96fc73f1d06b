//! Records the events of a response in the background beside its stream, so that a client can resume the stream. Events
//! are sent before they are recorded: recording delays no one, and a response continues when it fails.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use crate::responses::{EventLog, EventLogError, MAX_BATCHES};

/// Most groups of events that wait to be recorded; a group has at most as many events as one write to a client.
const MAX_WAITING_GROUPS: usize = 256;
/// Time between the first event of a batch and its record. It grows with the number of batches, so that their list
/// holds hours.
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
    sender: Option<mpsc::Sender<Vec<Value>>>,
}

impl EventRecorder {
    /// A recorder whose task `tasks` counts.
    pub(super) fn new(log: EventLog, tasks: &TaskTracker) -> Self {
        let (sender, groups) = mpsc::channel(MAX_WAITING_GROUPS);
        tasks.spawn(record_groups(log, groups));
        Self {
            sender: Some(sender),
        }
    }

    /// Records events. Does not wait.
    pub(super) fn record(&mut self, events: &[Value]) {
        let Some(sender) = &self.sender else { return };
        if !events.is_empty() && sender.try_send(events.to_vec()).is_err() {
            // A log with a gap would look complete, so later events are not recorded.
            tracing::warn!("the events of a response are not recorded any more");
            self.sender = None;
        }
    }
}

async fn record_groups(mut log: EventLog, mut groups: mpsc::Receiver<Vec<Value>>) {
    while let Some(mut batch) = groups.recv().await {
        let batches = u32::try_from(log.len().min(MAX_BATCHES)).unwrap_or(u32::MAX);
        let until = Instant::now() + BATCH_INTERVAL + INTERVAL_STEP * batches;
        while batch.len() < MAX_BATCH_EVENTS {
            match timeout_at(until, groups.recv()).await {
                Ok(Some(group)) => batch.extend(group),
                // The response has ended, or the time of the batch has passed.
                Ok(None) | Err(_) => break,
            }
        }
        if !append(&mut log, &batch).await {
            return;
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
