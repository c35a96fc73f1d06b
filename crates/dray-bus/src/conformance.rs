//! The conformance suite: both backends must behave as NATS does.
//!
//! Every test is one function over a [`BusFixture`]; the `on_both` macro runs it in process and on a real server.

mod answers;
mod at_work;
mod calls;
mod consumers;
mod dead_letters;
mod fair;
mod keys;
mod provisioning;
mod reply_streams;
mod streams;
mod sweeping;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Deadline, OperationId, TenantId};
use opentelemetry::metrics::{Meter, MeterProvider as _, noop::NoopMeterProvider};
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, OutgoingMessage};
use crate::headers::{self, MessageHeaders};
use crate::{
    Bus, EventFilter, EventStream, Meta, NatsOptions, Topology, WorkCompleted, WorkDelivery,
    WorkFailure, WorkHandler, WorkSettings,
};

/// Runs each named function on both backends.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::conformance::BusFixture::in_process()).await;
            })*
        }
        mod on_nats {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::conformance::BusFixture::on_nats().await).await;
            })*
        }
    };
}
pub(crate) use on_both;

pub(crate) fn noop_meter() -> Meter {
    NoopMeterProvider::new().meter("test")
}

/// A bus without streams and consumers, and the server behind it.
pub(crate) struct BusFixture {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) server: Option<NatsServer>,
}

impl BusFixture {
    pub(crate) fn in_process() -> Self {
        let clock = Clock::system();
        Self {
            bus: Bus::in_process(clock.clone(), &noop_meter()),
            clock,
            server: None,
        }
    }

    pub(crate) async fn on_nats() -> Self {
        Self::on(NatsServer::start()).await
    }

    pub(crate) async fn on(server: NatsServer) -> Self {
        let clock = Clock::system();
        let options = NatsOptions::at(server.url());
        let bus = Bus::connect(&options, clock.clone(), &noop_meter())
            .await
            .unwrap();
        Self {
            bus,
            clock,
            server: Some(server),
        }
    }

    /// Another client on the same bus: with its own connection if the backend has connections.
    pub(crate) async fn another(&self) -> Bus {
        match &self.server {
            Some(server) => {
                let options = NatsOptions::at(server.url()).named("another");
                Bus::connect(&options, self.clock.clone(), &noop_meter())
                    .await
                    .unwrap()
            }
            None => self.bus.clone(),
        }
    }

    pub(crate) fn backend(&self) -> &Backend {
        &self.bus.inner.backend
    }

    /// Provisions the standard topology. Its consumers redeliver unacknowledged messages after `ack_wait`.
    pub(crate) async fn provision(&self, ack_wait: Duration) {
        let topology = small_topology(|topology| {
            for consumer in &mut topology.consumers {
                consumer.ack_wait = ack_wait;
            }
        });
        assert_eq!(self.bus.apply_topology(&topology).await.unwrap(), []);
    }

    pub(crate) fn meta(&self, operation: &str) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(30));
        call_meta(operation, deadline)
    }

    pub(crate) async fn events(&self, subject: &str) -> EventStream {
        let filter = EventFilter::new(subject).from_start();
        self.bus.events(filter).await.unwrap()
    }
}

/// The standard topology for a small store, with the changes of `change`.
pub(crate) fn small_topology(change: impl FnOnce(&mut Topology)) -> Topology {
    let mut topology = Topology::new(1, 256 * 1024 * 1024);
    change(&mut topology);
    topology
}

pub(crate) fn call_meta(operation: &str, deadline: Deadline) -> Meta {
    Meta::new(TenantId::new("acme").unwrap(), deadline)
        .with_operation(OperationId::new(operation).unwrap())
}

/// Waits for a future that must complete soon.
pub(crate) async fn wait_soon<T>(description: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .unwrap_or_else(|_| panic!("waited too long for {description}"))
}

pub(crate) fn tool_call(tool: &str) -> v1::ToolCallRequested {
    v1::ToolCallRequested {
        tool_call_id: "call-1".to_owned(),
        tool: tool.to_owned(),
        ..v1::ToolCallRequested::default()
    }
}

pub(crate) fn outgoing_message(
    subject: &str,
    id: &str,
    payload: impl Into<bytes::Bytes>,
) -> OutgoingMessage {
    let mut headers = MessageHeaders::new();
    if !id.is_empty() {
        headers.append(headers::MESSAGE_ID, id);
    }
    OutgoingMessage {
        subject: subject.to_owned(),
        headers,
        payload: payload.into(),
    }
}

/// A handler whose behaviour depends on the name of the tool. Counts the runs of each operation.
#[derive(Clone, Default)]
pub(crate) struct ScriptedHandler {
    runs: Arc<std::sync::Mutex<BTreeMap<String, u32>>>,
    /// For each run, in order, whether it was announced as the last attempt.
    last_attempts: Arc<std::sync::Mutex<Vec<bool>>>,
    pub(crate) cancelled: CancellationToken,
    pub(crate) started: CancellationToken,
    /// Cancelled to let the tool `slow` complete.
    pub(crate) released: CancellationToken,
}

impl ScriptedHandler {
    pub(crate) fn runs(&self, operation: &str) -> u32 {
        self.runs
            .lock()
            .unwrap()
            .get(operation)
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn last_attempts(&self) -> Vec<bool> {
        self.last_attempts.lock().unwrap().clone()
    }
}

pub(crate) fn resolved_event(
    delivery: &WorkDelivery<v1::ToolCallRequested>,
) -> v1::ToolCallResolved {
    v1::ToolCallResolved {
        operation_id: delivery.meta.operation.to_string(),
        tool_call_id: delivery.work.tool_call_id.clone(),
        tool: format!("epoch {} attempt {}", delivery.epoch, delivery.attempt),
        resolved: None,
    }
}

impl WorkHandler<v1::ToolCallRequested> for ScriptedHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        use dray_types::{Fault, FaultCode};
        let run = {
            let mut runs = self.runs.lock().unwrap();
            let run = runs.entry(delivery.meta.operation.to_string()).or_default();
            *run += 1;
            *run
        };
        let is_last = delivery.is_last_attempt;
        self.last_attempts.lock().unwrap().push(is_last);
        self.started.cancel();
        let temporary_fault =
            || Fault::new(FaultCode::Unavailable, "later").retry_after(Duration::from_millis(10));
        match delivery.work.tool.as_str() {
            "fails" => return Err(Fault::new(FaultCode::Denied, "no").into()),
            "fails-once" | "passing-then-fails-once" if run == 1 => {
                return Err(temporary_fault().into());
            }
            "passing-then-fails-once" if run == 2 => {
                return Err(Fault::new(FaultCode::Denied, "no").into());
            }
            "always-passing" => return Err(temporary_fault().into()),
            "no-responder" => return Err(temporary_fault().detail("no_responder").into()),
            "no-responder-three-times" if run <= 3 => {
                return Err(temporary_fault().detail("no_responder").into());
            }
            "panics" => panic!("on purpose"),
            "panics-once" if run == 1 => panic!("on purpose"),
            "waits" => {
                delivery.cancel.cancelled().await;
                self.cancelled.cancel();
                return Err(temporary_fault().into());
            }
            "slow" => self.released.cancelled().await,
            "too-large" => {
                return Ok(WorkCompleted::event(&v1::ToolCallResolved {
                    tool: "x".repeat(crate::work::MAX_RESULT_BYTES + 1),
                    ..resolved_event(&delivery)
                }));
            }
            _ => {}
        }
        Ok(WorkCompleted::event(&resolved_event(&delivery)))
    }
}

/// A work loop under test; stopped and joined by [`TestWorker::stop`].
pub(crate) struct TestWorker {
    task: tokio::task::JoinSet<()>,
    stop: CancellationToken,
}

impl TestWorker {
    pub(crate) fn start<H: WorkHandler<v1::ToolCallRequested>>(
        bus: &Bus,
        settings: WorkSettings,
        handler: H,
    ) -> Self {
        let stop = CancellationToken::new();
        let mut task = tokio::task::JoinSet::new();
        let (bus, stopped) = (bus.clone(), stop.clone());
        task.spawn(async move {
            bus.work("file-resolver", settings, handler, stopped)
                .await
                .unwrap();
        });
        Self { task, stop }
    }

    /// Requests the end of the loop, and waits for it.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.unwrap();
        }
    }
}
