//! One running answer. The agent works in a separate task, which ends with the request that waits for it.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::event::{AnswerEnd, Event};
use dray_agent::failure::RequestFailure;
use dray_tool::EventSink;
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::contract::{Agent, CheckedChatRequest};
use super::permit::ChatPermit;

/// A running answer. Dropping it aborts the agent's task.
#[derive(Debug)]
pub(super) struct AnswerRun {
    events: Receiver<Event>,
    work: JoinSet<Result<AnswerEnd, RequestFailure>>,
    ended: Option<Result<AnswerEnd, RequestFailure>>,
    /// Whether calls began that no other request may repeat.
    has_made_calls: bool,
    outcome: OutcomeLog,
    // The answer holds the permit until its end, and so counts among the running chats, with the memory of its request.
    _permit: ChatPermit,
}

/// The result of [`AnswerRun::next`].
#[derive(Debug)]
pub(super) enum NextEvent {
    /// Something for the client.
    Event(Event),
    /// The end; no event follows.
    Ended(Result<AnswerEnd, RequestFailure>),
}

/// Logs how an answer ended. If it is dropped before that, the client has disconnected.
#[derive(Debug)]
struct OutcomeLog {
    deployment: String,
    request_id: String,
    started_at: Instant,
    is_logged: bool,
}

impl AnswerRun {
    /// Starts the agent's task.
    pub(super) fn begin(
        agent: Arc<dyn Agent>,
        request: CheckedChatRequest,
        permit: ChatPermit,
    ) -> Self {
        let (sink, events) = EventSink::new();
        let outcome = OutcomeLog {
            deployment: request.deployment.clone(),
            request_id: request.request_id.clone(),
            started_at: Instant::now(),
            is_logged: false,
        };
        let messages = request.request.messages.len();
        tracing::info!(deployment = %outcome.deployment, request_id = %outcome.request_id, messages, stream = request.request.stream, "a chat begins");
        // The set has one task: unlike a `JoinHandle`, it aborts the task when it is dropped.
        let mut work = JoinSet::new();
        let answering = async move { agent.answer(request, sink).await };
        work.spawn(answering.instrument(Span::current()));
        Self {
            events,
            work,
            ended: None,
            has_made_calls: false,
            outcome,
            _permit: permit,
        }
    }

    /// Waits for the next event or the end. After calls that must not be made again, a failure is final.
    pub(super) async fn next(&mut self) -> NextEvent {
        match self.receive().await {
            NextEvent::Event(event) => NextEvent::Event(self.noted(event)),
            NextEvent::Ended(Err(failure)) if self.has_made_calls => {
                NextEvent::Ended(Err(failure.without_retry()))
            }
            ended @ NextEvent::Ended(_) => ended,
        }
    }

    async fn receive(&mut self) -> NextEvent {
        loop {
            if let Some(ended) = self.ended.take() {
                // Events that were sent before the end are returned before it.
                let Ok(event) = self.events.try_recv() else {
                    return NextEvent::Ended(ended);
                };
                self.ended = Some(ended);
                return NextEvent::Event(event);
            }
            tokio::select! {
                // Events come first: an answer that ended may have left some in the channel.
                biased;
                Some(event) = self.events.recv() => return NextEvent::Event(event),
                Some(joined) = self.work.join_next() => {
                    let ended = joined.unwrap_or_else(|error| Err(agent_panic_failure(&error)));
                    self.outcome.log_outcome(&ended);
                    self.ended = Some(ended);
                    // Clones of the sink that outlive the answer cannot send after its end.
                    self.events.close();
                }
                // This line is reached only when `next` is called again after the end.
                else => return NextEvent::Ended(Err(RequestFailure::unexpected())),
            }
        }
    }

    /// Aborts the agent's task. Events that it sent before can still be received.
    pub(super) fn stop(&mut self) {
        self.work.abort_all();
    }

    /// An event that is ready; does not wait.
    pub(super) fn ready(&mut self) -> Option<Event> {
        let event = self.events.try_recv().ok()?;
        Some(self.noted(event))
    }

    /// Whether calls began that no other request may repeat. Drops the events that were not taken.
    pub(super) fn has_made_calls(&mut self) -> bool {
        while self.ready().is_some() {}
        self.has_made_calls
    }

    /// An event that is about to be taken.
    fn noted(&mut self, event: Event) -> Event {
        self.has_made_calls |= matches!(event, Event::CallsStarted);
        event
    }

    /// The events up to the first one that shows the client something: until then a failure can still be an HTTP
    /// status.
    pub(super) async fn head(&mut self) -> Result<Vec<Event>, RequestFailure> {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                NextEvent::Event(
                    event @ (Event::State(_)
                    | Event::McpTools(_)
                    | Event::Sources(_)
                    | Event::CallsStarted),
                ) => {
                    events.push(event);
                }
                NextEvent::Event(event) => {
                    events.push(event);
                    return Ok(events);
                }
                NextEvent::Ended(Ok(ending)) => {
                    // The ending is put back for the stream, which writes the end chunk.
                    self.ended = Some(Ok(ending));
                    return Ok(events);
                }
                NextEvent::Ended(Err(failure)) => return Err(failure),
            }
        }
    }
}

/// The agent panicked, or its runtime ends.
fn agent_panic_failure(error: &JoinError) -> RequestFailure {
    tracing::error!(panicked = error.is_panic(), "an answer broke off");
    RequestFailure::unexpected()
}

impl OutcomeLog {
    fn log_outcome(&mut self, ended: &Result<AnswerEnd, RequestFailure>) {
        self.is_logged = true;
        let duration = self.seconds();
        let (deployment, request_id) = (&self.deployment, &self.request_id);
        match ended {
            Ok(ending) => {
                let reason = ending.reason.as_str();
                tracing::info!(%deployment, %request_id, duration, reason, "a chat ended");
            }
            Err(failure) => {
                let status = failure.status;
                tracing::warn!(%deployment, %request_id, duration, status, "a chat failed");
            }
        }
    }

    fn seconds(&self) -> f64 {
        let elapsed: Duration = self.started_at.elapsed();
        elapsed.as_secs_f64()
    }
}

impl Drop for OutcomeLog {
    fn drop(&mut self) {
        if !self.is_logged {
            let duration = self.seconds();
            let (deployment, request_id) = (&self.deployment, &self.request_id);
            tracing::info!(%deployment, %request_id, duration, "the client left a chat");
        }
    }
}
