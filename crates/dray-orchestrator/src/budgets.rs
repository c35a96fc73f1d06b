//! The usage of conversations and callers, in records that all replicas share.
//!
//! Concurrent calls of one process write a record together: one of them writes the charges of all that wait. A charge
//! that was not recorded because the bus failed stays in the process, and is recorded with the next one. It is lost if
//! the process ends before. A charge whose write got no response may be recorded twice, if other replicas changed the
//! record meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dray_agent::budget::BudgetUse;
use dray_agent::failure::RequestFailure;

use self::charges::OpenRecord;
use crate::records::{
    CallerRecords, RecordError, RecordKind, RevisedRecord, unavailable_failure, wait_after_conflict,
};

mod charges;

/// Attempts to change a record that other replicas change as well.
const MAX_ATTEMPTS: usize = 16;

/// Counts what is used. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct UsageLedger {
    records: CallerRecords,
    /// Records with charges that are not recorded, by caller and id.
    open: Arc<Mutex<OpenRecords>>,
}

type OpenRecords = HashMap<(String, String), Arc<OpenRecord>>;

impl UsageLedger {
    /// A ledger in these records.
    pub(crate) fn new(records: CallerRecords) -> Self {
        Self {
            records,
            open: Arc::default(),
        }
    }

    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.records.now_ms()
    }

    /// The usage so far, with charges of this process that are not recorded yet.
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
        let used = record.map_or_else(BudgetUse::default, |record: RevisedRecord<BudgetUse>| {
            record.value
        });
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let found = open.get(&(principal.to_owned(), id.to_owned()));
        Ok(found.map_or(used, |found| found.add_to(used)))
    }

    /// Replaces `before`, which was added earlier, by `after`; returns the usage now. When the future is dropped, the
    /// charge is recorded with the next one.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails, or when other replicas changed the record during each of the [`MAX_ATTEMPTS`]. The
    /// charge is recorded with the next one then.
    pub(crate) async fn replace(
        &self,
        principal: &str,
        id: &str,
        before: BudgetUse,
        after: BudgetUse,
    ) -> Result<BudgetUse, RequestFailure> {
        let lease = self.open_record(principal, id);
        let open = &lease.record;
        let number = open.add(before, after);
        let _writer = open.writer.lock().await;
        // Another call may have written this charge with its own, or have found that the bus fails.
        if let Some(used) = open.outcome(number) {
            return used.ok_or_else(unavailable_failure);
        }
        let written = self.write(principal, id, open).await;
        if written.is_err() {
            open.note_failure();
        }
        written
    }

    /// Records all charges that wait.
    async fn write(
        &self,
        principal: &str,
        id: &str,
        open: &OpenRecord,
    ) -> Result<BudgetUse, RequestFailure> {
        for attempt in 0..MAX_ATTEMPTS {
            let found = self.records.get(RecordKind::Usage, principal, id).await?;
            let written = match found {
                None => {
                    let record = open.begin_write(0, BudgetUse::default());
                    let created = self
                        .records
                        .create(RecordKind::Usage, principal, id, &record);
                    created.await.map(|_| record)
                }
                Some(mut record) => {
                    record.value = open.begin_write(record.revision, record.value);
                    let updated = self
                        .records
                        .update(RecordKind::Usage, principal, id, &record);
                    updated.await.map(|_| record.value)
                }
            };
            match written {
                Ok(used) => {
                    open.note_written(used);
                    return Ok(used);
                }
                Err(RecordError::Stale) => {
                    open.note_refused();
                    wait_after_conflict(attempt).await;
                }
                // The next write finds out whether this one was applied.
                Err(error) => return Err(error.into()),
            }
        }
        Err(unavailable_failure())
    }

    fn open_record(&self, principal: &str, id: &str) -> RecordLease<'_> {
        let key = (principal.to_owned(), id.to_owned());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let record = Arc::clone(open.entry(key.clone()).or_default());
        RecordLease {
            ledger: self,
            key,
            record,
        }
    }
}

/// The use of an open record by one call. The last one removes a record without charges.
struct RecordLease<'a> {
    ledger: &'a UsageLedger,
    key: (String, String),
    record: Arc<OpenRecord>,
}

impl Drop for RecordLease<'_> {
    fn drop(&mut self) {
        let mut open = self
            .ledger
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The map has one reference and this lease the other. New ones begin under the lock.
        if Arc::strong_count(&self.record) == 2 && self.record.is_recorded() {
            open.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use dray_bus::test_bus;
    use dray_store::Store;
    use dray_store::embedded::EmbeddedS3;
    use dray_types::{Clock, TenantId};
    use futures_util::future::join_all;

    use super::*;
    use crate::records::RecordFault;

    const CALLER: &str = "client:a";
    const DAY: &str = "day-1";

    async fn records() -> (CallerRecords, EmbeddedS3, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
        let clock = Clock::system();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        let records = CallerRecords::new(&bus, store, TenantId::default(), clock);
        (records, s3, directory)
    }

    fn tokens(tokens: u64) -> BudgetUse {
        BudgetUse {
            tokens,
            calls: 1,
            ..BudgetUse::default()
        }
    }

    /// Charges a call with an estimate, and settles it. Like a turn, it continues after a failure.
    async fn call(ledger: &UsageLedger) {
        let none = BudgetUse::default();
        let _ = ledger.replace(CALLER, DAY, none, tokens(10)).await;
        let _ = ledger.replace(CALLER, DAY, tokens(10), tokens(3)).await;
    }

    #[tokio::test]
    async fn all_charges_of_concurrent_calls_are_recorded() {
        const CALLS: u64 = 100;
        let (records, _s3, _directory) = records().await;
        records.faults().interleave();
        let ledger = UsageLedger::new(records.clone());
        join_all((0..CALLS).map(|_| call(&ledger))).await;
        let other = UsageLedger::new(records);
        let used = other.used(CALLER, DAY).await.unwrap();
        assert_eq!((used.tokens, used.calls), (3 * CALLS, CALLS));
    }

    #[tokio::test]
    async fn a_charge_that_was_not_recorded_is_recorded_with_the_next_one() {
        let (records, _s3, _directory) = records().await;
        let ledger = UsageLedger::new(records.clone());
        call(&ledger).await;
        for fault in [RecordFault::LoseRequest, RecordFault::LoseResponse] {
            records.faults().add(RecordKind::Usage, 1, fault);
            call(&ledger).await;
        }
        let other = UsageLedger::new(records);
        let used = other.used(CALLER, DAY).await.unwrap();
        assert_eq!((used.tokens, used.calls), (9, 3));
    }
}
