//! A tool of a server.

use std::sync::Arc;

use async_trait::async_trait;
use dray_tool::{
    CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
};
use dray_types::Clock;
use rmcp::model::CallToolResult;

use crate::calls::CallEnd;
use crate::dial_url;
use crate::error::SessionError;
use crate::handler::CallQuestions;
use crate::input::{PendingCall, take_answers};
use crate::questions::QuestionPort;
use crate::result::{FileNames, result_output};
use crate::server::ServerTarget;

/// A tool of a server.
#[derive(Debug)]
pub(crate) struct McpTool {
    pub(crate) declaration: ToolDeclaration,
    pub(crate) rules: CallRules,
    pub(crate) server: Arc<ServerTarget>,
    /// Name of the tool at its server.
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) questions: Option<Arc<dyn QuestionPort>>,
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
        let schema = &self.declaration.parameters;
        let given = take_answers(
            &mut arguments,
            schema,
            &turn.history,
            &self.declaration.name,
        )?;
        // Before the call: the server reads the files with rights that it gets here.
        dial_url::grant_files(
            schema,
            &mut arguments,
            self.server.known.as_ref(),
            &turn.caller,
            &turn.storage,
        )
        .await?;
        let questions = CallQuestions {
            port: self.questions.clone(),
            toolset: self.rules.label.clone(),
            caller: turn.caller.clone(),
            given,
        };
        let calling = Box::pin(self.server.call(&self.name, arguments, &questions));
        match calling.await.map_err(|error| self.failure(error))? {
            CallEnd::Done(result) => self.output(*result, turn).await,
            CallEnd::Pending(pending, result) => self.question_output(pending, result, turn).await,
        }
    }
}

impl McpTool {
    async fn output(&self, result: CallToolResult, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
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

    /// The questions for the user, and the result that the tool returned without their answers.
    async fn question_output(
        &self,
        pending: PendingCall,
        result: Option<Box<CallToolResult>>,
        turn: &Turn,
    ) -> Result<ToolOutput, ToolFailure> {
        // Tools of two sets may have the same name at their servers; the declared name is unique.
        let pending = PendingCall {
            tool: self.declaration.name.clone(),
            ..pending
        };
        let mut output = pending.output();
        let Some(result) = result else {
            return Ok(output);
        };
        let (text, attachments) = match self.output(*result, turn).await {
            Ok(without) => (without.content, without.attachments),
            Err(ToolFailure::Failed(failed)) => (failed.text, Vec::new()),
            Err(other) => return Err(other),
        };
        output
            .content
            .push_str("\n\nWithout an answer the tool returned:\n");
        output.content.push_str(&text);
        output.attachments = attachments;
        Ok(output)
    }

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
