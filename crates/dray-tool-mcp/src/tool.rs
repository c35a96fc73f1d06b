//! A tool of a server.

use std::sync::Arc;

use async_trait::async_trait;
use dray_tool::{
    AnswerMap, AnsweredQuestion, CallRules, HandledFailure, Tool, ToolCall, ToolDeclaration,
    ToolFailure, ToolOutput, Turn, UserAnswer,
};
use dray_types::Clock;
use rmcp::model::CallToolResult;

use crate::calls::CallEnd;
use crate::dial_url;
use crate::error::SessionError;
use crate::handler::CallQuestions;
use crate::input::{PendingCall, ResumePoint};
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
    /// The name in messages and names of files, without characters that hide.
    pub(crate) shown_name: String,
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
        self.run(call, turn, None).await
    }

    async fn resume(
        &self,
        call: ToolCall,
        answered: AnsweredQuestion,
        turn: &Turn,
    ) -> Result<ToolOutput, ToolFailure> {
        let server = self.server.target.address();
        let pending = PendingCall::read(answered.resume, &server, &self.name)?;
        let answers = answered.answers;
        let has_agreed = answers
            .values()
            .all(|answer| matches!(answer, UserAnswer::Accepted(_)));
        if pending.resume == ResumePoint::Visit && !has_agreed {
            // The server waits for no answer: the call has failed and is not sent again.
            let text = "The tool needs the user to visit a page, and the user did not. It was not called again.";
            return Err(HandledFailure::new(text).into());
        }
        self.run(call, turn, Some((pending, answers))).await
    }
}

impl McpTool {
    /// A call from its beginning, or with answers of the user.
    async fn run(
        &self,
        call: ToolCall,
        turn: &Turn,
        given: Option<(PendingCall, AnswerMap)>,
    ) -> Result<ToolOutput, ToolFailure> {
        let mut arguments = call.arguments;
        // The files are granted before the call: the server reads the files with the permissions that it gets here.
        dial_url::grant_files(
            &self.declaration.parameters,
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
            server: self.server.target.address(),
            given,
        };
        let calling = Box::pin(self.server.call(&self.name, arguments, &questions));
        match calling.await.map_err(|error| self.failure(error))? {
            CallEnd::Done(result) => self.output(*result, turn).await,
            CallEnd::Pending(pending, result) => self.question_output(&pending, result, turn).await,
        }
    }

    async fn output(&self, result: CallToolResult, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let names = FileNames {
            tool: self.shown_name.clone(),
            now_ms: self.clock.now_ms(),
            count: 0,
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

    /// The questions for the user, and the result for the case that there is no answer.
    async fn question_output(
        &self,
        pending: &PendingCall,
        result: Option<Box<CallToolResult>>,
        turn: &Turn,
    ) -> Result<ToolOutput, ToolFailure> {
        let question = pending.question(result.is_some());
        let output = match result {
            None => ToolOutput::text("The tool asks the user.", "text/plain"),
            Some(result) => match self.output(*result, turn).await {
                Ok(output) => output,
                // The failure is returned as a text: a failure would hide the question, and the next call depends on
                // its answer.
                Err(ToolFailure::Failed(failed)) => ToolOutput::text(failed.text, "text/plain"),
                Err(other) => return Err(other),
            },
        };
        Ok(ToolOutput {
            question: Some(question),
            ..output
        })
    }

    fn failure(&self, error: SessionError) -> ToolFailure {
        // Timeouts have separate rules (quickapps 21).
        if error.is_timeout() {
            return ToolFailure::TimedOut;
        }
        let text = format!("Error calling MCP tool '{}': {error}", self.shown_name);
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
