//! Runs the handler of one delivery together with its heartbeat, the renewal of its lease and its deadline
//! (`work::supervise`).

use std::rc::Rc;
use std::time::Duration;

use dray_bus::rules::{may_continue_unrenewed, renewed_record};
use dray_types::Deadline;
use futures_util::future::{Either, select};

use super::{JobError, SimulatedJob, settings};
use crate::bus_model::{ACK_WAIT, WorkAck};
use crate::executor::micros;
use crate::handler::{HandlerContext, HandlerResult, run_handler};

/// The end of a handler.
pub(super) enum HandlerEnd {
    Finished(HandlerResult),
    Expired,
    LeaseLost,
}

impl SimulatedJob {
    /// Runs the handler, and meanwhile sends heartbeats and renews the lease.
    pub(super) async fn supervise(&mut self) -> HandlerEnd {
        let settings = settings();
        let simulation = Rc::clone(&self.simulation);
        let (renew, grace) = (micros(settings.renew), micros(settings.grace));
        let mut handler = Box::pin(run_handler(HandlerContext::of(self)));
        let mut outcome: Option<HandlerResult> = None;
        let mut renewed = simulation.now();
        let mut next_progress = simulation.now() + ACK_WAIT / 3;
        let mut next_renewal = simulation.now() + renew;
        let end = loop {
            if let Some(result) = outcome.take() {
                return HandlerEnd::Finished(result);
            }
            let remaining_time = Deadline::from_unix_ms(self.deadline_ms).remaining(self.now_ms());
            let expires_at = simulation.now() + micros(remaining_time);
            let wake = next_progress.min(next_renewal).min(expires_at);
            let sleep = std::pin::pin!(simulation.executor.sleep_until(wake));
            if let Either::Left((result, _)) = select(&mut handler, sleep).await {
                return HandlerEnd::Finished(result);
            }
            let now = simulation.now();
            if now >= next_progress {
                next_progress = now + ACK_WAIT / 3;
                let progress =
                    simulation.timeout(ACK_WAIT / 3, self.acknowledge(WorkAck::Progress));
                run_beside_handler(&mut handler, &mut outcome, progress).await;
            } else if now >= next_renewal {
                next_renewal = now + renew;
                let renewed_lease = renewed_record(&self.record(), self.now_ms(), settings.lease);
                let renewal = simulation.timeout(renew, self.write(renewed_lease));
                match run_beside_handler(&mut handler, &mut outcome, renewal).await {
                    Some(Ok(())) => renewed = simulation.now(),
                    Some(Err(JobError::Moved)) => break HandlerEnd::LeaseLost,
                    Some(Err(JobError::Unreachable)) | None => {
                        let since = Duration::from_micros(simulation.now() - renewed);
                        if !may_continue_unrenewed(since, settings.outage) {
                            break HandlerEnd::LeaseLost;
                        }
                    }
                }
            } else if Deadline::from_unix_ms(self.deadline_ms).has_passed(self.now_ms()) {
                break HandlerEnd::Expired;
            }
        };
        // The handler is cancelled, and aborted after the grace period.
        let late_outcome = match outcome {
            Some(result) => Some(result),
            None => simulation.timeout(grace, handler).await,
        };
        match (end, late_outcome) {
            // The handler finished in the grace period and still had its lease, so its result is valid.
            (HandlerEnd::Expired, Some(HandlerResult::Completed)) => {
                HandlerEnd::Finished(HandlerResult::Completed)
            }
            (end, _) => end,
        }
    }
}

/// Runs a future to its end while the handler continues.
async fn run_beside_handler<T>(
    handler: &mut std::pin::Pin<Box<impl Future<Output = HandlerResult>>>,
    outcome: &mut Option<HandlerResult>,
    future: impl Future<Output = T>,
) -> T {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        if outcome.is_none()
            && let std::task::Poll::Ready(result) = handler.as_mut().poll(context)
        {
            *outcome = Some(result);
        }
        future.as_mut().poll(context)
    })
    .await
}
