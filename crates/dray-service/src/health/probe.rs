//! Runs the checks behind readiness in rounds.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dray_types::ByteSize;
use futures_util::future::join_all;

use super::ProcessHealth;

type CheckFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// One check that is run in every round.
#[derive(Clone)]
pub(crate) struct ReadinessProbe {
    pub(crate) name: String,
    run: Arc<dyn Fn() -> CheckFuture + Send + Sync>,
}

impl ReadinessProbe {
    pub(crate) fn new<F>(
        name: impl Into<String>,
        run: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            name: name.into(),
            run: Arc::new(move || Box::pin(run())),
        }
    }
}

impl fmt::Debug for ReadinessProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadinessProbe").field(&self.name).finish()
    }
}

/// Runs every probe each `interval`, concurrently, each for at most the interval. It never returns.
pub(crate) async fn run_probes(
    health: ProcessHealth,
    probes: Vec<ReadinessProbe>,
    interval: Duration,
) {
    let mut rounds = tokio::time::interval(interval);
    // Missed rounds, for example while the machine was suspended, are not repeated.
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_ready = health.is_ready();
    loop {
        rounds.tick().await;
        run_round(&health, &probes, interval).await;
        let ready = health.is_ready();
        if ready != was_ready {
            let failing = health.readiness().failing;
            if ready {
                tracing::info!("ready");
            } else {
                tracing::warn!(?failing, "not ready");
            }
            was_ready = ready;
        }
    }
}

/// Runs one round of checks, concurrently.
pub(crate) async fn run_round(health: &ProcessHealth, probes: &[ReadinessProbe], limit: Duration) {
    let checks = probes.iter().map(|probe| async {
        let result = match tokio::time::timeout(limit, (probe.run)()).await {
            Ok(result) => result,
            Err(_) => Err("no response in time".to_owned()),
        };
        if let Err(reason) = &result {
            tracing::debug!(check = %probe.name, %reason, "check failed");
        }
        health.record(&probe.name, result);
    });
    join_all(checks).await;
}

/// Passes when at least `percent` or at least `min_free` of the volume with `directory` is free.
///
/// # Errors
///
/// A sentence with the missing space, or the reason why the volume cannot be checked.
pub fn free_disk(directory: &Path, percent: u8, min_free: ByteSize) -> Result<(), String> {
    let volume = rustix::fs::statvfs(directory)
        .map_err(|error| format!("could not read the state directory: {error}"))?;
    // Blocks that this user may use; `f_bfree` has those reserved for root as well.
    let free = u128::from(volume.f_bavail);
    let is_enough = free * u128::from(volume.f_frsize) >= u128::from(min_free.as_u64());
    if is_enough || free * 100 >= u128::from(volume.f_blocks) * u128::from(percent) {
        return Ok(());
    }
    Err(format!(
        "less than {percent} % and less than {min_free} of the state directory's volume is free"
    ))
}
