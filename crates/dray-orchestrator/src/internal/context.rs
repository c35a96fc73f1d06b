//! The tool that lists the files of the manifest (quickapps 13).

use async_trait::async_trait;
use dray_agent::manifest::Context;
use dray_agent::notify::{self, Notice};
use dray_tool::{Call, Declaration, Failure, Output, Rules, Tool, Turn};
use serde_json::json;

/// Metadata of the files, never their content.
#[derive(Debug)]
pub(super) struct List {
    declaration: Declaration,
    rules: Rules,
    contexts: Vec<Context>,
}

impl List {
    pub(super) fn new(contexts: &[Context]) -> Self {
        Self {
            declaration: super::declaration(
                notify::TOOL,
                "Lists the files that this agent always has: title, url, type and description of each, and what \
                 changed since they were listed last. It does not read them.",
                json!({"type": "object", "properties": {}}),
            ),
            rules: super::rules("Available context", true),
            contexts: contexts.to_vec(),
        }
    }
}

#[async_trait]
impl Tool for List {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    async fn call(&self, _: Call, turn: &Turn) -> Result<Output, Failure> {
        let notice = Notice::of(&self.contexts, &turn.history);
        Ok(Output::text(notice.text(), "application/json"))
    }
}
