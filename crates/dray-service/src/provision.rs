//! Creates the streams and consumers that services rely on, or reports how they differ.
//!
//! Services only verify (messaging-reliability 3.3). Applying is for the provisioning job (`dray topology apply`)
//! and for the embedded mode, whose bus begins empty.

use std::time::Duration;

use dray_bus::{Bus, Topology, TopologyError, TopologyMismatch};

/// The topology could not be read or created, or it differs from the required one.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// The bus did not respond, or refused a change.
    #[error("could not read or create the topology")]
    Topology(#[from] TopologyError),
    /// Streams or consumers differ from those that the services need.
    #[error("the topology has {} differences (run `dray topology apply`): {}", .0.len(), list_mismatches(.0))]
    Differs(Vec<TopologyMismatch>),
}

fn list_mismatches(mismatches: &[TopologyMismatch]) -> String {
    let lines: Vec<String> = mismatches.iter().map(TopologyMismatch::to_string).collect();
    lines.join("; ")
}

/// Creates what is missing and updates what differs. Fails if differences remain.
pub async fn apply_topology(bus: &Bus, topology: &Topology) -> Result<(), ProvisionError> {
    fail_on_mismatch(bus.apply_topology(topology).await?)
}

/// Compares the topology and changes nothing. Fails with every difference.
pub async fn check_topology(bus: &Bus, topology: &Topology) -> Result<(), ProvisionError> {
    fail_on_mismatch(bus.verify_topology(topology).await?)
}

fn fail_on_mismatch(mismatches: Vec<TopologyMismatch>) -> Result<(), ProvisionError> {
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(ProvisionError::Differs(mismatches))
    }
}

/// Checks repeatedly until the topology matches or `timeout` has passed: at the first start of a system the
/// provisioning job may still be running.
pub(crate) async fn wait_until_verified(
    bus: &Bus,
    topology: &Topology,
    timeout: Duration,
) -> Result<(), ProvisionError> {
    let end = tokio::time::Instant::now() + timeout;
    let mut reported = String::new();
    loop {
        match check_topology(bus, topology).await {
            Ok(()) => return Ok(()),
            // At least one check is made, even with a `timeout` of zero.
            Err(error) if tokio::time::Instant::now() >= end => return Err(error),
            // The error is logged once for each cause, because the check is repeated every two seconds.
            Err(error) => {
                let cause = dray_types::ErrorChain(&error).to_string();
                if cause != reported {
                    tracing::warn!(error = cause, "waiting for the topology");
                    reported = cause;
                }
            }
        }
        tokio::time::sleep(TOPOLOGY_POLL_INTERVAL).await;
    }
}

/// Time between two checks of the topology at the start.
const TOPOLOGY_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Time between two checks of the topology while the services run.
pub(crate) const VERIFY_INTERVAL: Duration = Duration::from_mins(1);

/// Compares the topology immediately and after each `interval`, and logs each new difference. The comparison is recorded in
/// `dray_topology_mismatch`, so that what an operator changes while the services run becomes an alert. Never returns.
pub(crate) async fn verify_regularly(bus: Bus, topology: Topology, interval: Duration) {
    let mut reported = String::new();
    loop {
        match bus.verify_topology(&topology).await {
            Ok(mismatches) => {
                let found = list_mismatches(&mismatches);
                if found != reported && !found.is_empty() {
                    tracing::error!(found, "the topology differs from what the services need");
                }
                reported = found;
            }
            // Other checks report that the bus is away. The last number stays.
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the topology could not be compared"
            ),
        }
        tokio::time::sleep(interval).await;
    }
}
