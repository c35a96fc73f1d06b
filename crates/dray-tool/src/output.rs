//! Results of calls (quickapps 19.3).

use dray_agent::event::ModelUsage;
use dray_agent::message::Attachment;
use serde_json::Value;

use crate::ToolQuestion;

/// The result of a call, before the rules for its files are applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// Text for the model.
    pub content: String,
    /// MIME type of the text; `text/plain` if empty.
    pub content_type: String,
    /// Files, with their original types.
    pub attachments: Vec<Attachment>,
    /// State of the tool, which gets it back in the next turn.
    pub state: Option<Value>,
    /// Tokens that it used.
    pub usage: Vec<ModelUsage>,
    /// Whether the text was already written to the stage as it was received.
    pub streamed: bool,
    /// The tool's question to the user before the call continues. The other fields are then the result if no one
    /// answers.
    pub question: Option<ToolQuestion>,
}

impl ToolOutput {
    /// A result that is text alone.
    pub fn text(content: impl Into<String>, content_type: &str) -> Self {
        Self {
            content: content.into(),
            content_type: content_type.to_owned(),
            ..Self::default()
        }
    }
}
