//! Calls about which the people of a chat decide: the chat is asked, and the request waits for a while. What is not decided
//! by then waits with the paused turn.

use std::time::Duration;

use dray_agent::approval::call_digest;
use dray_agent::canonical_json::canonical_json;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, ToolCall};
use dray_tool::pipeline::parse_arguments;
use futures_util::future::{join_all, try_join_all};
use serde_json::Value;

use super::approval_forms::{chat_question, visible_text};
use super::approval_policy::{ApprovalPolicy, TOO_LARGE};
use super::rounds::{LoopError, ToolLoop};
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

impl OpenQuestion<'_> {
    fn keep(mut self) -> WaitingCall {
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
        let question = OpenQuestion {
            waiting: WaitingCall::in_chat(call, approval.clone()),
            chats: self,
            is_open: true,
        };
        match self
            .store
            .ask_in_chat(self.principal, &approval, shown)
            .await
        {
            Ok(()) => Ok(question),
            Err(failure) => {
                let text = match failure {
                    AskFailure::TooLong => TOO_LARGE,
                    AskFailure::Unreachable => UNREACHABLE,
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
        match store.wait_for_chat(self.principal, id, max_wait).await? {
            ChatState::Waiting(_) => Ok(ChatOutcome::Waiting),
            ChatState::Expired => Ok(ChatOutcome::Refused(NOT_DECIDED)),
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
}

impl<'a> ToolLoop<'a> {
    /// Makes those calls of a round that the people of chats approve within the time of the request. Returns those that
    /// still wait.
    pub(super) async fn call_approved(
        &self,
        asked: Vec<Result<OpenQuestion<'a>, (ToolCall, &'static str)>>,
        may_wait: bool,
        messages: &mut Vec<Message>,
        tally: &mut TurnTally,
    ) -> Result<Vec<WaitingCall>, LoopError> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        self.announce_tools().await?;
        let mut open = Vec::with_capacity(asked.len());
        for question in asked {
            match question {
                Ok(question) => open.push(question),
                Err((call, text)) => messages.push(ToolRunner::refused(&call, text)),
            }
        }
        let calls: Vec<_> = open.iter().map(|question| &question.waiting).collect();
        let outcomes = self.chats.settle(&calls, may_wait).await;
        let outcomes = outcomes.map_err(LoopError::Failed)?;
        let (mut approved, mut waiting) = (Vec::new(), Vec::new());
        // From here on the turn keeps each question, in its result or in the paused round.
        for (question, outcome) in open.into_iter().zip(outcomes) {
            let call = question.keep();
            match outcome {
                ChatOutcome::Approved(_) => approved.push(call.call),
                ChatOutcome::Refused(text) => messages.push(ToolRunner::refused(&call.call, text)),
                ChatOutcome::Waiting => waiting.push(call),
            }
        }
        let ran = self.runner.call_all(&approved).await;
        for (call, ran) in approved.into_iter().zip(ran) {
            match waiting_or_ran(call, ran?, 1) {
                Ok(asks) => waiting.push(asks),
                Err(ran) => messages.push(self.take(*ran, tally).await?),
            }
        }
        Ok(waiting)
    }
}
