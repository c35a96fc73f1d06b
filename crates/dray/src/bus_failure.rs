//! Calls of a command over the bus, and what the bus refuses in words that name the missing permission.

use std::time::Duration;

use dray_bus::Meta;
use dray_bus::error::{CallError, ProbeError, TransportError};
use dray_proto::Call;
use dray_types::{Fault, FaultCode};

use crate::outcome::CommandFailure;
use crate::world::SystemConnection;

/// How long the bus is asked what it refused, after a call without an answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

impl SystemConnection {
    /// Asks a service. What the bus itself refuses is a fault `bus_permission` that names the subject.
    ///
    /// # Errors
    ///
    /// The fault of the service, or why it could not be asked.
    pub(crate) async fn call<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CommandFailure> {
        match self.bus.call(meta, request).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.failed_call(error).await),
        }
    }

    /// The same for a call that is not repeated when the service decided on it.
    ///
    /// # Errors
    ///
    /// As [`Self::call`].
    pub(crate) async fn call_once<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, CommandFailure> {
        match self.bus.call_once(meta, request).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.failed_call(error).await),
        }
    }

    async fn failed_call(&self, error: CallError) -> CommandFailure {
        match error {
            CallError::Transport(TransportError::Denied(subject)) => {
                cannot_publish(&subject).into()
            }
            CallError::Timeout(subject) => {
                let probe = tokio::time::timeout(PROBE_TIMEOUT, self.bus.round_trip()).await;
                match probe {
                    Ok(Err(ProbeError::Denied { first, .. })) => {
                        cannot_receive(&subject, &first).into()
                    }
                    _ => Fault::from(CallError::Timeout(subject)).into(),
                }
            }
            other => Fault::from(other).into(),
        }
    }
}

fn refusal_fault(message: String, advice: String) -> Fault {
    Fault::new(FaultCode::Denied, message)
        .detail("bus_permission")
        .advice(advice)
}

/// The bus takes no message on a subject from this user.
fn cannot_publish(subject: &str) -> Fault {
    refusal_fault(
        format!("The bus does not let this user publish to `{subject}`."),
        format!(
            "Connect as a user that may, or add `{subject}` to this user's `publish` list in the NATS accounts \
             (deploy/nats/accounts.conf)."
        ),
    )
}

/// No reply came, and the bus refused something that may be the way of the reply.
fn cannot_receive(asked: &str, refused_subject: &str) -> Fault {
    refusal_fault(
        format!(
            "No reply to `{asked}` came, and the bus refuses `{refused_subject}` to this user."
        ),
        format!(
            "Connect as a user that may, or add `{refused_subject}` to this user's lists in the NATS accounts \
             (deploy/nats/accounts.conf); replies come to `_INBOX_NAME.>`, where NAME is the user's name in \
             `bus.nats.name`."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_subject_and_what_to_do() {
        let fault = cannot_publish("dray.egress.v1.fetch");
        assert_eq!(fault.detail, "bus_permission");
        assert!(fault.message.contains("publish to `dray.egress.v1.fetch`"));
        assert!(fault.advice.contains("accounts.conf"));
        let fault = cannot_receive("dray.egress.v1.fetch", "_INBOX_x.1.*");
        assert!(fault.message.contains("`_INBOX_x.1.*`"));
    }
}
