//! Marks a message as call, work, event or audit event, and defines its subject.
//!
//! Subjects are built only here (messaging-reliability 3.2). The version token is `v1`; it changes only with an
//! incompatible envelope.

use std::borrow::Cow;

use prost::{Message, Name};

use dray_types::{Fault, OperationId, TenantId};

use crate::v1;

/// The request of a call: a caller waits for the reply, and repeating the request is harmless (C-1).
pub trait Call: Message + Name + Default + 'static {
    /// The message of a success; a failure is a [`v1::Fault`].
    type Reply: Message + Name + Default + 'static;
    /// Area token of the subject, such as `egress`.
    const AREA: &'static str;
    /// Verb token of the subject, an imperative.
    const VERB: &'static str;
    /// Path of the same method over gRPC (C-11).
    const GRPC_PATH: &'static str;
}

/// A call whose caller gets messages of the type of the reply before the reply itself, which is the last one. Its
/// request is not repeated once a responder has accepted it.
pub trait StreamingCall: Call {}

/// Work: a message with external effects, or one that must not be lost. It is stored until a terminal event.
pub trait Work: Message + Name + Default + 'static {
    /// Area token of the subject for messages without their own area.
    const AREA: &'static str;
    /// Verb token of the subject, an imperative.
    const VERB: &'static str;
    /// The event for every end that is not success.
    type Rejected: Event;

    /// Area of this message. It differs from [`Work::AREA`] if each platform has a separate queue.
    fn area(&self) -> Cow<'static, str> {
        // Only kinds with one queue per platform need another name.
        Cow::Borrowed(Self::AREA)
    }

    /// Whether messages of this kind travel in `area`.
    fn serves(area: &str) -> bool {
        area == Self::AREA
    }

    /// Creates the event for an unsuccessful outcome from the data that the bus has.
    fn rejected(
        &self,
        operation: &OperationId,
        state: v1::TerminalState,
        fault: &Fault,
    ) -> Self::Rejected;
}

/// An event: a message about something that happened. A stream keeps it for any number of readers.
pub trait Event: Message + Name + Default + 'static {
    /// Area token of the subject, such as `toolcall`.
    const AREA: &'static str;
    /// Past participle, the last but one token of the subject.
    const PAST_PARTICIPLE: &'static str;
}

/// An audit event: an event in the audit stream.
pub trait Audit: Message + Name + Default + 'static {
    /// Area token of the subject, such as `egress`.
    const AREA: &'static str;
    /// Past participle, the last but one token of the subject.
    const PAST_PARTICIPLE: &'static str;
}

/// Subject of a call: `dray.<area>.v1.<verb>`.
pub fn call_subject<C: Call>() -> String {
    // The subject is outside of every stream: a stream that covered it would acknowledge the request before the service
    // does (F-17).
    format!("dray.{}.v1.{}", C::AREA, C::VERB)
}

/// Subject of a call that an identity may be permitted for this one tenant: `dray.<area>.v1.<verb>.<tenant>`.
pub fn tenant_call_subject<C: Call>(tenant: &TenantId) -> String {
    // The tenant comes last, here and below: one line of permissions binds a publisher to it (3.2).
    format!("{}.{}", call_subject::<C>(), tenant.token())
}

/// Subject of work: `dray.work.<area>.v1.<verb>.<tenant>`, with the area of this message.
pub fn work_subject<W: Work>(work: &W, tenant: &TenantId) -> String {
    format!(
        "dray.work.{}.v1.{}.{}",
        work.area(),
        W::VERB,
        tenant.token()
    )
}

/// Subject of an event: `dray.event.<area>.v1.<past participle>.<tenant>`.
pub fn event_subject<E: Event>(tenant: &TenantId) -> String {
    format!(
        "dray.event.{}.v1.{}.{}",
        E::AREA,
        E::PAST_PARTICIPLE,
        tenant.token()
    )
}

/// Subject of an audit event: `dray.audit.<area>.v1.<past participle>.<tenant>`.
pub fn audit_subject<A: Audit>(tenant: &TenantId) -> String {
    format!(
        "dray.audit.{}.v1.{}.{}",
        A::AREA,
        A::PAST_PARTICIPLE,
        tenant.token()
    )
}

/// Additive revision of every message type, the part after `/` in `Dray-Schema` (E-2).
pub const SCHEMA_REVISION: u32 = 1;

/// Value of `Dray-Schema`, such as `dray.v1.ToolCallRequested/1`.
pub fn schema_name<M: Name>() -> String {
    format!("{}/{SCHEMA_REVISION}", M::full_name())
}

/// Step of work within an operation, unique per stream and kind of message: `toolcall.resolve`.
pub fn work_step<W: Work>(work: &W) -> String {
    format!("{}.{}", work.area(), W::VERB)
}

/// Step of an event within an operation, unique per stream and kind of message: `toolcall.resolved`.
pub fn event_step<E: Event>() -> String {
    format!("{}.{}", E::AREA, E::PAST_PARTICIPLE)
}

/// `Nats-Msg-Id` as other publishers write it: `<operation>:<step>:<redrives>` (messaging-reliability 4.2). Ids of
/// `dray-bus` begin with the tenant.
pub fn message_id(operation: &OperationId, step: &str, redrives: u32) -> String {
    // The count does not change in technical retries of one send, so that the server drops the copy.
    format!("{operation}:{step}:{redrives}")
}

impl Work for v1::ToolCallRequested {
    const AREA: &'static str = "toolcall";
    const VERB: &'static str = "resolve";
    type Rejected = v1::ToolCallRejected;

    fn rejected(
        &self,
        operation: &OperationId,
        state: v1::TerminalState,
        fault: &Fault,
    ) -> v1::ToolCallRejected {
        v1::ToolCallRejected {
            operation_id: operation.to_string(),
            tool_call_id: self.tool_call_id.clone(),
            tool: self.tool.clone(),
            state: state.into(),
            fault: Some(fault.clone().into()),
            // Only a handler's own event sets this and the similar fields below; the bus only has the fault.
            invalid: None,
        }
    }
}

impl Work for v1::PlaceUpload {
    const AREA: &'static str = "sandbox";
    const VERB: &'static str = "place";
    type Rejected = v1::UploadRefused;

    fn rejected(
        &self,
        operation: &OperationId,
        state: v1::TerminalState,
        fault: &Fault,
    ) -> v1::UploadRefused {
        v1::UploadRefused {
            operation_id: operation.to_string(),
            session: self.session.clone(),
            state: state.into(),
            fault: Some(fault.clone().into()),
            context_line: String::new(),
        }
    }
}

impl Event for v1::UploadPlaced {
    const AREA: &'static str = "sandbox";
    const PAST_PARTICIPLE: &'static str = "placed";
}

impl Event for v1::UploadRefused {
    const AREA: &'static str = "sandbox";
    const PAST_PARTICIPLE: &'static str = "refused";
}

impl Work for v1::SendFileRequested {
    const AREA: &'static str = "delivery";
    const VERB: &'static str = "send";
    type Rejected = v1::DeliveryRejected;

    fn rejected(
        &self,
        operation: &OperationId,
        state: v1::TerminalState,
        fault: &Fault,
    ) -> v1::DeliveryRejected {
        v1::DeliveryRejected {
            operation_id: operation.to_string(),
            session: self.session.clone(),
            state: state.into(),
            fault: Some(fault.clone().into()),
            report: None,
        }
    }
}

/// How the areas of platforms begin: `delivery-telegram`.
pub(crate) const PLATFORM_AREA: &str = "delivery-";

impl Work for v1::DeliverFiles {
    const AREA: &'static str = "delivery-platform";
    const VERB: &'static str = "send";
    type Rejected = v1::DeliveryRejected;

    fn area(&self) -> Cow<'static, str> {
        let platform = self.target.as_ref().map_or("", |target| &target.platform);
        // This does not check that the name is a token: the delivery service has found the platform in its
        // configuration.
        Cow::Owned(format!("{PLATFORM_AREA}{platform}"))
    }

    fn serves(area: &str) -> bool {
        // The area may name any platform: only the configuration defines which platforms exist.
        area.starts_with(PLATFORM_AREA)
    }

    fn rejected(
        &self,
        operation: &OperationId,
        state: v1::TerminalState,
        fault: &Fault,
    ) -> v1::DeliveryRejected {
        v1::DeliveryRejected {
            operation_id: operation.to_string(),
            session: self.session.clone(),
            state: state.into(),
            fault: Some(fault.clone().into()),
            report: None,
        }
    }
}

impl Event for v1::DeliveryDone {
    const AREA: &'static str = "delivery";
    const PAST_PARTICIPLE: &'static str = "delivered";
}

impl Event for v1::DeliveryRejected {
    const AREA: &'static str = "delivery";
    const PAST_PARTICIPLE: &'static str = "rejected";
}

impl Event for v1::DeliveryProgressed {
    const AREA: &'static str = "delivery";
    const PAST_PARTICIPLE: &'static str = "progressed";
}

impl Audit for v1::DeliveryAudit {
    const AREA: &'static str = "delivery";
    const PAST_PARTICIPLE: &'static str = "recorded";
}

impl Work for v1::ReceiveMessage {
    const AREA: &'static str = "inbound";
    const VERB: &'static str = "receive";
    type Rejected = v1::MessageRefused;

    fn rejected(
        &self,
        operation: &OperationId,
        state: v1::TerminalState,
        fault: &Fault,
    ) -> v1::MessageRefused {
        v1::MessageRefused {
            operation_id: operation.to_string(),
            chat: self.chat.clone(),
            message_id: self.message_id.clone(),
            state: state.into(),
            fault: Some(fault.clone().into()),
        }
    }
}

impl Event for v1::MessageReceived {
    const AREA: &'static str = "inbound";
    const PAST_PARTICIPLE: &'static str = "received";
}

impl Event for v1::MessageRefused {
    const AREA: &'static str = "inbound";
    const PAST_PARTICIPLE: &'static str = "refused";
}

impl Event for v1::ToolCallResolved {
    const AREA: &'static str = "toolcall";
    const PAST_PARTICIPLE: &'static str = "resolved";
}

impl Event for v1::ToolCallRejected {
    const AREA: &'static str = "toolcall";
    const PAST_PARTICIPLE: &'static str = "rejected";
}

impl Event for v1::TurnBegun {
    const AREA: &'static str = "turn";
    const PAST_PARTICIPLE: &'static str = "begun";
}

impl Event for v1::TurnEnded {
    const AREA: &'static str = "turn";
    const PAST_PARTICIPLE: &'static str = "ended";
}

impl Event for v1::TurnCallBegun {
    const AREA: &'static str = "turncall";
    const PAST_PARTICIPLE: &'static str = "begun";
}

impl Event for v1::TurnCallEnded {
    const AREA: &'static str = "turncall";
    const PAST_PARTICIPLE: &'static str = "ended";
}

impl Audit for v1::ApprovalAudit {
    const AREA: &'static str = "approval";
    const PAST_PARTICIPLE: &'static str = "decided";
}

impl Audit for v1::ConsoleAudit {
    const AREA: &'static str = "console";
    const PAST_PARTICIPLE: &'static str = "acted";
}

impl Audit for v1::TicketAudit {
    const AREA: &'static str = "ticket";
    const PAST_PARTICIPLE: &'static str = "changed";
}

impl Audit for v1::PreviewAudit {
    const AREA: &'static str = "preview";
    const PAST_PARTICIPLE: &'static str = "changed";
}

impl Audit for v1::SandboxCommandAudit {
    const AREA: &'static str = "sandbox";
    const PAST_PARTICIPLE: &'static str = "executed";
}

impl Audit for v1::EgressAudit {
    const AREA: &'static str = "egress";
    const PAST_PARTICIPLE: &'static str = "fetched";
}

impl Audit for v1::EgressPolicyAudit {
    const AREA: &'static str = "policy";
    const PAST_PARTICIPLE: &'static str = "checked";
}

impl Audit for v1::EgressQuestionAudit {
    const AREA: &'static str = "question";
    const PAST_PARTICIPLE: &'static str = "changed";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_follow_the_topology() {
        let acme = TenantId::new("acme").unwrap();
        assert_eq!(call_subject::<v1::FetchRequest>(), "dray.egress.v1.fetch");
        assert_eq!(
            call_subject::<v1::ToolCallRequested>(),
            "dray.file.v1.submit"
        );
        assert_eq!(
            work_subject(&v1::ToolCallRequested::default(), &acme),
            "dray.work.toolcall.v1.resolve.acme"
        );
        let deliver = v1::DeliverFiles {
            target: Some(v1::ChatTarget {
                platform: "slack".to_owned(),
                ..v1::ChatTarget::default()
            }),
            ..v1::DeliverFiles::default()
        };
        assert_eq!(
            work_subject(&deliver, &acme),
            "dray.work.delivery-slack.v1.send.acme"
        );
        assert!(v1::DeliverFiles::serves("delivery-slack"));
        assert!(!v1::DeliverFiles::serves("delivery"));
        assert_eq!(
            event_subject::<v1::ToolCallRejected>(&acme),
            "dray.event.toolcall.v1.rejected.acme"
        );
        assert_eq!(
            audit_subject::<v1::EgressAudit>(&acme),
            "dray.audit.egress.v1.fetched.acme"
        );
        assert_eq!(
            schema_name::<v1::ToolCallRequested>(),
            "dray.v1.ToolCallRequested/1"
        );
    }
}
