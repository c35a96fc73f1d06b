//! Responses whose process has ended and that this process finishes.

use dray_agent::failure::RequestFailure;

use super::{
    History, ResponseDocument, ResponseRecord, ResponseStatus, ResponseStore, RunningResponse,
};
use crate::progress::ProgressStore;
use crate::records::{CallerRecords, RecordError, RecordKind, RevisedRecord, StoredValue};

/// Most times that a response is taken over: one of its calls may be what ends the processes.
const MAX_TAKEOVERS: u32 = 2;

/// A response that this process has taken over.
#[derive(Debug)]
pub(crate) struct TakenResponse {
    pub(crate) running: RunningResponse,
    pub(crate) document: ResponseDocument,
    /// The conversation that it continues.
    pub(crate) history: History,
    /// Unix seconds at which it began.
    pub(crate) created: u64,
    /// How often it was taken over, this time included.
    pub(crate) takeovers: u32,
    /// The checkpoint to finish it from; `None` when its process removed it before the takeover.
    pub(crate) checkpoint: Option<String>,
}

impl TakenResponse {
    /// Gives the response up, so that it is reported.
    pub(crate) async fn release(mut self) {
        self.running.release().await;
    }
}

/// Whether no process makes a response now or later: it has ended, it no longer exists, or it was taken over too often.
///
/// # Errors
///
/// 503 while the bus fails.
pub(crate) async fn is_over(
    records: &CallerRecords,
    principal: &str,
    id: &str,
) -> Result<bool, RequestFailure> {
    let found = records.find::<ResponseRecord>(RecordKind::Response, principal, id);
    let record = match found.await?.map(|found| found.value) {
        None => return Ok(true),
        // A later version may make it.
        Some(StoredValue::Unreadable) => return Ok(false),
        Some(StoredValue::Readable(record)) => record,
    };
    let now_ms = records.now_ms();
    let is_lost = record.lease_ms <= now_ms && record.takeovers >= MAX_TAKEOVERS;
    let has_ended = record.status != ResponseStatus::InProgress || record.expires_ms <= now_ms;
    Ok(has_ended || is_lost)
}

impl ResponseStore {
    /// Whether another process may take over this response, because its process has ended.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn is_abandoned(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<bool>, RequestFailure> {
        let found = self.abandoned(principal, id).await?;
        Ok(found.map(|found| found.value.takeovers < MAX_TAKEOVERS))
    }

    async fn abandoned(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<RevisedRecord<ResponseRecord>>, RequestFailure> {
        let found = self
            .records
            .get::<ResponseRecord>(RecordKind::Response, principal, id)
            .await?;
        let now = self.records.now_ms();
        Ok(found.filter(|found| {
            let record = &found.value;
            record.status == ResponseStatus::InProgress
                && record.can_be_taken_over()
                && record.lease_ms <= now
                && record.expires_ms > now
        }))
    }

    /// Takes over a response whose process has ended; `None` when another replica was first, or it cannot be taken
    /// over. Afterwards that process cannot change the checkpoint, and so makes no call that must not be repeated. Not
    /// cancellation safe: when the future is dropped after the takeover was stored, no process makes the response.
    ///
    /// # Errors
    ///
    /// 400 when what it continues is gone, 503 while the store or the bus fails.
    pub(crate) async fn take_over(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<TakenResponse>, RequestFailure> {
        let found = self.abandoned(principal, id).await?;
        let found = found.filter(|found| found.value.takeovers < MAX_TAKEOVERS);
        let Some(mut record) = found else {
            return Ok(None);
        };
        // All that can fail is read before the lease is taken: a failure leaves the response as it was.
        let document = self.records.read_document(&record.value.document).await?;
        let document = document.filter(|document: &ResponseDocument| document.request.is_some());
        let Some(document) = document else {
            return Ok(None);
        };
        let mut entries = record.value.continued_entries();
        self.apply_deletions(principal, &mut entries).await?;
        let history = self.history("previous_response_id", entries).await?;
        record.value.lease_ms = self.lease_ms();
        record.value.takeovers += 1;
        let updated = self
            .records
            .update(RecordKind::Response, principal, id, &record);
        record.revision = match updated.await {
            Ok(revision) => revision,
            Err(RecordError::Stale) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (created, takeovers) = (record.value.created_ms / 1000, record.value.takeovers);
        // The checkpoint is read after the takeover: the process may have removed it in between, for a call that it
        // makes now.
        let progress = ProgressStore::new(self.records.clone());
        let checkpoint = progress.take_over(principal, id, takeovers).await?;
        Ok(Some(TakenResponse {
            running: RunningResponse {
                store: self.clone(),
                principal: principal.to_owned(),
                id: id.to_owned(),
                connected: None,
                record,
            },
            document,
            history,
            created,
            takeovers,
            checkpoint,
        }))
    }
}
