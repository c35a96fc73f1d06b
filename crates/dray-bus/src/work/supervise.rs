//! The supervision of one handler: heartbeat, lease, deadline, panic, stop (steps 4 and 5 of
//! messaging-reliability 6.2).

use std::time::Duration;

use dray_proto::Work;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::delivery::{WorkCompleted, WorkDelivery, WorkFailure, WorkHandler};
use super::job::WorkJob;
use super::{WorkSettings, WorkerContext};
use crate::backend::{AckAction, PulledMessage};
use crate::ledger::{LedgerError, record};

/// How the handler ended.
pub(super) enum HandlerEnd {
    Completed(WorkCompleted),
    Failed(WorkFailure),
    Panicked,
    /// The deadline passed first.
    Expired,
    /// Another worker has it, or may have it by now: nothing may be written any more.
    LeaseLost,
    /// The drain of the process is over.
    Stopped,
}

type HandlerOutcome = Option<Result<Result<WorkCompleted, WorkFailure>, JoinError>>;

/// Runs the handler in a task of its own, so that it cannot hold up its own heartbeat.
pub(super) async fn supervise_handler<W: Work, H: WorkHandler<W>>(
    shop: &std::sync::Arc<WorkerContext<H>>,
    job: &mut WorkJob<'_>,
    pulled: &PulledMessage,
    delivery: WorkDelivery<W>,
) -> HandlerEnd {
    let deadline = delivery.meta.deadline;
    let cancel = delivery.cancel.clone();
    let mut task = JoinSet::new();
    let worker = std::sync::Arc::clone(shop);
    // A `JoinSet` of one: dropping it aborts the task, on every path out of this function.
    task.spawn(
        async move { worker.handler.handle(delivery).await }.instrument(tracing::Span::current()),
    );
    let mut progress = interval_every(shop.ack_wait / 3);
    let mut renewal = interval_every(shop.settings.renew);
    let mut renewed = Instant::now();
    loop {
        let expiry = deadline.remaining(shop.bus.now_ms());
        let cut = tokio::select! {
            // An ended handler wins over a lease or a deadline that ended in the same moment: its work is done.
            biased;
            outcome = task.join_next() => return handler_end(outcome),
            () = shop.hard_stop.cancelled() => HandlerEnd::Stopped,
            _ = progress.tick() => {
                // Bounded by its own period, so that a slow bus does not keep the lease from being renewed.
                extend_ack_deadline(pulled, shop.ack_wait / 3).await;
                continue;
            }
            _ = renewal.tick() => match renew_lease(job, &shop.settings).await {
                LeaseRenewal::Renewed => {
                    renewed = Instant::now();
                    continue;
                }
                LeaseRenewal::Unanswered if renewed.elapsed() < shop.settings.outage => continue,
                LeaseRenewal::Unanswered | LeaseRenewal::TakenOver => HandlerEnd::LeaseLost,
            },
            () = tokio::time::sleep(expiry) => {
                // The sleep runs on the monotonic clock and the deadline on the wall clock,
                // which may have been set back.
                if !deadline.has_passed(shop.bus.now_ms()) {
                    continue;
                }
                HandlerEnd::Expired
            }
        };
        // The handler is asked first and aborted after the grace: it may have staging places to remove.
        cancel.cancel();
        return match (
            tokio::time::timeout(shop.settings.grace, task.join_next()).await,
            cut,
        ) {
            (_, HandlerEnd::LeaseLost) => {
                task.shutdown().await;
                HandlerEnd::LeaseLost
            }
            // It finished after all, with its lease in hand: what was done counts.
            (Ok(Some(Ok(Ok(completed)))), _) => HandlerEnd::Completed(completed),
            (_, cut) => {
                task.shutdown().await;
                cut
            }
        };
    }
}

pub(super) fn interval_every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    // After a pause of the process one tick is enough; a burst of missed ones would flood the bus.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

pub(super) async fn extend_ack_deadline(pulled: &PulledMessage, limit: Duration) {
    let sent = pulled.acker.send(AckAction::Progress);
    if let Ok(Err(error)) = tokio::time::timeout(limit, sent).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a heartbeat was not sent"
        );
    }
}

/// The outcome of one renewal.
enum LeaseRenewal {
    Renewed,
    /// The bus did not answer. The claim stands as long as no other worker has claimed the work.
    Unanswered,
    /// Another worker has claimed the work.
    TakenOver,
}

/// Prolongs the lease by one write, which may take no longer than the pause between two of them.
async fn renew_lease(job: &mut WorkJob<'_>, settings: &WorkSettings) -> LeaseRenewal {
    let longer = record::renewed_record(&job.record(), job.bus.now_ms(), settings.lease);
    match tokio::time::timeout(settings.renew, job.write(longer)).await {
        Ok(Ok(())) => LeaseRenewal::Renewed,
        Ok(Err(LedgerError::Moved)) => LeaseRenewal::TakenOver,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a lease was not renewed"
            );
            LeaseRenewal::Unanswered
        }
        Err(_elapsed) => LeaseRenewal::Unanswered,
    }
}

fn handler_end(outcome: HandlerOutcome) -> HandlerEnd {
    match outcome {
        Some(Ok(Ok(completed))) => HandlerEnd::Completed(completed),
        Some(Ok(Err(failure))) => HandlerEnd::Failed(failure),
        // Nothing aborts the task while it is joined here, so an error of the join is a panic.
        Some(Err(_)) | None => HandlerEnd::Panicked,
    }
}
