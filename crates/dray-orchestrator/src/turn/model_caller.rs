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
use super::rounds::LoopError;
use super::speech::TextRelay;
use super::tally::TurnTally;
use super::telemetry::{TurnTelemetry, error_type};

/// Calls one model on behalf of one caller.
#[derive(Debug)]
pub(super) struct ModelCaller<'a> {
    pub(super) endpoint: &'a ModelEndpoint,
    pub(super) caller: &'a Caller,
    pub(super) deployment: &'a str,
    pub(super) template: BodyTemplate,
    pub(super) outgoing: &'a mut OutgoingMessages,
    /// Shortens prompts that have become long.
    pub(super) compactor: Compactor<'a>,
    pub(super) propagates_stages: bool,
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
    /// Calls the model once. If it refuses the files in the request, it is called once more without them.
    pub(super) async fn ask(
        &mut self,
        messages: &mut [Message],
        round: u32,
        speech: &mut TextRelay,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<ModelAnswer, LoopError> {
        let first = self.try_ask(messages, round, speech, sink, tally).await;
        let answer = match first {
            Err(CallError::Model(error)) if self.outgoing.recovers(&error, messages) => {
                self.try_ask(messages, round, speech, sink, tally).await
            }
            other => other,
        };
        let has_own_key =
            matches!(self.endpoint, ModelEndpoint::Available(chat) if chat.has_own_key());
        answer.map_err(|refused| match refused {
            CallError::Interrupted(error) => error,
            CallError::Model(error) => LoopError::Failed(super::failures::model_failure(
                &error,
                self.log_payloads,
                self.is_plain,
                has_own_key,
            )),
        })
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
        let outgoing = self.compactor.compact(outgoing).await;
        let body = self.template.body(&outgoing, round);
        let body = body
            .map_err(|_| CallError::Interrupted(LoopError::Failed(RequestFailure::unexpected())))?;
        let started_at = tokio::time::Instant::now();
        let parameters = self.template.parameters();
        let span = self
            .telemetry
            .chat_span(self.deployment, parameters, &outgoing);
        let exchange = self.exchange(chat, body, speech, sink, tally);
        let answered = exchange.instrument(span.clone()).await;
        let elapsed = started_at.elapsed();
        let ended = answered.as_ref().map_err(CallError::kind);
        self.telemetry
            .end_chat(&span, self.deployment, ended, elapsed);
        let answer = answered?;
        tracing::info!(
            model = self.deployment,
            milliseconds = whole_millis(elapsed),
            calls = answer.calls.len(),
            "model call completed"
        );
        Ok(answer)
    }

    /// Sends a request to the model, and forwards the answer while it arrives.
    async fn exchange(
        &self,
        chat: &ChatClient,
        body: Bytes,
        speech: &mut TextRelay,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<ModelAnswer, CallError> {
        let charge = self.budget.begin_call(self.deployment, body.len()).await;
        let mut stream = match chat.stream_bytes(self.caller, self.deployment, body).await {
            Ok(stream) => stream,
            Err(error) => {
                // No token was read or written by the model.
                self.budget.cancel_call(charge).await;
                return Err(error.into());
            }
        };
        let mut relay = AnswerRelay::new(sink, speech, self.propagates_stages, self.is_plain);
        loop {
            match stream.next().await {
                Ok(Some(delta)) => match relay.take(delta).await {
                    Ok(()) => {}
                    Err(InvalidAnswer::Gone) => return Err(ClientGone.into()),
                    Err(InvalidAnswer::TooMuch) => {
                        let bytes = relay.received_bytes();
                        let usage = relay.finish_broken().await?;
                        self.settle(charge, &usage, bytes, tally).await;
                        return Err(CallError::Interrupted(LoopError::Failed(
                            super::failures::too_much_failure(),
                        )));
                    }
                },
                Ok(None) => break,
                Err(error) => {
                    // A failed call may have used tokens too.
                    let bytes = relay.received_bytes();
                    let usage = relay.finish_broken().await?;
                    self.settle(charge, &usage, bytes, tally).await;
                    return Err(error.into());
                }
            }
        }
        let bytes = relay.received_bytes();
        let answer = relay.finish().await?;
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
        tally.model(self.deployment, usage);
        self.telemetry.chat_usage(self.deployment, usage);
        self.budget
            .end_call(charge, self.deployment, usage, response_bytes)
            .await;
    }
}

/// The reason why one call of the model returned no answer.
enum CallError {
    Interrupted(LoopError),
    Model(ChatError),
}

impl CallError {
    /// Its kind in traces and metrics, from a closed set.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Interrupted(LoopError::Gone) => "cancelled",
            Self::Interrupted(LoopError::Failed(_)) => "invalid_answer",
            Self::Model(error) => error_type(error),
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
        Self::Model(error)
    }
}

/// The message of an answer. Models require text in each message: a single space if there is none.
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
