//! The documents of the earlier responses that a response continues.

use dray_agent::failure::RequestFailure;
use dray_types::ByteSize;
use futures_util::StreamExt as _;

use super::reads::ReadPermit;
use super::{
    CONCURRENT_READS, HistoryEntry, MAX_HISTORY, MAX_HISTORY_BYTES, RENEWAL_AGE_MS,
    ResponseDocument, ResponseStore,
};

/// The conversation that a response continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(super) entries: Vec<HistoryEntry>,
    /// The conversation's documents, oldest first.
    pub(crate) documents: Vec<ResponseDocument>,
    /// Memory of the documents.
    _permit: ReadPermit,
}

impl ResponseStore {
    /// The history of a response that names a previous one.
    ///
    /// # Errors
    ///
    /// 400 for a previous response that has no end to continue from, that is too long, or whose content no longer
    /// exists; otherwise those of [`ResponseStore::get`].
    pub(crate) async fn history_after(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<History, RequestFailure> {
        let record = self.record(principal, id).await.map_err(|mut failure| {
            failure.param = Some("previous_response_id".into());
            failure
        })?;
        let record = record.value;
        if !record.status.can_continue() {
            let message = format!(
                "The previous response is {} and cannot be continued.",
                record.status.as_str()
            );
            return Err(state_failure("previous_response_id", message));
        }
        let mut entries = record.continued_entries();
        entries.push(record.own_entry());
        self.apply_deletions(principal, &mut entries).await?;
        self.history("previous_response_id", entries).await
    }

    /// The conversation that a new response continues.
    ///
    /// # Errors
    ///
    /// 400 for a conversation that has no room for another response or whose content is gone, 503 while the store or
    /// the bus fails.
    pub(super) async fn history(
        &self,
        param: &str,
        entries: Vec<HistoryEntry>,
    ) -> Result<History, RequestFailure> {
        if entries.len() > MAX_HISTORY || history_bytes(&entries) > MAX_HISTORY_BYTES {
            return Err(full_failure(param));
        }
        self.read_history(param, entries).await
    }

    /// All documents of a conversation, even of one that is too long to be continued.
    ///
    /// # Errors
    ///
    /// 400 for a conversation whose content is gone, 503 while the store or the bus fails.
    pub(super) async fn read_history(
        &self,
        param: &str,
        mut entries: Vec<HistoryEntry>,
    ) -> Result<History, RequestFailure> {
        let permit = self.reads.acquire(history_bytes(&entries)).await?;
        let now = self.records.now_ms();
        for entry in &mut entries {
            // Only old entries are renewed, because each renewal is a request to the store.
            if now.saturating_sub(entry.stored_ms) > RENEWAL_AGE_MS {
                self.records.renew(&entry.content).await?;
                entry.stored_ms = now;
            }
        }
        // The reads are collected into a list, because the futures of a lazy iterator cannot move between threads.
        let reads: Vec<_> = entries
            .iter()
            .map(|entry| self.records.read_document(&entry.content))
            .collect();
        // The documents are read in order, because a conversation depends on it.
        let read: Vec<_> = futures_util::stream::iter(reads)
            .buffered(CONCURRENT_READS)
            .collect()
            .await;
        let mut documents = Vec::with_capacity(read.len());
        for document in read {
            let message = "An earlier response of this conversation has expired.";
            documents.push(document?.ok_or_else(|| state_failure(param, message))?);
        }
        Ok(History {
            entries,
            documents,
            _permit: permit,
        })
    }
}

/// Bytes of all documents.
pub(super) fn history_bytes(entries: &[HistoryEntry]) -> u64 {
    let sizes = entries.iter().map(|entry| entry.content.size());
    sizes.fold(0, u64::saturating_add)
}

/// The conversation has no room for another response.
pub(super) fn full_failure(param: &str) -> RequestFailure {
    let limit = ByteSize::bytes(MAX_HISTORY_BYTES);
    let message = format!(
        "The conversation is full: it has {MAX_HISTORY} responses or more than {limit}. Start a new one."
    );
    state_failure(param, message)
}

fn state_failure(param: &str, message: impl Into<String>) -> RequestFailure {
    RequestFailure::of_parameter(param, "invalid_state", message)
}
