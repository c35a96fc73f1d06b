//! Work: messages that must not be lost, handled at least once, with effects that count once
//! (messaging-reliability 6 to 8).
//!
//! [`run_worker`] pulls only what can start; each delivery goes through [`job`], which knows the steps and their order.

mod delivery;
pub(crate) mod envelope;
pub(crate) mod job;
pub(crate) mod poison;
mod process;
mod retry;
mod supervise;
mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use dray_proto::Work;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::delivery::RecordedEvent;
pub use self::delivery::{WorkCompleted, WorkDelivery, WorkFailure, WorkHandler};
pub(crate) use self::envelope::{PoisonMessage, WorkEnvelope};
use crate::backend::{AckAction, PulledMessage, Puller};
use crate::backoff::Backoff;
use crate::bus_core::Bus;
use crate::error::WorkError;
use crate::topology::WORK_STREAM;

/// Largest event that a handler may give back, encoded, in bytes: it is kept in the ledger and published with
/// headers, and both stay below the message limit.
pub const RESULT_LIMIT: usize = 112 * 1024;

/// How a work loop behaves. The defaults are those of messaging-reliability.
#[derive(Clone, Debug)]
pub struct WorkSettings {
    /// Deliveries handled concurrently, and so the most that one pull asks for.
    pub concurrency: usize,
    /// How long a claim keeps other workers away without a renewal. Together with the consumer's `ack_wait` it
    /// bounds how long work waits after its worker died.
    pub lease: Duration,
    /// How often the claim is renewed; several times within `lease`, so that one lost renewal does not cost it.
    pub renew: Duration,
    /// How long a handler may go on while its lease cannot be renewed because the bus is away. Another worker may
    /// take the work over after `lease`; the revision of the ledger entry then decides whose end counts.
    pub outage: Duration,
    /// Real attempts before the work is given up.
    pub attempts: u32,
    /// How long running deliveries may go on after the stop.
    pub drain: Duration,
    /// How long a handler may take to notice that it is cancelled.
    pub grace: Duration,
    /// Who works, in ledger entries; must differ between processes.
    pub owner: String,
    /// Written into dead letters.
    pub service_version: String,
}

impl Default for WorkSettings {
    fn default() -> Self {
        Self {
            concurrency: 16,
            lease: Duration::from_secs(6),
            renew: Duration::from_secs(2),
            outage: Duration::from_secs(40),
            attempts: 5,
            drain: Duration::from_secs(40),
            grace: Duration::from_secs(2),
            owner: format!("{:016x}", rand::random::<u64>()),
            service_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// How often the backlog of the durable is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(15);
/// Longest wait of one pull.
const PULL_WAIT: Duration = Duration::from_secs(5);

/// What every delivery of one loop shares.
pub(crate) struct WorkerContext<H> {
    pub(crate) bus: Bus,
    pub(crate) settings: WorkSettings,
    pub(crate) durable: String,
    pub(crate) handler: H,
    pub(crate) ack_wait: Duration,
    /// Ends handlers that outlive the drain.
    pub(crate) hard_stop: CancellationToken,
}

pub(crate) async fn run_worker<W: Work, H: WorkHandler<W>>(
    bus: Bus,
    durable: &str,
    settings: WorkSettings,
    handler: H,
    stop: CancellationToken,
) -> Result<(), WorkError> {
    let failed = |source| WorkError::Consumer {
        durable: durable.to_owned(),
        source,
    };
    let puller = bus
        .inner
        .backend
        .puller(WORK_STREAM, durable)
        .await
        .map_err(failed)?;
    let shop = Arc::new(WorkerContext {
        bus,
        durable: durable.to_owned(),
        handler,
        ack_wait: puller.ack_wait(),
        hard_stop: CancellationToken::new(),
        settings,
    });
    // With 0 permits the loop would wait for ever and look healthy.
    let permits = Arc::new(Semaphore::new(shop.settings.concurrency.max(1)));
    let mut jobs = JoinSet::new();
    pull_until_stopped::<W, H>(&shop, puller, &permits, &mut jobs, &stop).await;
    drain_jobs(&shop.settings, &shop.hard_stop, &mut jobs).await;
    Ok(())
}

async fn pull_until_stopped<W: Work, H: WorkHandler<W>>(
    shop: &Arc<WorkerContext<H>>,
    mut puller: Puller,
    permits: &Arc<Semaphore>,
    jobs: &mut JoinSet<()>,
    stop: &CancellationToken,
) {
    let mut backoff = new_backoff();
    let mut measured: Option<Instant> = None;
    while !stop.is_cancelled() {
        if measured.is_none_or(|at| at.elapsed() >= MEASURE_EVERY) {
            measured = Some(Instant::now());
            measure_backlog(shop).await;
        }
        // A pull could take work whose end this identity may not write; readiness alone does not stop pulls (16).
        if shop.bus.inner.health.is_refused() {
            tracing::error!(durable = %shop.durable, "nothing is pulled: the server refused this identity");
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PULL_WAIT) => {}
            }
            continue;
        }
        // Permits before messages: a message that waits here would use up its `ack_wait` and
        // its deliveries (6.1, A-10).
        let mut free = tokio::select! {
            () = stop.cancelled() => break,
            free = take_permits(permits, puller.max_batch()) => free,
        };
        // Ended tasks stay in the set until they are joined; without this it grows with every delivery.
        while jobs.try_join_next().is_some() {}
        match puller.fetch(free.len(), PULL_WAIT, stop).await {
            Ok(pulled) => {
                backoff = new_backoff();
                for pulled in pulled {
                    // More than was asked for cannot come by the protocol; after a stop nothing is started any more.
                    let Some(permit) = free.pop().filter(|_| !stop.is_cancelled()) else {
                        hand_back(&pulled).await;
                        continue;
                    };
                    let shop = Arc::clone(shop);
                    jobs.spawn(async move {
                        process::process_delivery::<W, H>(&shop, pulled).await;
                        drop(permit);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(
                    durable = %shop.durable,
                    error = &error as &dyn std::error::Error,
                    "pulling failed; it is tried again"
                );
                drop(free);
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(backoff.next_delay()) => {}
                }
                if let Ok(rebuilt) = shop
                    .bus
                    .inner
                    .backend
                    .puller(WORK_STREAM, &shop.durable)
                    .await
                {
                    // A consumer that was deleted and made again, or a lost subscription, needs a new puller.
                    puller = rebuilt;
                }
            }
        }
    }
}

/// Measures the backlog of the durable. A failure shows in the pulls.
async fn measure_backlog<H>(shop: &WorkerContext<H>) {
    let found = shop.bus.inner.backend.consumer(WORK_STREAM, &shop.durable);
    if let Ok(Ok(Some(state))) = tokio::time::timeout(PULL_WAIT, found).await {
        shop.bus
            .inner
            .metrics
            .backlog(&shop.durable, state.pending, state.ack_pending);
    }
}

fn new_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(10))
}

/// Waits for one permit and takes what else is free, up to `most`.
async fn take_permits(permits: &Arc<Semaphore>, most: usize) -> Vec<OwnedSemaphorePermit> {
    let mut free = Vec::new();
    // The semaphore is never closed.
    if let Ok(first) = Arc::clone(permits).acquire_owned().await {
        free.push(first);
    }
    while free.len() < most
        && let Ok(next) = Arc::clone(permits).try_acquire_owned()
    {
        free.push(next);
    }
    free
}

/// Gives back what was delivered and not started (messaging-reliability 15 step 2).
async fn hand_back(pulled: &PulledMessage) {
    if let Err(error) = pulled.acker.send(AckAction::Again(Duration::ZERO)).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a message was not handed back"
        );
    }
}

/// Lets running deliveries end by themselves, then cancels them (messaging-reliability 15 steps 3 and 4).
async fn drain_jobs(
    settings: &WorkSettings,
    hard_stop: &CancellationToken,
    jobs: &mut JoinSet<()>,
) {
    if join_within(jobs, settings.drain).await {
        return;
    }
    hard_stop.cancel();
    // The grace of the handlers, and time to release the lease and hand the message back.
    let last = settings.grace + Duration::from_secs(5);
    if !join_within(jobs, last).await {
        tracing::warn!(left = jobs.len(), "deliveries did not stop and are cut off");
        // Their leases run out by themselves, as after a kill.
        jobs.shutdown().await;
    }
}

async fn join_within(jobs: &mut JoinSet<()>, limit: Duration) -> bool {
    let all = async { while jobs.join_next().await.is_some() {} };
    tokio::time::timeout(limit, all).await.is_ok()
}
