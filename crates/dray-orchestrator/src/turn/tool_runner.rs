//! Calls of tools in one turn, as the model or a hook makes them.

use std::sync::Arc;

use dray_agent::citation::{argument_sources, page_sources};
use dray_agent::event::Event;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::manifest::guardrail::GuardrailEvent;
use dray_agent::message::{Content, Message, Role, ToolCall};
use dray_tool::pipeline::{self, CompletedCall, PipelineSettings, RequestEnd, ToolRequest};
use dray_tool::{
    AnsweredQuestion, ArgumentResolver, ClientGone, EventSink, Tool, Turn, UserAnswer,
};
use futures_util::future::join_all;
use tracing::Instrument as _;

use super::approval_policy::ApprovalPolicy;
use super::budget::TurnBudget;
use super::client_tools::ClientTools;
use super::guardrails::{NoReferences, PlannedGuardrail, has_guardrail};
use super::mcp_report::McpReport;
use super::rounds::LoopError;
use super::telemetry::TurnTelemetry;
use crate::metrics::OrchestratorMetrics;
use dray_tool_files::TurnFiles;

/// Result of a call whose tool asks a user who cannot be asked.
const NO_ANSWER: &str = "The tool asks the user, who cannot be asked here. It did not continue.";

/// Runs the tools of one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToolRunner<'a> {
    pub(super) tools: &'a [Arc<dyn Tool>],
    /// Tools that the client calls itself.
    pub(super) client_tools: &'a ClientTools,
    /// Selects the calls that need approval.
    pub(super) approvals: &'a ApprovalPolicy,
    /// The guardrails that judge calls and results.
    pub(super) guardrails: &'a [PlannedGuardrail],
    /// Whether it runs the tool of a guardrail, whose arguments are texts without references.
    pub(super) is_judging: bool,
    /// The limits and the use of the turn.
    pub(super) budget: &'a TurnBudget,
    /// Resolves references in arguments, and takes results that are too large.
    pub(super) files: &'a TurnFiles,
    pub(super) turn: &'a Turn,
    pub(super) settings: PipelineSettings,
    pub(super) metrics: &'a OrchestratorMetrics,
    /// Reports the turn.
    pub(super) telemetry: &'a TurnTelemetry,
    /// Reports calls of MCP servers.
    pub(super) mcp: McpReport,
    /// Whether the client gets citations of the pages that tools had.
    pub(super) cites_pages: bool,
    pub(super) sink: &'a EventSink,
}

impl ToolRunner<'_> {
    /// Runs all calls concurrently; results are in the order of the calls.
    pub(super) async fn call_all(
        &self,
        calls: &[ToolCall],
    ) -> Vec<Result<CompletedCall, LoopError>> {
        join_all(calls.iter().map(|call| self.call(call))).await
    }

    async fn call(&self, call: &ToolCall) -> Result<CompletedCall, LoopError> {
        self.call_with(call, None, true, None).await
    }

    /// One call, from its beginning or with answers of the user. Without `may_ask`, a question of its server is
    /// cancelled before the call is counted and reported. `approval` is the question by which the client approved it.
    pub(super) async fn call_with(
        &self,
        call: &ToolCall,
        answered: Option<&AnsweredQuestion>,
        may_ask: bool,
        approval: Option<&str>,
    ) -> Result<CompletedCall, LoopError> {
        let name = call.function.name.as_str();
        let Some(tool) = self
            .tools
            .iter()
            .find(|tool| tool.declaration().name == name)
        else {
            let valid: Vec<_> = self
                .tools
                .iter()
                .map(|tool| tool.declaration().name.as_str())
                .chain(self.client_tools.names())
                .collect();
            // A result to which the model can react; it does not end the request (quickapps 44.4 R10).
            return Ok(pipeline::unknown_tool_call(&call.id, name, &valid));
        };
        let request = ToolRequest {
            id: &call.id,
            arguments: &call.function.arguments,
            answered,
        };
        let begun = (call, approval, answered.is_some());
        let reports = self
            .mcp
            .begin(self.approvals, tool.as_ref(), begun, self.sink);
        let is_reported = reports.await?;
        let ran = match self.run(tool.as_ref(), request).await {
            Ok(ran) => match &ran.question {
                Some(open_question) if !may_ask || !self.approvals.can_ask(open_question) => {
                    // Boxed, because it contains a further call.
                    Box::pin(self.cancel(tool.as_ref(), request, ran)).await
                }
                _ => Ok(ran),
            },
            Err(ended) => Err(ended),
        };
        let ran = ran.map_err(|ended| match ended {
            RequestEnd::Gone(_) => LoopError::Gone,
            RequestEnd::Stopped { text, .. } => {
                LoopError::Failed(super::failures::stopped_failure(&text))
            }
            RequestEnd::Failed(failure) => LoopError::Failed(failure),
        })?;
        self.metrics.tool(!ran.failed);
        tracing::info!(
            tool = name,
            milliseconds = ran.milliseconds,
            failed = ran.failed,
            "tool call completed"
        );
        let judged = (name, call.function.arguments.as_str());
        let ran = self.judge_result(judged, ran).await?;
        self.report_sources(call, &ran).await?;
        let ran = self.offloaded(name, ran).await;
        if is_reported {
            McpReport::end(call, &ran, self.sink).await?;
        }
        Ok(ran)
    }

    /// Reports the pages that a call was about, before its result may become a file.
    async fn report_sources(&self, call: &ToolCall, ran: &CompletedCall) -> Result<(), ClientGone> {
        if !self.cites_pages || ran.failed || ran.question.is_some() {
            return Ok(());
        }
        let mut sources = Vec::new();
        if let Some(Content::Text(text)) = &ran.message.content {
            sources = page_sources(text);
        }
        // Sources of the arguments follow those of the result, which may have titles.
        sources.extend(argument_sources(&call.function.arguments));
        if sources.is_empty() {
            return Ok(());
        }
        self.sink.send(Event::Sources(sources)).await
    }

    /// Ends a call whose question cannot be asked: its server gets the answer `cancel`.
    pub(super) async fn cancel(
        &self,
        tool: &dyn Tool,
        request: ToolRequest<'_>,
        mut ran: CompletedCall,
    ) -> Result<CompletedCall, RequestEnd> {
        if let Some(open_question) = ran.question.take_if(|open_question| !open_question.is_over) {
            let answered = open_question.answered(&UserAnswer::Cancelled);
            let request = ToolRequest {
                answered: Some(&answered),
                ..request
            };
            ran = self.run(tool, request).await?;
        }
        if ran
            .question
            .take()
            .is_some_and(|open_question| !open_question.is_over)
        {
            // The server asks again, although it was cancelled.
            ran.message.content = Some(Content::Text(NO_ANSWER.to_owned()));
            ran.failed = true;
        }
        Ok(ran)
    }

    /// The result of a call that was not made, with the text for the model.
    pub(super) fn refused(call: &ToolCall, text: &str) -> Message {
        Message {
            tool_call_id: Some(call.id.clone()),
            ..Message::new(Role::Tool, text)
        }
    }

    /// Puts a result that is too large for the model into a file; the model gets a notice with its address. The files of
    /// the result become files of the turn.
    pub(super) async fn offloaded(&self, name: &str, mut ran: CompletedCall) -> CompletedCall {
        // A failure is cut, too: a server chooses how long its message is.
        if let Some(Content::Text(text)) = &ran.message.content
            && let Some(offloaded_result) = self
                .files
                .offloader()
                .offload(name, &ran.content_type, text)
                .await
        {
            let custom = ran.message.custom_content.get_or_insert_default();
            custom
                .attachments
                .get_or_insert_default()
                .push(offloaded_result.attachment);
            ran.message.content = Some(Content::Text(offloaded_result.notice));
        }
        // A later call of this turn may give these files to another agent.
        self.turn.add_files(&ran.message);
        ran
    }

    /// One call of a tool, from the text of its arguments to the message for the model.
    pub(super) async fn run(
        &self,
        tool: &dyn Tool,
        request: ToolRequest<'_>,
    ) -> Result<CompletedCall, RequestEnd> {
        let references = self.files.resolver();
        let resolver: &dyn ArgumentResolver = if self.is_judging {
            &NoReferences
        } else {
            &references
        };
        let name = &tool.declaration().name;
        let mut settings = self.settings;
        if has_guardrail(
            self.guardrails,
            GuardrailEvent::AfterTool,
            Some(name.as_str()),
        ) {
            // A stage shows the result before it is judged.
            settings.level = StageLevel::None;
        }
        let span = self.telemetry.tool_span(name, &request);
        let call = self.telemetry.report.begin_call(name, request.id);
        // The future is boxed: the futures that wait for a call would each contain it.
        let running = Box::pin(pipeline::run_call(
            tool, request, self.turn, resolver, &settings, self.sink,
        ));
        let ran = call.watch(running).instrument(span.clone()).await;
        call.end(&ran);
        self.telemetry.end_tool(&span, &ran);
        let ran = ran?;
        // A called agent counts what it uses itself.
        if !self.approvals.is_agent(name) {
            self.telemetry.usage("", &ran.usage);
            self.budget.charge_tool(&ran.usage).await;
        }
        Ok(ran)
    }
}
