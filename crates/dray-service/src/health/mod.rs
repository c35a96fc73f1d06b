//! The health checks of a process: liveness, startup and readiness, and the pages that report them.
//!
//! Liveness depends only on this process, readiness also on its dependencies (messaging-reliability 16). The host and
//! the load balancer read the result; this module does not control traffic.

mod gate;
mod metrics;
mod pages;
mod probe;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use gate::ReadinessGate;
pub(crate) use metrics::observe_readiness;
pub(crate) use pages::{HealthPages, health_routes};
pub use probe::free_disk;
pub(crate) use probe::{ReadinessProbe, run_probes};

/// Longest time that the watchdog may go without being scheduled.
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(10);

/// Health of this process right now. Clones share it.
#[derive(Clone, Debug)]
pub struct ProcessHealth {
    inner: Arc<HealthInner>,
}

#[derive(Debug)]
struct HealthInner {
    state: Mutex<HealthState>,
    ready: watch::Sender<bool>,
}

#[derive(Debug)]
struct HealthState {
    tick: Instant,
    started: bool,
    stopping: bool,
    checks: BTreeMap<String, ReadinessGate>,
}

/// The body of `/ready`. It lists the checks, with one sentence for each failed one, and contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadinessReport {
    /// Whether the process accepts work now.
    pub ready: bool,
    /// Whether the process is stopping.
    pub stopping: bool,
    /// Every check that does not pass, with the reason.
    pub failing: BTreeMap<String, String>,
}

impl ProcessHealth {
    /// A process that is live, not started, and not ready.
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::new(HealthInner {
                state: Mutex::new(HealthState {
                    tick: Instant::now(),
                    started: false,
                    stopping: false,
                    checks: BTreeMap::new(),
                }),
                ready: watch::Sender::new(false),
            }),
        }
    }

    /// Returns whether the watchdog was scheduled within the last 10 s.
    pub fn is_live(&self) -> bool {
        self.lock().tick.elapsed() < WATCHDOG_TIMEOUT
    }

    /// Whether start-up is complete: configuration valid, topology verified, services started.
    pub fn has_started(&self) -> bool {
        self.lock().started
    }

    /// Returns whether the process accepts work.
    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Resolves when the process accepts work.
    pub async fn wait_ready(&self) {
        self.wait(true).await;
    }

    /// Resolves when the process accepts no work.
    pub async fn wait_unready(&self) {
        self.wait(false).await;
    }

    async fn wait(&self, ready: bool) {
        // The sender lives in `self`, so the channel cannot close while this waits.
        let _ = self
            .inner
            .ready
            .subscribe()
            .wait_for(|current| *current == ready)
            .await;
    }

    /// Readiness with the reasons for a failure.
    pub fn readiness(&self) -> ReadinessReport {
        let state = self.lock();
        let mut failing: BTreeMap<String, String> = state
            .checks
            .iter()
            .filter_map(|(name, gate)| Some((name.clone(), gate.failure()?.to_owned())))
            .collect();
        if !state.started {
            failing.insert("start".to_owned(), "start-up is not complete".to_owned());
        }
        ReadinessReport {
            ready: state.is_ready(),
            stopping: state.stopping,
            failing,
        }
    }

    pub(crate) fn tick(&self) {
        self.lock().tick = Instant::now();
    }

    pub(crate) fn set_started(&self) {
        self.change(|state| state.started = true);
    }

    pub(crate) fn set_stopping(&self) {
        self.change(|state| state.stopping = true);
    }

    /// Registers a check that has to pass once before the process is ready.
    pub(crate) fn expect(&self, check: &str) {
        self.change(|state| {
            state.checks.entry(check.to_owned()).or_default();
        });
    }

    /// Records the result of one run of a check.
    pub(crate) fn record(&self, check: &str, result: Result<(), String>) {
        self.change(|state| {
            state
                .checks
                .entry(check.to_owned())
                .or_default()
                .record(result);
        });
    }

    fn change(&self, change: impl FnOnce(&mut HealthState)) {
        let mut state = self.lock();
        change(&mut state);
        let ready = state.is_ready();
        // The change is published under the lock: concurrent changes are published in the order in which they were
        // made.
        self.inner
            .ready
            // Waiters are woken by changes alone, not by each round of checks.
            .send_if_modified(|current| std::mem::replace(current, ready) != ready);
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl HealthState {
    fn is_ready(&self) -> bool {
        self.started && !self.stopping && self.checks.values().all(ReadinessGate::is_open)
    }
}
