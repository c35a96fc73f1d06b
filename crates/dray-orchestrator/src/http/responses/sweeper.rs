//! Finishes responses in the background whose process has ended although no client polls them: each replica follows the
//! records of runs, and checks those that have not ended. One replica takes a response over, as it does for a poll.
//!
//! A sweep reads the record of a response only when something can be due for it: after the end of its lease while it
//! runs, and once after its end, when its events are deleted. So the work of a sweep grows with the responses that run,
//! not with those that have ended. A record that cannot be read is counted and left as it is, and the sweep continues
//! with the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use dray_types::whole_millis;
use tokio::time::MissedTickBehavior;

use super::takeover::{Abandonment, ResponseCaller, finish_abandoned};
use crate::http::current::CurrentSurface;
use crate::http::routes::HttpSurface;
use crate::permissions::CallerIdentity;
use crate::records::StoredValue;
use crate::responses::{BackgroundRun, RunState};

/// How long the events of a response are kept after its end, in milliseconds: an hour.
const EVENTS_KEPT_MS: u64 = 3_600_000;
/// Time until the next check of a run about which this replica can do nothing, in milliseconds: an hour. Its record is
/// not readable, or only a request of its client can finish it.
const IDLE_CHECK_MS: u64 = 3_600_000;
/// Most changes of runs that are read per sweep, so that a sweep after a start does not take long.
const MAX_CHANGES: usize = 10_000;
/// Failures that end a sweep: the bus or the store fails, and each further read would wait for its timeout.
const MAX_FAILURES: usize = 8;

/// The runs that have not been forgotten.
#[derive(Debug, Default)]
pub(in crate::http) struct KnownRuns {
    by_id: HashMap<String, KnownRun>,
    /// The next revision to read.
    from: u64,
}

#[derive(Debug)]
struct KnownRun {
    run: BackgroundRun,
    /// Whether a sweep has found that its response has ended.
    has_ended: bool,
    /// Unix milliseconds before which nothing is due for it.
    due_ms: u64,
}

/// Counts of one sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct SweepReport {
    /// Responses whose records were read.
    pub(in crate::http) looks: usize,
    /// Records that this version cannot read.
    pub(in crate::http) unreadable: usize,
    /// Runs, or changes of runs, that failed because of the bus or the store.
    pub(in crate::http) failed: usize,
}

/// When the next check reads a run's record.
enum NextCheck {
    /// At this time, in Unix milliseconds.
    At(u64),
    /// An hour later, because this version cannot read the response's record.
    Unreadable,
    /// Never again: nothing can be due for the response.
    Never,
}

/// Finishes responses that have lost their process, in one sweep per lease, until the service ends.
pub(crate) async fn sweep_runs(current: CurrentSurface) {
    let surface = current.get();
    let mut due = tokio::time::interval(poll_interval(&surface));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut runs = KnownRuns::default();
    loop {
        tokio::select! {
            () = surface.stop.cancelled() => return,
            _ = due.tick() => {}
        }
        // Clients may have been added or removed since the last sweep.
        let report = runs.sweep(&current.get()).await;
        surface.metrics.unreadable_runs(report.unreadable);
        tracing::trace!(?report, "checked for responses without a process");
    }
}

fn poll_interval(surface: &HttpSurface) -> Duration {
    surface.state.responses.lease().max(Duration::from_secs(1))
}

impl KnownRuns {
    /// Reads what has changed, and does what is due for each run. What fails is left to the next sweeps.
    pub(in crate::http) async fn sweep(&mut self, surface: &Arc<HttpSurface>) -> SweepReport {
        let mut report = SweepReport::default();
        if let Err(failure) = self.read_changes(surface, &mut report).await {
            tracing::debug!(%failure, "new responses in the background are not known yet");
            report.failed += 1;
        }
        let now_ms = surface.state.responses.now_ms();
        let mut forgotten = Vec::new();
        for (id, known) in &mut self.by_id {
            if surface.stop.is_cancelled() || report.failed >= MAX_FAILURES {
                break;
            }
            if known.due_ms > now_ms {
                continue;
            }
            report.looks += 1;
            match known.look(surface, id).await {
                Ok(NextCheck::At(due_ms)) => known.due_ms = due_ms,
                Ok(NextCheck::Unreadable) => {
                    report.unreadable += 1;
                    known.due_ms = now_ms.saturating_add(IDLE_CHECK_MS);
                    tracing::warn!(response = id, "the record of a response cannot be read");
                }
                Ok(NextCheck::Never) => forgotten.push(id.clone()),
                Err(failure) => {
                    report.failed += 1;
                    // The next sweep begins with other runs: a run that always fails must not prevent their checks.
                    let pause_ms = 2 * whole_millis(poll_interval(surface));
                    known.due_ms = now_ms.saturating_add(pause_ms);
                    tracing::warn!(%failure, response = id, "a response in the background was not checked");
                }
            }
        }
        for id in forgotten {
            self.by_id.remove(&id);
        }
        report
    }

    /// Ids of the runs that are known, in no order.
    #[cfg(test)]
    pub(in crate::http) fn ids(&self) -> Vec<&str> {
        self.by_id.keys().map(String::as_str).collect()
    }

    /// # Errors
    ///
    /// 503 while the bus fails; the next call continues.
    async fn read_changes(
        &mut self,
        surface: &HttpSurface,
        report: &mut SweepReport,
    ) -> Result<(), RequestFailure> {
        for _ in 0..MAX_CHANGES {
            let Some(change) = surface.state.responses.next_run(self.from).await? else {
                break;
            };
            self.from = change.revision + 1;
            match change.value {
                Some(StoredValue::Readable(run)) => {
                    let known = KnownRun {
                        run,
                        has_ended: false,
                        due_ms: 0,
                    };
                    self.by_id.insert(change.id, known);
                }
                Some(StoredValue::Unreadable) => {
                    report.unreadable += 1;
                    tracing::warn!(response = change.id, "the record of a run cannot be read");
                }
                None => {
                    self.by_id.remove(&change.id);
                }
            }
        }
        Ok(())
    }
}

impl KnownRun {
    /// Does what is due for a run.
    ///
    /// # Errors
    ///
    /// 503 while the bus or the store fails, or this replica has no room for another turn.
    async fn look(
        &mut self,
        surface: &Arc<HttpSurface>,
        id: &str,
    ) -> Result<NextCheck, RequestFailure> {
        let responses = &surface.state.responses;
        let principal = &self.run.principal;
        match responses.run_state(principal, id, true).await? {
            RunState::Running { until_ms } => return Ok(NextCheck::At(until_ms)),
            RunState::Unreadable => return Ok(NextCheck::Unreadable),
            RunState::Abandoned => return self.finish(surface, id).await,
            RunState::Ended { has_events: true } if !self.has_ended => {
                self.has_ended = true;
                let now_ms = responses.now_ms();
                return Ok(NextCheck::At(now_ms.saturating_add(EVENTS_KEPT_MS)));
            }
            RunState::Ended { .. } | RunState::Gone => {}
        }
        // The run stays until its events are deleted: by another replica, or after the next start.
        if responses.forget_events(principal, id).await {
            responses.forget_run(id).await;
        }
        Ok(NextCheck::Never)
    }

    /// Finishes a response, or reports it.
    async fn finish(
        &self,
        surface: &Arc<HttpSurface>,
        id: &str,
    ) -> Result<NextCheck, RequestFailure> {
        let responses = &surface.state.responses;
        let principal = &self.run.principal;
        let has_to_be_reported = match self.caller(surface) {
            Some(caller) => finish_abandoned(surface, caller, id).await?,
            None => match Abandonment::of(surface, principal, id).await? {
                Abandonment::None => false,
                Abandonment::Lost => true,
                Abandonment::Finishable => {
                    tracing::info!(
                        response = id,
                        "a response waits for a request of its client"
                    );
                    let now_ms = responses.now_ms();
                    return Ok(NextCheck::At(now_ms.saturating_add(IDLE_CHECK_MS)));
                }
            },
        };
        if has_to_be_reported {
            responses.poll(principal, id, true).await?;
        }
        Ok(NextCheck::At(0))
    }

    /// For whom a replica finishes the response by itself; `None` when only a request of its client can.
    fn caller(&self, surface: &HttpSurface) -> Option<ResponseCaller> {
        let identity = CallerIdentity::of_key(&self.run.principal);
        // The client may have lost its key meanwhile.
        let identity = identity.filter(|identity| surface.options.admits(identity));
        let identity = identity.filter(|_| !self.run.needs_client)?;
        Some(ResponseCaller {
            caller: Caller {
                forwarded: self.run.headers.clone(),
                language: self.run.language.clone(),
                ..Caller::default()
            },
            identity,
            principal: self.run.principal.clone(),
        })
    }
}
