//! Adds responses that have ended to their conversations.
//!
//! A response and its conversation are two records. The end of the response is stored first, with a mark that its
//! conversation awaits it. If the process dies before the conversation has the answer, the next reader of the response
//! adds it. An answer is added once, because the conversation names it by its digest.

use std::time::Duration;

use dray_agent::failure::RequestFailure;
use tokio::time::sleep;

use super::{ConversationRecord, HistoryEntry, ResponseRecord, ResponseStatus, ResponseStore};
use crate::records::{RecordKind, RevisedRecord};

/// Attempts while the bus fails.
const MAX_ATTEMPTS: u32 = 3;
/// Delay before the second attempt; it doubles.
const RETRY_DELAY: Duration = Duration::from_millis(200);

impl ResponseStore {
    /// Adds a response to its conversation, if that awaits it. A conversation that is gone or full makes the response
    /// a failed one: a response that is missing in its conversation must not look as if it were a part of it.
    ///
    /// # Errors
    ///
    /// 404 for a conversation that is gone, 413 for one that is full; 409 or 503 while it cannot be changed, and the
    /// conversation still awaits the response then.
    pub(super) async fn add_to_conversation(
        &self,
        principal: &str,
        id: &str,
        response: &mut RevisedRecord<ResponseRecord>,
    ) -> Result<(), RequestFailure> {
        if !response.value.awaits_conversation {
            return Ok(());
        }
        let added = self.append(principal, &response.value).await;
        match &added {
            Err(failure) if !is_lasting(failure) => return added,
            Err(_) => response.value.status = ResponseStatus::Failed,
            Ok(()) => {}
        }
        response.value.awaits_conversation = false;
        let marked = self
            .records
            .update(RecordKind::Response, principal, id, response);
        match marked.await {
            Ok(revision) => response.revision = revision,
            // Another reader was first, or the next one finds that the conversation has it.
            Err(error) => tracing::debug!(?error, id, "a response still looks awaited"),
        }
        added
    }

    async fn append(
        &self,
        principal: &str,
        response: &ResponseRecord,
    ) -> Result<(), RequestFailure> {
        let Some(conversation) = &response.conversation else {
            return Ok(());
        };
        let entry = HistoryEntry {
            content: response.document.clone(),
            stored_ms: response.created_ms,
            conversation: None,
        };
        let add = |record: &mut ConversationRecord| {
            if !record.has_document(&entry.content) {
                record.history.push(entry.clone());
            }
            Ok(())
        };
        let mut attempt = 0;
        loop {
            let changed = self.change_conversation(principal, conversation, add).await;
            attempt += 1;
            match changed {
                Ok(_) => return Ok(()),
                Err(failure) if is_lasting(&failure) || attempt == MAX_ATTEMPTS => {
                    return Err(failure);
                }
                Err(_) => sleep(RETRY_DELAY * 2_u32.pow(attempt - 1)).await,
            }
        }
    }
}

/// Whether a later attempt to add a response fails as well: its conversation is gone or full.
pub(super) const fn is_lasting(failure: &RequestFailure) -> bool {
    matches!(failure.status, 404 | 413)
}
