//! Makes the streams and consumers that services rely on, or reports how they differ.
//!
//! Services only verify (messaging-reliability 3.3). Applying is for the provisioning job (`dray topology apply`)
//! and for the embedded mode, whose bus begins empty.

use std::time::Duration;

use dray_bus::{Bus, Topology, TopologyError, TopologyMismatch};

/// Why the topology is not what it must be.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// The bus could not be asked.
    #[error("the topology could not be read or made")]
    Topology(#[from] TopologyError),
    /// Streams or consumers differ.
    #[error("the topology is not as it must be ({} differences; run `dray topology apply`): {}", .0.len(), list_mismatches(.0))]
    Differs(Vec<TopologyMismatch>),
}

fn list_mismatches(mismatches: &[TopologyMismatch]) -> String {
    let lines: Vec<String> = mismatches.iter().map(TopologyMismatch::to_string).collect();
    lines.join("; ")
}

/// Creates what is missing and updates what differs. Fails when something still differs afterwards.
pub async fn apply_topology(bus: &Bus, topology: &Topology) -> Result<(), ProvisionError> {
    fail_on_mismatch(bus.apply_topology(topology).await?)
}

/// Compares and changes nothing.
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

/// Checks again and again until the topology is right or `patience` ran out: at the first start of a system the
/// provisioning job may still be at work.
pub(crate) async fn wait_until_right(
    bus: &Bus,
    topology: &Topology,
    patience: Duration,
) -> Result<(), ProvisionError> {
    let end = tokio::time::Instant::now() + patience;
    loop {
        match check_topology(bus, topology).await {
            Ok(()) => return Ok(()),
            Err(error) if tokio::time::Instant::now() >= end => return Err(error),
            Err(error) => tracing::warn!(%error, "waiting for the topology"),
        }
        tokio::time::sleep(TOPOLOGY_POLL_INTERVAL).await;
    }
}

/// Between two looks at the topology.
const TOPOLOGY_POLL_INTERVAL: Duration = Duration::from_secs(2);
