//! Ends work whose message cannot be read.

use bytes::Bytes;
use dray_proto::contract::schema_name;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Deadline, Fault, OperationId, TenantId};
use prost::Message as _;

use super::envelope::WorkEnvelope;
use super::job::{JobError, WorkJob};
use crate::backend::{PulledMessage, StoredMessage};
use crate::bus_core::Bus;
use crate::dead::{DeadLetter, publish_dead_letter};
use crate::headers;
use crate::ids;
use crate::ledger::LedgerError;
use crate::meta::Meta;
use crate::subject;
use crate::topology::{EVENT_STREAM, WORK_STREAM};

/// Gives up a message that cannot be read: publishes a dead letter and an event, and writes the ledger entry if the key
/// of the entry can be trusted.
pub(crate) async fn dead_letter_poison(
    bus: &Bus,
    pulled: &PulledMessage,
    envelope: Option<&WorkEnvelope>,
    fault: &Fault,
    service_version: &str,
) -> Result<(), JobError> {
    let original = &pulled.message;
    let Some(envelope) = envelope else {
        let letter = DeadLetter {
            original,
            delivered: pulled.delivered,
            record: None,
            fault,
            service_version,
        };
        publish_dead_letter(bus, &letter, None).await?;
        return publish_unreadable_event(bus, original, fault).await;
    };
    let mut job = WorkJob::new(bus, envelope);
    job.read().await?;
    let event = unreadable_event(original, Some(envelope), fault);
    if job.entry.is_none() {
        match job
            .dead_letter(original, pulled.delivered, event, fault, service_version)
            .await
        {
            // A worker has a readable message with the same id, which keeps its entry.
            Err(JobError::Ledger(LedgerError::Moved)) => return Ok(()),
            other => other?,
        }
        return job.report().await;
    }
    // An earlier delivery has published the letter and written the entry; its event may be missing.
    if job.record().terminal() == TerminalState::DeadLettered {
        return job.report().await;
    }
    let letter = DeadLetter {
        original,
        delivered: pulled.delivered,
        record: None,
        fault,
        service_version,
    };
    publish_dead_letter(bus, &letter, None).await?;
    Ok(())
}

/// The event for work without a readable message, whose own rejection event cannot be built.
pub(crate) fn unreadable_event(
    original: &StoredMessage,
    envelope: Option<&WorkEnvelope>,
    fault: &Fault,
) -> v1::RecordedEvent {
    let sent = original
        .headers
        .get(headers::OPERATION_HEADER)
        .unwrap_or_default();
    // The header of an unreadable message may be invalid; only a valid id is copied into an event.
    let operation_id = OperationId::new(sent).map_or_else(|_| String::new(), |id| id.to_string());
    let event = v1::WorkDeadLettered {
        operation_id,
        // Subjects of other publishers may be as long as the server's control line, 4096 bytes (F-13).
        subject: original.subject.chars().take(512).collect(),
        fault: Some(fault.clone().into()),
    };
    let message_id = match envelope {
        Some(envelope) => ids::message_id(
            &envelope.meta.tenant.token(),
            &envelope.meta.operation,
            &format!("{}.dead-lettered", envelope.step()),
            envelope.redrives,
        ),
        None => format!("{WORK_STREAM}/{}:dead-lettered:0", original.sequence),
    };
    let (area, tenant) = subject::subject_parts(&original.subject)
        .map_or(("unknown", "unknown"), |parts| (parts.area, parts.tenant));
    v1::RecordedEvent {
        subject: subject::dead_lettered_subject(area, tenant),
        schema: schema_name::<v1::WorkDeadLettered>(),
        message_id,
        payload: event.encode_to_vec(),
    }
}

async fn publish_unreadable_event(
    bus: &Bus,
    original: &StoredMessage,
    fault: &Fault,
) -> Result<(), JobError> {
    let Some(parts) = subject::subject_parts(&original.subject) else {
        return Ok(());
    };
    let event = unreadable_event(original, None, fault);
    // The tenant of the subject is the only one that can be trusted here.
    let Ok(tenant) = TenantId::new(parts.tenant) else {
        return Ok(());
    };
    let meta = Meta::new(tenant, Deadline::from_unix_ms(bus.now_ms()));
    bus.publish_encoded(
        EVENT_STREAM,
        &meta,
        event.subject,
        &event.schema,
        &event.message_id,
        Bytes::from(event.payload),
    )
    .await?;
    Ok(())
}
