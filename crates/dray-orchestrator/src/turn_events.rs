//! Publishes the events about turns and their calls of tools, `dray.event.turn.v1.>` and `dray.event.turncall.v1.>`, in
//! the background.
//!
//! A turn never waits for the bus. Its events go into a queue with a limit; an event that finds the queue full, or that
//! the bus does not take in time, is lost and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dray_bus::{Bus, Meta, PublishError};
use dray_proto::v1;
use dray_types::{Clock, Deadline, ErrorChain, OperationId, SessionId, TenantId, TraceContext};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::OrchestratorMetrics;

/// Number of queues. Each publishes one event at a time, so a turn that keeps to one queue keeps the order of its
/// events.
const QUEUE_COUNT: usize = 4;
/// Most events that wait in one queue.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Places of a queue that are reserved for begins and ends of turns, which are fewer than calls of tools and say more.
const RESERVED_PLACES: usize = 256;
/// How long events wait for others before they are published together. An event would otherwise wake the task that
/// publishes it while its turn runs, which delays the turn.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Time from an event to the end of the attempts to publish it.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the events that still wait may be published after the service was asked to stop.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// An event about a turn.
#[derive(Debug)]
pub(crate) enum TurnEvent {
    /// The turn began.
    Begin(Box<v1::TurnBegun>),
    /// The turn ended.
    End(Box<v1::TurnEnded>),
    /// A call of a tool runs.
    CallBegin(Box<v1::TurnCallBegun>),
    /// A call of a tool ended.
    CallEnd(Box<v1::TurnCallEnded>),
}

impl TurnEvent {
    const fn is_call(&self) -> bool {
        matches!(self, Self::CallBegin(_) | Self::CallEnd(_))
    }
}

/// An event with its envelope.
#[derive(Debug)]
struct QueuedEvent {
    meta: Meta,
    event: TurnEvent,
}

/// The queues of one orchestrator. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TurnEvents {
    queues: Arc<[TurnEventQueue; QUEUE_COUNT]>,
    /// Number of the queue that the next turn gets.
    next: Arc<AtomicUsize>,
}

/// A queue, to which a turn and the agents that it calls or hands over to keep. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TurnEventQueue {
    sender: mpsc::Sender<QueuedEvent>,
    tenant: TenantId,
    clock: Clock,
    metrics: OrchestratorMetrics,
}

impl TurnEvents {
    /// Starts the tasks that publish. They end with the service, after the queued events or [`FLUSH_TIMEOUT`].
    pub(crate) fn start(
        bus: &Bus,
        (tenant, clock): (&TenantId, &Clock),
        metrics: &OrchestratorMetrics,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let start_queue = |_| {
            let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
            let publisher = TurnEventPublisher {
                bus: bus.clone(),
                receiver,
                metrics: metrics.clone(),
            };
            tasks.spawn(publisher.run(stop.clone()));
            TurnEventQueue {
                sender,
                tenant: tenant.clone(),
                clock: clock.clone(),
                metrics: metrics.clone(),
            }
        };
        Self {
            queues: Arc::new(std::array::from_fn(start_queue)),
            next: Arc::default(),
        }
    }

    /// The queue for the events of a request.
    pub(crate) fn queue(&self) -> TurnEventQueue {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % QUEUE_COUNT;
        let [first, others @ ..] = self.queues.as_ref();
        let other = number.checked_sub(1).and_then(|number| others.get(number));
        other.unwrap_or(first).clone()
    }
}

impl TurnEventQueue {
    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Queues an event of an operation. Does not wait: an event that finds no place is lost and counted.
    pub(crate) fn send(
        &self,
        operation: &OperationId,
        session: &str,
        trace: &TraceContext,
        event: TurnEvent,
    ) {
        if event.is_call() && self.sender.capacity() <= RESERVED_PLACES {
            self.metrics.lost_turn_events("queue_full", 1);
            return;
        }
        let deadline = Deadline::after(self.clock.now_ms(), PUBLISH_TIMEOUT);
        let mut meta = Meta::new(self.tenant.clone(), deadline)
            .with_operation(operation.clone())
            .with_trace(trace.clone());
        // A client may name a session that no header can contain; the event has it as text.
        meta.session = SessionId::new(session).ok();
        if self.sender.try_send(QueuedEvent { meta, event }).is_err() {
            self.metrics.lost_turn_events("queue_full", 1);
        }
    }
}

/// Publishes the events of one queue, one after the other.
struct TurnEventPublisher {
    bus: Bus,
    receiver: mpsc::Receiver<QueuedEvent>,
    metrics: OrchestratorMetrics,
}

impl TurnEventPublisher {
    async fn run(mut self, stop: CancellationToken) {
        let flush_end = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH_TIMEOUT).await;
        };
        let is_cut_off = tokio::select! {
            () = Self::publish_all(&self.bus, &mut self.receiver, &self.metrics, &stop) => false,
            () = flush_end => true,
        };
        self.receiver.close();
        let mut lost = u64::from(is_cut_off);
        while self.receiver.try_recv().is_ok() {
            lost += 1;
        }
        if lost > 0 {
            self.metrics.lost_turn_events("stopped", lost);
        }
    }

    /// Publishes until all turns have ended, or until the queue is empty after `stop`.
    async fn publish_all(
        bus: &Bus,
        receiver: &mut mpsc::Receiver<QueuedEvent>,
        metrics: &OrchestratorMetrics,
        stop: &CancellationToken,
    ) {
        loop {
            let first = tokio::select! {
                // Queued events come first: turns that the stop ended have just reported it.
                biased;
                first = receiver.recv() => first,
                () = stop.cancelled() => None,
            };
            let Some(first) = first else { return };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(BATCH_DELAY) => {}
            }
            let mut next = Some(first);
            while let Some(queued) = next {
                if let Err(error) = queued.publish(bus).await {
                    let error = ErrorChain(&error);
                    tracing::debug!(%error, "an event about a turn was not published");
                    metrics.lost_turn_events("publish_failed", 1);
                }
                next = receiver.try_recv().ok();
            }
        }
    }
}

impl QueuedEvent {
    async fn publish(&self, bus: &Bus) -> Result<(), PublishError> {
        let meta = &self.meta;
        let published = match &self.event {
            TurnEvent::Begin(begun) => bus.publish_event(meta, begun.as_ref()).await,
            TurnEvent::End(ended) => bus.publish_event(meta, ended.as_ref()).await,
            // The calls of a turn have its operation, and ids of calls may repeat.
            TurnEvent::CallBegin(begun) => {
                let part = call_part(begun.call.as_ref());
                bus.publish_event_part(meta, &part, begun.as_ref()).await
            }
            TurnEvent::CallEnd(ended) => {
                let part = call_part(ended.call.as_ref());
                bus.publish_event_part(meta, &part, ended.as_ref()).await
            }
        };
        published.map(drop)
    }
}

/// The text that distinguishes the events of a call from those of other calls of its turn.
fn call_part(call: Option<&v1::TurnCall>) -> String {
    call.map_or(0, |call| call.number).to_string()
}

#[cfg(test)]
mod tests;
