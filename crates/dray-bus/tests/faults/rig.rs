//! A real server, a worker with effects that can be counted, and the checker that compares what was accepted with
//! how it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_bus::{
    Bus, EventFilter, Meta, NatsOptions, Topology, WorkCompleted, WorkDelivery, WorkFailure,
    WorkHandler, WorkSettings,
};
use dray_proto::v1;
use dray_proto::v1::LedgerState;
use dray_testkit::{eventually, nats::NatsServer};
use dray_types::{Clock, Deadline, OperationId, TenantId};
use opentelemetry::metrics::{Meter, MeterProvider as _, noop::NoopMeterProvider};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) fn meter() -> Meter {
    NoopMeterProvider::new().meter("test")
}

pub(crate) struct FaultRig {
    pub(crate) server: NatsServer,
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
}

impl FaultRig {
    /// A provisioned server whose consumers hand out again after two seconds.
    pub(crate) async fn start(server: NatsServer) -> Self {
        let clock = Clock::system();
        let bus = connect(&server, "provisioner").await;
        let rig = Self { server, bus, clock };
        rig.provision(|_| {}).await;
        rig
    }

    pub(crate) async fn provision(&self, change: impl FnOnce(&mut Topology)) {
        let mut topology = Topology::new(1, 256 * 1024 * 1024);
        for consumer in &mut topology.consumers {
            consumer.ack_wait = Duration::from_secs(2);
        }
        change(&mut topology);
        assert_eq!(self.bus.apply_topology(&topology).await.unwrap(), []);
    }

    pub(crate) fn meta(&self, operation: &str) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_mins(2));
        Meta::new(TenantId::new("acme").unwrap(), deadline)
            .with_operation(OperationId::new(operation).unwrap())
    }

    /// Publishes, and gives up only with the operation's deadline.
    pub(crate) async fn submit(&self, bus: &Bus, operation: &str) {
        bus.publish_work(&self.meta(operation), &v1::ToolCallRequested::default())
            .await
            .unwrap();
    }

    /// Every accepted operation has one reported end, one event, and its effect once.
    pub(crate) async fn check(&self, accepted: &BTreeSet<String>, sink: &IdempotentSink) {
        let tenant = TenantId::new("acme").unwrap();
        for operation in accepted {
            let id = OperationId::new(operation.as_str()).unwrap();
            eventually("the end to be reported", async || {
                let found = self
                    .bus
                    .ledger()
                    .find::<v1::ToolCallRequested>(&tenant, &id)
                    .await;
                found
                    .ok()
                    .flatten()
                    .filter(|record| record.state() == LedgerState::Reported)
            })
            .await;
        }
        let counted = self.count_terminal_events(accepted.len()).await;
        assert_eq!(counted.keys().cloned().collect::<BTreeSet<_>>(), *accepted);
        for (operation, events) in counted {
            assert_eq!(events, 1, "{operation} was reported {events} times");
        }
        assert_eq!(sink.effects(), *accepted);
    }

    /// How many terminal events each operation has.
    async fn count_terminal_events(&self, at_least: usize) -> BTreeMap<String, u32> {
        let filter = EventFilter::new("dray.event.>").from_start();
        let mut events = self.bus.events(filter).await.unwrap();
        let mut counted = BTreeMap::new();
        let mut quiet = Duration::from_secs(20);
        while let Ok(event) = tokio::time::timeout(quiet, events.next()).await {
            let operation = event
                .unwrap()
                .headers
                .get("Dray-Operation")
                .unwrap()
                .to_owned();
            *counted.entry(operation).or_default() += 1;
            if counted.len() >= at_least {
                quiet = Duration::from_millis(300);
            }
        }
        counted
    }
}

pub(crate) async fn connect(server: &NatsServer, name: &str) -> Bus {
    let options = NatsOptions::at(server.url()).named(name);
    Bus::connect(&options, Clock::system(), &meter())
        .await
        .unwrap()
}

/// A sink whose effects are idempotent: what counts is which operations have one.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdempotentSink {
    effects: Arc<Mutex<BTreeSet<String>>>,
    takes: Duration,
}

impl IdempotentSink {
    /// A sink into which one piece of work takes this long.
    pub(crate) fn taking(takes: Duration) -> Self {
        Self {
            takes,
            ..Self::default()
        }
    }

    pub(crate) fn effects(&self) -> BTreeSet<String> {
        self.effects.lock().unwrap().clone()
    }
}

impl WorkHandler<v1::ToolCallRequested> for IdempotentSink {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        tokio::time::timeout(self.takes, delivery.cancel.cancelled())
            .await
            .ok();
        let operation = delivery.meta.operation.to_string();
        self.effects.lock().unwrap().insert(operation.clone());
        Ok(WorkCompleted::event(&v1::ToolCallResolved {
            operation_id: operation,
            ..v1::ToolCallResolved::default()
        }))
    }
}

/// A worker with a connection of its own.
pub(crate) struct ConnectedWorker {
    bus: Bus,
    task: JoinSet<()>,
    stop: CancellationToken,
}

impl ConnectedWorker {
    pub(crate) async fn start(server: &NatsServer, sink: &IdempotentSink) -> Self {
        let bus = connect(server, "file-resolver").await;
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let (works, stopped, sink) = (bus.clone(), stop.clone(), sink.clone());
        let settings = WorkSettings {
            concurrency: 4,
            lease: Duration::from_secs(3),
            renew: Duration::from_secs(1),
            ..WorkSettings::default()
        };
        task.spawn(async move {
            works
                .work::<v1::ToolCallRequested, _>("file-resolver", settings, sink, stopped)
                .await
                .unwrap();
        });
        Self { bus, task, stop }
    }

    /// SIGTERM: stops pulling, finishes, drains.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.task.join_next().await {
            ended.unwrap();
        }
        self.bus.drain().await;
    }

    /// SIGKILL: nothing more is done or said.
    pub(crate) async fn kill(mut self) {
        self.task.shutdown().await;
    }
}
