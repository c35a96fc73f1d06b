//! A table of all messages and their subjects, as data for reference pages and programs.

use dray_proto::contract::{
    self, Audit, Call, Event, Work, audit_subject, event_subject, work_subject,
};
use dray_proto::v1;
use dray_types::TenantId;
use prost::Name as _;

use crate::subject;

/// The transport of the messages of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// Core request/reply: a caller waits.
    Call,
    /// A stream keeps the message until it has ended.
    Work,
    /// A stream keeps the message for any number of readers.
    Event,
    /// An event of the audit stream.
    Audit,
}

/// A subject with the message that travels on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectContract {
    /// The transport of its messages.
    pub kind: SubjectKind,
    /// The subject, with `{tenant}` and `{platform}` where they vary.
    pub subject: String,
    /// Full name of the message, such as `dray.v1.FetchRequest`.
    pub message: String,
    /// Full name of the reply to a call. A failure is a `dray.v1.Fault`.
    pub reply: Option<String>,
}

/// The subjects of all messages of the contracts, calls first.
pub fn subject_contracts() -> Vec<SubjectContract> {
    let mut contracts = super::verify::call_contracts();
    contracts.push(tenant_call::<v1::ToolCallOutcomeRequest>());
    let work_contracts = [
        work(&v1::ToolCallRequested::default()),
        work(&v1::PlaceUpload::default()),
        work(&v1::SendFileRequested::default()),
        work(&deliver_files()),
        work(&v1::ReceiveMessage::default()),
    ];
    contracts.extend(work_contracts.into_iter().flatten());
    contracts.extend([
        event::<v1::ToolCallResolved>(),
        event::<v1::ToolCallRejected>(),
        event::<v1::UploadPlaced>(),
        event::<v1::UploadRefused>(),
        event::<v1::DeliveryDone>(),
        event::<v1::DeliveryRejected>(),
        event::<v1::DeliveryProgressed>(),
        event::<v1::MessageReceived>(),
        event::<v1::MessageRefused>(),
        event::<v1::TurnBegun>(),
        event::<v1::TurnEnded>(),
        event::<v1::TurnCallBegun>(),
        event::<v1::TurnCallEnded>(),
        audit::<v1::EgressAudit>(),
        audit::<v1::EgressQuestionAudit>(),
        audit::<v1::EgressPolicyAudit>(),
        audit::<v1::DeliveryAudit>(),
        audit::<v1::ApprovalAudit>(),
        audit::<v1::TicketAudit>(),
        audit::<v1::PreviewAudit>(),
        audit::<v1::ConsoleAudit>(),
        audit::<v1::SandboxCommandAudit>(),
    ]);
    contracts
}

/// The subject of a call, with its message and its reply.
pub(super) fn call_subject<C: Call>() -> SubjectContract {
    SubjectContract {
        kind: SubjectKind::Call,
        subject: contract::call_subject::<C>(),
        message: C::full_name(),
        reply: Some(C::Reply::full_name()),
    }
}

/// A delivery to the placeholder platform, because work for platforms has one queue per platform.
fn deliver_files() -> v1::DeliverFiles {
    v1::DeliverFiles {
        target: Some(v1::ChatTarget {
            platform: PLACEHOLDER_TOKEN.to_owned(),
            ..v1::ChatTarget::default()
        }),
        ..v1::DeliverFiles::default()
    }
}

/// Placeholder token for a tenant or a platform until it becomes a parameter. No area or verb has this name.
const PLACEHOLDER_TOKEN: &str = "placeholder";

/// A call for identities that may call for one tenant only.
fn tenant_call<C: Call>() -> SubjectContract {
    SubjectContract {
        reply: Some(C::Reply::full_name()),
        ..tenant_subject::<C>(SubjectKind::Call, contract::tenant_call_subject::<C>)
    }
}

/// Work, and the event for a message of it that could not be read.
fn work<W: Work>(message: &W) -> [SubjectContract; 2] {
    [
        tenant_subject::<W>(SubjectKind::Work, |tenant| work_subject(message, tenant)),
        tenant_subject::<v1::WorkDeadLettered>(SubjectKind::Event, |tenant| {
            subject::dead_lettered_subject(&message.area(), &tenant.token())
        }),
    ]
}

fn event<E: Event>() -> SubjectContract {
    tenant_subject::<E>(SubjectKind::Event, event_subject::<E>)
}

fn audit<A: Audit>() -> SubjectContract {
    tenant_subject::<A>(SubjectKind::Audit, audit_subject::<A>)
}

/// A subject that ends with the tenant.
fn tenant_subject<M: prost::Name>(
    kind: SubjectKind,
    subject: impl Fn(&TenantId) -> String,
) -> SubjectContract {
    let subject = TenantId::new(PLACEHOLDER_TOKEN)
        .map(|tenant| subject(&tenant))
        .unwrap_or_default();
    let subject = match subject.strip_suffix(PLACEHOLDER_TOKEN) {
        Some(rest) => format!(
            "{}{{tenant}}",
            rest.replace(PLACEHOLDER_TOKEN, "{platform}")
        ),
        None => subject,
    };
    SubjectContract {
        kind,
        subject,
        message: M::full_name(),
        reply: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn check(message: &str, kind: SubjectKind, expected: &str) {
        let contracts = subject_contracts();
        let subjects: Vec<_> = contracts
            .iter()
            .filter(|contract| contract.message == message && contract.kind == kind)
            .map(|contract| contract.subject.as_str())
            .collect();
        assert_eq!(subjects, [expected]);
    }

    #[test]
    fn tenant_and_platform_are_parameters_of_a_subject() {
        check(
            "dray.v1.FetchRequest",
            SubjectKind::Call,
            "dray.egress.v1.fetch",
        );
        check(
            "dray.v1.DeliverFiles",
            SubjectKind::Work,
            "dray.work.delivery-{platform}.v1.send.{tenant}",
        );
        check(
            "dray.v1.ToolCallResolved",
            SubjectKind::Event,
            "dray.event.toolcall.v1.resolved.{tenant}",
        );
        check(
            "dray.v1.EgressAudit",
            SubjectKind::Audit,
            "dray.audit.egress.v1.fetched.{tenant}",
        );
    }

    #[test]
    fn every_audit_event_of_the_contracts_is_in_the_table() {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/dray/v1");
        let mut declared = Vec::new();
        for file in std::fs::read_dir(directory).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let names = text.lines().filter_map(|line| {
                let (name, _) = line.strip_prefix("message ")?.split_once(' ')?;
                name.ends_with("Audit").then(|| format!("dray.v1.{name}"))
            });
            declared.extend(names);
        }
        declared.sort();
        let contracts = subject_contracts();
        let mut listed: Vec<_> = contracts
            .into_iter()
            .filter(|contract| contract.kind == SubjectKind::Audit)
            .map(|contract| contract.message)
            .collect();
        listed.sort();
        assert_eq!(listed, declared);
    }

    #[test]
    fn all_work_and_every_event_of_the_contracts_are_in_the_table() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../dray-proto/src/contract.rs");
        let text = std::fs::read_to_string(source).unwrap();
        for (name, kind) in [("Work", SubjectKind::Work), ("Event", SubjectKind::Event)] {
            let prefix = format!("impl {name} for v1::");
            let declared: BTreeSet<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix)?.strip_suffix(" {"))
                .map(|message| format!("dray.v1.{message}"))
                .collect();
            let listed: BTreeSet<_> = subject_contracts()
                .into_iter()
                .filter(|contract| contract.kind == kind)
                .map(|contract| contract.message)
                // All kinds of work share this event, which has no `impl`.
                .filter(|message| message != "dray.v1.WorkDeadLettered")
                .collect();
            assert_eq!(listed, declared);
        }
    }

    #[test]
    fn a_publisher_of_one_tenant_finds_the_subjects_that_it_may_use() {
        let subjects: Vec<_> = subject_contracts()
            .into_iter()
            .map(|contract| contract.subject)
            .collect();
        for expected in [
            "dray.file.v1.outcome.{tenant}",
            "dray.event.toolcall.v1.dead-lettered.{tenant}",
            "dray.event.delivery-{platform}.v1.dead-lettered.{tenant}",
        ] {
            assert!(subjects.iter().any(|found| found == expected), "{expected}");
        }
    }

    #[test]
    fn a_message_may_be_a_call_and_work() {
        check(
            "dray.v1.ToolCallRequested",
            SubjectKind::Call,
            "dray.file.v1.submit",
        );
        check(
            "dray.v1.ToolCallRequested",
            SubjectKind::Work,
            "dray.work.toolcall.v1.resolve.{tenant}",
        );
    }
}
