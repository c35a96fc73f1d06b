//! The reasons why a system does not start or cannot be reached, with advice.

use std::io::ErrorKind;

use dray_bus::ConnectError;
use dray_service::host::{ErrorChain, HostError};

use crate::outcome::CommandFailure;

/// The failure that shows why a host did not start, with its exit code.
pub(crate) fn start_failure(error: &HostError) -> CommandFailure {
    let text = format!("{}", ErrorChain(error));
    match error {
        HostError::Config(_) | HostError::Service { .. } => CommandFailure::Configuration(text),
        HostError::UnknownService { .. } | HostError::Twice(_) => CommandFailure::Usage(text),
        HostError::Bus(cause) => CommandFailure::Unreachable {
            what: text,
            advice: bus_advice(cause, "`bus.nats.servers` (or --nats)"),
        },
        HostError::Store(_) => CommandFailure::Unreachable {
            what: text,
            advice: "Check `store.s3` (or --s3), the bucket and the credentials.".to_owned(),
        },
        HostError::Topology(_) => CommandFailure::Unreachable {
            what: text,
            advice: "Run `dray topology apply` with an identity that may manage streams."
                .to_owned(),
        },
        HostError::Bind { section, .. } => CommandFailure::Unreachable {
            what: text,
            advice: format!(
                "End the program that uses the address, or name another one: --{section} ADDRESS."
            ),
        },
        HostError::State { source, .. } => CommandFailure::Unreachable {
            what: text,
            advice: state_advice(source.kind()).to_owned(),
        },
        _ => CommandFailure::Unreachable {
            what: text,
            advice: "Look at the log above; `dray up -v` logs more.".to_owned(),
        },
    }
}

/// Advice for a bus that was not connected. A refused identity is not a wrong address.
pub(crate) fn bus_advice(error: &ConnectError, address: &str) -> String {
    if error.is_refused_identity() {
        "The server runs and refuses this identity: check `bus.nats.user`, `bus.nats.password` or \
         `bus.nats.credentials`."
            .to_owned()
    } else {
        format!("Check {address} and that the server runs.")
    }
}

/// Advice for a state directory that cannot be used.
fn state_advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ResourceBusy => {
            "Another dray process serves this folder: end it, or name another folder with --state."
        }
        ErrorKind::PermissionDenied => {
            "Make the folder writable for this user, or name another one with --state."
        }
        ErrorKind::StorageFull => "Free space on the volume, or name another folder with --state.",
        _ => "Check the folder, or name another one with --state.",
    }
}
