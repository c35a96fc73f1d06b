//! Calls about which the people of a chat decide, and questions of tools that they answer: the chat is asked, and its
//! decision is used once. How the calls of a round wait beside each other is in [`super::chat_calls`].

use std::time::Duration;

use dray_agent::approval::call_digest;
use dray_agent::canonical_json::canonical_json;
use dray_agent::failure::RequestFailure;
use dray_agent::message::ToolCall;
use dray_tool::pipeline::parse_arguments;
use dray_tool::{AnswerMap, UserAnswer};
use futures_util::future::{join_all, try_join_all};
use serde_json::Value;

use super::approval_forms::{chat_question, visible_text};
use super::approval_policy::{ApprovalPolicy, TOO_LARGE};
use super::chat_calls::ChatGate;
use super::waiting::WaitingCall;
use crate::approvals::{
    ApprovalDecision, ApprovalRecord, ApprovalStore, AskFailure, AskedChat, ChatState, NewApproval,
    QuestionCheckpoint, ShownCall, used_failure,
};
use crate::records::RevisedRecord;

/// Result of a call that the people of a chat refused.
const REFUSED_IN_CHAT: &str =
    "The people who decide about such calls refused this one; it was not made.";
/// Result of a call about which no person decided in time.
pub(super) const NOT_DECIDED: &str = "This call was not approved in time, so it was not made.";
/// Result of a call whose chat cannot be asked.
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
    /// Id of the response that asks, if another replica can finish it.
    pub(super) response: Option<&'a str>,
}

/// A call about which a chat was asked in this request. If it is dropped before the turn is paused, it withdraws the
/// question.
#[derive(Debug)]
pub(super) struct OpenQuestion<'a> {
    pub(super) waiting: WaitingCall,
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
    /// The call is made now: the decision is used.
    Approved(Box<RevisedRecord<ApprovalRecord>>),
    /// The call continues now with answers for its tool, which are used. Without a record the question has expired.
    Answered(AnswerMap, Option<Box<RevisedRecord<ApprovalRecord>>>),
    /// The call is not made, and the model gets this reason.
    Refused(&'static str),
    /// The question still waits for an answer.
    Waiting,
}

impl<'a> ChatApprovals<'a> {
    /// A call about which a chat is asked next.
    pub(super) fn prepare(self, call: ToolCall, chat: String) -> WaitingCall {
        let name = &call.function.name;
        // Calls whose arguments are not an object never need approval.
        let arguments = parse_arguments(&call.function.arguments).unwrap_or_default();
        let mut approval = NewApproval::new(name, &call_digest(name, &arguments));
        approval.chat = Some(AskedChat {
            name: chat,
            expires_ms: self.store.expires_ms(),
        });
        WaitingCall::in_chat(call, approval)
    }

    /// Asks a chat about a prepared call. `token` names the checkpoint with the call, if there is one.
    ///
    /// # Errors
    ///
    /// The chat cannot be asked. The error is the call, and the text that the model gets.
    pub(super) async fn ask(
        self,
        waiting: WaitingCall,
        token: &str,
    ) -> Result<OpenQuestion<'a>, (ToolCall, &'static str)> {
        let Some(approval) = waiting.in_chat.clone() else {
            return Err((waiting.call, UNREACHABLE));
        };
        let name = &waiting.call.function.name;
        let arguments = parse_arguments(&waiting.call.function.arguments).unwrap_or_default();
        let expires_ms = approval.chat.as_ref().map_or(0, |chat| chat.expires_ms);
        let shown = ShownCall {
            text: chat_question(self.policy.source(name), name, self.principal, expires_ms),
            detail: visible_text(&canonical_json(&Value::Object(arguments))),
        };
        // The guard exists before the question is sent, so that a turn which is dropped in the middle takes the
        // question back.
        let question = OpenQuestion::new(waiting, self);
        let response = self.response.filter(|_| !token.is_empty());
        let checkpoint = response.map(|response| QuestionCheckpoint {
            token: token.to_owned(),
            response: response.to_owned(),
        });
        let store = self.store;
        let asked = store.ask_in_chat(self.principal, checkpoint.as_ref(), &approval, shown);
        match asked.await {
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

    /// Waits for the decisions about calls of an earlier request about which a chat was asked, until the gate closes,
    /// and uses them.
    ///
    /// # Errors
    ///
    /// 400 for a decision that another request has used, 503 while the bus fails and no decision was used.
    pub(super) async fn settle(
        self,
        calls: &[&WaitingCall],
        gate: &ChatGate,
    ) -> Result<Vec<ChatOutcome>, RequestFailure> {
        // All waits end before the first use, so that a process that dies during them loses no decision: the client
        // continues the turn once more.
        let waits = calls.iter().map(|call| self.wait_for(call, gate.closed()));
        let states = try_join_all(waits).await?;
        let uses = calls.iter().zip(states);
        let uses = uses.map(|(call, state)| self.use_state(call, state));
        let outcomes = join_all(uses).await.into_iter();
        let outcomes = outcomes.map(|outcome| match outcome {
            // The call waits again, and the others are made.
            Err(failure) if failure.status == 503 => Ok(ChatOutcome::Waiting),
            outcome => outcome,
        });
        outcomes.collect()
    }

    /// Waits for the decision about one call until `stop` is ready, and uses it. Must run to its end once the decision
    /// is there: a decision is valid for one use.
    ///
    /// # Errors
    ///
    /// Those of [`Self::settle`].
    pub(super) async fn settle_one(
        self,
        waiting: &WaitingCall,
        stop: impl Future<Output = ()>,
    ) -> Result<ChatOutcome, RequestFailure> {
        let state = self.wait_for(waiting, stop).await?;
        self.use_state(waiting, state).await
    }

    async fn wait_for(
        self,
        waiting: &WaitingCall,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<ChatState>, RequestFailure> {
        let Some(approval) = &waiting.in_chat else {
            return Ok(None);
        };
        let state = self.store.wait_for_chat(self.principal, &approval.id, stop);
        state.await.map(Some)
    }

    async fn use_state(
        self,
        waiting: &WaitingCall,
        state: Option<ChatState>,
    ) -> Result<ChatOutcome, RequestFailure> {
        let (Some(approval), Some(state)) = (&waiting.in_chat, state) else {
            return Ok(ChatOutcome::Waiting);
        };
        let (store, id) = (self.store, &approval.id);
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
                let is_refused = record.value.is_decided_in_chat();
                Ok(ChatOutcome::Refused(if is_refused {
                    REFUSED_IN_CHAT
                } else {
                    // The process that asked has taken it back.
                    NOT_DECIDED
                }))
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
            // This counts like a person who leaves the form without an answer (MCP, elicitation).
            ChatState::Expired(_) => Ok(ChatOutcome::Answered(cancelled, None)),
            ChatState::Used => Err(used_failure()),
            ChatState::Decided(mut record) => {
                // If another request of the caller decided, and not the chat, that request continues the call.
                let answers = record.value.chat_answers().ok_or_else(used_failure)?;
                self.store
                    .use_decision(self.principal, id, &mut record)
                    .await?;
                Ok(ChatOutcome::Answered(answers, Some(Box::new(record))))
            }
        }
    }
}
