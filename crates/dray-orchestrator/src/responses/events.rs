//! The events of a response in the background that began as a stream: documents in the store, and a record that names
//! them. A client that lost its connection, or whose process has ended, reads them from there.

use dray_agent::failure::RequestFailure;
use dray_bus::KeyWatch;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CONCURRENT_READS, MAX_DOCUMENT_BYTES, ResponseStore};
use crate::records::{ContentRef, RecordError, RecordKind, RevisedRecord};

/// Most bytes of all events of one response.
const MAX_LOG_BYTES: u64 = 32 << 20;
/// Most batches of one response; each takes about 110 bytes of a record of at most 200 KB.
pub(crate) const MAX_BATCHES: usize = 1_500;
/// Numbers that are left out when another process continues: the process that has ended may have sent events that it
/// did not record, and a number must not mean two events. A process sends more than these only if it recorded nothing
/// for hours, because the store failed or the log was full. Two takeovers stay below 2^31, which some clients have as
/// the largest number.
pub(crate) const TAKEOVER_GAP: u64 = 1_000_000;

/// The stored form of the list of a response's events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EventLogRecord {
    batches: Vec<EventBatch>,
    /// Sequence number of the event after the last recorded one.
    next: u64,
    bytes: u64,
}

/// Events that were recorded together.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct EventBatch {
    /// Sequence number of its first event.
    first: u64,
    content: ContentRef,
}

impl EventLogRecord {
    /// Sequence number of the event after the last recorded one.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Number of batches.
    pub(crate) const fn len(&self) -> usize {
        self.batches.len()
    }

    /// Index of the first batch that may hold an event with this number or a later one.
    pub(crate) fn position_of(&self, sequence: u64) -> usize {
        let later = self
            .batches
            .partition_point(|batch| batch.first <= sequence);
        later.saturating_sub(1)
    }
}

/// The reason why events were not recorded.
#[derive(Debug)]
pub(crate) enum EventLogError {
    /// Another process records the response, or the log is full: nothing more is recorded.
    Closed,
    /// The store or the bus failed; another attempt may succeed.
    Failed(RequestFailure),
}

/// The log of a response that this process makes.
#[derive(Debug)]
pub(crate) struct EventLog {
    store: ResponseStore,
    principal: String,
    id: String,
    record: RevisedRecord<EventLogRecord>,
}

impl EventLog {
    /// Sequence number of the next event.
    pub(crate) const fn next(&self) -> u64 {
        self.record.value.next()
    }

    /// Number of batches so far.
    pub(crate) const fn len(&self) -> usize {
        self.record.value.len()
    }

    /// Adds events of consecutive numbers.
    ///
    /// # Errors
    ///
    /// [`EventLogError`]; after an error the log is unchanged.
    pub(crate) async fn append(&mut self, events: &[Value]) -> Result<(), EventLogError> {
        let (Some(first), Some(last)) = (
            events.first().and_then(sequence_of),
            events.last().and_then(sequence_of),
        ) else {
            return Ok(());
        };
        let records = &self.store.records;
        let content = records.store_document(&events, MAX_DOCUMENT_BYTES).await;
        let content = content.map_err(|failure| match failure.status {
            413 => EventLogError::Closed,
            _ => EventLogError::Failed(failure),
        })?;
        let log = &self.record.value;
        let bytes = log.bytes.saturating_add(content.size());
        if bytes > MAX_LOG_BYTES || log.batches.len() >= MAX_BATCHES {
            return Err(EventLogError::Closed);
        }
        let mut next = log.clone();
        next.batches.push(EventBatch { first, content });
        (next.next, next.bytes) = (last.saturating_add(1), bytes);
        self.replace(next).await?;
        self.store.recorded.announce(&self.id);
        Ok(())
    }

    async fn replace(&mut self, value: EventLogRecord) -> Result<(), EventLogError> {
        let record = RevisedRecord {
            value,
            revision: self.record.revision,
        };
        let kind = RecordKind::ResponseEvents;
        let updated = self
            .store
            .records
            .update(kind, &self.principal, &self.id, &record);
        match updated.await {
            Ok(revision) => {
                self.record = RevisedRecord { revision, ..record };
                Ok(())
            }
            Err(RecordError::Stale) => Err(EventLogError::Closed),
            Err(RecordError::Failed(failure)) => Err(EventLogError::Failed(failure)),
        }
    }
}

/// The number of an event.
pub(crate) fn sequence_of(event: &Value) -> Option<u64> {
    event.get("sequence_number")?.as_u64()
}

impl ResponseStore {
    /// Begins the log of a response.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn begin_events(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<EventLog, RequestFailure> {
        let value = EventLogRecord::default();
        let created = self
            .records
            .create(RecordKind::ResponseEvents, principal, id, &value);
        let revision = created.await?;
        Ok(EventLog {
            store: self.clone(),
            principal: principal.to_owned(),
            id: id.to_owned(),
            record: RevisedRecord { value, revision },
        })
    }

    /// Continues the log of a response whose process has ended, and returns its events. From then on that process
    /// cannot record. `None` for a response without a log.
    ///
    /// # Errors
    ///
    /// 503 while the store or the bus fails.
    pub(crate) async fn resume_events(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<(EventLog, Vec<Value>)>, RequestFailure> {
        let kind = RecordKind::ResponseEvents;
        let Some(record) = self.records.get(kind, principal, id).await? else {
            return Ok(None);
        };
        let mut log = EventLog {
            store: self.clone(),
            principal: principal.to_owned(),
            id: id.to_owned(),
            record,
        };
        let mut value: EventLogRecord = log.record.value.clone();
        value.next = value.next.saturating_add(TAKEOVER_GAP);
        // The takeover is stored before the events are read, so that the former writer adds none meanwhile.
        match log.replace(value).await {
            Ok(()) => {}
            Err(EventLogError::Closed) => return Err(RecordError::Stale.into()),
            Err(EventLogError::Failed(failure)) => return Err(failure),
        }
        // The reads are collected into a list, because the futures of a lazy iterator cannot move between threads.
        let reads: Vec<_> = (0..log.len())
            .map(|index| self.read_events(&log.record.value, index))
            .collect();
        let mut reads = stream::iter(reads).buffered(CONCURRENT_READS);
        let mut events = Vec::new();
        while let Some(batch) = reads.next().await {
            events.extend(batch?.unwrap_or_default());
        }
        drop(reads);
        Ok(Some((log, events)))
    }

    /// The list of the events of a response; `None` for one without.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn event_log(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<EventLogRecord>, RequestFailure> {
        let kind = RecordKind::ResponseEvents;
        let found = self.records.get(kind, principal, id).await?;
        Ok(found.map(|found| found.value))
    }

    /// Begins to watch the list of the events of a response.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn watch_events(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<KeyWatch, RequestFailure> {
        let kind = RecordKind::ResponseEvents;
        self.records.watch(kind, principal, id).await
    }

    /// The events of a batch; `None` when the store has dropped them.
    ///
    /// # Errors
    ///
    /// 503 while the store fails.
    pub(crate) async fn read_events(
        &self,
        log: &EventLogRecord,
        index: usize,
    ) -> Result<Option<Vec<Value>>, RequestFailure> {
        match log.batches.get(index) {
            Some(batch) => self.records.read_document(&batch.content).await,
            None => Ok(None),
        }
    }

    /// Deletes the log of a response, and returns whether it has none left. The record stays until it expires if no
    /// later attempt succeeds.
    pub(crate) async fn forget_events(&self, principal: &str, id: &str) -> bool {
        let deleted =
            self.records
                .delete_newest::<EventLogRecord>(RecordKind::ResponseEvents, principal, id);
        let deleted = deleted.await.inspect_err(|failure| {
            tracing::debug!(%failure, id, "the events of a response were not deleted");
        });
        deleted.is_ok()
    }
}
