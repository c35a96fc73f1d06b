//! One answer while it is made: the agent works on a task of its own, and ends with the request that waits for it.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::event::{Ending, Event};
use dray_agent::failure::Failure;
use dray_tool::Sink;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::contract::{Agent, Asked};

/// An answer that is being made. Dropping it ends the agent's work.
#[derive(Debug)]
pub(super) struct Run {
    events: Receiver<Event>,
    work: JoinSet<Result<Ending, Failure>>,
    ended: Option<Result<Ending, Failure>>,
    outcome: Outcome,
    _permit: OwnedSemaphorePermit,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    /// Something for the client.
    Event(Event),
    /// The end; nothing comes after it.
    Ended(Result<Ending, Failure>),
}

/// Says in the log how it ended, also when the client went away.
#[derive(Debug)]
struct Outcome {
    deployment: String,
    begun: Instant,
    known: bool,
}

impl Run {
    /// Lets the agent begin.
    pub(super) fn begin(agent: Arc<dyn Agent>, asked: Asked, permit: OwnedSemaphorePermit) -> Self {
        let (sink, events) = Sink::new();
        let outcome = Outcome {
            deployment: asked.deployment.clone(),
            begun: Instant::now(),
            known: false,
        };
        let messages = asked.request.messages.len();
        tracing::info!(deployment = %outcome.deployment, messages, stream = asked.request.stream, "a chat begins");
        let mut work = JoinSet::new();
        work.spawn(async move { agent.answer(asked, sink).await });
        Self {
            events,
            work,
            ended: None,
            outcome,
            _permit: permit,
        }
    }

    /// Waits for what comes next.
    pub(super) async fn next(&mut self) -> Next {
        loop {
            if let Some(ended) = self.ended.take() {
                // What was sent before the end comes before it.
                let Ok(event) = self.events.try_recv() else {
                    return Next::Ended(ended);
                };
                self.ended = Some(ended);
                return Next::Event(event);
            }
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Next::Event(event),
                Some(joined) = self.work.join_next() => {
                    let ended = joined.unwrap_or_else(|error| Err(broken(&error)));
                    self.outcome.tell(&ended);
                    self.ended = Some(ended);
                    self.events.close();
                }
                else => return Next::Ended(Err(Failure::unexpected())),
            }
        }
    }

    /// What is there already.
    pub(super) fn ready(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Everything up to the first event that shows the client something: up to there a failure is still an HTTP status.
    pub(super) async fn head(&mut self) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Next::Event(event @ Event::State(_)) => events.push(event),
                Next::Event(event) => {
                    events.push(event);
                    return Ok(events);
                }
                Next::Ended(Ok(ending)) => {
                    self.ended = Some(Ok(ending));
                    return Ok(events);
                }
                Next::Ended(Err(failure)) => return Err(failure),
            }
        }
    }
}

/// The agent panicked, or its runtime ends.
fn broken(error: &JoinError) -> Failure {
    tracing::error!(panicked = error.is_panic(), "an answer broke off");
    Failure::unexpected()
}

impl Outcome {
    fn tell(&mut self, ended: &Result<Ending, Failure>) {
        self.known = true;
        let duration = self.seconds();
        let deployment = &self.deployment;
        match ended {
            Ok(ending) => {
                let reason = ending.reason.as_str();
                tracing::info!(%deployment, duration, reason, "a chat ended");
            }
            Err(failure) => {
                let status = failure.status;
                tracing::warn!(%deployment, duration, status, "a chat failed");
            }
        }
    }

    fn seconds(&self) -> f64 {
        let elapsed: Duration = self.begun.elapsed();
        elapsed.as_secs_f64()
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if !self.known {
            let duration = self.seconds();
            tracing::info!(deployment = %self.deployment, duration, "the client left a chat");
        }
    }
}
