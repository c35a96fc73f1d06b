//! A tool of a server.

use std::sync::Arc;

use async_trait::async_trait;
use dray_tool::{
    CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
};
use dray_types::Clock;

use crate::dial_url;
use crate::result::{FileNames, result_output};
use crate::server::ServerTarget;
use crate::session::SessionError;

/// A tool of a server.
#[derive(Debug)]
pub(crate) struct McpTool {
    pub(crate) declaration: ToolDeclaration,
    pub(crate) rules: CallRules,
    pub(crate) server: Arc<ServerTarget>,
    /// Name of the tool at its server.
    pub(crate) name: String,
    pub(crate) clock: Clock,
}

#[async_trait]
impl Tool for McpTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let mut arguments = call.arguments;
        // Before the call: the server reads the files with rights that it gets here.
        dial_url::grant_files(
            &self.declaration.parameters,
            &mut arguments,
            self.server.known.as_ref(),
            &turn.caller,
            &turn.storage,
        )
        .await?;
        let calling = Box::pin(self.server.call(&self.name, arguments, &turn.caller));
        let result = calling.await.map_err(|error| self.failure(error))?;
        let names = FileNames {
            tool: self.name.clone(),
            now_ms: self.clock.now_ms(),
            used: 0,
        };
        result_output(
            result,
            names,
            &self.rules.attachments,
            turn.storage.as_ref(),
            &self.server,
        )
        .await
    }
}

impl McpTool {
    fn failure(&self, error: SessionError) -> ToolFailure {
        // Timeouts have rules of their own (quickapps 21).
        if error.is_late() {
            return ToolFailure::TimedOut;
        }
        let text = format!("Error calling MCP tool '{}': {error}", self.name);
        let shown = format!("> ##### Exception:\nMCP: {error}\n");
        let failed = HandledFailure::new(text).shown(shown);
        match error.status() {
            Some(status) => failed.status(status),
            None => failed,
        }
        .because(error)
        .into()
    }
}
