//! The steps of one operation in the ledger, for all kinds of work: claim, end, report, acknowledge.
//!
//! Used by the work loop and by the sweeper. Every step can be the last before a crash; the next delivery
//! continues after it (the table of messaging-reliability 6.2).

use std::time::Duration;

use dray_proto::v1::{self, TerminalState};
use dray_types::Fault;

use super::{WorkEnvelope, WorkSettings};
use crate::backend::{AckAction, PulledMessage, StoredMessage};
use crate::backoff::park_delay;
use crate::bus_core::Bus;
use crate::dead;
use crate::error::PublishError;
use crate::ledger::record::{self, ClaimDecision, ClaimRequest};
use crate::ledger::{Ledger, LedgerError, RevisionedRecord};
use crate::topology::EVENT_STREAM;

/// Longest wait for the confirmation of an acknowledgement (step 9).
const CONFIRM_WAIT: Duration = Duration::from_secs(5);

/// The reason why a job cannot continue now. The delivery is left to redelivery.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// One operation, with its ledger entry as it was last read or written.
pub(crate) struct WorkJob<'a> {
    pub(crate) bus: &'a Bus,
    pub(crate) ledger: Ledger,
    pub(crate) envelope: &'a WorkEnvelope,
    pub(crate) entry: Option<RevisionedRecord>,
    /// Distinguishes two deliveries that one worker claims in the same millisecond.
    nonce: u64,
}

impl<'a> WorkJob<'a> {
    pub(crate) fn new(bus: &'a Bus, envelope: &'a WorkEnvelope) -> Self {
        Self {
            bus,
            ledger: bus.ledger(),
            envelope,
            entry: None,
            nonce: rand::random(),
        }
    }

    /// Reads the entry again.
    pub(crate) async fn read(&mut self) -> Result<Option<&v1::LedgerRecord>, LedgerError> {
        self.entry = self.ledger.read(&self.envelope.key).await?;
        Ok(self.entry.as_ref().map(|entry| &entry.record))
    }

    /// Decides what may be done now, from the entry that was last read.
    pub(crate) fn decide(&self, settings: &WorkSettings) -> ClaimDecision {
        // The suffix makes two claims of one process differ; with equal entries, both claims would count as written.
        let owner = format!("{}{}", settings.owner, self.owner_suffix());
        let claimant = ClaimRequest {
            owner: &owner,
            now_ms: self.bus.now_ms(),
            lease: settings.lease,
            attempts: settings.attempts,
            redrives: self.envelope.redrives,
            grace: self.bus.inner.health.remaining_lease_grace(settings.lease),
        };
        record::decide_claim(self.entry.as_ref().map(|entry| &entry.record), &claimant)
    }

    /// The entry as this job last read or wrote it; the default without an entry.
    pub(crate) fn record(&self) -> v1::LedgerRecord {
        self.entry
            .as_ref()
            .map(|entry| entry.record.clone())
            .unwrap_or_default()
    }

    /// Writes over the last revision of this job. The revision is the fencing token: a write of a worker whose work was
    /// taken over meanwhile fails with [`LedgerError::Moved`].
    pub(crate) async fn write(&mut self, record: v1::LedgerRecord) -> Result<(), LedgerError> {
        match self.try_write(&record).await {
            // An earlier renewal of this job was stored although its response was lost: the entry has a newer revision,
            // but the claim is still this job's.
            Err(LedgerError::Moved) if self.find_own_claim().await? => {
                self.try_write(&record).await
            }
            other => other,
        }
    }

    async fn try_write(&mut self, record: &v1::LedgerRecord) -> Result<(), LedgerError> {
        let expected = self.entry.as_ref().map_or(0, |entry| entry.revision);
        let key = &self.envelope.key;
        let entry = self.ledger.write(key, record.clone(), expected).await?;
        self.entry = Some(entry);
        Ok(())
    }

    /// Reads the entry; if it has this job's claim, adopts its revision.
    async fn find_own_claim(&mut self) -> Result<bool, LedgerError> {
        let Some(known) = self.entry.as_ref().map(|entry| &entry.record) else {
            return Ok(false);
        };
        let suffix = self.owner_suffix();
        if !known.owner.ends_with(&suffix) {
            return Ok(false);
        }
        let found = self.ledger.read(&self.envelope.key).await?;
        let own = found.filter(|found| record::is_own_claim(known, &found.record, &suffix));
        let is_own = own.is_some();
        if is_own {
            self.entry = own;
        }
        Ok(is_own)
    }

    fn owner_suffix(&self) -> String {
        format!("/{:016x}", self.nonce)
    }

    /// Records the end with the event that will report it (step 6).
    pub(crate) async fn end(
        &mut self,
        terminal: TerminalState,
        event: v1::RecordedEvent,
        fault: Option<&Fault>,
    ) -> Result<(), LedgerError> {
        let record = v1::LedgerRecord {
            redrives: self.envelope.redrives,
            ..self.record()
        };
        let record = record::ended_record(&record, terminal, event, fault, self.bus.now_ms());
        self.write(record).await
    }

    /// Publishes the dead letter, then records that outcome, in this order (messaging-reliability 9).
    pub(crate) async fn dead_letter(
        &mut self,
        original: &StoredMessage,
        delivered: u64,
        event: v1::RecordedEvent,
        fault: &Fault,
        service_version: &str,
    ) -> Result<(), JobError> {
        let letter = dead::DeadLetter {
            original,
            delivered,
            record: self.entry.as_ref().map(|entry| &entry.record),
            fault,
            service_version,
        };
        // In this order a crash in between repeats the letter under its fixed id; the reverse
        // could lose the message (9).
        dead::publish_dead_letter(self.bus, &letter, Some(self.envelope)).await?;
        self.end(TerminalState::DeadLettered, event, Some(fault))
            .await?;
        Ok(())
    }

    /// Publishes the recorded event and records that (steps 7 and 8).
    pub(crate) async fn report(&mut self) -> Result<(), JobError> {
        let record = self.record();
        // The recorded bytes are published and not the event of this attempt, so that a repetition is the same message.
        if let Some(event) = record.result.clone() {
            publish_recorded(self.bus, self.envelope, event).await?;
        }
        match self.write(record::reported_record(&record)).await {
            // Another worker reports the same; the event's fixed id makes that one event.
            Ok(()) | Err(LedgerError::Moved) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The last step: success is acknowledged, every other end terminates the message (step 9).
    pub(crate) async fn finish(&self, pulled: &PulledMessage) {
        let done = self.record().terminal() == TerminalState::Done;
        settle_delivery(
            pulled,
            if done {
                AckAction::Done
            } else {
                AckAction::Term
            },
        )
        .await;
    }
}

/// Publishes an event exactly as it was recorded.
async fn publish_recorded(
    bus: &Bus,
    envelope: &WorkEnvelope,
    event: v1::RecordedEvent,
) -> Result<(), PublishError> {
    let v1::RecordedEvent {
        subject,
        schema,
        message_id,
        payload,
    } = event;
    let payload = bytes::Bytes::from(payload);
    bus.publish_encoded(
        EVENT_STREAM,
        &envelope.meta,
        subject,
        &schema,
        &message_id,
        payload,
    )
    .await
    .map(|_| ())
}

/// Acknowledges permanently. A failure is harmless: the redelivery finds the ledger entry.
pub(crate) async fn settle_delivery(pulled: &PulledMessage, ack: AckAction) {
    if let Err(error) = pulled.acker.confirm(ack, CONFIRM_WAIT).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "an acknowledgement was not confirmed; the message may be delivered again"
        );
    }
}

/// Returns the delivery to the server, which delivers it again after the delay.
pub(crate) async fn retry_delivery_later(pulled: &PulledMessage, delay: Duration) {
    if let Err(error) = pulled.acker.send(AckAction::Redeliver(delay)).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a message was not returned; it is delivered again after ack_wait"
        );
    }
}

/// Returns the delivery to the server because the bus or the ledger failed.
pub(crate) async fn retry_stuck_delivery(pulled: &PulledMessage, error: &JobError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "a delivery is left to redelivery"
    );
    let delay = park_delay(pulled.delivered, &mut rand::rng());
    retry_delivery_later(pulled, delay).await;
}

#[cfg(test)]
mod tests {
    use dray_types::Clock;

    use super::*;
    use crate::conformance::{call_meta, noop_meter, small_topology};
    use crate::headers;

    #[tokio::test]
    async fn one_worker_with_two_deliveries_of_one_operation_claims_once() {
        let clock = Clock::manual(1_000);
        let bus = Bus::in_process(clock.clone(), &noop_meter());
        bus.apply_topology(&small_topology(|_| {})).await.unwrap();
        let meta = call_meta("op", dray_types::Deadline::from_unix_ms(9_000));
        let message = StoredMessage {
            sequence: 1,
            subject: "dray.work.toolcall.v1.resolve.acme".to_owned(),
            headers: meta.headers("dray.v1.ToolCallRequested/1"),
            payload: bytes::Bytes::new(),
            time_ms: 0,
        };
        assert!(message.headers.get(headers::MESSAGE_ID).is_none());
        let envelope = WorkEnvelope::read(&message).unwrap();
        let settings = WorkSettings::default();
        let mut jobs = [WorkJob::new(&bus, &envelope), WorkJob::new(&bus, &envelope)];
        for job in &mut jobs {
            assert!(job.read().await.unwrap().is_none());
        }
        let mut claims = Vec::new();
        for job in &mut jobs {
            let ClaimDecision::Work(record) = job.decide(&settings) else {
                panic!("each job must claim the work");
            };
            claims.push(job.write(*record).await.is_ok());
        }
        assert_eq!(claims, [true, false]);
    }
}
