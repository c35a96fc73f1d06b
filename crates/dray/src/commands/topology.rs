//! `dray topology`: the streams and consumers that the NATS server needs before services start.

use std::time::Duration;

use dray_bus::error::TransportError;
use dray_bus::topology::DEFAULT_STORE;
use dray_bus::{StreamSizing, Topology as Wanted, TopologyError, TopologyUpdateError};
use dray_types::{ByteSize, ErrorChain};
use serde_json::json;
use tokio::time::Instant;

use crate::cli::{GlobalOptions, TopologyApplyOptions, TopologyCommand, TopologySize};
use crate::context::SystemConnection;
use crate::json_log;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Time between two attempts of `apply --wait`.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Applies or checks the topology. Differences are a failure.
pub(crate) async fn run(
    global: &GlobalOptions,
    topology: &TopologyCommand,
) -> Result<(), CommandFailure> {
    match topology {
        TopologyCommand::Apply { size, options } => apply(global, size, options).await,
        TopologyCommand::Check { size } => check(global, size).await,
    }
}

async fn apply(
    global: &GlobalOptions,
    size: &TopologySize,
    options: &TopologyApplyOptions,
) -> Result<(), CommandFailure> {
    let wait = options.wait.unwrap_or_default().as_duration();
    let started = Instant::now();
    let is_json = json_log::has_json_format(global);
    let mut shown = String::new();
    loop {
        let failure = match apply_once(global, size, options).await {
            // A fault is the refusal of the inbox, which the accounts may permit meanwhile.
            Err(failure @ (CommandFailure::Unreachable { .. } | CommandFailure::Fault(_))) => {
                failure
            }
            other => return other,
        };
        if started.elapsed() >= wait {
            return Err(failure);
        }
        // Each attempt reads the configuration again, so a corrected password is used. A cause is printed once.
        let cause = failure.to_string();
        if cause != shown {
            json_log::note(is_json, &format!("waiting for the bus: {cause}"));
            shown = cause;
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn apply_once(
    global: &GlobalOptions,
    size: &TopologySize,
    options: &TopologyApplyOptions,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let sizing = StreamSizing {
        allow_fewer_copies: options.allow_fewer_copies,
        allow_smaller: options.allow_smaller,
        ..sizing_of(size)
    };
    let updated = system
        .bus
        .update_topology(&wanted_topology(size), &sizing)
        .await;
    let updated = updated.map_err(|error| update_failure(&error));
    let updated = system.close_with(updated).await?;
    let changes: Vec<String> = updated.changes.iter().map(ToString::to_string).collect();
    let mismatches: Vec<String> = updated.mismatches.iter().map(ToString::to_string).collect();
    if global.json {
        let right = mismatches.is_empty();
        print_line(
            &json!({ "right": right, "differences": mismatches, "changes": changes }).to_string(),
        );
    } else {
        for change in &changes {
            print_line(change);
        }
        print_mismatches(&mismatches);
    }
    result_of(&mismatches)
}

async fn check(global: &GlobalOptions, size: &TopologySize) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_bus(global).await?;
    let compared = system
        .bus
        .compare_topology_sizing(&wanted_topology(size), &sizing_of(size))
        .await;
    let compared = compared.map_err(|error| unreachable(&error));
    let compared = system.close_with(compared).await?;
    let mismatches: Vec<String> = compared.iter().map(ToString::to_string).collect();
    if global.json {
        print_line(
            &json!({ "right": mismatches.is_empty(), "differences": mismatches }).to_string(),
        );
    } else {
        print_mismatches(&mismatches);
        if !mismatches.is_empty() {
            print_note("`dray topology apply` with the same options makes and updates them.");
        }
    }
    result_of(&mismatches)
}

fn print_mismatches(mismatches: &[String]) {
    if mismatches.is_empty() {
        print_line("streams and consumers have the required configuration");
    }
    for mismatch in mismatches {
        print_line(&format!("differs: {mismatch}"));
    }
}

fn result_of(mismatches: &[String]) -> Result<(), CommandFailure> {
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(CommandFailure::Reported)
    }
}

/// The topology for an empty server. On another one, `sizing_of` decides about copies and sizes.
fn wanted_topology(size: &TopologySize) -> Wanted {
    let store_bytes = size.store_size.map_or(DEFAULT_STORE, ByteSize::as_u64);
    Wanted::new(size.replicas.unwrap_or(1), store_bytes).with_publishers(&size.publishers)
}

fn sizing_of(size: &TopologySize) -> StreamSizing {
    StreamSizing {
        replicas: size.replicas,
        store_bytes: size.store_size.map(ByteSize::as_u64),
        ..StreamSizing::default()
    }
}

fn unreachable(error: &TopologyError) -> CommandFailure {
    CommandFailure::Unreachable {
        description: ErrorChain(error).to_string(),
        advice: failure_advice(&error.source).to_owned(),
    }
}

fn update_failure(error: &TopologyUpdateError) -> CommandFailure {
    let advice = match error {
        TopologyUpdateError::Topology(error) => return unreachable(error),
        TopologyUpdateError::FewerCopies(_) => {
            "Leave --replicas out to keep the copies, or add --allow-fewer-copies."
        }
        TopologyUpdateError::DropsContent(_) => {
            "Leave --store-size out to keep the sizes, or name a larger one. With --allow-smaller the server drops the oldest \
             messages."
        }
    };
    CommandFailure::Usage(format!("nothing was changed: {error}. {advice}"))
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
