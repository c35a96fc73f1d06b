//! Conversations: lists of documents, to which responses and items are added.

use dray_agent::failure::RequestFailure;
use dray_types::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::deletions::ReplacedDocument;
use super::history::{full_failure, history_bytes};
use super::{
    History, HistoryEntry, MAX_ATTEMPTS, MAX_HISTORY, MAX_HISTORY_BYTES, ResponseDocument,
    ResponseStore, missing_failure,
};
use crate::records::{
    ContentRef, RecordError, RecordKind, RevisedRecord, random_id, wait_after_conflict,
};

/// The stored form of one conversation of `/v1/conversations`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConversationRecord {
    pub(super) metadata: Value,
    pub(super) history: Vec<HistoryEntry>,
    created_ms: u64,
    pub(super) expires_ms: u64,
    /// Documents from which items were deleted, with their replacements: earlier responses name the former documents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) replaced: Vec<ReplacedDocument>,
    /// A document with the older replacements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaced_before: Option<ContentRef>,
    /// Whether the record exists only for its replaced documents.
    #[serde(default, skip_serializing_if = "is_false")]
    is_deleted: bool,
}

impl ConversationRecord {
    /// The object of `OpenAI`'s API.
    pub(crate) fn object(&self, id: &str) -> Value {
        json!({
            "id": id, "object": "conversation", "created_at": self.created_ms / 1000, "metadata": self.metadata,
        })
    }

    /// Whether the conversation has a document, or one that replaced it lately.
    pub(super) fn has_document(&self, content: &ContentRef) -> bool {
        self.history.iter().any(|entry| entry.content == *content)
            || self.has_replaced_document(content)
    }
}

impl ResponseStore {
    /// Begins a conversation.
    ///
    /// # Errors
    ///
    /// 413 for items that are too large, 503 while the store or the bus fails.
    pub(crate) async fn create_conversation(
        &self,
        principal: &str,
        metadata: Value,
        items: Vec<Value>,
    ) -> Result<(String, ConversationRecord), RequestFailure> {
        let mut record = ConversationRecord {
            metadata,
            history: Vec::new(),
            created_ms: self.records.now_ms(),
            expires_ms: self.expires_ms(),
            replaced: Vec::new(),
            replaced_before: None,
            is_deleted: false,
        };
        if !items.is_empty() {
            record.history.push(self.items_entry(items).await?);
        }
        let id = random_id("conv_");
        let created = self
            .records
            .create(RecordKind::Conversation, principal, &id, &record);
        created.await?;
        Ok((id, record))
    }

    async fn items_entry(&self, input: Vec<Value>) -> Result<HistoryEntry, RequestFailure> {
        let document = ResponseDocument {
            input,
            ..ResponseDocument::default()
        };
        Ok(HistoryEntry {
            content: self.store(&document).await?,
            stored_ms: self.records.now_ms(),
            conversation: None,
        })
    }

    /// A conversation.
    ///
    /// # Errors
    ///
    /// 404 for one that is not there, expired, or another caller's; 503 while the bus fails.
    pub(crate) async fn conversation(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<RevisedRecord<ConversationRecord>, RequestFailure> {
        let found = self.conversation_record(principal, id).await?;
        let now = self.records.now_ms();
        let found = found.filter(|found| now < found.value.expires_ms && !found.value.is_deleted);
        found.ok_or_else(|| missing_failure("conversation", id))
    }

    /// The record of a conversation, even of a deleted one.
    pub(super) async fn conversation_record(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<RevisedRecord<ConversationRecord>>, RequestFailure> {
        self.records
            .get(RecordKind::Conversation, principal, id)
            .await
    }

    /// The conversation that a new response continues.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::conversation`]; 400 for one that has no room for the response, or whose content is
    /// gone.
    pub(crate) async fn conversation_history(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<History, RequestFailure> {
        let entries = self.conversation(principal, id).await?.value.history;
        // Concurrent responses may take the last places, so the end of each checks again.
        if entries.len() >= MAX_HISTORY {
            return Err(full_failure("conversation"));
        }
        self.history("conversation", entries).await
    }

    /// Reads the items of a conversation, even of one that is too long to be continued.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::conversation`]; 400 for one whose content is gone.
    pub(crate) async fn conversation_items(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<History, RequestFailure> {
        let record = self.conversation(principal, id).await?;
        self.read_history("conversation_id", record.value.history)
            .await
    }

    /// Changes a conversation, whose lifetime begins again.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::conversation`] and of `change`; 413 for one that is too long.
    pub(crate) async fn change_conversation(
        &self,
        principal: &str,
        id: &str,
        change: impl Fn(&mut ConversationRecord) -> Result<(), RequestFailure> + Send + Sync,
    ) -> Result<ConversationRecord, RequestFailure> {
        for attempt in 0..MAX_ATTEMPTS {
            let mut record = self.conversation(principal, id).await?;
            change(&mut record.value)?;
            record.value.expires_ms = self.expires_ms();
            if record.value.history.len() > MAX_HISTORY {
                let message = format!("The conversation has more than {MAX_HISTORY} responses.");
                return Err(RequestFailure::new(413, message));
            }
            let updated = self
                .records
                .update(RecordKind::Conversation, principal, id, &record);
            match updated.await {
                Ok(_) => return Ok(record.value),
                Err(RecordError::Stale) => wait_after_conflict(attempt).await,
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Stale.into())
    }

    /// Adds items to a conversation.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::change_conversation`].
    pub(crate) async fn add_items(
        &self,
        principal: &str,
        id: &str,
        items: Vec<Value>,
    ) -> Result<(), RequestFailure> {
        // The conversation is read first, so that nothing is stored for one that does not exist.
        self.conversation(principal, id).await?;
        let entry = self.items_entry(items).await?;
        let add = |record: &mut ConversationRecord| {
            record.history.push(entry.clone());
            if history_bytes(&record.history) > MAX_HISTORY_BYTES {
                let limit = ByteSize::bytes(MAX_HISTORY_BYTES);
                let message = format!("With these items the conversation has more than {limit}.");
                return Err(RequestFailure::new(413, message));
            }
            Ok(())
        };
        self.change_conversation(principal, id, add).await?;
        Ok(())
    }

    /// Replaces the metadata that a client stored with a conversation.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::change_conversation`].
    pub(crate) async fn set_metadata(
        &self,
        principal: &str,
        id: &str,
        metadata: &Value,
    ) -> Result<ConversationRecord, RequestFailure> {
        let set = |record: &mut ConversationRecord| {
            record.metadata.clone_from(metadata);
            Ok(())
        };
        self.change_conversation(principal, id, set).await
    }

    /// Deletes a conversation. Its responses stay, and items that were deleted from it stay deleted in the responses
    /// that continue them.
    ///
    /// # Errors
    ///
    /// Those of [`ResponseStore::conversation`].
    pub(crate) async fn delete_conversation(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<(), RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let mut record = self.conversation(principal, id).await?;
            let deleted = if record.value.has_replaced() {
                record.value.is_deleted = true;
                record.value.history.clear();
                record.value.metadata = Value::Null;
                let updated = self
                    .records
                    .update(RecordKind::Conversation, principal, id, &record);
                updated.await.map(drop)
            } else {
                let revision = record.revision;
                self.records
                    .delete(RecordKind::Conversation, principal, id, revision)
                    .await
            };
            match deleted {
                Err(RecordError::Stale) => {}
                other => return other.map_err(RequestFailure::from),
            }
        }
        Err(RecordError::Stale.into())
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
