//! What happens while an answer is made, in the order in which the client sees it (quickapps 3.2).

use serde_json::Value;

use crate::message::{Attachment, ToolCall};

/// One thing that the client sees. Texts of stages and of the answer append to what came before.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// More text of the answer.
    Content(String),
    /// A file of the answer.
    Attachment(Attachment),
    /// A stage begins. Numbers count from 0 in order of opening.
    StageOpened {
        /// Its number.
        stage: u32,
        /// Its name, if it has one already.
        name: Option<String>,
    },
    /// More of a stage's name.
    StageName {
        /// Its number.
        stage: u32,
        /// What is added.
        name: String,
    },
    /// More text of a stage.
    StageContent {
        /// Its number.
        stage: u32,
        /// What is added.
        content: String,
    },
    /// A file of a stage.
    StageAttachment {
        /// Its number.
        stage: u32,
        /// The file.
        attachment: Attachment,
    },
    /// A stage ends.
    StageClosed {
        /// Its number.
        stage: u32,
        /// How.
        status: StageStatus,
    },
    /// What the next turn needs; once per answer.
    State(Value),
    /// Calls that the client must make itself.
    ToolCalls(Vec<ToolCall>),
}

/// How a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStatus {
    /// Well.
    Completed,
    /// Not well.
    Failed,
}

impl StageStatus {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishReason {
    /// All is said.
    #[default]
    Stop,
    /// The client must make calls.
    ToolCalls,
    /// The model ran into its limit.
    Length,
    /// A filter stopped the model.
    ContentFilter,
}

impl FinishReason {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Of what was asked.
    pub prompt: u64,
    /// Of what was answered.
    pub completion: u64,
}

/// Tokens of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Its id.
    pub model: String,
    /// What it used.
    pub tokens: TokenUsage,
}

/// The end of an answer; sent last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerEnd {
    /// Why it ended.
    pub reason: FinishReason,
    /// All tokens, when they were counted.
    pub usage: Option<TokenUsage>,
    /// Tokens by model, in order of first use.
    pub per_model: Vec<ModelUsage>,
}
