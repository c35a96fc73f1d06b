//! The task that runs a response: it takes the events of the turn, writes them for the client, renews the lease, and
//! stores the end. A response in the background runs without its client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use dray_agent::event::{AnswerEnd, Event};
use dray_agent::failure::RequestFailure;
use dray_agent::wire::DONE_LINE;
use dray_bus::KeyWatch;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::recorder::{EventRecorder, EventsRecorded};
use super::request::at_place;
use super::writer::{ResponseWriter, write_response_event};
use crate::http::reply::KEEP_ALIVE_LINE;
use crate::http::run::{AnswerRun, NextEvent};
use crate::responses::{EventLog, ResponseDocument, ResponseStatus, RunningResponse};

/// Interval of the timer of responses that have no lease.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How long events may wait for their record before they are sent without it.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// Most events per write.
const MAX_EVENTS_PER_WRITE: usize = 64;

/// The responses that run in this process, by their ids. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct RunningResponses {
    tasks: TaskTracker,
    by_id: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

/// The client of a response while it is made.
#[derive(Debug)]
pub(super) enum Listener {
    /// A stream of events.
    Stream {
        sender: mpsc::Sender<Bytes>,
        /// How long it may be silent before a comment keeps it open.
        heartbeat: Duration,
        /// Whether the response continues without it.
        may_leave: bool,
    },
    /// A request that waits for the whole response.
    Whole(mpsc::Sender<Result<Value, RequestFailure>>),
    /// No client: the response is polled.
    Detached,
}

/// Runs an answer and writes its events to a response.
#[derive(Debug)]
pub(super) struct ResponseDriver {
    pub(super) id: String,
    pub(super) run: AnswerRun,
    pub(super) writer: ResponseWriter,
    /// The response's record, when it is stored.
    pub(super) running: Option<RunningResponse>,
    /// Records its events, when its stream can be resumed.
    pub(super) recorder: Option<EventRecorder>,
    /// Set while events wait for their record before they are sent.
    pub(super) unrecorded: Option<EventsRecorded>,
    pub(super) input: Vec<Value>,
    /// The input item of each message of the turn.
    pub(super) places: Vec<Option<usize>>,
    /// How long it may continue when the service ends.
    pub(super) drain: Duration,
    pub(super) stop: CancellationToken,
}

/// The reason why a response ends.
enum Outcome {
    /// The turn has ended.
    Ended(Result<AnswerEnd, RequestFailure>),
    /// The client cancelled the response or disconnected.
    Cancelled,
    /// Another request has ended it, or another replica makes it.
    Superseded,
}

impl RunningResponses {
    /// Begins without responses; `tasks` counts their tasks.
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        Self {
            tasks,
            by_id: Arc::default(),
        }
    }

    /// Ends a response if it runs in this process.
    pub(super) fn cancel(&self, id: &str) {
        let by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = by_id.get(id) {
            token.cancel();
        }
    }

    /// A recorder of events, which ends after its response.
    pub(super) fn recorder(&self, log: EventLog) -> EventRecorder {
        EventRecorder::new(log, &self.tasks)
    }

    /// Notifies `recorded` of the writes of a record until the guard is dropped.
    pub(super) fn forward(&self, mut watch: KeyWatch, recorded: Arc<Notify>) -> DropGuard {
        let token = CancellationToken::new();
        let guard = token.clone().drop_guard();
        self.tasks.spawn(async move {
            // A separate task takes the notices, because the bus would keep them while the reader's client is slow.
            while token.run_until_cancelled(watch.changed()).await == Some(true) {
                recorded.notify_waiters();
            }
        });
        guard
    }

    /// Runs a task that the service waits for when it ends. It continues when the handle is dropped.
    pub(super) fn spawn_task<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task)
    }

    /// Runs a response to its end.
    pub(super) fn spawn(&self, driver: ResponseDriver, listener: Listener) {
        let (id, token) = (driver.id.clone(), CancellationToken::new());
        let entry = RegisteredResponse {
            id: id.clone(),
            by_id: Arc::clone(&self.by_id),
        };
        // Only single insertions and removals run under the lock, so a panic leaves a usable map.
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        by_id.insert(id, token.clone());
        drop(by_id);
        self.tasks.spawn(async move {
            Box::pin(driver.drive(listener, token)).await;
            drop(entry);
        });
    }
}

/// Removes a response from the map, however its task ends.
struct RegisteredResponse {
    id: String,
    by_id: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

impl Drop for RegisteredResponse {
    fn drop(&mut self) {
        let mut by_id = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        by_id.remove(&self.id);
    }
}

impl Listener {
    /// Waits until the client of the response disconnects.
    async fn left(&self) {
        match self {
            Self::Stream {
                sender,
                may_leave: false,
                ..
            } => sender.closed().await,
            Self::Whole(sender) => sender.closed().await,
            Self::Stream { .. } | Self::Detached => std::future::pending().await,
        }
    }

    /// Waits until the stream has been silent for too long.
    async fn silent(&self, since: Instant) {
        match self {
            Self::Stream { heartbeat, .. } => tokio::time::sleep_until(since + *heartbeat).await,
            _ => std::future::pending().await,
        }
    }

    /// Adds events to those that wait for the client.
    fn write(&self, waiting: &mut Vec<u8>, events: &[Value]) {
        if let Self::Stream { .. } = self {
            for event in events {
                write_response_event(waiting, event);
            }
        }
    }

    /// Adds the end of the stream to what waits for the client.
    fn end(&self, waiting: &mut Vec<u8>) {
        if let Self::Stream { .. } = self {
            waiting.extend_from_slice(DONE_LINE);
        }
    }

    /// Sends waiting bytes when the client accepts them. Cancellation safe: bytes that are not sent still wait.
    async fn send(&self, waiting: &mut Vec<u8>) {
        if let Self::Stream { sender, .. } = self
            && let Ok(permit) = sender.reserve().await
        {
            permit.send(std::mem::take(waiting).into());
        }
        // A client that has disconnected gets nothing; `left` notices it.
        waiting.clear();
    }
}

impl ResponseDriver {
    /// Takes the events that arrived before the response was known to begin.
    pub(super) fn take_head(&mut self, events: Vec<Event>) {
        for event in events {
            self.writer.event(event);
        }
    }

    /// Ends a response that failed before it began.
    pub(super) async fn abandon(&mut self, failure: &RequestFailure) {
        self.writer.fail(failure);
        // The client has the failure; the record only stores the same.
        let _ = self.store_end(ResponseStatus::Failed).await;
    }

    async fn drive(mut self, listener: Listener, token: CancellationToken) {
        let mut waiting = Vec::new();
        let outcome = self.follow(&listener, &token, &mut waiting).await;
        // The run stops before anything is stored, which may take long.
        self.run.stop();
        let ended = self.end(outcome).await;
        let ended = ended.map_err(|failure| {
            // The end of the run is not the only cause of a failure.
            if self.run.has_made_calls() {
                failure.without_retry()
            } else {
                failure
            }
        });
        self.write(&listener, &mut waiting);
        // A dropped recorder records the events. It is dropped before they are sent, because a client may not take
        // them.
        self.recorder = None;
        listener.end(&mut waiting);
        listener.send(&mut waiting).await;
        if let Listener::Whole(sender) = listener {
            // The client may have left.
            let _ = sender.send(ended).await;
        }
    }

    /// Passes events on until the response ends.
    async fn follow(
        &mut self,
        listener: &Listener,
        token: &CancellationToken,
        waiting: &mut Vec<u8>,
    ) -> Outcome {
        let drained = wait_for_drain(self.stop.clone(), self.drain);
        tokio::pin!(drained);
        let running = self.running.as_ref();
        let interval = running.map_or(IDLE_INTERVAL, RunningResponse::lease_interval);
        let mut lease = tokio::time::interval(interval);
        lease.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes immediately, when the lease has just begun and needs no renewal.
        lease.tick().await;
        let mut last_write = Instant::now();
        loop {
            self.write(listener, waiting);
            let is_unrecorded = self.unrecorded.is_some();
            // While the client is slow, no event is taken and the turn waits, but the lease is still renewed.
            let is_slow = !waiting.is_empty();
            tokio::select! {
                () = recorded(&mut self.unrecorded), if is_unrecorded => self.unrecorded = None,
                () = listener.send(waiting), if is_slow && !is_unrecorded => {
                    last_write = Instant::now();
                }
                next = self.run.next(), if !is_slow && !is_unrecorded => match next {
                    NextEvent::Event(event) => self.take(event),
                    NextEvent::Ended(ended) => return Outcome::Ended(ended),
                },
                () = token.cancelled() => return Outcome::Cancelled,
                () = listener.left() => return Outcome::Cancelled,
                () = listener.silent(last_write), if !is_slow && !is_unrecorded => {
                    waiting.extend_from_slice(KEEP_ALIVE_LINE);
                }
                _ = lease.tick() => {
                    if let Some(running) = &mut self.running
                        && running.renew().await.is_err()
                    {
                        return Outcome::Superseded;
                    }
                }
                () = &mut drained => {
                    let text = "The service ended before the response did.";
                    return Outcome::Ended(Err(RequestFailure::new(503, text)));
                }
            }
        }
    }

    /// Records new events, and adds them to those that wait for the client.
    fn write(&mut self, listener: &Listener, waiting: &mut Vec<u8>) {
        let events = self.writer.take_events();
        if let Some(recorder) = &mut self.recorder
            && let Some(unrecorded) = recorder.record(&events)
        {
            self.unrecorded = Some(unrecorded);
        }
        listener.write(waiting, &events);
    }

    fn take(&mut self, event: Event) {
        self.writer.event(event);
        // Further events that are ready are written together, so that many small events need few writes.
        for _ in 1..MAX_EVENTS_PER_WRITE {
            let Some(event) = self.run.ready() else { break };
            self.writer.event(event);
        }
    }

    /// Stores the end and writes the last events. The response is reported as completed only when it is stored.
    async fn end(&mut self, outcome: Outcome) -> Result<Value, RequestFailure> {
        let ended = match outcome {
            Outcome::Ended(ended) => ended,
            Outcome::Cancelled | Outcome::Superseded => {
                let message = match outcome {
                    Outcome::Cancelled => "The response was cancelled.",
                    _ => "Another request or another replica has ended the response.",
                };
                let failure = RequestFailure::new(409, message);
                self.writer.fail(&failure);
                if matches!(outcome, Outcome::Cancelled) {
                    // Another request may have ended it first.
                    let _ = self.store_end(ResponseStatus::Cancelled).await;
                }
                self.writer.end("cancelled");
                return Err(failure);
            }
        };
        let failure = match ended {
            Ok(ending) => {
                let status = self.writer.finish(&ending);
                let status = match status {
                    "incomplete" => ResponseStatus::Incomplete,
                    _ => ResponseStatus::Completed,
                };
                match self.store_end(status).await {
                    Ok(()) => return Ok(self.writer.end(status.as_str())),
                    Err(failure) => failure,
                }
            }
            Err(failure) => at_place(failure, &self.places),
        };
        self.writer.fail(&failure);
        if let Err(error) = self.store_end(ResponseStatus::Failed).await {
            tracing::warn!(%error, id = %self.id, "the end of a response was not stored");
        }
        self.writer.end("failed");
        Err(failure)
    }

    async fn store_end(&mut self, status: ResponseStatus) -> Result<(), RequestFailure> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let document = ResponseDocument {
            response: Some(self.writer.response(status.as_str())),
            input: self.input.clone(),
            answer: Some(self.writer.answer_message()),
            request: None,
        };
        running.finish(status, &document).await
    }
}

/// Waits until events are recorded, recording has failed, or it takes too long. Cancellation safe, but the timeout
/// starts again.
async fn recorded(waiting: &mut Option<EventsRecorded>) {
    if let Some(recorded) = waiting {
        // An error means that recording has failed.
        let _ = timeout(RECORD_TIMEOUT, recorded).await;
    }
}

/// Waits until the service has to end what still runs.
async fn wait_for_drain(stop: CancellationToken, drain: Duration) {
    stop.cancelled().await;
    tokio::time::sleep(drain).await;
}
