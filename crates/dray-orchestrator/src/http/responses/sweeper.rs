//! Finishes responses in the background whose process is gone although no client polls them: each replica follows the records
//! of runs, and looks at those that have not ended. One replica takes a response over, as it does for a poll.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::failure::RequestFailure;
use tokio::time::MissedTickBehavior;

use super::takeover::{ResponseCaller, finish_abandoned};
use crate::http::routes::HttpSurface;
use crate::permissions::CallerIdentity;
use crate::responses::{BackgroundRun, RunState};

/// How long the events of a response are kept after its end, in milliseconds: an hour.
const EVENTS_KEPT_MS: u64 = 3_600_000;
/// Most changes of runs that are read per look, so that a look after a start does not take long.
const MAX_CHANGES: usize = 10_000;

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
    /// Unix milliseconds at which its end was noticed.
    ended_ms: Option<u64>,
}

/// Looks for such responses until the service ends.
pub(crate) async fn sweep_runs(surface: Arc<HttpSurface>) {
    let lease = surface.state.responses.lease();
    let mut due = tokio::time::interval(lease.max(Duration::from_secs(1)));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut runs = KnownRuns::default();
    loop {
        tokio::select! {
            () = surface.stop.cancelled() => return,
            _ = due.tick() => {}
        }
        if let Err(failure) = runs.sweep(&surface).await {
            tracing::debug!(%failure, "could not read the responses in the background");
        }
    }
}

impl KnownRuns {
    /// Reads what has changed, and does what has to be done about each run.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails; the next call continues.
    pub(in crate::http) async fn sweep(
        &mut self,
        surface: &Arc<HttpSurface>,
    ) -> Result<(), RequestFailure> {
        self.read_changes(surface).await?;
        let mut forgotten = Vec::new();
        for (id, known) in &mut self.by_id {
            if surface.stop.is_cancelled() {
                break;
            }
            if known.look(surface, id).await? {
                forgotten.push(id.clone());
            }
        }
        for id in forgotten {
            self.by_id.remove(&id);
        }
        Ok(())
    }

    /// Ids of the runs that are known, in no order.
    #[cfg(test)]
    pub(in crate::http) fn ids(&self) -> Vec<&str> {
        self.by_id.keys().map(String::as_str).collect()
    }

    async fn read_changes(&mut self, surface: &HttpSurface) -> Result<(), RequestFailure> {
        for _ in 0..MAX_CHANGES {
            let Some(change) = surface.state.responses.next_run(self.from).await? else {
                break;
            };
            self.from = change.revision + 1;
            match change.value {
                Some(run) => {
                    let known = KnownRun {
                        run,
                        ended_ms: None,
                    };
                    self.by_id.insert(change.id, known);
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
    /// Does what has to be done about a run. Returns whether it was forgotten.
    async fn look(&mut self, surface: &Arc<HttpSurface>, id: &str) -> Result<bool, RequestFailure> {
        let responses = &surface.state.responses;
        let principal = &self.run.principal;
        match responses.run_state(principal, id, true).await? {
            RunState::Running => return Ok(false),
            RunState::Abandoned => {
                self.finish(surface, id).await;
                return Ok(false);
            }
            RunState::Ended { has_events: true } => {
                let now_ms = responses.now_ms();
                let ended_ms = *self.ended_ms.get_or_insert(now_ms);
                if now_ms < ended_ms.saturating_add(EVENTS_KEPT_MS) {
                    return Ok(false);
                }
            }
            RunState::Ended { has_events: false } | RunState::Gone => {}
        }
        responses.forget_events(principal, id).await;
        responses.forget_run(id).await;
        Ok(true)
    }

    /// Finishes a response, or reports it. A failure is left to the next sweep.
    async fn finish(&self, surface: &Arc<HttpSurface>, id: &str) {
        let identity = CallerIdentity::of_key(&self.run.principal);
        // The client may have lost its key meanwhile.
        let identity = identity.filter(|identity| surface.options.admits(identity));
        let Some(identity) = identity.filter(|_| !self.run.needs_client) else {
            return;
        };
        let caller = ResponseCaller {
            caller: Caller {
                forwarded: self.run.headers.clone(),
                language: self.run.language.clone(),
                ..Caller::default()
            },
            identity,
            principal: self.run.principal.clone(),
        };
        let principal = &self.run.principal;
        let finished = async {
            if finish_abandoned(surface, caller, id).await? {
                surface.state.responses.poll(principal, id, true).await?;
            }
            Ok::<_, RequestFailure>(())
        };
        if let Err(failure) = finished.await {
            tracing::warn!(%failure, response = id, "an abandoned response was not finished");
        }
    }
}
