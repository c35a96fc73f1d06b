//! Calls over the bus, with refusals of the bus in words that name the missing permission.

use dray_bus::Meta;
use dray_bus::error::{CallError, TransportError};
use dray_proto::{Call, StreamingCall};
use dray_service::config::{ConfigSources, Environment};
use dray_types::{Fault, FaultCode};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use crate::context::{SystemConnection, all_services_host};
use crate::outcome::CommandFailure;

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
        self.await_reply(Box::pin(self.bus.call(meta, request)))
            .await
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
        self.await_reply(Box::pin(self.bus.call_once(meta, request)))
            .await
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
        self.await_reply(Box::pin(self.bus.call_streaming(meta, request, chunks)))
            .await
    }

    /// Waits for the reply of a call, or until the bus has refused the inbox to which it would come.
    async fn await_reply<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>> + Unpin,
    ) -> Result<T, CommandFailure> {
        tokio::select! {
            reply = call => reply.map_err(failed_call),
            inbox = self.bus.refused_inbox() => Err(cannot_receive(&inbox).into()),
        }
    }

    /// Closes the connection. Where the bus refused the inbox of replies, that is the reason why it seemed unreachable.
    pub(crate) async fn close_with<T>(
        self,
        outcome: Result<T, CommandFailure>,
    ) -> Result<T, CommandFailure> {
        let inbox = self.bus.refused_inbox().now_or_never();
        self.close().await;
        match (outcome, inbox) {
            (Err(CommandFailure::Unreachable { .. }), Some(inbox)) => {
                Err(cannot_receive(&inbox).into())
            }
            (outcome, _) => outcome,
        }
    }
}

fn failed_call(error: CallError) -> CommandFailure {
    match error {
        CallError::Transport(TransportError::Denied(subject)) => cannot_publish(&subject).into(),
        CallError::NoResponder(subject) => match service_of_call(&subject) {
            Some(service) => no_service(&subject, &service).into(),
            None => Fault::from(CallError::NoResponder(subject)).into(),
        },
        other => Fault::from(other).into(),
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

/// What to do where the bus refuses the inbox of replies.
pub(crate) const INBOX_ADVICE: &str = "Set `bus.nats.name` to the name that the NATS accounts (deploy/nats/accounts.conf) have for this user, whose \
     replies come to `_INBOX_NAME.>`.";

/// Fault for an inbox to which the bus does not let this user subscribe.
fn cannot_receive(inbox: &str) -> Fault {
    refusal_fault(
        format!("No reply can come: the bus refuses the inbox `{inbox}` to this user."),
        INBOX_ADVICE.to_owned(),
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
        let fault = cannot_receive("_INBOX_x.1.*");
        assert!(fault.message.contains("`_INBOX_x.1.*`"));
        assert!(fault.advice.contains("bus.nats.name"));
    }
}
