//! Deliveries without a worker: it was dead-lettered, or ended before the record did. The ledger of work
//! knows; what the record says of the files decides how they end.

use dray_bus::LedgerKey;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, OperationId};

use super::{IndexEntry, Reconciler, give_up, round_meta, round_work};
use crate::error::DeliveryError;
use crate::record::{DeliveryRecord, WaitingReason};
use crate::records::RevisionedRecord;

/// Between two looks at the work of one delivery.
pub(super) const LOOK_MS: u64 = 10_000;

/// Age from which a record without work of a platform's queue counts as abandoned.
const UNPUBLISHED_MS: u64 = 60_000;

/// Where the work of a delivery stands.
enum WorkState {
    /// A worker has it, or will.
    Open,
    /// No worker will do it any more.
    Dead,
    /// It ended without the delivery: another round is needed.
    Idle,
}

impl Reconciler {
    /// Ends a delivery whose work is dead, and gives another round to one whose work ended too soon.
    pub(super) async fn look_at_work(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut held) = self.log.records.read(&line.key).await? else {
            return Ok(());
        };
        if held.record.finished {
            return Ok(());
        }
        match self.work_of(&held.record).await? {
            WorkState::Open => Ok(()),
            WorkState::Dead => {
                tracing::error!(
                    delivery = held.record.delivery_id,
                    "a delivery is given up: its work is dead"
                );
                give_up(&mut held.record);
                self.end(&line.key, held, "abandoned").await
            }
            WorkState::Idle => self.next_round(line, held).await,
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
            // The worker's clock said that it is not due yet.
            Some(TerminalState::Done) => idle,
            Some(_) => dead,
            None if record.rounds > 0 || !self.is_left(record) => Ok(WorkState::Open),
            // The record was written, and its work never published.
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

    /// How a piece of work ended; unspecified while it has not, `None` when it has not begun.
    async fn terminal(&self, key: &LedgerKey) -> Result<Option<TerminalState>, DeliveryError> {
        let found = self.bus.ledger().read(key).await;
        let found = found.map_err(|error| DeliveryError::Asked {
            what: "the ledger",
            fault: Box::new(Fault::from(error)),
        })?;
        Ok(found.map(|held| held.record.terminal()))
    }

    fn is_left(&self, record: &DeliveryRecord) -> bool {
        let age = self.clock.now_ms().saturating_sub(record.begun_at_ms);
        record.due_at_ms == 0 && age >= UNPUBLISHED_MS
    }

    async fn next_round(
        &self,
        line: &IndexEntry,
        mut held: RevisionedRecord,
    ) -> Result<(), DeliveryError> {
        let record = &mut held.record;
        record.rounds += 1;
        record.due_at_ms = record.due_at_ms.max(self.clock.now_ms()).max(1);
        record.waiting.get_or_insert(WaitingReason::Queue);
        self.log
            .write(&line.key, held.record, held.revision)
            .await?;
        Ok(())
    }
}
