//! Calls over the bus, with refusals of the bus in words that name the missing permission.

use std::time::Duration;

use dray_bus::Meta;
use dray_bus::error::{CallError, ProbeError, TransportError};
use dray_proto::{Call, StreamingCall};
use dray_service::config::{ConfigSources, Environment};
use dray_types::{Fault, FaultCode};
use tokio::sync::mpsc;

use crate::context::{SystemConnection, all_services_host};
use crate::outcome::CommandFailure;

/// Timeout for checking what the bus refused, after a call without a reply.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

impl SystemConnection {
    /// Calls a service. A refusal by the bus itself becomes the fault `bus_permission`, which names the subject.
    ///
    /// # Errors
    ///
    /// The fault of the service, or the reason why it could not be called.
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

    /// Like [`Self::call`], without repeating a call on which the service decided.
    ///
    /// # Errors
    ///
    /// Those of [`Self::call`].
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

    /// Like [`Self::call_once`], with the replies before the final one.
    ///
    /// # Errors
    ///
    /// Those of [`Self::call`].
    pub(crate) async fn call_streaming<C: StreamingCall>(
        &self,
        meta: &Meta,
        request: &C,
        chunks: mpsc::Sender<C::Reply>,
    ) -> Result<C::Reply, CommandFailure> {
        match self.bus.call_streaming(meta, request, chunks).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.failed_call(error).await),
        }
    }

    async fn failed_call(&self, error: CallError) -> CommandFailure {
        match error {
            CallError::Transport(TransportError::Denied(subject)) => {
                cannot_publish(&subject).into()
            }
            // NATS reports a refused subscription asynchronously, so a missing reply may be a missing permission.
            CallError::Timeout(subject) => {
                let probe = tokio::time::timeout(PROBE_TIMEOUT, self.bus.round_trip()).await;
                match probe {
                    Ok(Err(ProbeError::Denied { first, .. })) => {
                        cannot_receive(&subject, &first).into()
                    }
                    _ => Fault::from(CallError::Timeout(subject)).into(),
                }
            }
            CallError::NoResponder(subject) => match service_of_call(&subject) {
                Some(service) => no_service(&subject, &service).into(),
                None => Fault::from(CallError::NoResponder(subject)).into(),
            },
            other => Fault::from(other).into(),
        }
    }
}

/// The service that answers a call, by the permissions that every service declares.
fn service_of_call(subject: &str) -> Option<String> {
    let sources = ConfigSources::new(Environment::default());
    let identities = all_services_host(sources).identities();
    identities.into_iter().find_map(|(permissions, _)| {
        let user = permissions.user();
        // Only a service that answers the call subscribes to it in the queue group of its own name.
        let answers = permissions
            .subscriptions()
            .any(|line| line.subject == subject && line.queue.as_deref() == Some(user));
        answers.then(|| user.to_owned())
    })
}

/// The fault of [`CallError::NoResponder`] for people who run the services: it names the missing service. The server
/// reports a running service that is too old for the call in the same way.
fn no_service(subject: &str, service: &str) -> Fault {
    let mut fault = Fault::from(CallError::NoResponder(subject.to_owned()));
    fault.message = format!("No {service} answers `{subject}` on this server.");
    fault.advice(format!(
        "Start it (`dray up --nats URL --only {service}`), or wait until it is connected to the server again. One that \
         runs may be too old for this call: update it to {}, the version of this program.",
        env!("CARGO_PKG_VERSION")
    ))
}

fn refusal_fault(message: String, advice: String) -> Fault {
    Fault::new(FaultCode::Denied, message)
        .detail("bus_permission")
        .advice(advice)
}

/// Fault for a subject to which the bus does not let this user publish.
fn cannot_publish(subject: &str) -> Fault {
    refusal_fault(
        format!("The bus does not let this user publish to `{subject}`."),
        format!(
            "Connect as a user that may, or add `{subject}` to this user's `publish` list in the NATS accounts \
             (deploy/nats/accounts.conf)."
        ),
    )
}

/// The fault if no reply arrived and the bus refuses a subject that the reply may use.
fn cannot_receive(requested: &str, refused_subject: &str) -> Fault {
    refusal_fault(
        format!(
            "No reply to `{requested}` came, and the bus refuses `{refused_subject}` to this user."
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
    use dray_proto::v1;

    use super::*;

    #[test]
    fn a_call_without_a_responder_names_the_service_to_start() {
        for (subject, service) in [
            ("dray.delivery.v1.receipts", "platform-delivery"),
            ("dray.session.v1.show", "sandbox-transfer"),
            ("dray.egress.v1.fetch", "egress-fetcher"),
            ("dray.reading.v1.read-attachment", "file-resolver"),
        ] {
            assert_eq!(service_of_call(subject).as_deref(), Some(service));
        }
        let streamed = dray_proto::contract::call_subject::<v1::ExecSandboxStreamRequest>();
        let service = service_of_call(&streamed);
        assert_eq!(service.as_deref(), Some("sandbox-transfer"));
        assert_eq!(service_of_call("dray.unknown.v1.call"), None);
        let fault = no_service("dray.delivery.v1.receipts", "platform-delivery");
        assert_eq!(fault.detail, "no_responder");
        assert!(fault.message.contains("No platform-delivery answers"));
        assert!(
            fault
                .advice
                .contains("`dray up --nats URL --only platform-delivery`")
        );
        let version = format!("update it to {}", env!("CARGO_PKG_VERSION"));
        assert!(fault.advice.contains(&version), "{}", fault.advice);
    }

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
