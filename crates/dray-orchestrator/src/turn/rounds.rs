//! The loop of a turn: a call of the model, the calls of tools that it requests, and the model again (quickapps 18).

use std::time::Duration;

use dray_agent::event::{Event, FinishReason};
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role, ToolCall};
use dray_tool::pipeline::CompletedCall;
use dray_tool::{ClientGone, EventSink};
use futures_util::future::{join, join_all};

use super::approval_policy::CallGroups;
use super::chat_approvals::ChatApprovals;
use super::chat_calls::{ChatCallEnd, ChatGate};
use super::checkpoint::Checkpoints;
use super::client_tools::{ClientTools, PermittedCalls};
use super::handoff::{HandoffRequest, TurnAgents, WAITS_FOR_OTHERS};
use super::model_caller::{ModelCaller, answer_message};
use super::settle::place_result;
use super::speech::TextRelay;
use super::tally::TurnTally;
use super::tool_runner::ToolRunner;
use super::waiting::{WaitingCall, waiting_or_ran};
use crate::metrics::OrchestratorMetrics;

/// The result of a call that the request does not let the model make, for the model.
const NOT_PERMITTED: &str = "This call was not made: the `tool_choice` of the request does not permit this tool. Use a \
                             permitted tool, or answer without a tool.";

/// The result of a call without arguments that the limit of the model's answer ended, for the model.
const CUT_OFF: &str = "This call was not made: the answer reached its limit of tokens before the arguments of the call. \
                       Make the call again, without a text before it.";

/// The loop of one turn.
#[derive(Debug)]
pub(super) struct ToolLoop<'a> {
    pub(super) model: ModelCaller<'a>,
    pub(super) runner: ToolRunner<'a>,
    pub(super) metrics: &'a OrchestratorMetrics,
    pub(super) sink: &'a EventSink,
    /// Most calls of the model.
    pub(super) max_rounds: u32,
    /// Whether the answer is a document of a form that the client chose, and so the text beside calls no part of it.
    pub(super) is_structured: bool,
    /// How long a judgement of a prompt may take before the stream of a plain client begins, so that heartbeats keep it
    /// open.
    pub(super) heartbeat: Duration,
    /// Tools that the client calls itself.
    pub(super) client_tools: ClientTools,
    /// The calls that the client lets the model make.
    pub(super) permitted_calls: PermittedCalls,
    /// The agents that can answer in this request.
    pub(super) agents: &'a TurnAgents,
    /// Chats whose people decide about calls.
    pub(super) chats: ChatApprovals<'a>,
    /// Only for a response that another replica can finish.
    pub(super) checkpoints: Option<Checkpoints<'a>>,
}

/// How a loop ended, unless the client disconnected.
#[derive(Debug)]
pub(super) struct LoopEnd {
    /// The reason why the last answer ended.
    pub(super) reason: FinishReason,
    /// Calls that the client must make, with the model's ids; the turn continues with its results.
    pub(super) pending: Vec<ToolCall>,
    /// Calls that wait for the user; the turn continues with the decision or the answer.
    pub(super) questions: Vec<WaitingCall>,
    /// Whether the client was shown any text.
    pub(super) has_text: bool,
    /// Whether the calls are of the round with which the turn waited before.
    pub(super) repeats_round: bool,
    /// The agent that continues the turn.
    pub(super) handoff: Option<HandoffRequest>,
    /// Whether a budget ended the loop.
    pub(super) is_budget_reached: bool,
}

impl LoopEnd {
    /// The end of a loop after which nothing of the turn waits for the client or the user.
    pub(super) const fn complete(reason: FinishReason, has_text: bool) -> Self {
        Self {
            reason,
            pending: Vec::new(),
            questions: Vec::new(),
            has_text,
            repeats_round: false,
            handoff: None,
            is_budget_reached: false,
        }
    }

    /// Whether the turn continues in a later request.
    pub(super) const fn waits(&self) -> bool {
        !self.pending.is_empty() || !self.questions.is_empty()
    }
}

/// The reason why a loop failed.
#[derive(Debug)]
pub(super) enum LoopError {
    /// The client has disconnected, so no failure is reported.
    Gone,
    /// The request fails with this error, which the client gets.
    Failed(RequestFailure),
}

impl From<ClientGone> for LoopError {
    fn from(_: ClientGone) -> Self {
        Self::Gone
    }
}

/// Ends an answer with a text that gives the reason. For the client it is an answer that reached a limit.
pub(super) async fn stop_with(
    text: &str,
    sink: &EventSink,
    speech: &mut TextRelay,
    tally: &mut TurnTally,
) -> Result<LoopEnd, ClientGone> {
    tally.note_files(&speech.finish(sink).await?);
    speech.next();
    speech.send_text(sink, text).await?;
    Ok(LoopEnd::complete(FinishReason::Length, true))
}

/// Ends an answer because a budget is used up.
pub(super) async fn stop_at_budget(
    text: &str,
    sink: &EventSink,
    speech: &mut TextRelay,
    tally: &mut TurnTally,
) -> Result<LoopEnd, ClientGone> {
    Ok(LoopEnd {
        is_budget_reached: true,
        ..stop_with(text, sink, speech, tally).await?
    })
}

/// The calls of a round that this service makes.
struct PlannedCalls {
    /// Calls that need no decision.
    own: Vec<ToolCall>,
    /// Calls about which chats are asked.
    in_chats: Vec<WaitingCall>,
    /// Whether the client has something to answer in this round.
    asks: bool,
}

/// Results, calls whose tools ask the client, and calls whose tools asked a chat.
type OwnCalls<'a> = (
    Vec<Result<Box<CompletedCall>, LoopError>>,
    Vec<WaitingCall>,
    Vec<ChatCallEnd<'a>>,
);

impl<'a> ToolLoop<'a> {
    /// Runs until the model requests no more calls. `messages` and `tally` are up to date after an error, too.
    pub(super) async fn run(
        &mut self,
        messages: &mut Vec<Message>,
        speech: &mut TextRelay,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        let mut judged = None;
        for round in 1.. {
            if let Some(handoff) = self.agents.take_request() {
                tally.note_files(&speech.finish(self.sink).await?);
                return Ok(LoopEnd {
                    handoff: Some(handoff),
                    ..LoopEnd::complete(FinishReason::ToolCalls, speech.has_sent_text())
                });
            }
            if round > self.max_rounds {
                return Err(LoopError::Failed(super::failures::call_limit_failure()));
            }
            if let Some(text) = self.model.budget.exhausted() {
                return Ok(stop_at_budget(&text, self.sink, speech, tally).await?);
            }
            speech.next();
            let rounds = (round, &mut judged);
            let mut answer = match self.ask_judged(messages, rounds, speech, tally).await? {
                Ok(answer) => answer,
                Err(text) => return self.end_blocked(&text, speech, tally).await,
            };
            tally.note_files(&answer.attachments);
            let mut refused = self.judge_calls(&mut answer.calls, tally).await?;
            self.refuse_cut_off(&mut answer.calls, &mut refused);
            let mut calls = answer.calls.clone();
            let reason = answer.reason.unwrap_or_default();
            messages.push(answer_message(answer));
            if calls.is_empty() {
                tally.note_files(&speech.finish(self.sink).await?);
                return Ok(LoopEnd::complete(reason, speech.has_sent_text()));
            }
            calls.retain(|call| {
                let id = Some(call.id.as_str());
                !refused
                    .iter()
                    .any(|result| result.tool_call_id.as_deref() == id)
            });
            messages.extend(refused);
            let mut end = self.call_round(calls, messages, tally).await?;
            if end.waits() {
                tally.note_files(&speech.finish(self.sink).await?);
                // The client must learn that the last call of its own may be cut off.
                if reason == FinishReason::Length && !end.pending.is_empty() {
                    end.reason = reason;
                }
                return Ok(LoopEnd {
                    has_text: speech.has_sent_text(),
                    ..end
                });
            }
        }
        // Only the compiler requires this line: the limit is a `u32`, so the loop returns before its range ends.
        Err(LoopError::Failed(super::failures::call_limit_failure()))
    }

    /// Refuses calls of this service that a limit ended before their arguments, which a tool would take for a call
    /// without any. The model may have written the same call without arguments, but then they are an empty object.
    fn refuse_cut_off(&self, calls: &mut [ToolCall], refused: &mut Vec<Message>) {
        for call in calls {
            let function = &call.function;
            if !function.arguments.trim().is_empty() || self.client_tools.has(&function.name) {
                continue;
            }
            let id = Some(call.id.as_str());
            if !refused
                .iter()
                .any(|result| result.tool_call_id.as_deref() == id)
            {
                refused.push(ToolRunner::refused(call, CUT_OFF));
            }
            // Models and services parse the arguments of earlier calls as JSON.
            "{}".clone_into(&mut call.function.arguments);
        }
    }

    /// Makes the calls of one round that need no decision of a person. Returns the calls that wait for one.
    async fn call_round(
        &self,
        mut calls: Vec<ToolCall>,
        messages: &mut Vec<Message>,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        for call in calls.extract_if(.., |call| !self.permitted_calls.has(&call.function.name)) {
            messages.push(ToolRunner::refused(&call, NOT_PERMITTED));
        }
        let mut groups = self
            .runner
            .approvals
            .group(calls, |name| self.client_tools.has(name));
        if !groups.own.is_empty() || !groups.in_chats.is_empty() {
            self.announce_tools().await?;
        }
        for (call, text) in &groups.refused {
            messages.push(ToolRunner::refused(call, text));
        }
        let asks = !groups.client.is_empty() || !groups.questions.is_empty();
        let in_chats = std::mem::take(&mut groups.in_chats).into_iter();
        let in_chats: Vec<_> = in_chats
            .map(|(call, chat)| self.chats.prepare(call, chat))
            .collect();
        // The checkpoint begins before chats are asked: a decision then finds the process that continues after this
        // one.
        let token = self.begin_checkpoint(&groups, &in_chats, messages).await?;
        self.note_calls(&groups.own, &in_chats).await?;
        let approvals = std::mem::take(&mut groups.questions).into_iter();
        let mut questions: Vec<_> = approvals.map(WaitingCall::approval).collect();
        let own = std::mem::take(&mut groups.own);
        let calls = PlannedCalls {
            own,
            in_chats,
            asks,
        };
        let waiting = self.make_calls(calls, &token, messages, tally).await?;
        questions.extend(waiting);
        if asks || !questions.is_empty() {
            self.keep_agent(messages);
        }
        if let Some(checkpoints) = self
            .checkpoints
            .as_ref()
            .filter(|_| !asks && questions.is_empty())
        {
            checkpoints.end_round(messages).await;
        }
        Ok(LoopEnd {
            reason: FinishReason::ToolCalls,
            pending: groups.client,
            questions,
            has_text: false,
            repeats_round: false,
            handoff: None,
            is_budget_reached: false,
        })
    }

    /// Makes the calls of a round. A call that waits for a chat is made as soon as the chat permits it, even while the
    /// others run. Returns the calls that still wait.
    ///
    /// # Errors
    ///
    /// The failure of the first call that ends the request. The results of the others stay in the history, which the
    /// state keeps.
    async fn make_calls(
        &self,
        calls: PlannedCalls,
        token: &str,
        messages: &mut Vec<Message>,
        tally: &mut TurnTally,
    ) -> Result<Vec<WaitingCall>, LoopError> {
        let gate = ChatGate::new(self.chats.max_wait, calls.asks);
        gate.begin_calls();
        let in_chats = calls.in_chats.into_iter();
        let in_chats = in_chats.map(|waiting| self.call_in_chat(waiting, token, &gate));
        let (own, in_chats) = join(self.call_own(calls.own, &gate), join_all(in_chats)).await;
        let (ran, mut waiting, of_tools) = own;
        let (mut open, mut failed) = (Vec::new(), None);
        for ran in ran {
            match ran {
                Ok(ran) => messages.push(self.take(*ran, tally).await?),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        for end in in_chats.into_iter().chain(of_tools) {
            match end {
                ChatCallEnd::Ran(_, ran) => messages.push(self.take(*ran, tally).await?),
                ChatCallEnd::Refused(call, text) => messages.push(ToolRunner::refused(&call, text)),
                ChatCallEnd::Open(question) => open.push(question),
                ChatCallEnd::OfClient(call) => waiting.push(*call),
                ChatCallEnd::Failed(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // From here on the paused turn keeps each question.
        waiting.extend(open.into_iter().map(|question| question.keep()));
        Ok(waiting)
    }

    /// Makes the calls that need no decision, and asks chats what their tools ask. Returns the results in the order of
    /// the calls, the calls whose tools ask the client, and the ends of those whose tools ask a chat.
    async fn call_own(&self, calls: Vec<ToolCall>, gate: &ChatGate) -> OwnCalls<'a> {
        let ran = self.runner.call_all(&calls).await;
        let (mut results, mut asking) = (Vec::new(), Vec::new());
        for (call, ran) in calls.into_iter().zip(ran) {
            match ran.map(|ran| waiting_or_ran(call, ran, 1)) {
                Ok(Ok(waiting)) => asking.push(waiting),
                Ok(Err(ran)) => results.push(Ok(ran)),
                Err(error) => {
                    gate.fail();
                    results.push(Err(error));
                }
            }
        }
        let (open, of_client) = self.chats.ask_tools(asking).await;
        // The client must not wait for a chat before it is asked itself.
        if !of_client.is_empty() {
            gate.note_client();
        }
        gate.end_calls();
        let ends = open.into_iter().map(|question| self.follow(question, gate));
        (results, of_client, join_all(ends).await)
    }

    /// Cancels a handoff, because calls of its round wait and only this agent can continue them.
    pub(super) fn keep_agent(&self, messages: &mut [Message]) {
        if let Some(id) = self.agents.withdraw() {
            place_result(messages, &id, Message::new(Role::Tool, WAITS_FOR_OTHERS));
        }
    }

    /// Stores which calls another replica may repeat if this process ends during them, and which wait for chats.
    /// Returns the name of the checkpoint, which is empty without one.
    async fn begin_checkpoint(
        &self,
        groups: &CallGroups,
        in_chats: &[WaitingCall],
        messages: &[Message],
    ) -> Result<String, LoopError> {
        let Some(checkpoints) = &self.checkpoints else {
            return Ok(String::new());
        };
        // A round with calls of the client is not finished when the calls of this service are.
        let has_others = !groups.client.is_empty() || !groups.questions.is_empty();
        let may_repeat = !has_others && self.may_repeat(&groups.own);
        let repeated = may_repeat.then_some(groups.own.as_slice());
        let stored = checkpoints.begin_round(messages, repeated, in_chats).await;
        stored.map_err(LoopError::Failed)
    }

    /// Whether all of these calls may be made a second time.
    fn may_repeat(&self, calls: &[ToolCall]) -> bool {
        let policy = self.runner.approvals;
        let mut functions = calls.iter().map(|call| &call.function);
        functions.all(|function| policy.is_repeatable(&function.name, &function.arguments))
    }

    /// Reports that calls begin, unless another request may make all of them again.
    async fn note_calls(
        &self,
        own: &[ToolCall],
        in_chats: &[WaitingCall],
    ) -> Result<(), ClientGone> {
        if !in_chats.is_empty() || !self.may_repeat(own) {
            self.sink.send(Event::CallsStarted).await?;
        }
        Ok(())
    }

    /// Lets a plain client's stream begin, so that heartbeats keep it open while tools run. Streams of DIAL begin with
    /// the first thing to show (quickapps 46).
    pub(super) async fn announce_tools(&self) -> Result<(), ClientGone> {
        if self.model.is_plain {
            self.sink.send(Event::ToolsStarted).await?;
        }
        Ok(())
    }

    /// The message of one result. Sends its new files to the user.
    pub(super) async fn take(
        &self,
        mut ran: CompletedCall,
        tally: &mut TurnTally,
    ) -> Result<Message, LoopError> {
        self.model.outgoing.stamp(&mut ran.message);
        self.report_end(&mut ran, tally).await?;
        Ok(ran.message)
    }

    /// Counts what a call used, and sends its new files to the user.
    pub(super) async fn report_end(
        &self,
        ran: &mut CompletedCall,
        tally: &mut TurnTally,
    ) -> Result<(), LoopError> {
        tally.tool(&ran.usage);
        for attachment in std::mem::take(&mut ran.propagate) {
            if tally.is_new(&attachment) {
                tally.note_files(std::slice::from_ref(&attachment));
                self.sink.send(Event::Attachment(attachment)).await?;
            }
        }
        Ok(())
    }
}
