//! Shortens the prompts of long conversations: old messages are put into a file, and an outline replaces them.

use dray_agent::compaction::{CompactionPlan, transcript};
use dray_agent::message::Message;
use dray_tool_files::TurnFiles;
use dray_types::Sha256Digest;
use tokio::sync::Mutex;

/// Compacts the prompts of one turn.
#[derive(Debug)]
pub(super) struct Compactor<'a> {
    files: &'a TurnFiles,
    /// Tokens from which on prompts are compacted; `None`: never.
    threshold_tokens: Option<u64>,
    /// Digest of the text that was stored last, and the address of its file.
    last_stored: Mutex<Option<(Sha256Digest, String)>>,
}

impl<'a> Compactor<'a> {
    pub(super) fn new(files: &'a TurnFiles, threshold_tokens: Option<u64>) -> Self {
        Self {
            files,
            threshold_tokens,
            last_stored: Mutex::default(),
        }
    }

    /// The prompt for the model. If the old messages cannot be stored, it is not shortened.
    pub(super) async fn compact(&self, messages: Vec<Message>) -> Vec<Message> {
        let plan = self
            .threshold_tokens
            .and_then(|threshold| CompactionPlan::new(&messages, threshold));
        let Some(plan) = plan else {
            return messages;
        };
        match self
            .store_once(&transcript(plan.compacted(&messages)))
            .await
        {
            Some(address) => plan.apply(&messages, &address),
            None => messages,
        }
    }

    /// Stores a text and returns the address of its file. A text that equals the last one is not stored again.
    async fn store_once(&self, text: &str) -> Option<String> {
        let digest = Sha256Digest::of(text.as_bytes());
        let mut last = self.last_stored.lock().await;
        if let Some((known, address)) = last.as_ref()
            && *known == digest
        {
            return Some(address.clone());
        }
        match self.files.offloader().keep_messages(text).await {
            Ok(address) => {
                tracing::info!(
                    bytes = text.len(),
                    "old messages of a conversation were compacted"
                );
                *last = Some((digest, address.clone()));
                Some(address)
            }
            Err(failure) => {
                tracing::warn!(
                    error = &failure as &dyn std::error::Error,
                    "a long conversation was not compacted"
                );
                None
            }
        }
    }
}
