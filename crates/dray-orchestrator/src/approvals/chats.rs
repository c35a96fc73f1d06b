//! Approvals about which the people of a chat decide. The record of a call is there before the question, so that an
//! answer always finds it. An answer is recorded by whichever replica gets it; the turn, which waits or is paused,
//! reads the record and uses the decision once.

use std::pin::pin;
use std::time::Duration;

use dray_agent::failure::RequestFailure;
use dray_bus::error::{CallError, TransportError};
use dray_proto::v1::{ApprovalChoice, AskInChatRequest, DecideInChatReply, DecideInChatRequest};
use dray_tool::{AnswerMap, UserAnswer};
use dray_types::{Fault, FaultCode};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::outcome::{
    decided_reply, expired_reply, mismatch_reply, unknown_reply, unused_reply, waiting_reply,
};
use super::{
    ApprovalDecision, ApprovalRecord, ApprovalStore, Decider, NewApproval, USED_CODE,
    expired_failure,
};
use crate::records::{RecordError, RecordKind, RevisedRecord, unavailable_failure};

/// Owner of the records that map a question's id to its principal. Ids are random, and a chat knows only the id.
const CHAT_OWNER: &str = "questions in chats";
/// How long the service of chats may take to show a question.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the reply to a press waits for the request that uses the decision. The service of chats waits for 5 s.
const USE_WAIT: Duration = Duration::from_secs(2);
/// Time between two reads of a record that waits for its decision.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts to write a record that a person and a turn may change concurrently.
const MAX_ATTEMPTS: usize = 5;
/// Reason of the fault for a chat that does not accept questions of tools.
const NOT_TAKEN_DETAIL: &str = "no_tool_questions";
/// Recorded for a question whose turn no longer needs the answer.
pub(super) const WITHDRAWAL_REASON: &str = "The turn continued without the call.";

/// The owner of the question with an id.
#[derive(Debug, Serialize, Deserialize)]
struct ChatQuestionRecord {
    principal: String,
}

/// A call as people of a chat see it.
#[derive(Clone, Debug)]
pub(crate) struct ShownCall {
    /// The text of the question.
    pub(crate) text: String,
    /// The arguments, or what the tool asks.
    pub(crate) detail: String,
}

/// Where another process continues a call of a response in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuestionCheckpoint {
    /// Name of the checkpoint with the call.
    pub(crate) token: String,
    /// Id of the response.
    pub(crate) response: String,
}

/// An answer that people of a chat can give to the question of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChatOption {
    /// Text of the button.
    pub(crate) label: String,
    /// The answer for the tool.
    pub(crate) answer: UserAnswer,
}

/// The reason why a chat was not asked.
#[derive(Debug)]
pub(crate) enum AskFailure {
    /// The question does not fit into a message of the chat.
    TooLong,
    /// The chat does not take what tools ask.
    NotTaken,
    /// The chat is not configured, or cannot be reached.
    Unreachable,
}

/// The outcome of a question in a chat.
#[derive(Debug)]
pub(crate) enum ChatState {
    /// The question waits for its answer.
    Waiting(RevisedRecord<ApprovalRecord>),
    /// The question was decided, and the turn has not acted on the decision yet.
    Decided(RevisedRecord<ApprovalRecord>),
    /// The question expired without a decision, no request used its decision in time, or its request counted as gone.
    Expired(RevisedRecord<ApprovalRecord>),
    /// The turn has acted on the decision.
    Used,
}

impl ApprovalStore {
    /// Asks the chat of an approval. After a failure the question may be visible, but no answer to it is accepted. A
    /// lost reply is not a failure: the question waits for its answer or its expiry. `checkpoint` is the one from which
    /// another process continues the turn.
    pub(crate) async fn ask_in_chat(
        &self,
        principal: &str,
        checkpoint: Option<&QuestionCheckpoint>,
        approval: &NewApproval,
        call: ShownCall,
    ) -> Result<(), AskFailure> {
        let Some(chat) = &approval.chat else {
            return Err(AskFailure::Unreachable);
        };
        let stored = self
            .keep_question(principal, checkpoint, approval, chat.expires_ms)
            .await;
        // No question was shown, so none has to be withdrawn.
        if let Err(failure) = stored {
            tracing::warn!(%failure, "a question for a chat was not kept");
            return Err(AskFailure::Unreachable);
        }
        let request = AskInChatRequest {
            chat: chat.name.clone(),
            question_id: approval.id.clone(),
            text: call.text,
            detail: call.detail,
            expires_at_ms: chat.expires_ms,
            options: approval
                .options
                .iter()
                .map(|option| option.label.clone())
                .collect(),
        };
        let meta = self.audits.meta(ASK_TIMEOUT);
        // The request is not repeated here, because the question would be shown twice.
        let asking = self.audits.bus().call_once(&meta, &request);
        let decided = self.wait_for_chat(principal, &approval.id, sleep(ASK_TIMEOUT));
        let reply = tokio::select! {
            reply = asking => reply,
            // A person may answer before the reply comes, even if the reply is lost.
            _ = decided => return Ok(()),
        };
        let Err(error) = reply else { return Ok(()) };
        if is_ambiguous(&error) {
            // The service of chats records a question before it shows it, and shows it again if its process died.
            tracing::warn!(
                chat = chat.name,
                error = &error as &dyn std::error::Error,
                "whether a chat was asked about a call is not known"
            );
            return Ok(());
        }
        tracing::warn!(
            chat = chat.name,
            error = &error as &dyn std::error::Error,
            "a chat was not asked about a call"
        );
        self.withdraw(principal, &approval.id).await;
        let fault = Fault::from(error);
        Err(match fault.code {
            FaultCode::TooLarge => AskFailure::TooLong,
            FaultCode::Denied if fault.detail == NOT_TAKEN_DETAIL => AskFailure::NotTaken,
            _ => AskFailure::Unreachable,
        })
    }

    /// The reply about a decision, once its request has used it or can no longer use it; before that, a reply that
    /// leaves the message of the question open. Waits for the request at most `max_wait`.
    async fn reply_after_use(
        &self,
        principal: &str,
        id: &str,
        is_new: bool,
        max_wait: Duration,
    ) -> DecideInChatReply {
        let end = Instant::now() + max_wait;
        loop {
            // The record cannot be read now. The service of chats asks again later.
            let Ok(Some(mut record)) = self.get(principal, id).await else {
                return unused_reply(is_new);
            };
            if !record.value.waits_for_use() {
                return decided_reply(&record.value, is_new);
            }
            let is_late = record.value.last_use_ms() <= self.records.now_ms();
            if is_late || self.is_unusable(principal, &record.value).await {
                match self.lapse(principal, id, &mut record).await {
                    // The request was faster, or another replica: the next read shows which.
                    Ok(()) | Err(RecordError::Stale) => continue,
                    Err(RecordError::Failed(_)) => return unused_reply(is_new),
                }
            }
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return unused_reply(is_new);
            }
            sleep(remaining.min(POLL_INTERVAL)).await;
        }
    }

    /// Records a question before its chat shows it.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn keep_question(
        &self,
        principal: &str,
        checkpoint: Option<&QuestionCheckpoint>,
        approval: &NewApproval,
        expires_ms: u64,
    ) -> Result<(), RequestFailure> {
        let token = checkpoint.map_or("", |checkpoint| &checkpoint.token);
        // The record is written first, so that an answer that finds its owner finds the record, too.
        let mut record = ApprovalRecord::new(token, 1, approval, expires_ms);
        record.response = checkpoint.map(|checkpoint| checkpoint.response.clone());
        record.lease_ms = checkpoint.is_none().then(|| self.lease_ms());
        let (records, id) = (&self.records, &approval.id);
        records
            .create(RecordKind::Approval, principal, id, &record)
            .await?;
        let owner = ChatQuestionRecord {
            principal: principal.to_owned(),
        };
        records
            .create(RecordKind::ChatQuestion, CHAT_OWNER, id, &owner)
            .await?;
        Ok(())
    }

    /// Stores in the record of an approval which paused turn continues with it.
    pub(super) async fn attach(
        &self,
        principal: &str,
        token: &str,
        round_size: usize,
        id: &str,
    ) -> Result<(), RequestFailure> {
        for _ in 0..MAX_ATTEMPTS {
            let record = self.get(principal, id).await?;
            let mut record = record.ok_or_else(expired_failure)?;
            // A decision that is there already stays as it is.
            token.clone_into(&mut record.value.token);
            record.value.round_size = round_size;
            // From here on a request of the client makes the call.
            record.value.response = None;
            match self.update(principal, id, &mut record).await {
                // A person decided in between.
                Err(RecordError::Stale) => {}
                written => return written.map_err(RequestFailure::from),
            }
        }
        Err(unavailable_failure())
    }

    /// The outcome of a question.
    ///
    /// # Errors
    ///
    /// 400 for a record that is gone, 503 while the bus fails.
    pub(crate) async fn chat_state(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<ChatState, RequestFailure> {
        let record = self.get(principal, id).await?;
        let record = record.ok_or_else(expired_failure)?;
        Ok(match &record.value.decision {
            Some(_) if record.value.is_lapsed || record.value.is_abandoned => {
                ChatState::Expired(record)
            }
            Some(_) if record.value.is_used => ChatState::Used,
            Some(_) => ChatState::Decided(record),
            None if record.value.expires_ms <= self.records.now_ms() => ChatState::Expired(record),
            None => ChatState::Waiting(record),
        })
    }

    /// The outcome of a question, once it no longer waits or `stop` is ready.
    ///
    /// # Errors
    ///
    /// Those of [`Self::chat_state`], of the last read.
    pub(crate) async fn wait_for_chat(
        &self,
        principal: &str,
        id: &str,
        stop: impl Future<Output = ()>,
    ) -> Result<ChatState, RequestFailure> {
        let mut stop = pin!(stop);
        loop {
            let mut state = self.chat_state(principal, id).await;
            if let Ok(ChatState::Waiting(record)) = &mut state {
                self.renew_lease(principal, id, record).await;
            }
            // A short failure of the bus must not lose the answer.
            let waits = match &state {
                Ok(state) => matches!(state, ChatState::Waiting(_)),
                Err(failure) => failure.status == 503,
            };
            if !waits {
                return state;
            }
            // Another replica may get the answer, so the record is read and not a channel.
            tokio::select! {
                biased;
                () = &mut stop => return self.chat_state(principal, id).await,
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Withdraws a question: an answer to it changes nothing from now on, and an answer that was not used lapses.
    pub(crate) async fn withdraw(&self, principal: &str, id: &str) {
        let withdrawn = async {
            match self.chat_state(principal, id).await? {
                ChatState::Waiting(mut record) => {
                    let decision = ApprovalDecision::Refused {
                        reason: Some(WITHDRAWAL_REASON.to_owned()),
                    };
                    self.decide(principal, id, &mut record, decision).await
                }
                ChatState::Decided(mut record) if record.value.permits() => {
                    let lapsed = self.lapse(principal, id, &mut record).await;
                    lapsed.map_err(RequestFailure::from)
                }
                ChatState::Decided(_) | ChatState::Expired(_) | ChatState::Used => Ok(()),
            }
        };
        match withdrawn.await {
            // A person was faster.
            Err(failure) if failure.code.as_deref() == Some(USED_CODE) => {}
            Err(failure) => tracing::warn!(%failure, id, "a question in a chat was not withdrawn"),
            Ok(()) => {}
        }
    }

    /// Withdraws a question in the background, for a turn that is dropped.
    pub(crate) fn withdraw_later(&self, principal: String, id: String) {
        let store = self.clone();
        let withdrawing = async move { store.withdraw(&principal, &id).await };
        self.tasks.spawn(withdrawing);
    }

    /// Records what a person of a chat decided. The caller vouches for the person and the chat. A request without a
    /// choice records nothing and gets the outcome, which is empty while the question waits.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails; no decision was recorded then.
    pub(crate) async fn decide_in_chat(
        &self,
        request: &DecideInChatRequest,
    ) -> Result<DecideInChatReply, RequestFailure> {
        let id = &request.question_id;
        let owner =
            self.records
                .get::<ChatQuestionRecord>(RecordKind::ChatQuestion, CHAT_OWNER, id);
        let Some(owner) = owner.await? else {
            return Ok(unknown_reply());
        };
        let principal = owner.value.principal;
        for _ in 0..MAX_ATTEMPTS {
            let record = self.get(&principal, id).await?;
            // The question is not known in any other chat.
            let is_asked = |record: &ApprovalRecord| record.chat.as_ref() == Some(&request.chat);
            let Some(mut record) = record.filter(|record| is_asked(&record.value)) else {
                return Ok(unknown_reply());
            };
            // The decision is checked before the expiry: a decision that was in time stays shown.
            if record.value.decision.is_some() {
                // The service of chats asks again by itself; a person who presses waits for the reply.
                let is_press =
                    !matches!(ChatDecision::of(request, &record.value), ChatDecision::None);
                let max_wait = if is_press { USE_WAIT } else { Duration::ZERO };
                let reply = self.reply_after_use(&principal, id, false, max_wait);
                return Ok(reply.await);
            }
            if record.value.expires_ms <= self.records.now_ms() {
                return Ok(expired_reply(&record.value));
            }
            if self.has_no_request(&principal, &record.value).await? {
                match self.abandon(&principal, id, &mut record).await? {
                    Some(reply) => return Ok(reply),
                    None => continue,
                }
            }
            let decision = match ChatDecision::of(request, &record.value) {
                ChatDecision::None => return Ok(waiting_reply()),
                ChatDecision::Mismatch => return Ok(mismatch_reply()),
                ChatDecision::Approval(decision) => decision,
                ChatDecision::Answer(answer) => {
                    let decision = ApprovalDecision::of_answer(&answer);
                    record.value.answer = Some(answer);
                    decision
                }
            };
            // The person is set before the audit event, which names the person.
            record.value.decided_by = Some(Decider {
                id: format!("{}:{}", request.chat, request.sender),
                name: request.sender_name.clone(),
            });
            let recorded = self.record_decision(&principal, id, &mut record, decision);
            match recorded.await {
                Ok(()) => {
                    return Ok(self.reply_after_use(&principal, id, true, USE_WAIT).await);
                }
                // Another person or the turn decided first; the next read shows which.
                Err(RecordError::Stale) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(unavailable_failure())
    }
}

/// Whether a call may have reached its responder.
const fn is_ambiguous(error: &CallError) -> bool {
    matches!(
        error,
        CallError::Timeout(_)
            | CallError::Transport(TransportError::Disconnected | TransportError::TimedOut)
    )
}

/// The meaning of a press for a record.
enum ChatDecision {
    /// No choice: the request only asks for the outcome.
    None,
    /// The button belongs to another kind of question: of another revision of this service, or forged.
    Mismatch,
    Approval(ApprovalDecision),
    Answer(UserAnswer),
}

impl ChatDecision {
    fn of(request: &DecideInChatRequest, record: &ApprovalRecord) -> Self {
        let number = usize::try_from(request.option).unwrap_or(usize::MAX);
        let option = number.checked_sub(1).map(|index| record.options.get(index));
        match (option, request.choice(), record.questions.is_some()) {
            (None, ApprovalChoice::Unspecified, _) => Self::None,
            (None, ApprovalChoice::Approved, false) => Self::Approval(ApprovalDecision::Approved),
            (None, ApprovalChoice::Refused, false) => {
                Self::Approval(ApprovalDecision::Refused { reason: None })
            }
            (Some(Some(option)), ApprovalChoice::Unspecified, true) => {
                Self::Answer(option.answer.clone())
            }
            _ => Self::Mismatch,
        }
    }
}

impl ApprovalRecord {
    /// Whether it was decided so that the call is made or continued.
    pub(super) fn permits(&self) -> bool {
        self.decision
            .as_ref()
            .is_some_and(ApprovalDecision::permits)
    }

    /// Whether a person of the chat decided it, and not the turn.
    pub(crate) const fn is_decided_in_chat(&self) -> bool {
        self.decided_by.is_some()
    }

    /// The answer of a chat to the questions of the tool; `None` before the answer.
    pub(crate) fn chat_answers(&self) -> Option<AnswerMap> {
        let answer = self.answer.as_ref()?;
        let keys = self.questions.as_ref()?.keys();
        Some(keys.map(|key| (key.clone(), answer.clone())).collect())
    }
}
