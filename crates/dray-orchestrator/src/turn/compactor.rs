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
    /// The text that was stored last, by its digest, and the address of its file.
    kept: Mutex<Option<(Sha256Digest, String)>>,
}

impl<'a> Compactor<'a> {
    pub(super) fn new(files: &'a TurnFiles, threshold_tokens: Option<u64>) -> Self {
        Self {
            files,
            threshold_tokens,
            kept: Mutex::default(),
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
        match self.keep(&transcript(plan.compacted(&messages))).await {
            Some(kept) => plan.apply(&messages, &kept),
            None => messages,
        }
    }

    /// Where a text is kept; it is written once for all calls of the model that need it.
    async fn keep(&self, text: &str) -> Option<String> {
        let digest = Sha256Digest::of(text.as_bytes());
        let mut last = self.kept.lock().await;
        if let Some((known, kept)) = last.as_ref()
            && *known == digest
        {
            return Some(kept.clone());
        }
        match self.files.offloader().keep_messages(text).await {
            Ok(kept) => {
                tracing::info!(
                    bytes = text.len(),
                    "old messages of a conversation were compacted"
                );
                *last = Some((digest, kept.clone()));
                Some(kept)
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
