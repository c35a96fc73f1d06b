//! Keeps items that were deleted from a conversation out of requests that continue its responses by id. A response
//! names documents by digest, and the record of the conversation names the documents that replaced them.

use dray_agent::failure::RequestFailure;
use dray_types::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conversations::ConversationRecord;
use super::reads::ReadPermit;
use super::{HistoryEntry, ResponseRecord, ResponseStore, missing_failure};
use crate::records::{ContentRef, unavailable_failure};

/// Most replacements in the record of a conversation; older ones are in a document of the store.
const MAX_RECORDED_REPLACEMENTS: usize = 128;
/// Most bytes of that document: about 150,000 replacements.
const MAX_REPLACEMENTS_BYTES: ByteSize = ByteSize::mib(32);
/// How long a replacement is kept beyond the lifetime of responses: that lifetime counts from the end of a response,
/// and a response in the background may run for long.
const EXTRA_LIFETIME_MS: u64 = 24 * 3600 * 1000;

/// A document from which items were deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ReplacedDocument {
    from: ContentRef,
    to: ContentRef,
    /// Unix milliseconds at which it was noted; 0 in records of earlier versions.
    #[serde(default)]
    noted_ms: u64,
}

impl ConversationRecord {
    /// Notes that a document took the place of another one.
    pub(super) fn note_replaced(&mut self, from: ContentRef, to: &ContentRef, noted_ms: u64) {
        let to = to.clone();
        self.replaced.push(ReplacedDocument { from, to, noted_ms });
    }

    /// Whether the record names a replacement of this document.
    pub(super) fn has_replaced_document(&self, content: &ContentRef) -> bool {
        self.replaced
            .iter()
            .any(|replaced| replaced.from == *content)
    }

    /// Whether there are replacements.
    pub(super) const fn has_replaced(&self) -> bool {
        !self.replaced.is_empty() || self.replaced_before.is_some()
    }
}

/// The replacements of a conversation, oldest first.
#[derive(Debug, Default)]
struct ItemReplacements {
    all: Vec<ReplacedDocument>,
}

impl ItemReplacements {
    /// The document that replaced this one; `None` when it was not replaced. A document may be replaced several times,
    /// each time by a newer one.
    fn newest(&self, content: &ContentRef) -> Option<&ContentRef> {
        let mut found = None;
        for one in &self.all {
            if one.from == *found.unwrap_or(content) {
                found = Some(&one.to);
            }
        }
        found
    }
}

impl ResponseRecord {
    /// The history that the response continued. Each entry names the conversation of the response, if it has one.
    pub(super) fn continued_entries(&self) -> Vec<HistoryEntry> {
        let mut entries = self.history.clone();
        for entry in &mut entries {
            // A response of a conversation continues nothing else.
            entry.conversation = entry.conversation.take().or(self.conversation.clone());
        }
        entries
    }

    /// The entry of the response itself in the history of a response that continues it.
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
        let mut known: Option<(String, ItemReplacements)> = None;
        for entry in entries {
            let Some(id) = &entry.conversation else {
                continue;
            };
            // The entries of one conversation are consecutive, so its record is read once.
            if known.as_ref().is_none_or(|(known, _)| known != id) {
                let found = self.conversation_record(principal, id).await?;
                let replacements = match found {
                    Some(found) => self.replacements(&found.value).await?,
                    None => ItemReplacements::default(),
                };
                known = Some((id.clone(), replacements));
            }
            let newest = known
                .as_ref()
                .and_then(|(_, all)| all.newest(&entry.content));
            if let Some(newest) = newest.cloned() {
                entry.content = newest;
            }
        }
        Ok(())
    }

    /// All replacements of a conversation. A missing document is a failure, because deleted texts must not come back.
    async fn replacements(
        &self,
        conversation: &ConversationRecord,
    ) -> Result<ItemReplacements, RequestFailure> {
        let mut all = match &conversation.replaced_before {
            None => Vec::new(),
            Some(content) => {
                let read = self.records.read_document(content).await?;
                read.ok_or_else(unavailable_failure)?
            }
        };
        all.extend(conversation.replaced.iter().cloned());
        Ok(ItemReplacements { all })
    }

    /// Moves the replacements of a conversation into a document when the record has many. Replacements that are older
    /// than every response that is kept are left out, because no response can name their documents.
    ///
    /// # Errors
    ///
    /// 413 for more than a document holds, 503 while the store fails.
    pub(super) async fn compact_replaced(
        &self,
        conversation: &mut ConversationRecord,
    ) -> Result<(), RequestFailure> {
        if conversation.replaced.len() <= MAX_RECORDED_REPLACEMENTS {
            return Ok(());
        }
        let mut all = self.replacements(conversation).await?.all;
        let kept_ms = self.lifetime.as_millis().saturating_add(EXTRA_LIFETIME_MS);
        let oldest_ms = self.records.now_ms().saturating_sub(kept_ms);
        all.retain(|deletion| deletion.noted_ms == 0 || deletion.noted_ms >= oldest_ms);
        let stored = self.records.store_document(&all, MAX_REPLACEMENTS_BYTES);
        conversation.replaced_before = Some(stored.await?);
        conversation.replaced.clear();
        Ok(())
    }

    /// The output of a response without the items that were deleted from its conversation, and its memory.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::get`].
    pub(crate) async fn remaining_output(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<(Vec<Value>, ReadPermit), RequestFailure> {
        let record = self.record(principal, id).await?.value;
        let mut entries = [record.own_entry()];
        self.apply_deletions(principal, &mut entries).await?;
        let [entry] = entries;
        let permit = self.reads.acquire(entry.content.size()).await?;
        let document = self.records.read_document(&entry.content).await?;
        let document: super::ResponseDocument =
            document.ok_or_else(|| missing_failure("response", id))?;
        let output = document
            .response
            .and_then(|mut response| match response.get_mut("output") {
                Some(Value::Array(output)) => Some(std::mem::take(output)),
                _ => None,
            });
        Ok((output.unwrap_or_default(), permit))
    }
}
