//! Reads a stored message before anything is done with it (messaging-reliability 4.1 and step 1 of 6.2).

use std::time::Duration;

use dray_proto::MAX_MESSAGE_BYTES;
use dray_types::{Deadline, Fault, FaultCode};

use crate::backend::StoredMessage;
use crate::headers;
use crate::ids;
use crate::ledger::LedgerKey;
use crate::meta::{InvalidEnvelope, Meta};
use crate::subject::{self, SubjectParts};

/// Longest time from the storage of a message to the deadline of its work; a later deadline counts as this one. The
/// stream drops messages by age without a trace, and the sweeper must end unfinished work before.
pub(crate) const MAX_WORK_TIME: Duration = Duration::from_hours(5);

/// A message whose envelope was checked against its subject.
#[derive(Clone, Debug)]
pub(crate) struct WorkEnvelope {
    pub(crate) meta: Meta,
    pub(crate) area: String,
    pub(crate) verb: String,
    pub(crate) redrives: u32,
    pub(crate) key: LedgerKey,
}

/// The reason why a message can never be handled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoisonMessage {
    #[error("payload and headers are over the limit")]
    TooLarge,
    #[error("the subject is not one of work")]
    Subject,
    #[error(transparent)]
    Envelope(#[from] InvalidEnvelope),
    #[error("the tenant header is not the tenant of the subject")]
    TenantMismatch,
    #[error("the schema is not supported")]
    Schema,
    #[error("the payload does not decode")]
    Undecodable,
    #[error("the handler panicked twice")]
    Panicked,
}

impl PoisonMessage {
    fn detail(&self) -> &'static str {
        match self {
            Self::TooLarge => "message_too_large",
            Self::Subject | Self::Envelope(_) => "invalid_envelope",
            Self::TenantMismatch => "tenant_mismatch",
            Self::Schema => "schema_unsupported",
            Self::Undecodable => "undecodable",
            Self::Panicked => "panic",
        }
    }
}

impl From<&PoisonMessage> for Fault {
    fn from(poison: &PoisonMessage) -> Self {
        match poison {
            PoisonMessage::Panicked => Self::internal().detail(poison.detail()),
            PoisonMessage::TooLarge
            | PoisonMessage::Subject
            | PoisonMessage::Envelope(_)
            | PoisonMessage::TenantMismatch
            | PoisonMessage::Schema
            | PoisonMessage::Undecodable => {
                Self::new(FaultCode::InvalidArgument, "The message cannot be read.")
                    .detail(poison.detail())
                    .advice("Correct the message and publish it again with a new operation id.")
            }
        }
    }
}

impl WorkEnvelope {
    /// Reads everything but the payload's type.
    pub(crate) fn read(message: &StoredMessage) -> Result<Self, PoisonMessage> {
        // The size is checked before parsing: permissions do not limit sizes, and the stream accepts twice this size
        // (E-3).
        if message.headers.wire_size() + message.payload.len() > MAX_MESSAGE_BYTES {
            return Err(PoisonMessage::TooLarge);
        }
        let SubjectParts {
            area, verb, tenant, ..
        } = subject::subject_parts(&message.subject).ok_or(PoisonMessage::Subject)?;
        let mut meta = Meta::from_headers(&message.headers)?;
        let ceiling = Deadline::after(message.time_ms, MAX_WORK_TIME);
        meta.deadline = meta.deadline.min(ceiling);
        // Any publisher may write any header, but the server has checked its right to the subject (18).
        if meta.tenant.token() != tenant {
            return Err(PoisonMessage::TenantMismatch);
        }
        let step = format!("{area}.{verb}");
        let redrives = message
            .headers
            .get(headers::MESSAGE_ID)
            .map_or(0, |id| ids::redrive_count(id, &meta.operation, &step));
        Ok(Self {
            key: LedgerKey::new(area, verb, tenant, &meta.operation),
            area: area.to_owned(),
            verb: verb.to_owned(),
            redrives,
            meta,
        })
    }

    /// Step of the work within its operation.
    pub(crate) fn step(&self) -> String {
        format!("{}.{}", self.area, self.verb)
    }
}

/// Whether `found` is the message type `expected_name`, in any additive revision.
pub(crate) fn is_schema(found: Option<&str>, expected_name: &str) -> bool {
    found
        .and_then(|found| found.split_once('/'))
        // Revisions only add fields, and unknown fields are ignored (E-2).
        .is_some_and(|(name, revision)| name == expected_name && revision.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use dray_types::{OperationId, TenantId};

    use super::*;
    use crate::topology::WORK_STREAM;

    fn message(subject: &str, change: impl FnOnce(&mut StoredMessage)) -> StoredMessage {
        let meta = Meta::new(TenantId::new("acme").unwrap(), Deadline::from_unix_ms(9))
            .with_operation(OperationId::new("op").unwrap());
        let mut message = StoredMessage {
            sequence: 1,
            subject: subject.to_owned(),
            headers: meta.headers("dray.v1.X/1"),
            payload: bytes::Bytes::new(),
            time_ms: 0,
        };
        change(&mut message);
        message
    }

    const WORK_SUBJECT: &str = "dray.work.toolcall.v1.resolve.acme";

    #[test]
    fn an_envelope_names_its_ledger_entry_and_its_restarts() {
        let read = WorkEnvelope::read(&message(WORK_SUBJECT, |message| {
            message
                .headers
                .append(headers::MESSAGE_ID, "acme/op:toolcall.resolve:2");
        }))
        .unwrap();
        assert_eq!(read.key.as_str(), "toolcall.resolve.acme.op");
        assert_eq!(
            (read.redrives, read.step().as_str()),
            (2, "toolcall.resolve")
        );
    }

    #[test]
    fn work_ends_before_the_stream_drops_its_message() {
        let topology = crate::Topology::default();
        let stream = topology
            .streams
            .iter()
            .find(|spec| spec.name == WORK_STREAM);
        let max_age = stream.unwrap().max_age;
        assert!(MAX_WORK_TIME + crate::sweeper::STRANDED_AFTER < max_age);
        for (sent, stored_ms, expected) in [
            (u64::MAX, 1_000, 1_000 + 5 * 3_600_000),
            (9_000, 1_000, 9_000),
        ] {
            let message = message(WORK_SUBJECT, |message| {
                message
                    .headers
                    .set(headers::DEADLINE_HEADER, sent.to_string());
                message.time_ms = stored_ms;
            });
            let read = WorkEnvelope::read(&message).unwrap();
            assert_eq!(read.meta.deadline.unix_ms(), expected);
        }
    }

    #[test]
    fn a_message_that_breaks_the_rules_of_work_messages_is_poison() {
        let check = |message: StoredMessage, expected: PoisonMessage| {
            assert_eq!(WorkEnvelope::read(&message).unwrap_err(), expected);
        };
        check(
            message("dray.work.toolcall.v1.resolve.evil", |_| {}),
            PoisonMessage::TenantMismatch,
        );
        check(message("dray.work.x", |_| {}), PoisonMessage::Subject);
        check(
            message(WORK_SUBJECT, |message| {
                message.payload = vec![0; MAX_MESSAGE_BYTES].into();
            }),
            PoisonMessage::TooLarge,
        );
        check(
            message(WORK_SUBJECT, |message| {
                message.headers.remove(headers::DEADLINE_HEADER);
            }),
            PoisonMessage::Envelope(InvalidEnvelope::Missing(headers::DEADLINE_HEADER)),
        );
        check(
            message(WORK_SUBJECT, |message| {
                message.headers.append("Nats-Rollup", "all");
            }),
            PoisonMessage::Envelope(InvalidEnvelope::Reserved("Nats-Rollup".to_owned())),
        );
    }

    #[test]
    fn work_needs_each_of_its_required_headers_and_no_other() {
        let complete = message(WORK_SUBJECT, |_| {}).headers;
        let is_read = |left_out: Option<&str>| {
            let sent = message(WORK_SUBJECT, |message| {
                message.headers = headers::WORK_HEADERS
                    .into_iter()
                    .filter(|name| Some(*name) != left_out)
                    .filter_map(|name| Some((name, complete.get(name)?)))
                    .collect();
            });
            let schema = sent.headers.get(headers::SCHEMA_HEADER);
            WorkEnvelope::read(&sent).is_ok() && is_schema(schema, "dray.v1.X")
        };
        assert!(is_read(None));
        for name in headers::WORK_HEADERS {
            assert!(!is_read(Some(name)), "{name}");
        }
    }

    #[test]
    fn schemas_are_compared_without_their_additive_revision() {
        for (found, expected) in [
            (Some("dray.v1.X/1"), true),
            (Some("dray.v1.X/7"), true),
            (Some("dray.v2.X/1"), false),
            (Some("dray.v1.X"), false),
            (Some("dray.v1.X/"), false),
            (None, false),
        ] {
            assert_eq!(is_schema(found, "dray.v1.X"), expected, "{found:?}");
        }
    }
}
