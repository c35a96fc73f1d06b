//! A real server, a worker with countable effects, and a check that compares the accepted operations with their ends.

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

pub(crate) struct FaultFixture {
    pub(crate) server: NatsServer,
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
}

impl FaultFixture {
    /// A provisioned server whose consumers redeliver after two seconds.
    pub(crate) async fn start(server: NatsServer) -> Self {
        let clock = Clock::system();
        let bus = connect(&server, "provisioner").await;
        let fixture = Self { server, bus, clock };
        fixture.provision(|_| {}).await;
        fixture
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
        // Longer than all rounds together on a busy machine: work that ends by its deadline has no effect.
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_mins(10));
        Meta::new(TenantId::new("acme").unwrap(), deadline)
            .with_operation(OperationId::new(operation).unwrap())
    }

    /// Publishes work, and retries until the operation's deadline.
    pub(crate) async fn submit(&self, bus: &Bus, operation: &str) {
        bus.publish_work(&self.meta(operation), &v1::ToolCallRequested::default())
            .await
            .unwrap();
    }

    /// Checks that every accepted operation has one reported end, one event and one effect.
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

    /// Number of terminal events of each operation.
    async fn count_terminal_events(&self, at_least: usize) -> BTreeMap<String, u32> {
        let filter = EventFilter::new("dray.event.>").from_start();
        let mut events = self.bus.events(filter).await.unwrap();
        let mut counted = BTreeMap::new();
        let mut event_timeout = Duration::from_secs(20);
        while let Ok(event) = tokio::time::timeout(event_timeout, events.next()).await {
            let operation = event
                .unwrap()
                .headers
                .get("Dray-Operation")
                .unwrap()
                .to_owned();
            *counted.entry(operation).or_default() += 1;
            if counted.len() >= at_least {
                event_timeout = Duration::from_millis(300);
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

/// A handler with idempotent effects. It records the operations that had an effect.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdempotentSink {
    effects: Arc<Mutex<BTreeSet<String>>>,
    duration: Duration,
}

impl IdempotentSink {
    /// A sink whose handler runs for this time.
    pub(crate) fn with_duration(duration: Duration) -> Self {
        Self {
            duration,
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
        tokio::time::timeout(self.duration, delivery.cancel.cancelled())
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

/// A worker with its own connection.
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
        let (worker_bus, stop_token, sink) = (bus.clone(), stop.clone(), sink.clone());
        let settings = WorkSettings {
            concurrency: 4,
            lease: Duration::from_secs(3),
            renew: Duration::from_secs(1),
            ..WorkSettings::default()
        };
        task.spawn(async move {
            worker_bus
                .work::<v1::ToolCallRequested, _>("file-resolver", settings, sink, stop_token)
                .await
                .unwrap();
        });
        Self { bus, task, stop }
    }

    /// Like SIGTERM: stops pulling, finishes, drains.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while let Some(result) = self.task.join_next().await {
            result.unwrap();
        }
        self.bus.drain().await;
    }

    /// Like SIGKILL: ends the worker without any further message.
    pub(crate) async fn kill(mut self) {
        self.task.shutdown().await;
    }
}
