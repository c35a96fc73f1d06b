//! Supervises one handler: heartbeat, lease, deadline, panic and stop (steps 4 and 5 of
//! messaging-reliability 6.2).

use std::time::Duration;

use dray_proto::Work;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::delivery::{WorkCompleted, WorkDelivery, WorkFailure, WorkHandler};
use super::job::WorkJob;
use super::plan::may_continue_unrenewed;
use super::{WorkSettings, WorkerContext};
use crate::backend::{AckAction, PulledMessage};
use crate::ledger::{LedgerError, record};

/// The reason why the handler ended.
pub(super) enum HandlerEnd {
    Completed(WorkCompleted),
    Failed(WorkFailure),
    Panicked,
    /// The deadline passed before the handler ended.
    Expired,
    /// Another worker has the work, or may have it by now: this worker must not write a result.
    LeaseLost,
    /// The time for draining the process is over.
    Stopped,
}

type HandlerOutcome = Option<Result<Result<WorkCompleted, WorkFailure>, JoinError>>;

/// Runs the handler in a separate task, so that a busy handler cannot delay its heartbeat.
pub(super) async fn supervise_handler<W: Work, H: WorkHandler<W>>(
    context: &std::sync::Arc<WorkerContext<H>>,
    job: &mut WorkJob<'_>,
    pulled: &PulledMessage,
    delivery: WorkDelivery<W>,
) -> HandlerEnd {
    let deadline = delivery.meta.deadline;
    let cancel = delivery.cancel.clone();
    let mut task = JoinSet::new();
    let worker = std::sync::Arc::clone(context);
    // The `JoinSet` has one task: dropping it aborts the task on every path out of this function.
    task.spawn(
        async move { worker.handler.handle(delivery).await }.instrument(tracing::Span::current()),
    );
    let mut progress = interval_every(context.ack_wait / 3);
    let mut renewal = interval_every(context.settings.renew);
    let mut renewed = Instant::now();
    loop {
        let expiry = deadline.remaining(context.bus.now_ms());
        let end = tokio::select! {
            // A finished handler has priority over a lease or a deadline that ends simultaneously: its work is done.
            biased;
            outcome = task.join_next() => return handler_end(outcome),
            () = context.hard_stop.cancelled() => HandlerEnd::Stopped,
            _ = progress.tick() => {
                // The limit is the heartbeat period, so that a slow bus does not delay the renewal of the lease.
                extend_ack_deadline(pulled, context.ack_wait / 3).await;
                continue;
            }
            _ = renewal.tick() => match renew_lease(job, &context.settings).await {
                LeaseRenewal::Renewed => {
                    renewed = Instant::now();
                    continue;
                }
                LeaseRenewal::Unanswered
                    if may_continue_unrenewed(renewed.elapsed(), context.settings.outage) =>
                {
                    continue;
                }
                LeaseRenewal::Unanswered | LeaseRenewal::TakenOver => HandlerEnd::LeaseLost,
            },
            () = tokio::time::sleep(expiry) => {
                // The sleep runs on the monotonic clock and the deadline on the wall clock,
                // which may have been set back.
                if !deadline.has_passed(context.bus.now_ms()) {
                    continue;
                }
                HandlerEnd::Expired
            }
        };
        // The handler is cancelled first and aborted after the grace period, because it may have staged objects to
        // remove.
        cancel.cancel();
        return match (
            tokio::time::timeout(context.settings.grace, task.join_next()).await,
            end,
        ) {
            (_, HandlerEnd::LeaseLost) => {
                task.shutdown().await;
                HandlerEnd::LeaseLost
            }
            // The handler finished in the grace period and still had its lease, so its result counts.
            (Ok(Some(Ok(Ok(completed)))), _) => HandlerEnd::Completed(completed),
            (_, end) => {
                task.shutdown().await;
                end
            }
        };
    }
}

pub(super) fn interval_every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    // After a pause of the process one tick is enough; a burst of the missed ticks would flood the bus.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

pub(super) async fn extend_ack_deadline(pulled: &PulledMessage, limit: Duration) {
    let sent = pulled.acker.send(AckAction::Progress);
    if let Ok(Err(error)) = tokio::time::timeout(limit, sent).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not send a heartbeat"
        );
    }
}

/// The outcome of one renewal.
enum LeaseRenewal {
    Renewed,
    /// The bus did not respond. The lease stays valid unless another worker has claimed the work.
    Unanswered,
    /// Another worker has claimed the work.
    TakenOver,
}

/// Renews the lease by one write. The write times out after the interval between two renewals.
async fn renew_lease(job: &mut WorkJob<'_>, settings: &WorkSettings) -> LeaseRenewal {
    let renewed = record::renewed_record(&job.record(), job.bus.now_ms(), settings.lease);
    match tokio::time::timeout(settings.renew, job.write(renewed)).await {
        Ok(Ok(())) => LeaseRenewal::Renewed,
        Ok(Err(LedgerError::Moved)) => LeaseRenewal::TakenOver,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not renew a lease"
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
        // The task is not aborted while it is joined here, so a join error means a panic.
        Some(Err(_)) | None => HandlerEnd::Panicked,
    }
}
