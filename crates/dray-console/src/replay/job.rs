//! The replay itself: reads the audit stream of the tenant and judges each request by the second policy, within limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_bus::EventFilter;
use dray_guard::RuleSet;
use dray_guard::ruleset::Caller;
use dray_guard::ruleset::replay::{PolicyReplay, RequestRecord};
use dray_proto::v1;
use dray_types::{Fault, FaultCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::shown;

/// Replays that run at the same time in the console.
const MAX_RUNNING_REPLAYS: usize = 2;
/// Replays whose results are kept, one for each login.
const MAX_STORED_REPLAYS: usize = 16;
/// Events that one replay reads.
const MAX_EVENTS: u64 = 500_000;
/// Longest time for one replay.
const REPLAY_TIMEOUT: Duration = Duration::from_mins(2);
/// The stream is read to its end when no message arrives for this long.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Events after which the task yields and checks its limits.
const CHECK_EVENTS: u64 = 64;

/// The newest replay of each login.
#[derive(Debug, Default)]
pub(crate) struct ReplayStore(Mutex<HashMap<String, Arc<ReplayJob>>>);

/// A replay of recorded requests under a second policy, which runs beside the page that started it.
#[derive(Debug)]
pub(super) struct ReplayJob {
    /// SHA-256 of the second policy, as `dray policy test` names it.
    pub(super) digest: String,
    pub(super) rules: usize,
    /// Start of the window, in Unix milliseconds; earlier requests are not judged.
    pub(super) since_ms: u64,
    progress: Mutex<ReplayProgress>,
    cancel: CancellationToken,
}

/// The progress of a replay.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayProgress {
    pub(super) ending: Option<ReplayEnding>,
    /// Events that were read, the few before the window included.
    pub(super) events: u64,
    /// Unix milliseconds of the newest event that was read.
    pub(super) read_to_ms: u64,
    pub(super) replay: PolicyReplay,
}

/// The reason why a replay ended.
#[derive(Clone, Debug)]
pub(super) enum ReplayEnding {
    /// The replay reached the end of the stream.
    Complete,
    Cancelled,
    /// The replay reached a limit of the console, named here; later requests were not judged.
    Limited(&'static str),
    Failed(Box<Fault>),
}

impl ReplayStore {
    /// The replay of a login.
    pub(super) fn find(&self, login: &str) -> Option<Arc<ReplayJob>> {
        self.lock().get(login).map(Arc::clone)
    }

    /// Adds a replay, which replaces and cancels an earlier one of the login.
    ///
    /// # Errors
    /// [`MAX_RUNNING_REPLAYS`] replays of other logins run.
    pub(super) fn begin(
        &self,
        login: &str,
        job: ReplayJob,
        is_open: impl Fn(&str) -> bool,
    ) -> Result<Arc<ReplayJob>, Fault> {
        let mut jobs = self.lock();
        // A login that begins another replay has no use for the first.
        if let Some(earlier) = jobs.remove(login) {
            earlier.cancel();
        }
        jobs.retain(|login, job| {
            let is_kept = is_open(login);
            if !is_kept {
                job.cancel();
            }
            is_kept
        });
        let running = jobs.values().filter(|job| job.progress().ending.is_none());
        let is_busy = running.count() >= MAX_RUNNING_REPLAYS;
        if jobs.len() >= MAX_STORED_REPLAYS {
            // More replays are kept than may run, so at least one of them has ended.
            let ended = jobs
                .iter()
                .find(|(_, job)| job.progress().ending.is_some())
                .map(|(login, _)| login.clone());
            if let Some(login) = ended {
                jobs.remove(&login);
            }
        }
        if is_busy {
            return Err(Fault::new(
                FaultCode::RateLimited,
                "Other logins have replays that run. Wait for their end.",
            )
            .detail("replays"));
        }
        let job = Arc::new(job);
        jobs.insert(login.to_owned(), Arc::clone(&job));
        Ok(job)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<ReplayJob>>> {
        // Every change is one insertion or removal, so a poisoned map is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplayJob {
    pub(super) fn new(rules: &RuleSet, since_ms: u64, stop: &CancellationToken) -> Self {
        Self {
            digest: rules.digest().to_owned(),
            rules: rules.rule_count(),
            since_ms,
            progress: Mutex::default(),
            cancel: stop.child_token(),
        }
    }

    /// The progress until now.
    pub(super) fn progress(&self) -> ReplayProgress {
        self.lock().clone()
    }

    pub(super) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Reads the stream to its end, a limit, the end of the login, or until it is cancelled.
    pub(super) async fn run(&self, state: &ConsoleState, session: &ConsoleSession, rules: RuleSet) {
        let reading = self.read(state, session, &rules);
        let ending = match self.cancel.run_until_cancelled(reading).await {
            Some(Ok(ending)) => ending,
            Some(Err(fault)) => ReplayEnding::Failed(Box::new(fault)),
            None => ReplayEnding::Cancelled,
        };
        self.lock().ending = Some(ending);
    }

    async fn read(
        &self,
        state: &ConsoleState,
        session: &ConsoleSession,
        rules: &RuleSet,
    ) -> Result<ReplayEnding, Fault> {
        let tenant = state.tenant.token();
        let filter = EventFilter::new(format!("dray.audit.egress.v1.fetched.{tenant}"));
        let unreadable = |error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the audit stream cannot be read for a replay"
            );
            Fault::new(FaultCode::Unavailable, "The audit stream cannot be read.")
                .detail("audit_unreadable")
        };
        // The index knows a sequence near the start of the window. On a busy system, a replay from the first event
        // would reach its limit of events before the window.
        let start = state.index.audit_start(self.since_ms);
        let events = state.bus.events(filter.from_sequence(start)).await;
        let mut events = events.map_err(unreadable)?;
        let (started, end_ms) = (Instant::now(), state.now_ms());
        // A stream has no end; events that are published while it is read belong to the next replay.
        while let Ok(event) = tokio::time::timeout(END_TIMEOUT, events.next()).await {
            let event = event.map_err(unreadable)?;
            // Times are those of the stream, so that clocks of services do not matter.
            if event.time_ms > end_ms {
                break;
            }
            let read = self.add(state.tenant.as_str(), rules, &event);
            if read >= MAX_EVENTS {
                return Ok(ReplayEnding::Limited("500,000 events"));
            }
            if read.is_multiple_of(CHECK_EVENTS) {
                if started.elapsed() > REPLAY_TIMEOUT {
                    return Ok(ReplayEnding::Limited("two minutes"));
                }
                if !state.sessions.is_open(&session.login, state.now_ms()) {
                    return Ok(ReplayEnding::Cancelled);
                }
                // A stream in memory is always ready, so this task would not let others on its thread run.
                tokio::task::yield_now().await;
            }
        }
        Ok(ReplayEnding::Complete)
    }

    /// Judges the request of one event; returns how many events were read.
    fn add(&self, tenant: &str, rules: &RuleSet, event: &dray_bus::ObservedEvent) -> u64 {
        // The lock is held while one request is judged, so a page that reads the progress waits for microseconds at
        // most.
        let mut progress = self.lock();
        progress.events += 1;
        progress.read_to_ms = event.time_ms;
        if event.time_ms >= self.since_ms
            // An event of a newer service that cannot be decoded is not judged.
            && let Ok(audit) = event.decode::<v1::EgressAudit>()
        {
            let record = record_of(&audit, tenant);
            record.compare(&mut progress.replay, &record.baseline(), Some(rules));
        }
        progress.events
    }

    fn lock(&self) -> MutexGuard<'_, ReplayProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request of an audit event. `tenant` is for events of older services, which do not contain it.
fn record_of<'a>(audit: &'a v1::EgressAudit, tenant: &'a str) -> RequestRecord<'a> {
    let tenant = match audit.tenant_id.as_str() {
        "" => tenant,
        tenant => tenant,
    };
    RequestRecord {
        scheme: &audit.url_scheme,
        host: &audit.url_host,
        port: audit.url_port,
        proxy_protocol: &audit.proxy_protocol,
        proxy_stage: &audit.proxy_stage,
        is_intercepted: audit.intercepted,
        method: &audit.method,
        caller: Caller {
            tenant: tenant.to_owned(),
            session: audit.session_id.clone(),
            app: audit.app_id.clone(),
            certificate: audit.client_certificate.clone(),
        },
        time_ms: audit.time_ms,
        verdict: &audit.verdict,
        code: &audit.code,
        phase: &audit.phase,
        is_lookup: audit.lookup_only,
        decided_by: &audit.decided_by,
        reported_by: &audit.reported_by,
        rules_digest: &audit.rules_digest,
        question_id: &audit.question_id,
        refused_by: &audit.rule,
        is_redirected: audit
            .hops
            .iter()
            .rfind(|hop| !hop.robots)
            .is_some_and(|hop| hop.index > 0),
    }
}

/// The problems of policy files, for people.
pub(super) fn policy_fault(problems: &[dray_guard::ruleset::PolicyFileProblem]) -> Fault {
    let lines: Vec<String> = problems.iter().take(5).map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(lines.len());
    let more = match more {
        0 => String::new(),
        more => format!(" And {more} more."),
    };
    Fault::new(
        FaultCode::InvalidArgument,
        format!(
            "The policy has mistakes: {}.{more}",
            shown(lines.join("; "))
        ),
    )
    .detail("policy_invalid")
}
