//! The loop: the model, the calls that it asks for, the model again (quickapps 18).

use std::sync::Arc;

use dray_agent::event::{Event, FinishReason};
use dray_agent::failure::Failure;
use dray_agent::message::{Content, CustomContent, Message, Role, ToolCall};
use dray_dial::chat::{Chat, ChatError};
use dray_tool::pipeline::{self, Ended, Ran, Request, Settings};
use dray_tool::{Gone, Sink, Tool, Turn};
use futures_util::future::join_all;

use super::body::Template;
use super::prepare::Outgoing;
use super::relay::{Answer, Astray, Relay};
use super::speech::Speech;
use super::tally::Tally;
use crate::files::TurnFiles;
use crate::metrics::Metrics;

/// Everything that one loop works with.
#[derive(Debug)]
pub(super) struct Rounds<'a> {
    pub(super) chat: &'a Chat,
    pub(super) deployment: &'a str,
    pub(super) template: Template,
    pub(super) outgoing: &'a mut Outgoing,
    pub(super) tools: &'a [Arc<dyn Tool>],
    /// Resolves references in arguments, and takes results that are too large.
    pub(super) files: &'a TurnFiles,
    pub(super) metrics: &'a Metrics,
    /// Most characters of a content in the log; `None`: contents stay out of it.
    pub(super) log_payloads: Option<usize>,
    pub(super) turn: &'a Turn,
    pub(super) settings: Settings,
    pub(super) sink: &'a Sink,
    pub(super) propagates_stages: bool,
    pub(super) most: u32,
}

/// How a loop ended that was not cut short by the client.
#[derive(Debug)]
pub(super) struct Done {
    /// Why the last answer ended.
    pub(super) reason: FinishReason,
}

/// Why a loop did not end well.
#[derive(Debug)]
pub(super) enum Cut {
    /// The client is gone: no report is needed.
    Gone,
    /// The request fails.
    Failed(Failure),
}

impl From<Gone> for Cut {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Rounds<'_> {
    /// Runs until the model asks for no more calls. What happened is in `messages` and `tally` in every case.
    pub(super) async fn run(
        &mut self,
        messages: &mut Vec<Message>,
        speech: &mut Speech,
        tally: &mut Tally,
    ) -> Result<Done, Cut> {
        for round in 1.. {
            if round > self.most {
                return Err(Cut::Failed(super::trouble::limit()));
            }
            speech.next();
            let answer = self.ask(messages, round, speech).await;
            self.metrics.model(answer.is_ok());
            let answer = answer?;
            tally.model(self.deployment, &answer.usage);
            let calls = answer.calls.clone();
            let reason = answer.reason.unwrap_or_default();
            messages.push(said(answer));
            if calls.is_empty() {
                speech.finish(self.sink).await?;
                return Ok(Done { reason });
            }
            let ran = self.call_all(&calls).await;
            for ran in ran {
                messages.push(self.take(ran?, tally).await?);
            }
        }
        Err(Cut::Failed(super::trouble::limit()))
    }

    /// One call of the model. When it refuses files that were sent along, they are taken out and it is asked once more.
    async fn ask(
        &mut self,
        messages: &mut [Message],
        round: u32,
        speech: &mut Speech,
    ) -> Result<Answer, Cut> {
        let first = self.try_ask(messages, round, speech).await;
        let answer = match first {
            Err(Refused::Model(error)) if self.outgoing.recovers(&error, messages) => {
                self.try_ask(messages, round, speech).await
            }
            other => other,
        };
        answer.map_err(|refused| match refused {
            Refused::Cut(cut) => cut,
            Refused::Model(error) => Cut::Failed(super::trouble::model(&error, self.log_payloads)),
        })
    }

    async fn try_ask(
        &self,
        messages: &[Message],
        round: u32,
        speech: &mut Speech,
    ) -> Result<Answer, Refused> {
        let outgoing = self.outgoing.view(messages);
        let body = self.template.body(&outgoing, round);
        let body = body.map_err(|_| Refused::Cut(Cut::Failed(Failure::unexpected())))?;
        let begun = tokio::time::Instant::now();
        let mut stream = self
            .chat
            .stream(&self.turn.caller, self.deployment, body)
            .await?;
        let mut relay = Relay::new(self.sink, speech, self.propagates_stages);
        loop {
            match stream.next().await {
                Ok(Some(delta)) => match relay.take(delta).await {
                    Ok(()) => {}
                    Err(Astray::Gone) => return Err(Gone.into()),
                    Err(Astray::TooMuch) => {
                        relay.broken().await?;
                        return Err(Refused::Cut(Cut::Failed(super::trouble::too_much())));
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
    async fn call_all(&self, calls: &[ToolCall]) -> Vec<Result<Ran, Cut>> {
        join_all(calls.iter().map(|call| self.call(call))).await
    }

    async fn call(&self, call: &ToolCall) -> Result<Ran, Cut> {
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
            return Ok(pipeline::unknown(&call.id, name, &valid));
        };
        let request = Request {
            id: &call.id,
            arguments: &call.function.arguments,
        };
        let ran = pipeline::run(
            tool.as_ref(),
            request,
            self.turn,
            self.files,
            &self.settings,
            self.sink,
        )
        .await;
        let ran = ran.map_err(|ended| match ended {
            Ended::Gone(_) => Cut::Gone,
            Ended::Stopped { text } => Cut::Failed(super::trouble::stopped(&text)),
            Ended::Failed(failure) => Cut::Failed(failure),
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
    pub(super) async fn offloaded(&self, name: &str, mut ran: Ran) -> Ran {
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
    pub(super) async fn take(&self, mut ran: Ran, tally: &mut Tally) -> Result<Message, Cut> {
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
enum Refused {
    Cut(Cut),
    Model(ChatError),
}

impl From<Gone> for Refused {
    fn from(_: Gone) -> Self {
        Self::Cut(Cut::Gone)
    }
}

impl From<ChatError> for Refused {
    fn from(error: ChatError) -> Self {
        Self::Model(error)
    }
}

/// The message of an answer. A model wants text in each: a single space where there is none.
fn said(answer: Answer) -> Message {
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
