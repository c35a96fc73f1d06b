//! Work: messages that must not be lost, handled at least once, with effects that count once
//! (messaging-reliability 6 to 8).
//!
//! `run_worker` pulls and starts messages, fairly among tenants (`pull`). It pulls only what can start now, so that
//! back-pressure leaves the rest in the stream. Each delivery goes through `job`, which defines the steps and their
//! order.

mod delivery;
pub(crate) mod envelope;
pub(crate) mod job;
pub(crate) mod plan;
pub(crate) mod poison;
mod process;
mod pull;
pub(crate) mod retry;
mod return_delay;
mod shares;
mod supervise;
mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use dray_proto::Work;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::delivery::RecordedEvent;
pub use self::delivery::{WorkCompleted, WorkDelivery, WorkFailure, WorkHandler};
pub(crate) use self::envelope::{PoisonMessage, WorkEnvelope};
pub use self::process::MAX_LEDGER_READS;
use self::pull::WorkLoop;
pub use self::retry::parks_work;
use crate::bus_core::Bus;
use crate::error::WorkError;
use crate::topology::WORK_STREAM;

/// Most bytes of an encoded event that a handler returns. The event is stored in the ledger and published with headers,
/// and both have to stay below the message limit.
pub const MAX_RESULT_BYTES: usize = 112 * 1024;

/// How a work loop behaves. The defaults are specified in messaging-reliability.
#[derive(Clone, Debug)]
pub struct WorkSettings {
    /// Deliveries handled concurrently. A sixth of these slots, at least one of two, are reserved for tenants without
    /// running work, so that a tenant with slow work cannot use all slots.
    pub concurrency: usize,
    /// How long a claim excludes other workers without a renewal. Together with the consumer's `ack_wait` it bounds how
    /// long work waits after its worker died.
    pub lease: Duration,
    /// How often the claim is renewed; several times within `lease`, so that one lost renewal does not lose the claim.
    pub renew: Duration,
    /// How long a handler may continue while its lease cannot be renewed because the bus is unavailable. Another worker
    /// may take the work over after `lease`; the revision of the ledger entry then decides whose end counts.
    pub outage: Duration,
    /// Real attempts before the work is given up.
    pub attempts: u32,
    /// How long running deliveries may continue after the stop.
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

/// State that all deliveries of one loop share.
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
    let context = Arc::new(WorkerContext {
        bus,
        durable: durable.to_owned(),
        handler,
        ack_wait: puller.ack_wait(),
        hard_stop: CancellationToken::new(),
        settings,
    });
    let mut jobs = WorkLoop::<W, H>::new(&context, stop).run(puller).await;
    drain_jobs(&context.settings, &context.hard_stop, &mut jobs).await;
    Ok(())
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
    // The grace of the handlers, and time to release the lease and return the message.
    let last = settings.grace + Duration::from_secs(5);
    if !join_within(jobs, last).await {
        tracing::warn!(left = jobs.len(), "deliveries did not stop and are cut off");
        // The leases of aborted handlers run out by themselves, as after a kill.
        jobs.shutdown().await;
    }
}

async fn join_within(jobs: &mut JoinSet<()>, limit: Duration) -> bool {
    let all = async { while jobs.join_next().await.is_some() {} };
    tokio::time::timeout(limit, all).await.is_ok()
}
