//! Decisions about calls of a paused turn: those in this request, and those of earlier requests.

use dray_agent::approval::call_digest;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role, ToolCall};
use dray_tool::{AnswerMap, ToolQuestion, UserAnswer};
use serde_json::Value;

use super::{DecidedCall, PausedApproval, PausedTurn, call_id};
use crate::approvals::{
    ApprovalDecision, ApprovalStore, ChatState, USED_CODE, expired_failure, mismatch_failure,
    used_failure,
};
use crate::turn::approval_forms::ApprovalAnswer;
use crate::turn::chat_approvals::NOT_DECIDED;
use crate::turn::question_forms::{is_same_question, read_input_answer, waits_for_chat};
use crate::turn::waiting::{WaitingCall, decision_of};

/// The questions of the turn that a request continues.
pub(super) struct AnsweredQuestions<'a> {
    pub(super) token: &'a str,
    pub(super) record: &'a PausedTurn,
    pub(super) messages: &'a [Message],
}

impl<'a> AnsweredQuestions<'a> {
    /// The questions of a record, and the conversation that answers them.
    pub(super) const fn new(
        token: &'a str,
        record: &'a PausedTurn,
        messages: &'a [Message],
    ) -> Self {
        Self {
            token,
            record,
            messages,
        }
    }

    /// The decisions of the request, and the result of each call: empty where a decision has to be recorded. All of
    /// them are checked before the first one is recorded. A decision that an earlier request used makes no call: the
    /// turn continues with the result of the call that was made then.
    ///
    /// # Errors
    ///
    /// 400 for a malformed answer, for a question that the client sent back changed, and for approvals that are not
    /// valid; 503 while the bus fails.
    pub(super) async fn decisions(
        &self,
        principal: &str,
        approvals: &ApprovalStore,
    ) -> Result<RoundAnswers, RequestFailure> {
        let mut answers = RoundAnswers::default();
        let first = self.record.pending.len();
        // An earlier request asked about the calls that come later, and a repetition must not ask about them once more.
        let may_repeat = self.record.later.is_empty();
        for (number, paused) in self.record.approvals.iter().enumerate() {
            let id = call_id(self.token, first + number);
            let mut paused = paused.clone();
            paused.waiting.asked_as = Some(id.clone());
            let paused = &paused;
            let answer = self
                .messages
                .iter()
                .rfind(|message| message.tool_call_id.as_deref() == Some(&id));
            let answer = Answer::read(answer, paused)?;
            let is_changed = self.echo(&id).is_some_and(|echo| !is_same(echo, paused));
            if is_changed
                || answer
                    .digest
                    .as_ref()
                    .is_some_and(|given| *given != paused.approval.digest)
            {
                return Err(mismatch_failure());
            }
            if paused.approval.chat.is_some() {
                let taken = answers.take_chat(principal, paused, approvals, answer, may_repeat);
                taken.await?;
                continue;
            }
            let record = match approvals.waiting(principal, &paused.approval).await {
                Ok(record) => record,
                // A refusal has no effect, so it may be repeated, and may come late.
                Err(failure) if !answer.decision.permits() && failure.status == 400 => {
                    let outcome = approvals.outcome(principal, &paused.approval.id).await?;
                    answers.results.push(outcome);
                    continue;
                }
                Err(failure) if may_repeat && failure.code.as_deref() == Some(USED_CODE) => {
                    let outcome = approvals.used_outcome(principal, &paused.approval.id);
                    answers.results.push(outcome.await?);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            answers.results.push(Message::new(Role::Tool, ""));
            answers.decided.push(DecidedCall {
                paused: paused.clone(),
                record,
                decision: answer.decision,
                answers: answer.answers,
            });
        }
        Ok(answers)
    }

    /// The question as the client sent it back.
    fn echo(&self, id: &str) -> Option<&ToolCall> {
        let calls = self.messages.iter().flat_map(Message::calls);
        calls.into_iter().find(|call| call.id == id)
    }
}

/// The answers of a request to the questions of a round.
#[derive(Debug, Default)]
pub(super) struct RoundAnswers {
    pub(super) decided: Vec<DecidedCall>,
    /// The result of each call, in the order of the questions; an empty text while the decision is not recorded.
    pub(super) results: Vec<Message>,
    /// Calls about which a chat has not decided.
    pub(super) waiting: Vec<WaitingCall>,
}

impl RoundAnswers {
    /// Handles a call about which a chat is asked. The caller cannot approve it: the decision of the chat applies. The
    /// caller may answer a question of a tool, unless the chat has answered it already. Without a decision the caller
    /// either continues to wait or withdraws the question.
    async fn take_chat(
        &mut self,
        principal: &str,
        paused: &PausedApproval,
        approvals: &ApprovalStore,
        answer: Answer,
        may_repeat: bool,
    ) -> Result<(), RequestFailure> {
        let id = &paused.approval.id;
        let question = paused.waiting.question.as_ref();
        let cancelled =
            question.map(|question| question.asked.answered(&UserAnswer::Cancelled).answers);
        let (record, decision, answers) = match approvals.chat_state(principal, id).await? {
            ChatState::Waiting(_) if answer.waits => {
                self.results.push(Message::new(Role::Tool, ""));
                self.waiting.push(WaitingCall {
                    in_chat: Some(paused.approval.clone()),
                    ..paused.waiting.clone()
                });
                return Ok(());
            }
            ChatState::Waiting(record) if question.is_some() => {
                (record, answer.decision, answer.answers)
            }
            // The caller may withdraw its own call.
            ChatState::Waiting(record) => {
                (record, ApprovalDecision::Refused { reason: None }, None)
            }
            ChatState::Decided(record)
                if question.is_none() || record.value.chat_answers().is_some() =>
            {
                let decision = record.value.decision.clone();
                let answers = record.value.chat_answers();
                let decision = decision.unwrap_or(ApprovalDecision::Cancelled);
                (record, decision, answers)
            }
            ChatState::Expired(_) if question.is_none() => {
                self.results.push(Message::new(Role::Tool, NOT_DECIDED));
                return Ok(());
            }
            // The answer is too late, as for a question without a chat.
            ChatState::Expired(_) if answer.decision.permits() && !answer.waits => {
                return Err(expired_failure());
            }
            ChatState::Expired(record) => (record, ApprovalDecision::Cancelled, cancelled),
            // An earlier request of the caller decided the call, or used the decision of the chat.
            ChatState::Decided(_) | ChatState::Used => {
                let outcome = match (answer.decision.permits(), may_repeat) {
                    (true, true) => approvals.used_outcome(principal, id).await?,
                    (true, false) => return Err(used_failure()),
                    (false, _) => approvals.outcome(principal, id).await?,
                };
                self.results.push(outcome);
                return Ok(());
            }
        };
        self.results.push(Message::new(Role::Tool, ""));
        self.decided.push(DecidedCall {
            paused: paused.clone(),
            record,
            decision,
            answers,
        });
        Ok(())
    }
}

/// The answer of a request to one question.
struct Answer {
    decision: ApprovalDecision,
    /// Whether the client leaves the decision to a chat that was asked.
    waits: bool,
    /// Digest of the question, of clients that check it.
    digest: Option<String>,
    /// Answers for the tool that asked.
    answers: Option<AnswerMap>,
}

impl Answer {
    fn read(answer: Option<&Message>, paused: &PausedApproval) -> Result<Self, RequestFailure> {
        if let Some(question) = &paused.waiting.question {
            return Self::read_input(answer, paused, &question.asked);
        }
        let answer = answer.map(ApprovalAnswer::read).transpose()?;
        let answer = answer.unwrap_or(ApprovalAnswer {
            approve: false,
            reason: Some("The client sent no answer.".to_owned()),
            digest: None,
        });
        let decision = if answer.approve {
            ApprovalDecision::Approved
        } else {
            ApprovalDecision::Refused {
                reason: answer.reason,
            }
        };
        Ok(Self {
            decision,
            waits: answer.approve,
            digest: answer.digest,
            answers: None,
        })
    }

    fn read_input(
        answer: Option<&Message>,
        paused: &PausedApproval,
        asked: &ToolQuestion,
    ) -> Result<Self, RequestFailure> {
        let in_chat = paused.approval.chat.is_some();
        if in_chat && answer.is_some_and(waits_for_chat) {
            return Ok(Self {
                // The decision counts as an answer: the client expects that the call continues.
                decision: ApprovalDecision::Answered,
                waits: true,
                digest: None,
                answers: None,
            });
        }
        let answers = match answer {
            Some(answer) => read_input_answer(answer, &asked.questions)?,
            None => asked.answered(&UserAnswer::Cancelled).answers,
        };
        Ok(Self {
            decision: decision_of(&answers),
            waits: false,
            digest: None,
            answers: Some(answers),
        })
    }
}

/// Whether a question was sent back unchanged. Clients may leave out its text but not change it: a person may have seen
/// the changed text.
fn is_same(echo: &ToolCall, paused: &PausedApproval) -> bool {
    if let Some(question) = &paused.waiting.question {
        return is_same_question(echo, &question.asked.questions, &paused.approval.digest);
    }
    let Ok(Value::Object(echoed)) = serde_json::from_str(&echo.function.arguments) else {
        return true;
    };
    let digest = &paused.approval.digest;
    let is_digest_equal = echoed
        .get("digest")
        .is_none_or(|given| given == digest.as_str());
    let tool = echoed.get("tool").and_then(Value::as_str);
    let arguments = echoed.get("arguments").and_then(Value::as_object);
    let is_call_equal = match (tool, arguments) {
        (Some(tool), Some(arguments)) => call_digest(tool, arguments).to_hex() == *digest,
        _ => true,
    };
    is_digest_equal && is_call_equal
}

/// The results of calls whose approval was decided in earlier requests.
///
/// # Errors
///
/// 503 while the store or the bus fails.
pub(super) async fn earlier_outcomes(
    principal: &str,
    record: &PausedTurn,
    approvals: &ApprovalStore,
) -> Result<Vec<Message>, RequestFailure> {
    let mut outcomes = Vec::with_capacity(record.approvals.len());
    for paused in &record.approvals {
        let mut outcome = approvals.outcome(principal, &paused.approval.id).await?;
        outcome.role = Role::Tool;
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
