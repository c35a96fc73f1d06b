//! Rounds of faults: a few in the default suite, many in the soak tests.

use std::collections::BTreeSet;
use std::time::Duration;

use dray_testkit::nats::NatsServer;
use rand::Rng as _;

use crate::fixture::{ConnectedWorker, FaultRig, IdempotentSink, connect};

fn names(prefix: &str, count: usize) -> BTreeSet<String> {
    (0..count)
        .map(|number| format!("{prefix}-{number}"))
        .collect()
}

fn random_millis(max: u64) -> Duration {
    Duration::from_millis(rand::rng().random_range(0..=max))
}

/// Waits for this number of further effects.
async fn wait_for_effects(sink: &IdempotentSink, more: usize) {
    let expected = sink.effects().len() + more;
    dray_testkit::eventually("more effects", async || {
        (sink.effects().len() >= expected).then_some(())
    })
    .await;
}

/// The server is killed while work is published: nothing acknowledged is lost, nothing is stored twice.
pub(crate) async fn kill_during_publish(rounds: usize, each: usize) {
    let mut rig = FaultRig::start(NatsServer::start()).await;
    let publisher = connect(&rig.server, "orchestrator").await;
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let operations = names(&format!("round-{round}"), each);
        let (first, second): (Vec<_>, Vec<_>) = operations
            .iter()
            .enumerate()
            .partition(|(number, _)| *number < each / 2);
        for (_, operation) in first {
            rig.submit(&publisher, operation).await;
        }
        rig.server.kill9();
        rig.server.restart();
        for (_, operation) in second {
            rig.submit(&publisher, operation).await;
        }
        accepted.extend(operations);
    }
    let sink = IdempotentSink::default();
    let worker = ConnectedWorker::start(&rig.server, &sink).await;
    rig.check(&accepted, &sink).await;
    worker.stop().await;
}

/// The server is killed, restarted or paused while work is done.
pub(crate) async fn server_faults_during_work(rounds: usize, each: usize) {
    let mut rig = FaultRig::start(NatsServer::start()).await;
    let publisher = connect(&rig.server, "orchestrator").await;
    let sink = IdempotentSink::with_duration(Duration::from_millis(5));
    let worker = ConnectedWorker::start(&rig.server, &sink).await;
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let operations = names(&format!("round-{round}"), each);
        for operation in &operations {
            rig.submit(&publisher, operation).await;
        }
        accepted.extend(operations);
        wait_for_effects(&sink, 1).await;
        match round % 3 {
            0 => {
                rig.server.kill9();
                rig.server.restart();
            }
            1 => {
                rig.server.pause();
                // The probe fails after longer than a lease, so workers must have stopped their handlers by then.
                assert!(rig.bus.round_trip().await.is_err());
                rig.server.resume();
            }
            _ => rig.server.restart(),
        }
    }
    rig.check(&accepted, &sink).await;
    worker.stop().await;
}

/// Starts a worker with `each` new operations, and returns it after a random time.
async fn worker_under_load(
    rig: &FaultRig,
    sink: &IdempotentSink,
    round: usize,
    each: usize,
) -> (ConnectedWorker, BTreeSet<String>) {
    let operations = names(&format!("round-{round}"), each);
    for operation in &operations {
        rig.submit(&rig.bus, operation).await;
    }
    let worker = ConnectedWorker::start(&rig.server, sink).await;
    tokio::time::timeout(random_millis(150), std::future::pending::<()>())
        .await
        .ok();
    (worker, operations)
}

/// Workers are stopped at random moments under load. Each stop ends, and no operation is lost or done twice.
pub(crate) async fn stops_under_load(rounds: usize, each: usize) {
    let rig = FaultRig::start(NatsServer::start()).await;
    let sink = IdempotentSink::with_duration(Duration::from_millis(20));
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let (worker, operations) = worker_under_load(&rig, &sink, round, each).await;
        accepted.extend(operations);
        worker.stop().await;
    }
    let worker = ConnectedWorker::start(&rig.server, &sink).await;
    rig.check(&accepted, &sink).await;
    worker.stop().await;
}

/// Workers are killed at random moments under load.
pub(crate) async fn kills_under_load(rounds: usize, each: usize) {
    let rig = FaultRig::start(NatsServer::start()).await;
    let sink = IdempotentSink::with_duration(Duration::from_millis(20));
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let (worker, operations) = worker_under_load(&rig, &sink, round, each).await;
        accepted.extend(operations);
        worker.kill().await;
    }
    let worker = ConnectedWorker::start(&rig.server, &sink).await;
    rig.check(&accepted, &sink).await;
    worker.stop().await;
}
