//! `dray topology`: the streams and consumers that the NATS server needs before services start.

use dray_bus::Topology as Wanted;
use serde_json::json;

use crate::cli::{GlobalOptions, TopologyCommand};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line};

/// Applies or checks the topology. Differences are a failure.
pub(crate) async fn run(
    global: &GlobalOptions,
    topology: &TopologyCommand,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let (TopologyCommand::Apply { size } | TopologyCommand::Check { size }) = topology;
    let wanted =
        Wanted::new(size.replicas, size.store_size.as_u64()).with_publishers(&size.publishers);
    let unreachable = |error: dray_bus::TopologyError| CommandFailure::Unreachable {
        what: dray_service::host::ErrorChain(&error).to_string(),
        advice: "Use an identity that may manage streams and consumers, and check the server."
            .to_owned(),
    };
    let mismatches = match topology {
        TopologyCommand::Apply { .. } => system.bus.apply_topology(&wanted).await,
        TopologyCommand::Check { .. } => system.bus.verify_topology(&wanted).await,
    };
    system.close().await;
    let mismatches: Vec<String> = mismatches
        .map_err(unreachable)?
        .iter()
        .map(ToString::to_string)
        .collect();
    if global.json {
        print_line(
            &json!({ "right": mismatches.is_empty(), "differences": mismatches }).to_string(),
        );
    } else if mismatches.is_empty() {
        print_line("streams and consumers are as they must be");
    } else {
        for mismatch in &mismatches {
            print_line(&format!("differs: {mismatch}"));
        }
    }
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}
