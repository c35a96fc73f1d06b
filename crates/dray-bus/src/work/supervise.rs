//! Running one handler: heartbeat, lease, deadline, panic, stop (step 4 and 5 of messaging-reliability 6.2).

use std::time::Duration;

use dray_proto::Work;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Instrument as _;

use super::delivery::{Completed, Delivery, Failure, WorkHandler};
use super::job::Job;
use super::{Shop, WorkSettings};
use crate::backend::{Ack, Pulled};
use crate::ledger::{LedgerError, record};

/// How the handler ended.
pub(super) enum Ended {
    Completed(Completed),
    Failed(Failure),
    Panicked,
    /// The deadline passed first.
    Expired,
    /// Another worker has it, or may have it by now: nothing may be written any more.
    LeaseLost,
    /// The process stops.
    Stopped,
}

type Outcome = Option<Result<Result<Completed, Failure>, JoinError>>;

/// Runs the handler in a task of its own, so that it cannot hold up its own heartbeat.
pub(super) async fn supervise<W: Work, H: WorkHandler<W>>(
    shop: &std::sync::Arc<Shop<H>>,
    job: &mut Job<'_>,
    pulled: &Pulled,
    delivery: Delivery<W>,
) -> Ended {
    let deadline = delivery.meta.deadline;
    let cancel = delivery.cancel.clone();
    let mut task = JoinSet::new();
    let worker = std::sync::Arc::clone(shop);
    task.spawn(
        async move { worker.handler.handle(delivery).await }.instrument(tracing::Span::current()),
    );
    let mut progress = every(shop.ack_wait / 3);
    let mut renewal = every(shop.settings.renew);
    let mut renewed = Instant::now();
    loop {
        let expiry = deadline.remaining(shop.bus.now_ms());
        let cut = tokio::select! {
            biased;
            outcome = task.join_next() => return ended(outcome),
            () = shop.hard_stop.cancelled() => Ended::Stopped,
            _ = progress.tick() => {
                heartbeat(pulled, shop.ack_wait / 3).await;
                continue;
            }
            _ = renewal.tick() => match renew(job, &shop.settings).await {
                Renewal::Renewed => {
                    renewed = Instant::now();
                    continue;
                }
                Renewal::Unanswered if renewed.elapsed() < shop.settings.outage => continue,
                Renewal::Unanswered | Renewal::TakenOver => Ended::LeaseLost,
            },
            () = tokio::time::sleep(expiry) => {
                if !deadline.has_passed(shop.bus.now_ms()) {
                    continue;
                }
                Ended::Expired
            }
        };
        cancel.cancel();
        return match (
            tokio::time::timeout(shop.settings.grace, task.join_next()).await,
            cut,
        ) {
            (_, Ended::LeaseLost) => {
                task.shutdown().await;
                Ended::LeaseLost
            }
            // It finished after all, with its lease in hand: what was done counts.
            (Ok(Some(Ok(Ok(completed)))), _) => Ended::Completed(completed),
            (_, cut) => {
                task.shutdown().await;
                cut
            }
        };
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn heartbeat(pulled: &Pulled, limit: Duration) {
    let sent = pulled.acker.send(Ack::Progress);
    if let Ok(Err(error)) = tokio::time::timeout(limit, sent).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a heartbeat was not sent"
        );
    }
}

/// What became of one renewal.
enum Renewal {
    Renewed,
    /// The bus did not answer. The claim stands as long as no other worker has claimed the work.
    Unanswered,
    /// Another worker has claimed the work.
    TakenOver,
}

/// Prolongs the lease by one write, which may take no longer than the pause between two of them.
async fn renew(job: &mut Job<'_>, settings: &WorkSettings) -> Renewal {
    let longer = record::renewed(&job.record(), job.bus.now_ms(), settings.lease);
    match tokio::time::timeout(settings.renew, job.write(longer)).await {
        Ok(Ok(())) => Renewal::Renewed,
        Ok(Err(LedgerError::Moved)) => Renewal::TakenOver,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a lease was not renewed"
            );
            Renewal::Unanswered
        }
        Err(_elapsed) => Renewal::Unanswered,
    }
}

fn ended(outcome: Outcome) -> Ended {
    match outcome {
        Some(Ok(Ok(completed))) => Ended::Completed(completed),
        Some(Ok(Err(failure))) => Ended::Failed(failure),
        Some(Err(_)) | None => Ended::Panicked,
    }
}
