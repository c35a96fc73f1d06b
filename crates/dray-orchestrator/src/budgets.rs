//! The usage of conversations and callers, in records that all replicas share.

use dray_agent::budget::BudgetUse;
use dray_agent::failure::RequestFailure;

use crate::records::{CallerRecords, RecordError, RecordKind, RevisedRecord, unavailable_failure};

/// Attempts to change a record that other turns change as well.
const MAX_ATTEMPTS: usize = 16;

/// Counts what is used. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct UsageLedger {
    records: CallerRecords,
}

impl UsageLedger {
    /// A ledger in these records.
    pub(crate) const fn new(records: CallerRecords) -> Self {
        Self { records }
    }

    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.records.now_ms()
    }

    /// The usage so far.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn used(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<BudgetUse, RequestFailure> {
        let record = self.records.get(RecordKind::Usage, principal, id).await?;
        Ok(
            record.map_or_else(BudgetUse::default, |record: RevisedRecord<BudgetUse>| {
                record.value
            }),
        )
    }

    /// Replaces `before`, which was added earlier, by `after`; returns the usage now.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails, or when concurrent turns changed the record during each of the [`MAX_ATTEMPTS`].
    pub(crate) async fn replace(
        &self,
        principal: &str,
        id: &str,
        before: BudgetUse,
        after: BudgetUse,
    ) -> Result<BudgetUse, RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let found = self.records.get(RecordKind::Usage, principal, id).await?;
            let written = match found {
                None => {
                    let record = after;
                    let created = self
                        .records
                        .create(RecordKind::Usage, principal, id, &record);
                    created.await.map(|_| record)
                }
                Some(mut record) => {
                    let used: BudgetUse = record.value;
                    record.value = used.minus(before).plus(after);
                    let updated = self
                        .records
                        .update(RecordKind::Usage, principal, id, &record);
                    updated.await.map(|_| record.value)
                }
            };
            match written {
                Ok(used) => return Ok(used),
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(unavailable_failure())
    }
}
