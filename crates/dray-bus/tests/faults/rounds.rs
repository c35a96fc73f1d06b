//! Rounds of faults: a few in the default suite, many in the soak tests.

use std::collections::BTreeSet;
use std::time::Duration;

use dray_testkit::nats::NatsServer;
use rand::Rng as _;

use crate::fixture::{ConnectedWorker, FaultFixture, IdempotentSink, connect};

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
    let mut fixture = FaultFixture::start(NatsServer::start()).await;
    let publisher = connect(&fixture.server, "orchestrator").await;
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let operations = names(&format!("round-{round}"), each);
        let (first, second): (Vec<_>, Vec<_>) = operations
            .iter()
            .enumerate()
            .partition(|(number, _)| *number < each / 2);
        for (_, operation) in first {
            fixture.submit(&publisher, operation).await;
        }
        fixture.server.kill9();
        fixture.server.restart();
        for (_, operation) in second {
            fixture.submit(&publisher, operation).await;
        }
        accepted.extend(operations);
    }
    let sink = IdempotentSink::default();
    let worker = ConnectedWorker::start(&fixture.server, &sink).await;
    fixture.check(&accepted, &sink).await;
    worker.stop().await;
}

/// The server is killed, restarted or paused while work is done.
pub(crate) async fn server_faults_during_work(rounds: usize, each: usize) {
    let mut fixture = FaultFixture::start(NatsServer::start()).await;
    let publisher = connect(&fixture.server, "orchestrator").await;
    let sink = IdempotentSink::with_duration(Duration::from_millis(5));
    let worker = ConnectedWorker::start(&fixture.server, &sink).await;
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let operations = names(&format!("round-{round}"), each);
        for operation in &operations {
            fixture.submit(&publisher, operation).await;
        }
        accepted.extend(operations);
        wait_for_effects(&sink, 1).await;
        match round % 3 {
            0 => {
                fixture.server.kill9();
                fixture.server.restart();
            }
            1 => {
                fixture.server.pause();
                // The probe takes longer than a lease to fail, so workers must have stopped their handlers by then.
                assert!(fixture.bus.round_trip().await.is_err());
                fixture.server.resume();
            }
            _ => fixture.server.restart(),
        }
    }
    fixture.check(&accepted, &sink).await;
    worker.stop().await;
}

/// Starts a worker with `each` new operations, and returns it after a random time.
async fn worker_under_load(
    fixture: &FaultFixture,
    sink: &IdempotentSink,
    round: usize,
    each: usize,
) -> (ConnectedWorker, BTreeSet<String>) {
    let operations = names(&format!("round-{round}"), each);
    for operation in &operations {
        fixture.submit(&fixture.bus, operation).await;
    }
    let worker = ConnectedWorker::start(&fixture.server, sink).await;
    tokio::time::timeout(random_millis(150), std::future::pending::<()>())
        .await
        .ok();
    (worker, operations)
}

/// Workers are stopped at random moments under load. Each stop ends, and no operation is lost or done twice.
pub(crate) async fn stops_under_load(rounds: usize, each: usize) {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    let sink = IdempotentSink::with_duration(Duration::from_millis(20));
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let (worker, operations) = worker_under_load(&fixture, &sink, round, each).await;
        accepted.extend(operations);
        worker.stop().await;
    }
    let worker = ConnectedWorker::start(&fixture.server, &sink).await;
    fixture.check(&accepted, &sink).await;
    worker.stop().await;
}

/// Workers are killed at random moments under load.
pub(crate) async fn kills_under_load(rounds: usize, each: usize) {
    let fixture = FaultFixture::start(NatsServer::start()).await;
    let sink = IdempotentSink::with_duration(Duration::from_millis(20));
    let mut accepted = BTreeSet::new();
    for round in 0..rounds {
        let (worker, operations) = worker_under_load(&fixture, &sink, round, each).await;
        accepted.extend(operations);
        worker.kill().await;
    }
    let worker = ConnectedWorker::start(&fixture.server, &sink).await;
    fixture.check(&accepted, &sink).await;
    worker.stop().await;
}
