//! `dray topology`: the streams and consumers that the NATS server needs before services start.

use dray_bus::Topology as Wanted;
use dray_bus::error::TransportError;
use dray_types::ErrorChain;
use serde_json::json;

use crate::cli::{GlobalOptions, TopologyCommand};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

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
        description: ErrorChain(&error).to_string(),
        advice: failure_advice(&error.source).to_owned(),
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
        print_line("streams and consumers have the required configuration");
    } else {
        for mismatch in &mismatches {
            print_line(&format!("differs: {mismatch}"));
        }
        if matches!(topology, TopologyCommand::Check { .. }) {
            print_note("`dray topology apply` with the same options makes and updates them.");
        }
    }
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}

/// Whether an error means that JetStream is off. A server without JetStream has no responder, which the client of NATS
/// reports as a missing resource; an account without JetStream gets an error of the server.
fn lacks_jetstream(error: &str) -> bool {
    [
        "requested JetStream resource does not exist",
        "JetStream not enabled",
    ]
    .iter()
    .any(|words| error.contains(words))
}

const JETSTREAM_ADVICE: &str = "Check that the server runs with JetStream (`nats-server -js`), and that this identity may use it.";

/// Advice for a stream or consumer that could not be read or changed.
fn failure_advice(error: &TransportError) -> &'static str {
    match error {
        TransportError::Other(source)
            if lacks_jetstream(&ErrorChain(source.as_ref()).to_string()) =>
        {
            JETSTREAM_ADVICE
        }
        TransportError::Denied(_) => "Use an identity that may manage streams and consumers.",
        // These are refusals of the server itself, such as another kind of storage.
        TransportError::Other(_) => {
            "Do what the server says. Where a stream or consumer of another program has the name, move or delete it, or use \
             another account."
        }
        TransportError::Full => "Give the account more JetStream storage.",
        TransportError::TimedOut | TransportError::Disconnected | TransportError::NoResponders => {
            JETSTREAM_ADVICE
        }
        TransportError::TooLarge { .. }
        | TransportError::NotProvisioned(_)
        | TransportError::WrongRevision
        | TransportError::Header(_) => "Run the command again, and check the server.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_server_is_not_taken_for_a_missing_permission() {
        let storage = "stream configuration update can not change storage type";
        let refused = failure_advice(&TransportError::Other(storage.into()));
        assert!(refused.contains("another program") && !refused.contains("identity"));
        let denied = failure_advice(&TransportError::Denied("$JS.API".to_owned()));
        assert!(denied.contains("identity that may manage"));
        for missing in [
            "request error: requested JetStream resource does not exist",
            "JetStream not enabled for account (code 503, error code 10039)",
        ] {
            let advice = failure_advice(&TransportError::Other(missing.into()));
            assert!(advice.contains("nats-server -js"), "{missing}");
        }
    }
}
