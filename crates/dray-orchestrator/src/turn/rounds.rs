//! The loop: the model, the calls that it asks for, the model again (quickapps 18).

use std::sync::Arc;

use dray_agent::event::{Event, FinishReason};
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Content, CustomContent, Message, Role, ToolCall};
use dray_dial::chat::{ChatClient, ChatError};
use dray_tool::pipeline::{self, CompletedCall, PipelineSettings, RequestEnd, ToolRequest};
use dray_tool::{ClientGone, EventSink, Tool, Turn};
use futures_util::future::join_all;

use super::body::BodyTemplate;
use super::prepare::OutgoingMessages;
use super::relay::{AnswerRelay, InvalidAnswer, ModelAnswer};
use super::speech::TextRelay;
use super::tally::TurnTally;
use crate::files::TurnFiles;
use crate::metrics::OrchestratorMetrics;

/// Everything that one loop works with.
#[derive(Debug)]
pub(super) struct ToolLoop<'a> {
    pub(super) chat: &'a ChatClient,
    pub(super) deployment: &'a str,
    pub(super) template: BodyTemplate,
    pub(super) outgoing: &'a mut OutgoingMessages,
    pub(super) tools: &'a [Arc<dyn Tool>],
    /// Resolves references in arguments, and takes results that are too large.
    pub(super) files: &'a TurnFiles,
    pub(super) metrics: &'a OrchestratorMetrics,
    /// Most characters of a content in the log; `None`: contents stay out of it.
    pub(super) log_payloads: Option<usize>,
    pub(super) turn: &'a Turn,
    pub(super) settings: PipelineSettings,
    pub(super) sink: &'a EventSink,
    pub(super) propagates_stages: bool,
    pub(super) most: u32,
}

/// How a loop ended that was not cut short by the client.
#[derive(Debug)]
pub(super) struct LoopEnd {
    /// Why the last answer ended.
    pub(super) reason: FinishReason,
}

/// Why a loop did not end well.
#[derive(Debug)]
pub(super) enum LoopError {
    /// The client is gone: no report is needed.
    Gone,
    /// The request fails.
    Failed(RequestFailure),
}

impl From<ClientGone> for LoopError {
    fn from(_: ClientGone) -> Self {
        Self::Gone
    }
}

impl ToolLoop<'_> {
    /// Runs until the model asks for no more calls. What happened is in `messages` and `tally` in every case.
    pub(super) async fn run(
        &mut self,
        messages: &mut Vec<Message>,
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        for round in 1.. {
            if round > self.most {
                return Err(LoopError::Failed(super::trouble::call_limit_failure()));
            }
            speech.next();
            let answer = self.ask(messages, round, speech).await;
            self.metrics.model(answer.is_ok());
            let answer = answer?;
            tally.model(self.deployment, &answer.usage);
            let calls = answer.calls.clone();
            let reason = answer.reason.unwrap_or_default();
            messages.push(answer_message(answer));
            if calls.is_empty() {
                speech.finish(self.sink).await?;
                return Ok(LoopEnd { reason });
            }
            let ran = self.call_all(&calls).await;
            for ran in ran {
                messages.push(self.take(ran?, tally).await?);
            }
        }
        Err(LoopError::Failed(super::trouble::call_limit_failure()))
    }

    /// One call of the model. When it refuses files that were sent along, they are taken out and it is asked once more.
    async fn ask(
        &mut self,
        messages: &mut [Message],
        round: u32,
        speech: &mut TextRelay,
    ) -> Result<ModelAnswer, LoopError> {
        let first = self.try_ask(messages, round, speech).await;
        let answer = match first {
            Err(CallError::Model(error)) if self.outgoing.recovers(&error, messages) => {
                self.try_ask(messages, round, speech).await
            }
            other => other,
        };
        answer.map_err(|refused| match refused {
            CallError::Cut(cut) => cut,
            CallError::Model(error) => {
                LoopError::Failed(super::trouble::model_failure(&error, self.log_payloads))
            }
        })
    }

    async fn try_ask(
        &self,
        messages: &[Message],
        round: u32,
        speech: &mut TextRelay,
    ) -> Result<ModelAnswer, CallError> {
        let outgoing = self.outgoing.view(messages);
        let body = self.template.body(&outgoing, round);
        let body =
            body.map_err(|_| CallError::Cut(LoopError::Failed(RequestFailure::unexpected())))?;
        let begun = tokio::time::Instant::now();
        let mut stream = self
            .chat
            .stream(&self.turn.caller, self.deployment, body)
            .await?;
        let mut relay = AnswerRelay::new(self.sink, speech, self.propagates_stages);
        loop {
            match stream.next().await {
                Ok(Some(delta)) => match relay.take(delta).await {
                    Ok(()) => {}
                    Err(InvalidAnswer::Gone) => return Err(ClientGone.into()),
                    Err(InvalidAnswer::TooMuch) => {
                        relay.broken().await?;
                        return Err(CallError::Cut(
                            LoopError::Failed(super::trouble::too_much()),
                        ));
                    }
                },
                Ok(None) => break,
                Err(error) => {
                    relay.broken().await?;
                    return Err(error.into());
                }
            }
        }
        let answer = relay.finish().await?;
        tracing::info!(
            model = self.deployment,
            milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            calls = answer.calls.len(),
            "model call completed"
        );
        Ok(answer)
    }

    /// Runs all calls concurrently; results are in the order of the calls.
    async fn call_all(&self, calls: &[ToolCall]) -> Vec<Result<CompletedCall, LoopError>> {
        join_all(calls.iter().map(|call| self.call(call))).await
    }

    async fn call(&self, call: &ToolCall) -> Result<CompletedCall, LoopError> {
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
                .collect();
            return Ok(pipeline::unknown_tool_call(&call.id, name, &valid));
        };
        let request = ToolRequest {
            id: &call.id,
            arguments: &call.function.arguments,
        };
        let ran = pipeline::run_call(
            tool.as_ref(),
            request,
            self.turn,
            self.files,
            &self.settings,
            self.sink,
        )
        .await;
        let ran = ran.map_err(|ended| match ended {
            RequestEnd::Gone(_) => LoopError::Gone,
            RequestEnd::Stopped { text } => {
                LoopError::Failed(super::trouble::stopped_failure(&text))
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
        Ok(self.offloaded(name, ran).await)
    }

    /// The result as the model gets it: what is too large is a file.
    pub(super) async fn offloaded(&self, name: &str, mut ran: CompletedCall) -> CompletedCall {
        let text = match &ran.message.content {
            Some(Content::Text(text)) if !ran.failed => text,
            _ => return ran,
        };
        if let Some(kept) = self.files.offload(name, &ran.content_type, text).await {
            let custom = ran.message.custom_content.get_or_insert_default();
            custom
                .attachments
                .get_or_insert_default()
                .push(kept.attachment);
            ran.message.content = Some(Content::Text(kept.notice));
        }
        ran
    }

    /// The message of one result, whose files are put before the user.
    pub(super) async fn take(
        &self,
        mut ran: CompletedCall,
        tally: &mut TurnTally,
    ) -> Result<Message, LoopError> {
        tally.tool(&ran.usage);
        for attachment in ran.propagate {
            if tally.is_new(&attachment) {
                self.sink.send(Event::Attachment(attachment)).await?;
            }
        }
        self.outgoing.stamp(&mut ran.message);
        Ok(ran.message)
    }
}

/// Why one call of the model gave nothing.
enum CallError {
    Cut(LoopError),
    Model(ChatError),
}

impl From<ClientGone> for CallError {
    fn from(_: ClientGone) -> Self {
        Self::Cut(LoopError::Gone)
    }
}

impl From<ChatError> for CallError {
    fn from(error: ChatError) -> Self {
        Self::Model(error)
    }
}

/// The message of an answer. A model wants text in each: a single space where there is none.
fn answer_message(answer: ModelAnswer) -> Message {
    let content = if answer.content.is_empty() {
        " ".to_owned()
    } else {
        answer.content
    };
    let state = answer
        .state
        .map(|state| serde_json::json!({ "orchestrator_state": state }));
    let mut message = Message::new(Role::Assistant, "");
    message.content = Some(Content::Text(content));
    message.tool_calls = (!answer.calls.is_empty()).then_some(answer.calls);
    if state.is_some() || !answer.attachments.is_empty() {
        message.custom_content = Some(CustomContent {
            attachments: (!answer.attachments.is_empty()).then_some(answer.attachments),
            state,
            ..CustomContent::default()
        });
    }
    message
}
