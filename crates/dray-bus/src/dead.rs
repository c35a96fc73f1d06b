//! Dead letters: work that was given up, stored with everything that an operator needs to inspect and redrive it
//! (messaging-reliability 9).

mod letters;
mod state;

use dray_proto::contract::schema_name;
use dray_proto::v1;
use dray_types::{Deadline, Fault};
use prost::Message as _;

pub use self::letters::{DeadLetterDetails, DeadLetterPart, DeadLetters, LetterError};
pub use self::state::{DeadLetterSummary, LetterFilter, LetterState};
use crate::backend::{OutgoingMessage, StoredMessage};
use crate::bus_core::Bus;
use crate::error::PublishError;
use crate::headers::{self, MessageHeaders};
use crate::subject::{self, SubjectParts};
use crate::topology::{DEAD_LETTER_STREAM, WORK_STREAM};
use crate::work::envelope::WorkEnvelope;

/// Largest dead letter: below the message limit of every supported server (256 KiB), and above the size of any wrapped
/// message.
const LETTER_LIMIT: usize = 240 * 1024;
/// Bytes of the payload that are kept of an original that is too large for a dead letter.
const MAX_PREFIX_BYTES: usize = 4 * 1024;

/// The content of a dead letter, before it is encoded.
pub(crate) struct DeadLetter<'a> {
    pub(crate) original: &'a StoredMessage,
    pub(crate) delivered: u64,
    pub(crate) record: Option<&'a v1::LedgerRecord>,
    pub(crate) fault: &'a Fault,
    pub(crate) service_version: &'a str,
}

impl DeadLetter<'_> {
    fn wrap(&self, now_ms: u64) -> v1::DeadLetter {
        let original = self.original;
        // The size of the prefix is reserved for the letter's own fields.
        let complete = original.payload.len() + original.headers.wire_size()
            <= LETTER_LIMIT - MAX_PREFIX_BYTES;
        let kept_bytes = if complete {
            usize::MAX
        } else {
            MAX_PREFIX_BYTES
        };
        // An original that is too large keeps its first headers, so that an operator can recognise it.
        let mut header_budget = LETTER_LIMIT / 4;
        v1::DeadLetter {
            subject: original.subject.clone(),
            stream: WORK_STREAM.to_owned(),
            stream_sequence: original.sequence,
            delivered: self.delivered,
            attempts: self.record.map_or(0, |record| record.attempts),
            fault: Some(self.fault.clone().into()),
            first_error_ms: self
                .record
                .map(|record| record.first_error_ms)
                .filter(|&first| first != 0)
                .unwrap_or(now_ms),
            last_error_ms: now_ms,
            service_version: self.service_version.to_owned(),
            headers: original
                .headers
                .iter()
                .filter(|(name, value)| {
                    let size = name.len() + value.len();
                    let fits = complete || size <= header_budget;
                    // A header that is left out does not use space of the later ones.
                    if fits {
                        header_budget = header_budget.saturating_sub(size);
                    }
                    fits
                })
                .map(|(name, value)| v1::Header {
                    name: name.to_owned(),
                    value: value.to_owned(),
                })
                .collect(),
            payload: original.payload.iter().take(kept_bytes).copied().collect(),
            payload_complete: complete,
        }
    }
}

/// Publishes the dead letter and waits for its acknowledgement. It is idempotent, because the id is fixed.
pub(crate) async fn publish_dead_letter(
    bus: &Bus,
    letter: &DeadLetter<'_>,
    envelope: Option<&WorkEnvelope>,
) -> Result<(), PublishError> {
    let subject = dead_subject(&letter.original.subject);
    let now_ms = bus.now_ms();
    let mut letter_headers = MessageHeaders::new();
    if let Some(envelope) = envelope {
        letter_headers.append(headers::MESSAGE_ID, letter_id(envelope));
        for (name, value) in envelope
            .meta
            .headers(&schema_name::<v1::DeadLetter>())
            .iter()
        {
            letter_headers.append(name, value);
        }
    } else {
        let sequence = letter.original.sequence;
        letter_headers.append(headers::MESSAGE_ID, format!("{WORK_STREAM}/{sequence}:dlq"));
        letter_headers.append(headers::SCHEMA_HEADER, schema_name::<v1::DeadLetter>());
        letter_headers.append(headers::CONTENT_TYPE, headers::PROTOBUF_CONTENT_TYPE);
    }
    let message = OutgoingMessage {
        subject,
        headers: letter_headers,
        payload: letter.wrap(now_ms).encode_to_vec().into(),
    };
    bus.inner.metrics.dead(letter.fault.code);
    // The deadline of the work has often passed. This deadline gives the publish the minimum time; after it, the
    // delivery is retried.
    let deadline = Deadline::from_unix_ms(now_ms);
    bus.publish_message(
        DEAD_LETTER_STREAM,
        message,
        LETTER_LIMIT + MAX_PREFIX_BYTES,
        deadline,
    )
    .await
    .map(|_| ())
}

/// `<tenant>/<operation>:<step>:dlq`. The id of redriven work ends in its redrive count; without the count the stream
/// would drop the letter as a duplicate of the first.
fn letter_id(envelope: &WorkEnvelope) -> String {
    let tenant = envelope.meta.tenant.token();
    let operation = &envelope.meta.operation;
    let step = envelope.step();
    match envelope.redrives {
        0 => format!("{tenant}/{operation}:{step}:dlq"),
        redrives => format!("{tenant}/{operation}:{step}:dlq:{redrives}"),
    }
}

/// `dray.dead.…` for `dray.work.…`. A letter about any other subject gets the tenant `unknown`, so that no tenant
/// reads it.
fn dead_subject(work: &str) -> String {
    match subject::subject_parts(work) {
        Some(SubjectParts {
            area, verb, tenant, ..
        }) => format!("dray.dead.{area}.v1.{verb}.{tenant}"),
        None => match work
            .strip_prefix("dray.work.")
            .map(|rest| rest.split('.').next())
        {
            Some(Some(area)) if dray_types::id::is_subject_token(area) => {
                format!("dray.dead.{area}.v1.unreadable.unknown")
            }
            _ => "dray.dead.unknown.v1.unreadable.unknown".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn dead_letters_keep_area_verb_and_tenant() {
        for (work, dead) in [
            (
                "dray.work.toolcall.v1.resolve.acme",
                "dray.dead.toolcall.v1.resolve.acme",
            ),
            (
                "dray.work.toolcall.odd",
                "dray.dead.toolcall.v1.unreadable.unknown",
            ),
            ("dray.work.Odd", "dray.dead.unknown.v1.unreadable.unknown"),
        ] {
            assert_eq!(dead_subject(work), dead);
        }
    }

    /// The letter of an original that was delivered once, written at the time 5.
    fn wrap(original: &StoredMessage) -> v1::DeadLetter {
        let letter = DeadLetter {
            original,
            delivered: 1,
            record: None,
            fault: &Fault::internal(),
            service_version: "0",
        };
        letter.wrap(5)
    }

    #[test]
    fn an_original_that_cannot_be_wrapped_is_kept_as_a_reference_with_its_beginning() {
        let original = |size: usize| StoredMessage {
            sequence: 7,
            subject: "dray.work.toolcall.v1.resolve.acme".to_owned(),
            headers: [("Big", "x".repeat(size / 2))].into_iter().collect(),
            payload: vec![7; size / 2].into(),
            time_ms: 0,
        };
        let check = |size: usize, complete: bool| {
            let original = original(size);
            let wrapped = wrap(&original);
            assert_eq!(wrapped.payload_complete, complete, "{size}");
            assert_eq!((wrapped.stream_sequence, wrapped.last_error_ms), (7, 5));
            assert!(wrapped.encoded_len() < LETTER_LIMIT, "{size}");
            assert!(complete || wrapped.payload.len() == MAX_PREFIX_BYTES);
        };
        check(1_000, true);
        check(128 * 1024, true);
        check(250 * 1024, false);
    }

    #[test]
    fn a_header_that_is_too_large_does_not_displace_the_others() {
        let original = StoredMessage {
            sequence: 7,
            subject: "dray.work.toolcall.v1.resolve.acme".to_owned(),
            headers: [
                ("Big", "x".repeat(LETTER_LIMIT)),
                (headers::OPERATION_HEADER, "op".to_owned()),
            ]
            .into_iter()
            .collect(),
            payload: Bytes::new(),
            time_ms: 0,
        };
        let names: Vec<String> = wrap(&original)
            .headers
            .into_iter()
            .map(|header| header.name)
            .collect();
        assert_eq!(names, [headers::OPERATION_HEADER]);
    }
}
