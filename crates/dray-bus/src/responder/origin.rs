//! Which messages on a subscription are requests and cancellations that a caller sent there.
//!
//! A server checks permissions for the subject of a message and not for its reply subject. The sender of a
//! reply publishes to what the request named there: JetStream without any check, a service by `allow_responses`. So a
//! message can reach the subscription of a call although its author may not call it.

use dray_types::{Fault, FaultCode};

use crate::backend::{CoreMessage, Subscription};
use crate::bus_core::Bus;
use crate::error::TransportError;
use crate::headers::MessageHeaders;
use crate::subject;

/// The cancellations of an area.
#[derive(Debug)]
pub(super) struct CancellationReader {
    subject: String,
    messages: Subscription,
}

impl CancellationReader {
    pub(super) async fn open(bus: &Bus, area: &str) -> Result<Self, TransportError> {
        let subject = subject::cancel_subject(area);
        let messages = bus.inner.backend.subscribe(&subject, None).await?;
        Ok(Self { subject, messages })
    }

    /// The headers of the next cancellation that its sender published on the subject. Cancellation safe.
    pub(super) async fn next(&mut self) -> Option<MessageHeaders> {
        loop {
            let message = self.messages.next().await?;
            // A message of a stream that the server delivers here has its own subject and a reply subject.
            if message.subject == self.subject && message.reply.is_none() {
                return Some(message.headers);
            }
            tracing::warn!(
                subject = %message.subject,
                "a message that no caller sent as a cancellation is ignored"
            );
        }
    }
}

/// Checks that a caller with the permission for the subject sent the request, and that its reply goes to a caller.
pub(super) fn check_origin(subscribed: &str, message: &CoreMessage) -> Result<(), &'static str> {
    if !subject::matches_filter(subscribed, &message.subject) {
        // A consumer delivers messages of a stream with the subjects under which they were stored.
        return Err("it was sent on another subject");
    }
    if message.headers.replayed().is_some() {
        return Err("the server sent it from a stream");
    }
    match &message.reply {
        None => Err("it has no reply subject"),
        Some(reply) if !subject::is_inbox(reply) => Err("its reply subject is not an inbox"),
        Some(_) => Ok(()),
    }
}

pub(super) fn foreign_request() -> Fault {
    Fault::new(FaultCode::Denied, "The request was not sent as a call.")
        .detail("foreign_request")
        .advice("Send a request on the subject of the call, with an inbox for the reply.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBSCRIBED_SUBJECT: &str = "dray.file.v1.outcome.*";

    fn message(subject: &str, reply: Option<&str>, header: Option<&str>) -> CoreMessage {
        CoreMessage {
            subject: subject.to_owned(),
            reply: reply.map(str::to_owned),
            headers: header.into_iter().map(|name| (name, "x")).collect(),
            payload: bytes::Bytes::new(),
            status: None,
        }
    }

    #[test]
    fn only_what_a_caller_sent_on_the_subject_is_a_request() {
        let subject = "dray.file.v1.outcome.acme";
        let inbox = Some("_INBOX_publisher-acme.a.1");
        for (message, is_request) in [
            (message(subject, inbox, None), true),
            (message(subject, Some("_R_.a.b"), Some("Dray-Tenant")), true),
            (message(subject, None, None), false),
            (message(subject, Some("$KV.dray_sessions.a"), None), false),
            (message(subject, Some("dray.sandbox.v1.exec"), None), false),
            (message(subject, inbox, Some("Nats-Sequence")), false),
            (
                message("dray.audit.console.v1.acted.acme", inbox, None),
                false,
            ),
        ] {
            let origin = check_origin(SUBSCRIBED_SUBJECT, &message);
            assert_eq!(origin.is_ok(), is_request, "{message:?}");
        }
    }
}
