//! Calls about which the people of a chat decide, and questions of tools that they answer: the chat is asked, and the request
//! waits for a while. What is not decided by then waits with the paused turn.

use std::time::Duration;

use dray_agent::approval::call_digest;
use dray_agent::canonical_json::canonical_json;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, ToolCall};
use dray_tool::pipeline::{CompletedCall, parse_arguments};
use dray_tool::{AnswerMap, UserAnswer};
use futures_util::future::{join_all, try_join_all};
use serde_json::Value;

use super::approval_forms::{chat_question, visible_text};
use super::approval_policy::{ApprovalPolicy, TOO_LARGE};
use super::rounds::{LoopError, ToolLoop};
use super::settle::DueCall;
use super::tally::TurnTally;
use super::tool_runner::ToolRunner;
use super::waiting::{WaitingCall, waiting_or_ran};
use crate::approvals::{
    ApprovalDecision, ApprovalRecord, ApprovalStore, AskFailure, AskedChat, ChatState, NewApproval,
    ShownCall, used_failure,
};
use crate::records::RevisedRecord;

/// Said of a call that the people of a chat refused.
const REFUSED_IN_CHAT: &str =
    "The people who decide about such calls refused this one; it was not made.";
/// Said of a call about which no person decided in time.
pub(super) const NOT_DECIDED: &str = "Nobody approved this call in time; it was not made.";
/// Said of a call whose chat cannot be asked.
const UNREACHABLE: &str = "This call needs the approval of people in a chat, who cannot be asked at the moment. It was not \
     made.";

/// Asks chats, and waits for their decisions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChatApprovals<'a> {
    pub(super) store: &'a ApprovalStore,
    pub(super) principal: &'a str,
    pub(super) policy: &'a ApprovalPolicy,
    /// How long the request stays open for a decision.
    pub(super) max_wait: Duration,
}

/// A call about which a chat was asked in this request. Dropped before the turn is paused, it takes the question back.
#[derive(Debug)]
pub(super) struct OpenQuestion<'a> {
    waiting: WaitingCall,
    chats: ChatApprovals<'a>,
    is_open: bool,
}

impl<'a> OpenQuestion<'a> {
    /// A question that the chat of `waiting` is about to get.
    pub(super) const fn new(waiting: WaitingCall, chats: ChatApprovals<'a>) -> Self {
        Self {
            waiting,
            chats,
            is_open: true,
        }
    }

    /// The call, whose question is kept in its result or in the paused turn from now on.
    pub(super) fn keep(mut self) -> WaitingCall {
        self.is_open = false;
        self.waiting.clone()
    }
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        let approval = self.waiting.in_chat.as_ref().filter(|_| self.is_open);
        if let Some(approval) = approval {
            let principal = self.chats.principal.to_owned();
            self.chats
                .store
                .withdraw_later(principal, approval.id.clone());
        }
    }
}

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum ChatOutcome {
    /// It is made now: the decision is used.
    Approved(Box<RevisedRecord<ApprovalRecord>>),
    /// It continues now with answers for its tool, which are used. Without a record the question has expired.
    Answered(AnswerMap, Option<Box<RevisedRecord<ApprovalRecord>>>),
    /// It is not made, and the model gets this.
    Refused(&'static str),
    /// It still waits.
    Waiting,
}

impl<'a> ChatApprovals<'a> {
    /// Asks about calls concurrently. Those that cannot be asked about come back with what the model gets.
    pub(super) async fn ask(
        self,
        calls: Vec<(ToolCall, String)>,
    ) -> Vec<Result<OpenQuestion<'a>, (ToolCall, &'static str)>> {
        join_all(
            calls
                .into_iter()
                .map(|(call, chat)| self.ask_one(call, chat)),
        )
        .await
    }

    async fn ask_one(
        self,
        call: ToolCall,
        chat: String,
    ) -> Result<OpenQuestion<'a>, (ToolCall, &'static str)> {
        let name = call.function.name.clone();
        // Calls whose arguments are not an object never need approval.
        let arguments = parse_arguments(&call.function.arguments).unwrap_or_default();
        let expires_ms = self.store.expires_ms();
        let mut approval = NewApproval::new(&name, &call_digest(&name, &arguments));
        approval.chat = Some(AskedChat {
            name: chat,
            expires_ms,
        });
        let shown = ShownCall {
            text: chat_question(self.policy.source(&name), &name, self.principal, expires_ms),
            detail: visible_text(&canonical_json(&Value::Object(arguments))),
        };
        // Before the question is sent: a turn that is dropped in the middle takes it back.
        let question = OpenQuestion::new(WaitingCall::in_chat(call, approval.clone()), self);
        match self
            .store
            .ask_in_chat(self.principal, &approval, shown)
            .await
        {
            Ok(()) => Ok(question),
            Err(failure) => {
                let text = match failure {
                    AskFailure::TooLong => TOO_LARGE,
                    AskFailure::NotTaken | AskFailure::Unreachable => UNREACHABLE,
                };
                Err((question.keep().call, text))
            }
        }
    }

    /// Waits for the decisions about calls of which a chat was asked, and uses them.
    ///
    /// # Errors
    ///
    /// 400 for a decision that another request has used, 503 while the bus fails.
    pub(super) async fn settle(
        self,
        calls: &[&WaitingCall],
        may_wait: bool,
    ) -> Result<Vec<ChatOutcome>, RequestFailure> {
        let max_wait = if may_wait {
            self.max_wait
        } else {
            Duration::ZERO
        };
        try_join_all(calls.iter().map(|call| self.settle_one(call, max_wait))).await
    }

    async fn settle_one(
        self,
        waiting: &WaitingCall,
        max_wait: Duration,
    ) -> Result<ChatOutcome, RequestFailure> {
        let Some(approval) = &waiting.in_chat else {
            return Ok(ChatOutcome::Waiting);
        };
        let (store, id) = (self.store, &approval.id);
        let state = store.wait_for_chat(self.principal, id, max_wait).await?;
        if let Some(question) = &waiting.question {
            let cancelled = question.asked.answered(&UserAnswer::Cancelled).answers;
            return self.use_answer(id, state, cancelled).await;
        }
        match state {
            ChatState::Waiting(_) => Ok(ChatOutcome::Waiting),
            ChatState::Expired(_) => Ok(ChatOutcome::Refused(NOT_DECIDED)),
            // Two requests continue the same turn.
            ChatState::Used => Err(used_failure()),
            ChatState::Decided(record)
                if record.value.decision != Some(ApprovalDecision::Approved) =>
            {
                Ok(ChatOutcome::Refused(REFUSED_IN_CHAT))
            }
            ChatState::Decided(mut record) => {
                store.use_decision(self.principal, id, &mut record).await?;
                Ok(ChatOutcome::Approved(Box::new(record)))
            }
        }
    }

    /// Uses the answer of a chat to what a tool asks.
    async fn use_answer(
        self,
        id: &str,
        state: ChatState,
        cancelled: AnswerMap,
    ) -> Result<ChatOutcome, RequestFailure> {
        match state {
            ChatState::Waiting(_) => Ok(ChatOutcome::Waiting),
            // As a person who leaves the form without an answer (MCP, elicitation).
            ChatState::Expired(_) => Ok(ChatOutcome::Answered(cancelled, None)),
            ChatState::Used => Err(used_failure()),
            ChatState::Decided(mut record) => {
                // Decided and not by the chat: by another request of the caller, which continues the call.
                let answers = record.value.chat_answers().ok_or_else(used_failure)?;
                self.store
                    .use_decision(self.principal, id, &mut record)
                    .await?;
                Ok(ChatOutcome::Answered(answers, Some(Box::new(record))))
            }
        }
    }
}

/// Calls that chats decided about in this request. The caller takes the results out after each wait, so that a failure
/// loses none.
#[derive(Debug, Default)]
pub(super) struct DecidedCalls {
    /// The ends of those that were made or continued.
    pub(super) ran: Vec<(ToolCall, CompletedCall)>,
    /// Those that are not made, with what the model gets.
    pub(super) refused: Vec<(ToolCall, &'static str)>,
    /// Those that still wait.
    pub(super) waiting: Vec<WaitingCall>,
}

impl<'a> ToolLoop<'a> {
    /// Makes those calls of a round that the people of chats approve within the time of the request, and continues those
    /// whose questions they answer. Returns those that still wait.
    pub(super) async fn call_approved(
        &self,
        asked: Vec<Result<OpenQuestion<'a>, (ToolCall, &'static str)>>,
        may_wait: bool,
        messages: &mut Vec<Message>,
        tally: &mut TurnTally,
    ) -> Result<Vec<WaitingCall>, LoopError> {
        let mut open = Vec::with_capacity(asked.len());
        for question in asked {
            match question {
                Ok(question) => open.push(question),
                Err((call, text)) => messages.push(ToolRunner::refused(&call, text)),
            }
        }
        let mut decided = DecidedCalls::default();
        // Ends, because each call may ask only so often (`MAX_QUESTION_ROUNDS`).
        while !open.is_empty() {
            let again = self.wait_for_chats(open, may_wait, &mut decided).await;
            for (call, text) in std::mem::take(&mut decided.refused) {
                messages.push(ToolRunner::refused(&call, text));
            }
            for (_, ran) in std::mem::take(&mut decided.ran) {
                messages.push(self.take(ran, tally).await?);
            }
            open = again?;
        }
        Ok(decided.waiting)
    }

    /// Waits for chats, and makes or continues the calls that they decide about. Returns the questions of tools that
    /// ask again.
    ///
    /// # Errors
    ///
    /// Of the first call that ends the request. The results of the other calls are in `decided`.
    pub(super) async fn wait_for_chats(
        &self,
        open: Vec<OpenQuestion<'a>>,
        may_wait: bool,
        decided: &mut DecidedCalls,
    ) -> Result<Vec<OpenQuestion<'a>>, LoopError> {
        self.announce_tools().await?;
        // The client must not wait for a chat before it is asked itself.
        let may_wait = may_wait && decided.waiting.is_empty();
        let due = self.due_calls(open, may_wait, decided).await?;
        let ran = join_all(due.iter().map(|due| due.run(self))).await;
        let mut asking = Vec::new();
        let mut failed = None;
        for (due, ran) in due.into_iter().zip(ran) {
            let round = due.next_round();
            let call = due.waiting.call;
            match ran.map(|ran| waiting_or_ran(call.clone(), ran, round)) {
                Ok(Ok(again)) => asking.push(again),
                Ok(Err(ran)) => decided.ran.push((call, *ran)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let (again, of_client) = self.chats.ask_tools(asking).await;
        decided.waiting.extend(of_client);
        Ok(again)
    }

    /// The calls that are made or continued now. The others are added to `decided`.
    async fn due_calls(
        &self,
        open: Vec<OpenQuestion<'a>>,
        may_wait: bool,
        decided: &mut DecidedCalls,
    ) -> Result<Vec<DueCall>, LoopError> {
        let calls: Vec<_> = open.iter().map(|question| &question.waiting).collect();
        let outcomes = self.chats.settle(&calls, may_wait).await;
        let outcomes = outcomes.map_err(LoopError::Failed)?;
        let mut due = Vec::with_capacity(open.len());
        // From here on the turn keeps each question, in its result or in the paused round.
        for (question, outcome) in open.into_iter().zip(outcomes) {
            let waiting = question.keep();
            match outcome {
                ChatOutcome::Approved(_) => due.push(DueCall::new(waiting, None)),
                ChatOutcome::Answered(answers, _) => {
                    due.push(DueCall::new(waiting, Some(answers)));
                }
                ChatOutcome::Refused(text) => decided.refused.push((waiting.call, text)),
                ChatOutcome::Waiting => decided.waiting.push(waiting),
            }
        }
        Ok(due)
    }
}
