//! Ends or continues deliveries without a worker: their work was dead-lettered, or ended before the record did. The
//! ledger has the state of the work; the record decides how the files end.

use dray_bus::LedgerKey;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, OperationId};

use super::{IndexEntry, Reconciler, give_up, round_meta, round_work};
use crate::error::DeliveryError;
use crate::record::{DeliveryRecord, WaitingReason};
use crate::records::RevisionedRecord;

/// Interval between two checks of the work of one delivery, in milliseconds.
pub(super) const WORK_CHECK_INTERVAL_MS: u64 = 10_000;

/// Age from which a record without work of a platform's queue counts as abandoned.
const UNPUBLISHED_MS: u64 = 60_000;

/// State of the work of a delivery.
enum WorkState {
    /// A worker has the work or will get it.
    Open,
    /// No worker will get the work again.
    Dead,
    /// The work ended, but the delivery did not: another round is needed.
    Idle,
}

impl Reconciler {
    /// Ends a delivery whose work is a dead letter, and publishes another round for one whose work ended too early.
    pub(super) async fn check_work(&self, entry: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut stored) = self.log.records.read(&entry.key).await? else {
            return Ok(());
        };
        if stored.record.finished {
            return Ok(());
        }
        match self.work_of(&stored.record).await? {
            WorkState::Open => Ok(()),
            WorkState::Dead => {
                tracing::error!(
                    delivery = stored.record.delivery_id,
                    "a delivery is given up: its work is dead"
                );
                give_up(&mut stored.record);
                self.end(&entry.key, stored).await
            }
            WorkState::Idle => self.next_round(entry, stored).await,
        }
    }

    async fn work_of(&self, record: &DeliveryRecord) -> Result<WorkState, DeliveryError> {
        let Some(meta) = round_meta(record) else {
            return Ok(WorkState::Open);
        };
        let work = round_work(record);
        let key = LedgerKey::of_message(&work, &meta.tenant, &meta.operation);
        let (dead, idle) = (Ok(WorkState::Dead), Ok(WorkState::Idle));
        match self.terminal(&key).await? {
            Some(TerminalState::Unspecified) => Ok(WorkState::Open),
            // By the clock of the worker that ended this work, the delivery was not due yet.
            Some(TerminalState::Done) => idle,
            Some(_) => dead,
            None if record.rounds > 0 || !self.is_unpublished(record) => Ok(WorkState::Open),
            // The record was written, but its work was not published.
            None => {
                let id = OperationId::new(record.delivery_id.as_str());
                let Ok(id) = id else {
                    return Ok(WorkState::Open);
                };
                let key = LedgerKey::of::<v1::SendFileRequested>(&meta.tenant, &id);
                match self.terminal(&key).await? {
                    None | Some(TerminalState::Unspecified | TerminalState::Done) => {
                        Ok(WorkState::Open)
                    }
                    Some(_) => dead,
                }
            }
        }
    }

    /// The terminal state of work: unspecified while it is open, `None` if the ledger does not know it.
    async fn terminal(&self, key: &LedgerKey) -> Result<Option<TerminalState>, DeliveryError> {
        let found = self.bus.ledger().read(key).await;
        let found = found.map_err(|error| DeliveryError::ServiceFault {
            description: "the ledger",
            fault: Box::new(Fault::from(error)),
        })?;
        Ok(found.map(|stored| stored.record.terminal()))
    }

    /// Whether the record is so old that its work would be published by now.
    fn is_unpublished(&self, record: &DeliveryRecord) -> bool {
        let age = self.clock.now_ms().saturating_sub(record.begun_at_ms);
        record.due_at_ms == 0 && age >= UNPUBLISHED_MS
    }

    async fn next_round(
        &self,
        entry: &IndexEntry,
        mut stored: RevisionedRecord,
    ) -> Result<(), DeliveryError> {
        let record = &mut stored.record;
        record.rounds += 1;
        record.due_at_ms = record.due_at_ms.max(self.clock.now_ms()).max(1);
        record.waiting.get_or_insert(WaitingReason::Queue);
        self.log
            .write(&entry.key, stored.record, stored.revision)
            .await?;
        Ok(())
    }
}
