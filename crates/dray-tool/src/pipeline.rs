//! One call from the text of its arguments to the message for the model (quickapps 19.2): arguments, references, stage,
//! the call under its limit, files of the result, strategies.

use std::time::Duration;

use dray_agent::event::ModelUsage;
use dray_agent::failure;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::message::{Attachment, CustomContent, Message, Role};
use dray_types::fault::invalid_parameter_message;
use dray_types::{ErrorChain, whole_millis};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::time::Instant;

use crate::{
    AnsweredQuestion, ArgumentResolver, ClientGone, EventSink, Tool, ToolFailure, ToolOutput,
    ToolQuestion, Turn, fallback, matching, timeout,
};

mod arguments;
mod attempt;
mod show;

#[cfg(test)]
mod tests;

pub use arguments::parse_arguments;

use attempt::run_attempt;
use show::CallStage;

/// Media type of failures, which the model reads as Markdown.
const MARKDOWN_MEDIA_TYPE: &str = "text/markdown";

/// Media type of a result without one.
const PLAIN_MEDIA_TYPE: &str = "text/plain";

/// Longest timeout of a call; a longer one is reduced to this.
const MAX_CALL_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// Settings of all calls of a request.
#[derive(Clone, Copy, Debug)]
pub struct PipelineSettings {
    /// Which stages are shown: the operator's level if set, otherwise the manifest's.
    pub level: StageLevel,
    /// Longest duration of a call of a tool without a specific limit.
    pub timeout: Duration,
}

/// A call as the model wrote it.
#[derive(Clone, Copy, Debug)]
pub struct ToolRequest<'a> {
    /// Id by the model.
    pub id: &'a str,
    /// JSON text; it may be malformed. Empty text means `{}`.
    pub arguments: &'a str,
    /// Answers of the user, for a call that asked and now continues.
    pub answered: Option<&'a AnsweredQuestion>,
}

/// A completed call with its message, whether it succeeded or failed.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedCall {
    /// The message for the model: role `tool`, the id of the call, text, files, state.
    pub message: Message,
    /// The files of the message that are also shown to the user.
    pub propagate: Vec<Attachment>,
    /// Tokens that the tool used.
    pub usage: Vec<ModelUsage>,
    /// MIME type of the text.
    pub content_type: String,
    /// Whether the call failed, so that its message is an error for the model.
    pub failed: bool,
    /// Kind of the failure, if a tool was called.
    pub failure: Option<CallFailure>,
    /// Duration of the call.
    pub milliseconds: u64,
    /// The tool's question to the user; the message is then the result if no one answers.
    pub question: Option<ToolQuestion>,
}

/// The kind of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// The arguments are not a JSON object, or the tool refused one of them.
    Arguments,
    /// The time limit passed.
    TimedOut,
    /// Any other failure, with the HTTP status that the tool got, if any.
    Tool(Option<u16>),
}

impl CallFailure {
    const fn of(failure: &ToolFailure) -> Self {
        match failure {
            ToolFailure::Parameter { .. } => Self::Arguments,
            ToolFailure::TimedOut => Self::TimedOut,
            ToolFailure::Failed(failed) => Self::Tool(failed.status),
        }
    }
}

/// The reason why the request ends after a call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestEnd {
    /// A strategy of the tool ends the request with this text.
    #[error("{text}")]
    Stopped {
        /// Text for the client: [`fallback::STOPPED_MESSAGE`].
        text: String,
        /// Kind of the failure.
        failure: CallFailure,
    },
    /// The client has disconnected.
    #[error(transparent)]
    Gone(#[from] ClientGone),
    /// No strategy of the tool applies: the request fails.
    #[error(transparent)]
    Failed(failure::RequestFailure),
}

/// Calls a tool.
///
/// Arguments that are not a JSON object give a result for the model, not an error (R10). A panic of the tool counts as
/// a failure. Output for the client goes to `sink`; the call is dropped when the client disconnects (R17).
///
/// # Errors
///
/// See [`RequestEnd`].
pub async fn run_call(
    tool: &dyn Tool,
    request: ToolRequest<'_>,
    turn: &Turn,
    resolver: &dyn ArgumentResolver,
    settings: &PipelineSettings,
    sink: &EventSink,
) -> Result<CompletedCall, RequestEnd> {
    let rules = tool.rules();
    let limit = timeout::effective_timeout(rules.timeout, settings.timeout).min(MAX_CALL_TIMEOUT);
    let running = RunningCall {
        name: &tool.declaration().name,
        id: request.id,
        answered: request.answered,
        tool,
        limit,
        started: Instant::now(),
        sink,
    };
    let written = match arguments::parse_arguments(request.arguments) {
        Ok(written) => written,
        Err(reason) => {
            let call_stage = CallStage::open(rules, Map::new(), settings.level, sink).await?;
            return running.malformed(call_stage, &reason).await;
        }
    };
    let mut call_stage = CallStage::open(rules, written, settings.level, sink).await?;
    match running.result(&mut call_stage, turn, resolver).await? {
        Ok(output) => running.succeeded(call_stage, output).await,
        // A tool that writes to its stage fails when the client disconnects, which is not a failure of the tool.
        Err(_) if sink.is_gone() => Err(RequestEnd::Gone(ClientGone)),
        Err(failure) => running.failed(call_stage, failure).await,
    }
}

/// The result of a call of a tool that does not exist (R10).
pub fn unknown_tool_call(id: &str, name: &str, valid: &[&str]) -> CompletedCall {
    // The model chose the name, so it is put on one line and cut.
    let name = crate::stage::value::value_line(&Value::from(name), 64);
    let known = if valid.is_empty() {
        "This agent has no tools.".to_owned()
    } else {
        format!("Valid tools: {}.", valid.join(", "))
    };
    tracing::info!(tool = %name, "the model called an unknown tool");
    failed_call(id, format!("The tool `{name}` does not exist. {known}"))
}

/// One call while it runs.
struct RunningCall<'a> {
    name: &'a str,
    id: &'a str,
    answered: Option<&'a AnsweredQuestion>,
    tool: &'a dyn Tool,
    limit: Duration,
    started: Instant,
    sink: &'a EventSink,
}

impl RunningCall<'_> {
    /// Replaces references by files and calls the tool, both within the time limit.
    async fn result(
        &self,
        call_stage: &mut CallStage<'_>,
        turn: &Turn,
        resolver: &dyn ArgumentResolver,
    ) -> Result<Result<ToolOutput, ToolFailure>, ClientGone> {
        // Cannot overflow, because the limit is at most a year. Fetching files counts as time of the call.
        let deadline = self.started + self.limit;
        let rules = self.tool.rules();
        let resolving =
            arguments::resolve_arguments(self.name, &call_stage.written, rules, resolver);
        let resolved = match run_attempt(resolving, deadline, self.sink).await? {
            Ok(resolved) => resolved,
            Err(failure) => {
                // The stage shows the request even if a reference in it failed.
                call_stage.request(None).await?;
                return Ok(Err(failure));
            }
        };
        call_stage.request(Some(&resolved)).await?;
        let call = crate::ToolCall {
            id: self.id.to_owned(),
            arguments: resolved,
            written: call_stage.written.clone(),
            stage: call_stage.stage(),
            deadline,
        };
        let running = match self.answered {
            None => self.tool.call(call, turn),
            Some(answered) => self.tool.resume(call, answered.clone(), turn),
        };
        run_attempt(running, deadline, self.sink).await
    }

    async fn succeeded(
        &self,
        call_stage: CallStage<'_>,
        mut output: ToolOutput,
    ) -> Result<CompletedCall, RequestEnd> {
        let produced = std::mem::take(&mut output.attachments);
        let kept = matching::keep_supported(produced, &self.tool.rules().attachments);
        if output.content_type.is_empty() {
            PLAIN_MEDIA_TYPE.clone_into(&mut output.content_type);
        }
        call_stage.response(&output, &kept.all).await?;
        let elapsed = self.started.elapsed();
        call_stage.completed(elapsed).await?;
        self.log(elapsed, None);
        let mut message = tool_message(self.id, output.content);
        if !kept.all.is_empty() || output.state.is_some() {
            message.custom_content = Some(CustomContent {
                attachments: (!kept.all.is_empty()).then_some(kept.all),
                state: output.state,
                ..CustomContent::default()
            });
        }
        Ok(CompletedCall {
            message,
            propagate: kept.propagate,
            usage: output.usage,
            content_type: output.content_type,
            failed: false,
            failure: None,
            milliseconds: whole_millis(elapsed),
            question: output.question,
        })
    }

    async fn failed(
        &self,
        call_stage: CallStage<'_>,
        failure: ToolFailure,
    ) -> Result<CompletedCall, RequestEnd> {
        let fallback = &self.tool.rules().fallback;
        let (text, decision) = match &failure {
            // Bypasses the strategies of the manifest: the model can correct the call (quickapps 19.4).
            ToolFailure::Parameter { name, message } => {
                let text = invalid_parameter_message(name, message);
                (
                    text.clone(),
                    fallback::FallbackDecision::ReportToModel(text),
                )
            }
            ToolFailure::TimedOut => {
                let text = timeout::timeout_message(self.name, self.limit);
                let decision = match fallback::decide_fallback(fallback, &text, true) {
                    // A timeout does not end the request unless a strategy requires it (quickapps 21).
                    fallback::FallbackDecision::Raise => {
                        fallback::FallbackDecision::ReportToModel(text.clone())
                    }
                    decided => decided,
                };
                (text, decision)
            }
            ToolFailure::Failed(failed) => {
                let decision = fallback::decide_fallback(fallback, &failed.text, false);
                (failed.text.clone(), decision)
            }
        };
        let elapsed = self.started.elapsed();
        self.log(elapsed, Some(&failure));
        call_stage.failed(&failure, &text, elapsed).await?;
        let kind = CallFailure::of(&failure);
        match decision {
            fallback::FallbackDecision::ReportToModel(content) => Ok(CompletedCall {
                milliseconds: whole_millis(elapsed),
                failure: Some(kind),
                ..failed_call(self.id, content)
            }),
            fallback::FallbackDecision::Stop => Err(RequestEnd::Stopped {
                text: fallback::STOPPED_MESSAGE.to_owned(),
                failure: kind,
            }),
            fallback::FallbackDecision::Raise => {
                Err(RequestEnd::Failed(failure::RequestFailure::new(500, text)))
            }
        }
    }

    async fn malformed(
        &self,
        call_stage: CallStage<'_>,
        reason: &str,
    ) -> Result<CompletedCall, RequestEnd> {
        let name = self.name;
        let text = format!(
            "The arguments of the tool call `{name}` are not a JSON object: {reason}. Call it again with one."
        );
        let elapsed = self.started.elapsed();
        let failure = ToolFailure::Failed(crate::HandledFailure::new(text.as_str()));
        self.log(elapsed, Some(&failure));
        call_stage.failed(&failure, &text, elapsed).await?;
        Ok(CompletedCall {
            milliseconds: whole_millis(elapsed),
            failure: Some(CallFailure::Arguments),
            ..failed_call(self.id, text)
        })
    }

    /// Writes one line per call, with the time limit that applied to it (R13).
    fn log(&self, elapsed: Duration, failure: Option<&ToolFailure>) {
        let (tool, limit) = (self.name, self.limit.as_secs_f64());
        let elapsed = whole_millis(elapsed);
        let Some(failure) = failure else {
            tracing::info!(
                tool,
                timeout_seconds = limit,
                elapsed,
                "a tool call completed"
            );
            return;
        };
        let status = match failure {
            ToolFailure::Failed(failed) => failed.status,
            ToolFailure::Parameter { .. } | ToolFailure::TimedOut => None,
        };
        let kind = match failure {
            ToolFailure::Parameter { .. } => "parameter",
            ToolFailure::TimedOut => "timeout",
            ToolFailure::Failed(_) => "failure",
        };
        let cause = std::error::Error::source(failure).map(|cause| ErrorChain(cause).to_string());
        tracing::warn!(
            tool,
            timeout_seconds = limit,
            elapsed,
            kind,
            status,
            cause,
            "a tool call failed"
        );
    }
}

fn tool_message(id: &str, content: String) -> Message {
    Message {
        tool_call_id: Some(id.to_owned()),
        ..Message::new(Role::Tool, content)
    }
}

/// A failed call that is reported to the model.
fn failed_call(id: &str, text: String) -> CompletedCall {
    CompletedCall {
        message: tool_message(id, text),
        propagate: Vec::new(),
        usage: Vec::new(),
        content_type: MARKDOWN_MEDIA_TYPE.to_owned(),
        failed: true,
        failure: None,
        milliseconds: 0,
        question: None,
    }
}
