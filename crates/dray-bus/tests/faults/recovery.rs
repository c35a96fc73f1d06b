//! Work whose worker, bus or dependency fails, with the consumers and leases of the standard topology.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_bus::{
    Bus, Meta, Topology, WorkCompleted, WorkDelivery, WorkFailure, WorkHandler, WorkSettings,
};
use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_testkit::{eventually, nats::NatsServer};
use dray_types::{Deadline, Fault};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fixture::{FaultFixture, connect};

/// Store of the standard topology.
const STORE_BYTES: u64 = 256 * 1024 * 1024;

/// A server with the standard topology.
async fn start_standard() -> FaultFixture {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    let topology = Topology::new(1, STORE_BYTES);
    fixture
        .provision(|provisioned| *provisioned = topology)
        .await;
    fixture
}

/// A worker with its own connection. When dropped, it ends without any message.
struct ConnectedWorker {
    _task: JoinSet<()>,
}

impl ConnectedWorker {
    async fn start(
        server: &NatsServer,
        settings: WorkSettings,
        handler: impl WorkHandler<v1::ToolCallRequested>,
    ) -> Self {
        let bus = connect(server, "file-resolver").await;
        let mut task = JoinSet::new();
        task.spawn(async move {
            bus.work("file-resolver", settings, handler, CancellationToken::new())
                .await
                .unwrap();
        });
        Self { _task: task }
    }
}

async fn find(fixture: &FaultFixture, meta: &Meta) -> Option<v1::LedgerRecord> {
    let ledger = fixture.bus.ledger();
    let found = ledger.find::<v1::ToolCallRequested>(&meta.tenant, &meta.operation);
    found.await.ok().flatten()
}

async fn wait_until_reported(fixture: &FaultFixture, meta: &Meta) -> v1::LedgerRecord {
    eventually("the end to be reported", async || {
        let found = find(fixture, meta).await;
        found.filter(|record| record.state() == LedgerState::Reported)
    })
    .await
}

fn complete_delivery(delivery: &WorkDelivery<v1::ToolCallRequested>) -> WorkCompleted {
    WorkCompleted::event(&v1::ToolCallResolved {
        operation_id: delivery.meta.operation.to_string(),
        ..v1::ToolCallResolved::default()
    })
}

/// Records its epochs, and ends when `open` is cancelled.
#[derive(Clone, Default)]
struct GatedHandler {
    epochs: Arc<Mutex<Vec<u64>>>,
    open: CancellationToken,
}

impl GatedHandler {
    fn epochs(&self) -> Vec<u64> {
        self.epochs.lock().unwrap().clone()
    }

    async fn wait_until_started(&self) {
        eventually("the handler to begin", async || {
            (!self.epochs().is_empty()).then_some(())
        })
        .await;
    }
}

impl WorkHandler<v1::ToolCallRequested> for GatedHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.epochs.lock().unwrap().push(delivery.epoch);
        self.open.cancelled().await;
        Ok(complete_delivery(&delivery))
    }
}

/// The deadline is shorter than the recovery would take with a lease of 45 s and an `ack_wait` of 30 s.
pub(crate) async fn take_over_from_a_killed_worker() {
    let fixture = start_standard().await;
    let deadline = Deadline::after(fixture.clock.now_ms(), Duration::from_secs(20));
    let meta = fixture.meta("op").with_deadline(deadline);
    let stuck = GatedHandler::default();
    let killed =
        ConnectedWorker::start(&fixture.server, WorkSettings::default(), stuck.clone()).await;
    fixture
        .bus
        .publish_work(&meta, &v1::ToolCallRequested::default())
        .await
        .unwrap();
    stuck.wait_until_started().await;
    drop(killed);
    let open = GatedHandler::default();
    open.open.cancel();
    let _worker =
        ConnectedWorker::start(&fixture.server, WorkSettings::default(), open.clone()).await;
    let record = wait_until_reported(&fixture, &meta).await;
    assert_eq!(record.terminal(), TerminalState::Done, "{record:?}");
    assert_eq!((stuck.epochs(), open.epochs()), (vec![1], vec![2]));
}

/// Two workers. The server is unavailable until the lease of the one that runs the handler has expired.
pub(crate) async fn outlive_an_outage_longer_than_the_lease() {
    let mut fixture = FaultFixture::start(NatsServer::start()).await;
    let settings = WorkSettings {
        lease: Duration::from_secs(3),
        renew: Duration::from_secs(1),
        ..WorkSettings::default()
    };
    let handler = GatedHandler::default();
    let _first = ConnectedWorker::start(&fixture.server, settings.clone(), handler.clone()).await;
    let _second = ConnectedWorker::start(&fixture.server, settings, handler.clone()).await;
    let meta = fixture.meta("op");
    fixture.submit(&fixture.bus, "op").await;
    handler.wait_until_started().await;
    let lease_until_ms = find(&fixture, &meta).await.unwrap().lease_until_ms;
    fixture.server.kill9();
    eventually("the lease to expire", async || {
        (fixture.clock.now_ms() > lease_until_ms + 3_000).then_some(())
    })
    .await;
    fixture.server.restart();
    eventually("the lease to be renewed", async || {
        let record = find(&fixture, &meta).await?;
        (record.lease_until_ms > fixture.clock.now_ms()).then_some(())
    })
    .await;
    handler.open.cancel();
    let record = wait_until_reported(&fixture, &meta).await;
    assert_eq!(
        (record.terminal(), record.attempts, record.epoch),
        (TerminalState::Done, 1, 1)
    );
    assert_eq!(handler.epochs(), [1]);
}

/// Calls a dependency and records each run.
#[derive(Clone)]
struct DependentHandler {
    bus: Bus,
    runs: Arc<Mutex<Vec<String>>>,
}

impl WorkHandler<v1::ToolCallRequested> for DependentHandler {
    async fn handle(
        &self,
        delivery: WorkDelivery<v1::ToolCallRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        let operation = delivery.meta.operation.to_string();
        self.runs.lock().unwrap().push(operation);
        let request = v1::FetchRequest::default();
        match self.bus.call(&delivery.meta, &request).await {
            Ok(_) => Ok(complete_delivery(&delivery)),
            Err(error) => Err(Fault::from(error).into()),
        }
    }
}

/// No responder exists until every operation was run more often than it has attempts.
pub(crate) async fn park_without_responders(operations: usize) {
    let fixture = start_standard().await;
    let settings = WorkSettings {
        attempts: 2,
        ..WorkSettings::default()
    };
    let handler = DependentHandler {
        bus: connect(&fixture.server, "file-resolver").await,
        runs: Arc::default(),
    };
    let max_attempts = settings.attempts as usize;
    let _worker = ConnectedWorker::start(&fixture.server, settings, handler.clone()).await;
    let names: BTreeSet<String> = (0..operations)
        .map(|number| format!("op-{number}"))
        .collect();
    for name in &names {
        fixture.submit(&fixture.bus, name).await;
    }
    eventually("every operation to be run often", async || {
        let runs = handler.runs.lock().unwrap().clone();
        let is_run_often = |name| runs.iter().filter(|&run| run == name).count() > max_attempts;
        names.iter().all(is_run_often).then_some(())
    })
    .await;
    let responder_bus = connect(&fixture.server, "egress-fetcher").await;
    let _echo = crate::outages::echo(&responder_bus).await;
    for name in &names {
        let record = wait_until_reported(&fixture, &fixture.meta(name)).await;
        let ended = (record.terminal(), record.attempts);
        assert_eq!(ended, (TerminalState::Done, 1), "{name}: {record:?}");
    }
    assert_eq!(fixture.bus.dead_letters().list(1, 1).await.unwrap(), []);
}
