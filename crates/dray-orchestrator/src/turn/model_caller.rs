//! Calls of the model in one turn.

use bytes::Bytes;
use dray_agent::caller::Caller;
use dray_agent::event::ModelUsage;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Content, CustomContent, Message, Role};
use dray_dial::chat::{ChatClient, ChatError};
use dray_tool::{ClientGone, EventSink};
use dray_types::whole_millis;
use tracing::Instrument as _;

use super::ModelEndpoint;
use super::body::BodyTemplate;
use super::budget::{CallCharge, TurnBudget};
use super::compactor::Compactor;
use super::prepare::OutgoingMessages;
use super::relay::{AnswerRelay, InvalidAnswer, ModelAnswer};
use super::replayed_calls::shorten_pair_ids;
use super::result_pictures::move_result_pictures;
use super::rounds::LoopError;
use super::speech::TextRelay;
use super::tally::TurnTally;
use super::telemetry::{TurnTelemetry, error_type};

/// A model that a turn may call.
#[derive(Debug)]
pub(super) struct CalledModel {
    pub(super) deployment: String,
    /// The parts of its requests that stay the same.
    pub(super) template: BodyTemplate,
}

/// Calls one model at a time on behalf of one caller.
#[derive(Debug)]
pub(super) struct ModelCaller<'a> {
    pub(super) endpoint: &'a ModelEndpoint,
    pub(super) caller: &'a Caller,
    pub(super) model: CalledModel,
    /// Models that take its place when it fails. The turn continues with the one that answered.
    pub(super) fallbacks: std::vec::IntoIter<CalledModel>,
    pub(super) outgoing: &'a mut OutgoingMessages,
    /// Shortens prompts that have become long.
    pub(super) compactor: Compactor<'a>,
    pub(super) propagates_stages: bool,
    /// Whether answers are held back until guardrails have judged them, or until it is known that a text is the answer.
    pub(super) holds_answers: bool,
    /// Whether the client speaks `OpenAI`'s API and not DIAL's.
    pub(super) is_plain: bool,
    /// Most characters of a content in the log; `None` if contents are not logged.
    pub(super) log_payloads: Option<usize>,
    /// The limits and the use of the turn.
    pub(super) budget: &'a TurnBudget,
    /// Reports the turn.
    pub(super) telemetry: &'a TurnTelemetry,
}

impl ModelCaller<'_> {
    /// Calls the model, and the next one when it fails before any of its answer has arrived.
    pub(super) async fn ask(
        &mut self,
        messages: &mut [Message],
        round: u32,
        speech: &mut TextRelay,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<ModelAnswer, LoopError> {
        loop {
            let answered = self.ask_model(messages, round, speech, sink, tally).await;
            let (error, has_begun) = match answered {
                Ok(mut answer) => {
                    self.outgoing.adapter.take_reasoning(&mut answer);
                    return Ok(answer);
                }
                Err(CallError::Interrupted(error)) => return Err(error),
                Err(CallError::Model { error, has_begun }) => (error, has_begun),
            };
            let may_fall_back = !has_begun && is_failure_of_model(&error);
            let next = may_fall_back.then(|| self.fallbacks.next()).flatten();
            let Some(next) = next else {
                return Err(self.loop_error(&error));
            };
            tracing::warn!(
                failed = self.model.deployment.as_str(),
                kind = ?error.kind,
                next = next.deployment.as_str(),
                "a call of the model failed; the next model is called"
            );
            self.model = next;
        }
    }

    /// Calls one model. If it refuses the files in the request, it is called once more without them, and if its service
    /// wants something else in the messages, once more with that.
    async fn ask_model(
        &mut self,
        messages: &mut [Message],
        round: u32,
        speech: &mut TextRelay,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<ModelAnswer, CallError> {
        let sent = self.outgoing.adapter.quirks_of(&self.model.deployment);
        let mut answered = self.try_ask(messages, round, speech, sink, tally).await;
        if let Err(CallError::Model { error, .. }) = &answered
            && self.outgoing.adapter.note_refusal(sent, error)
        {
            answered = self.try_ask(messages, round, speech, sink, tally).await;
        }
        if let Err(CallError::Model { error, .. }) = &answered
            && self.outgoing.remove_refused_files(error, messages)
        {
            answered = self.try_ask(messages, round, speech, sink, tally).await;
        }
        let adapter = &mut self.outgoing.adapter;
        adapter.end_attempts(&self.model.deployment, answered.is_ok());
        answered
    }

    fn loop_error(&self, error: &ChatError) -> LoopError {
        let has_own_key =
            matches!(self.endpoint, ModelEndpoint::Available(chat) if chat.has_own_key());
        LoopError::Failed(super::failures::model_failure(
            error,
            self.log_payloads,
            self.is_plain,
            has_own_key,
        ))
    }

    async fn try_ask(
        &self,
        messages: &[Message],
        round: u32,
        speech: &mut TextRelay,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<ModelAnswer, CallError> {
        let chat = match self.endpoint {
            ModelEndpoint::Available(chat) => chat,
            ModelEndpoint::Missing => {
                let failure = super::failures::missing_model_failure(self.is_plain);
                return Err(CallError::Interrupted(LoopError::Failed(failure)));
            }
        };
        let outgoing = self.outgoing.view(messages);
        let mut outgoing = self.compactor.compact(outgoing).await;
        // A model that requests files itself keeps those of results in their place.
        if self.outgoing.lazy.is_none() {
            outgoing = move_result_pictures(outgoing);
        }
        // Models of DIAL get the ids of its conversations (quickapps 11.4).
        if self.outgoing.plain {
            shorten_pair_ids(&mut outgoing);
        }
        let adapter = &self.outgoing.adapter;
        adapter.adapt_messages(&self.model.deployment, &mut outgoing);
        let body = self.model.template.body(&outgoing, round);
        let body = body
            .map_err(|_| CallError::Interrupted(LoopError::Failed(RequestFailure::unexpected())))?;
        let started_at = tokio::time::Instant::now();
        let parameters = self.model.template.parameters();
        let span = self
            .telemetry
            .chat_span(&self.model.deployment, parameters, &outgoing);
        let exchange = self.exchange(chat, (messages, body), speech, sink, tally);
        let answered = exchange.instrument(span.clone()).await;
        let elapsed = started_at.elapsed();
        let ended = answered.as_ref().map_err(CallError::kind);
        self.telemetry
            .end_chat(&span, &self.model.deployment, ended, elapsed);
        let answer = answered?;
        tracing::info!(
            model = self.model.deployment.as_str(),
            milliseconds = whole_millis(elapsed),
            calls = answer.calls.len(),
            "model call completed"
        );
        Ok(answer)
    }

    /// Sends these messages, as the body of a request, to the model, and forwards the answer while it arrives.
    async fn exchange(
        &self,
        chat: &ChatClient,
        (messages, body): (&[Message], Bytes),
        speech: &mut TextRelay,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<ModelAnswer, CallError> {
        let charge = self
            .budget
            .begin_call(&self.model.deployment, body.len())
            .await;
        let mut stream = match chat
            .stream_bytes(self.caller, &self.model.deployment, body)
            .await
        {
            Ok(stream) => stream,
            Err(error) => {
                // The model read and wrote no token.
                self.budget.cancel_call(charge).await;
                return Err(error.into());
            }
        };
        let mut relay = AnswerRelay::new(sink, speech, self.propagates_stages, self.is_plain)
            .holding(self.holds_answers);
        let failed = loop {
            match stream.next().await {
                Ok(Some(delta)) => match relay.take(delta).await {
                    Ok(()) => {}
                    Err(InvalidAnswer::Gone) => return Err(ClientGone.into()),
                    Err(InvalidAnswer::TooMuch) => {
                        let failure = super::failures::too_much_failure();
                        break Some(CallError::Interrupted(LoopError::Failed(failure)));
                    }
                    Err(InvalidAnswer::Broken) => {
                        let (error, has_begun) = (ChatError::broken_off(), relay.has_begun());
                        break Some(CallError::Model { error, has_begun });
                    }
                },
                Ok(None) => break None,
                Err(error) => {
                    let has_begun = relay.has_begun();
                    break Some(CallError::Model { error, has_begun });
                }
            }
        };
        if let Some(error) = failed {
            // A failed call may have used tokens too.
            let bytes = relay.received_bytes();
            let usage = relay.finish_broken().await?;
            self.settle(charge, &usage, bytes, tally).await;
            return Err(error);
        }
        let bytes = relay.received_bytes();
        let answer = relay.finish(messages).await?;
        self.settle(charge, &answer.usage, bytes, tally).await;
        Ok(answer)
    }
}

impl ModelCaller<'_> {
    /// Counts what a call used, in the statistics and in the budgets.
    async fn settle(
        &self,
        charge: CallCharge,
        usage: &[ModelUsage],
        response_bytes: usize,
        tally: &mut TurnTally,
    ) {
        tally.model(&self.model.deployment, usage);
        self.telemetry.chat_usage(&self.model.deployment, usage);
        self.budget
            .end_call(charge, &self.model.deployment, usage, response_bytes)
            .await;
    }
}

/// The reason why one call of the model returned no answer.
enum CallError {
    Interrupted(LoopError),
    Model {
        error: ChatError,
        /// Whether a part of the answer had arrived.
        has_begun: bool,
    },
}

impl CallError {
    /// The failure's kind in traces and metrics, from a closed set.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Interrupted(LoopError::Gone) => "cancelled",
            Self::Interrupted(LoopError::Failed(_)) => "invalid_answer",
            Self::Model { error, .. } => error_type(error),
        }
    }
}

impl From<ClientGone> for CallError {
    fn from(_: ClientGone) -> Self {
        Self::Interrupted(LoopError::Gone)
    }
}

impl From<ChatError> for CallError {
    fn from(error: ChatError) -> Self {
        Self::Model {
            error,
            has_begun: false,
        }
    }
}

/// Whether another model may answer the same request: the model or its service failed, and did not refuse the request
/// or the caller.
fn is_failure_of_model(error: &ChatError) -> bool {
    match error.status() {
        Some(status) => matches!(status, 404 | 408 | 409 | 425 | 429 | 500..),
        None => true,
    }
}

/// The message of an answer. Models require text in each message, so an answer without text gets a single space.
pub(super) fn answer_message(answer: ModelAnswer) -> Message {
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
