//! The reasons why a system does not start or cannot be reached, with advice.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::ErrorKind;

use dray_bus::ConnectError;
use dray_service::host::{ErrorChain, HostError};

use super::READY_TIMEOUT;
use crate::outcome::CommandFailure;

/// The failure that shows why a host did not start, with its exit code.
pub(crate) fn start_failure(error: &HostError) -> CommandFailure {
    let text = format!("{}", ErrorChain(error));
    match error {
        HostError::Service { service, source } if is_address_in_use(source) => {
            CommandFailure::Unreachable {
                description: text,
                advice: listener_advice(service),
            }
        }
        HostError::Config(_) | HostError::Service { .. } => CommandFailure::Configuration(text),
        HostError::UnknownService { .. } | HostError::Twice(_) => CommandFailure::Usage(text),
        HostError::Bus(cause) => connect_failure(cause, text),
        HostError::Store(_) => CommandFailure::Unreachable {
            description: text,
            advice: "Check `store.s3` (or --s3), the bucket and the credentials.".to_owned(),
        },
        HostError::Topology(_) => CommandFailure::Unreachable {
            description: text,
            advice: "Run `dray topology apply` with an identity that may manage streams."
                .to_owned(),
        },
        HostError::Bind { section, .. } => CommandFailure::Unreachable {
            description: text,
            advice: format!(
                "End the program that uses the address, or name another one: --{section} ADDRESS."
            ),
        },
        HostError::State { source, .. } => CommandFailure::Unreachable {
            description: text,
            advice: state_advice(source.kind()).to_owned(),
        },
        _ => CommandFailure::Unreachable {
            description: text,
            advice: "Look at the log above; `dray up -v` logs more.".to_owned(),
        },
    }
}

/// The failure of a connection to the bus. `text` describes it.
pub(super) fn connect_failure(error: &ConnectError, text: String) -> CommandFailure {
    match error {
        // No server was asked, and another attempt does not help.
        ConnectError::Option { .. } => CommandFailure::Configuration(text),
        _ => CommandFailure::Unreachable {
            description: text,
            advice: bus_advice(error),
        },
    }
}

/// Advice for a bus that was not connected. A refused identity is not a wrong address.
pub(crate) fn bus_advice(error: &ConnectError) -> String {
    if matches!(error, ConnectError::Option { .. }) {
        "Correct the option of `bus.nats`.".to_owned()
    } else if error.is_refused_identity() {
        "The server runs and refuses this identity: check `bus.nats.user`, `bus.nats.password` or \
         `bus.nats.credentials_file`."
            .to_owned()
    } else {
        "Check `bus.nats.servers` (or --nats) and that the server runs.".to_owned()
    }
}

/// Whether an error, or one behind it, says that another program listens on the address.
fn is_address_in_use(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.downcast_ref::<std::io::Error>();
        if cause.is_some_and(|cause| cause.kind() == ErrorKind::AddrInUse) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Advice for a service whose listener has no address: the setting, and the environment variable that overrides it for
/// one start.
fn listener_advice(service: &str) -> String {
    let setting = match service {
        "sandbox-transfer" => "preview.listen",
        "egress-fetcher" => "proxy.listen",
        _ => "listen",
    };
    let variable = format!("DRAY_{service}.{setting}")
        .replace('-', "_")
        .replace('.', "__")
        .to_uppercase();
    format!(
        "End the program that uses the address, or set another one: `{service}.{setting}`, for example \
         {variable}=127.0.0.1:5001."
    )
}

/// Advice for a state directory that cannot be used.
fn state_advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ResourceBusy => {
            "Another dray process serves this directory: end it, or name another directory with --state."
        }
        ErrorKind::PermissionDenied => {
            "Let this user, and no other, write to the directory, or name another one with --state."
        }
        ErrorKind::StorageFull => {
            "Free space on the volume, or name another directory with --state."
        }
        _ => "Check the directory, or name another one with --state.",
    }
}

/// The failure of a command whose services are not ready in time, with each condition that fails and its reason.
pub(super) fn not_ready(failing: &BTreeMap<String, String>) -> CommandFailure {
    let reasons: Vec<String> = failing
        .iter()
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    CommandFailure::Unreachable {
        description: format!(
            "the services were not ready within {} s: {}",
            READY_TIMEOUT.as_secs(),
            reasons.join("; ")
        ),
        advice: "Remove the cause that is named, then run the command again.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use dray_service::StartError;

    use super::*;

    fn start_error(service: &'static str, kind: ErrorKind) -> HostError {
        let cause = std::io::Error::from(kind);
        HostError::Service {
            service,
            source: StartError::with_source("cannot listen on 127.0.0.1:5000", cause),
        }
    }

    #[test]
    fn a_taken_address_names_the_setting_of_the_service_that_wants_it() {
        for (service, variable) in [
            ("orchestrator", "DRAY_ORCHESTRATOR__LISTEN="),
            ("platform-delivery", "DRAY_PLATFORM_DELIVERY__LISTEN="),
            ("egress-fetcher", "DRAY_EGRESS_FETCHER__PROXY__LISTEN="),
            (
                "sandbox-transfer",
                "DRAY_SANDBOX_TRANSFER__PREVIEW__LISTEN=",
            ),
        ] {
            let failure = start_failure(&start_error(service, ErrorKind::AddrInUse));
            let CommandFailure::Unreachable {
                description,
                advice,
            } = failure
            else {
                panic!("{failure:?}");
            };
            assert!(description.contains("127.0.0.1:5000"), "{description}");
            assert!(advice.contains(variable), "{advice}");
        }
        let other = start_failure(&start_error("orchestrator", ErrorKind::InvalidInput));
        assert!(
            matches!(other, CommandFailure::Configuration(_)),
            "{other:?}"
        );
    }
}
