//! The tool that lists the files of the manifest (quickapps 13).

use async_trait::async_trait;
use dray_agent::manifest::Context;
use dray_agent::notify::{self, FileNotice};
use dray_tool::{CallRules, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn};
use serde_json::json;

/// Metadata of the files, never their content.
#[derive(Debug)]
pub(super) struct ListFiles {
    declaration: ToolDeclaration,
    rules: CallRules,
    contexts: Vec<Context>,
}

impl ListFiles {
    pub(super) fn new(contexts: &[Context]) -> Self {
        Self {
            declaration: super::tool_declaration(
                notify::LIST_TOOL,
                "Lists the files that this agent always has: title, url, type and description of each, and what \
                 changed since they were listed last. It does not read them.",
                json!({"type": "object", "properties": {}}),
            ),
            rules: super::call_rules("Available context", true),
            contexts: contexts.to_vec(),
        }
    }
}

#[async_trait]
impl Tool for ListFiles {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, _: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let notice = FileNotice::of(&self.contexts, &turn.history);
        Ok(ToolOutput::text(notice.text(), "application/json"))
    }
}
