//! Items that were deleted from a conversation, in what continues its responses by their ids. A response names documents by
//! digest, and the conversation knows which documents took their place.

use dray_agent::failure::RequestFailure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conversations::ConversationRecord;
use super::{HistoryEntry, ResponseRecord, ResponseStore, missing_failure};
use crate::records::ContentRef;

/// A document from which items were deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReplacedDocument {
    from: ContentRef,
    to: ContentRef,
}

impl ConversationRecord {
    /// Notes that a document took the place of another one.
    pub(super) fn note_replaced(&mut self, from: ContentRef, to: &ContentRef) {
        for earlier in &mut self.replaced {
            if earlier.to == from {
                earlier.to.clone_from(to);
            }
        }
        let to = to.clone();
        self.replaced.push(ReplacedDocument { from, to });
    }
}

impl ResponseRecord {
    /// What the response continued. Each entry names the conversation of the response, if it has one.
    pub(super) fn continued_entries(&self) -> Vec<HistoryEntry> {
        let mut entries = self.history.clone();
        for entry in &mut entries {
            // A response of a conversation continues nothing else.
            entry.conversation = entry.conversation.take().or(self.conversation.clone());
        }
        entries
    }

    /// The response itself, for what continues it.
    pub(super) fn own_entry(&self) -> HistoryEntry {
        HistoryEntry {
            content: self.document.clone(),
            stored_ms: self.created_ms,
            conversation: self.conversation.clone(),
        }
    }
}

impl ResponseStore {
    /// Replaces the documents from which items were deleted.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(super) async fn apply_deletions(
        &self,
        principal: &str,
        entries: &mut [HistoryEntry],
    ) -> Result<(), RequestFailure> {
        let mut known: Option<(String, Option<ConversationRecord>)> = None;
        for entry in entries {
            let Some(id) = &entry.conversation else {
                continue;
            };
            // Read once: entries of one conversation stand beside each other.
            if known.as_ref().is_none_or(|(known, _)| known != id) {
                let found = self.conversation_record(principal, id).await?;
                known = Some((id.clone(), found.map(|found| found.value)));
            }
            let conversation = known.as_ref().and_then(|(_, record)| record.as_ref());
            let mut replaced = conversation.into_iter().flat_map(|one| &one.replaced);
            if let Some(replaced) = replaced.find(|one| one.from == entry.content) {
                entry.content.clone_from(&replaced.to);
            }
        }
        Ok(())
    }

    /// The output of a response without the items that were deleted from its conversation.
    ///
    /// # Errors
    ///
    /// As [`ResponseStore::get`].
    pub(crate) async fn remaining_output(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Vec<Value>, RequestFailure> {
        let record = self.record(principal, id).await?.value;
        let mut entries = [record.own_entry()];
        self.apply_deletions(principal, &mut entries).await?;
        let [entry] = entries;
        let document = self.records.read_document(&entry.content).await?;
        let document: super::ResponseDocument =
            document.ok_or_else(|| missing_failure("response", id))?;
        let output = document
            .response
            .and_then(|mut response| match response.get_mut("output") {
                Some(Value::Array(output)) => Some(std::mem::take(output)),
                _ => None,
            });
        Ok(output.unwrap_or_default())
    }
}
