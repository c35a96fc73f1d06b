//! Approvals of calls of tools: a record for each call that a person must approve. Questions that tools ask the user
//! during a call have the same records.
//!
//! A record belongs to one tenant and one principal, names one call by its digest, expires, and is decided once. Each
//! decision is a compare-and-set, so of two requests that bring the same approval one makes the call. It is made
//! after the decision is recorded and audited. When its process dies in between, the approval is used up and the call
//! is not made again.
//!
//! The record of a call about which a chat is asked is decided by the people of that chat, and then used by the turn:
//! see `chats`.

use std::time::Duration;

use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role};
use dray_tool::{QuestionMap, UserAnswer};
use dray_types::{ByteSize, Period, Sha256Digest, TenantId, whole_millis};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use crate::records::{
    CallerRecords, ContentRef, RecordError, RecordKind, RevisedRecord, random_id,
};

mod audit;
mod chats;
mod lease;
mod outcome;
mod uses;

pub(crate) use audit::ApprovalAudits;
pub(crate) use chats::{AskFailure, ChatOption, ChatState, QuestionCheckpoint, ShownCall};

/// Prefix of the ids of approvals.
pub(crate) const APPROVAL_PREFIX: &str = "apr_";
/// Most bytes of the result of an approved call that is kept for later requests.
const MAX_OUTCOME_BYTES: ByteSize = ByteSize::mib(32);
/// Code of failures of approvals that no longer wait, or belong to another caller.
pub(crate) const EXPIRED_CODE: &str = "approval_expired";
/// Code of failures of approvals that were decided before.
pub(crate) const USED_CODE: &str = "approval_used";
/// Code of failures of approvals of a call with other arguments.
pub(crate) const MISMATCH_CODE: &str = "approval_mismatch";

/// The decision about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(crate) enum ApprovalDecision {
    /// The call is made, once.
    Approved,
    /// The call is not made.
    Refused {
        /// The person's comment.
        reason: Option<String>,
    },
    /// The tool gets the user's values.
    Answered,
    /// The tool learns that the user declines.
    Declined,
    /// The tool learns that the user cancels the call.
    Cancelled,
}

impl ApprovalDecision {
    /// Whether the decision permits an effect that must not occur twice.
    pub(crate) const fn permits(&self) -> bool {
        matches!(self, Self::Approved | Self::Answered)
    }

    /// The decision that corresponds to a user's answer to a tool.
    pub(crate) const fn of_answer(answer: &UserAnswer) -> Self {
        match answer {
            UserAnswer::Accepted(_) => Self::Answered,
            UserAnswer::Declined => Self::Declined,
            UserAnswer::Cancelled => Self::Cancelled,
        }
    }
}

/// A tool call that waits for a person, as it is stored for all replicas.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the stored form, which earlier versions read as well"
)]
pub(crate) struct ApprovalRecord {
    /// Token of the paused turn with the call.
    pub(crate) token: String,
    /// Number of approvals of the same round; one answer in text decides all of them.
    pub(crate) round_size: usize,
    /// Name of the tool.
    pub(crate) tool: String,
    /// Digest of the tool and its arguments, see [`dray_agent::approval::call_digest`], and of the tool's question.
    pub(crate) digest: String,
    /// The tool's question; without one the call waits for its approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) questions: Option<QuestionMap>,
    /// Unix milliseconds from which it is not accepted.
    pub(crate) expires_ms: u64,
    /// `None` while it waits.
    pub(crate) decision: Option<ApprovalDecision>,
    /// Unix milliseconds of the decision.
    decided_ms: Option<u64>,
    /// The message with the result, once the call was made.
    outcome: Option<ContentRef>,
    /// The chat whose people decide; without it the caller does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chat: Option<String>,
    /// The person of that chat who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    decided_by: Option<Decider>,
    /// The answers that the chat can give to the tool's question, in the order of its buttons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    options: Vec<ChatOption>,
    /// The answer that the chat gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer: Option<UserAnswer>,
    /// For an approval that a chat may decide: whether the turn has acted on the decision.
    #[serde(default)]
    is_used: bool,
    /// Whether the caller has decided, and no request has acted on it: the caller may send the decision again.
    #[serde(default)]
    awaits_use: bool,
    /// The use of the decision, with a random id, so that the request finds its own use after a lost response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<String>,
    /// Whether a chat decided it and no request used the decision in time.
    #[serde(default)]
    is_lapsed: bool,
    /// Unix milliseconds until which the request that asked a chat counts as running; that request renews them. `None`
    /// where another request can continue the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    /// Whether it ended because that request was gone before the chat decided.
    #[serde(default)]
    is_abandoned: bool,
    /// Id of the response in the background that makes the call; with `token`, another replica can make it too. Once
    /// the response has ended, no request makes the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    response: Option<String>,
}

/// A person of a chat who decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Decider {
    /// Name of the chat, a colon, and the platform's id of the person.
    id: String,
    /// Name for people, which the person chose.
    name: String,
}

impl ApprovalRecord {
    fn new(token: &str, round_size: usize, approval: &NewApproval, expires_ms: u64) -> Self {
        Self {
            token: token.to_owned(),
            round_size,
            tool: approval.tool.clone(),
            digest: approval.digest.clone(),
            questions: approval.questions.clone(),
            expires_ms,
            decision: None,
            decided_ms: None,
            outcome: None,
            chat: approval.chat.as_ref().map(|chat| chat.name.clone()),
            decided_by: None,
            options: approval.options.clone(),
            answer: None,
            is_used: false,
            awaits_use: false,
            used_by: None,
            is_lapsed: false,
            lease_ms: None,
            is_abandoned: false,
            response: None,
        }
    }

    /// Whether the caller can decide it: it has no decision, or none that a request has used.
    pub(crate) const fn is_undecided(&self) -> bool {
        self.decision.is_none() || self.awaits_use
    }

    /// Label of the option that the chat chose.
    fn chosen_option(&self) -> Option<&str> {
        let answer = self.answer.as_ref()?;
        let option = self.options.iter().find(|option| option.answer == *answer);
        option.map(|option| option.label.as_str())
    }
}

/// A chat that is asked about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedChat {
    /// The chat's name in the configuration.
    pub(crate) name: String,
    /// Unix milliseconds from which its answer is not accepted.
    pub(crate) expires_ms: u64,
}

/// A call that waits for its approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewApproval {
    /// Id of the record.
    pub(crate) id: String,
    /// Name of the tool.
    pub(crate) tool: String,
    /// Digest of the tool, its arguments and its question.
    pub(crate) digest: String,
    /// The tool's question; without one the call waits for its approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) questions: Option<QuestionMap>,
    /// The chat that was asked. For a call it replaces the caller; for a question of a tool it is asked in addition to
    /// the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chat: Option<AskedChat>,
    /// The answers that the chat can give to the tool's question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) options: Vec<ChatOption>,
}

impl NewApproval {
    /// An approval for a call.
    pub(crate) fn new(tool: &str, digest: &Sha256Digest) -> Self {
        Self {
            id: random_id(APPROVAL_PREFIX),
            tool: tool.to_owned(),
            digest: digest.to_hex(),
            questions: None,
            chat: None,
            options: Vec::new(),
        }
    }
}

/// Approvals of all callers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalStore {
    records: CallerRecords,
    audits: ApprovalAudits,
    timeout: Duration,
    /// How long the process of a request that waits for a chat may be silent.
    lease: Period,
    tasks: TaskTracker,
}

impl ApprovalStore {
    /// Approvals that wait for `timeout`. A request that waits for a chat and renews no `lease` counts as gone. `tasks`
    /// withdraw questions of turns that end early.
    pub(crate) const fn new(
        records: CallerRecords,
        audits: ApprovalAudits,
        (timeout, lease): (Duration, Period),
        tasks: TaskTracker,
    ) -> Self {
        Self {
            records,
            audits,
            timeout,
            lease,
            tasks,
        }
    }

    /// The approvals of another tenant on the same bus, with its audit events.
    pub(crate) fn for_tenant(&self, tenant: TenantId) -> Self {
        Self {
            records: self.records.for_tenant(tenant.clone()),
            audits: self.audits.for_tenant(tenant),
            ..self.clone()
        }
    }

    /// When an approval that is requested now expires, in Unix milliseconds.
    pub(crate) fn expires_ms(&self) -> u64 {
        let timeout_ms = whole_millis(self.timeout);
        self.records.now_ms().saturating_add(timeout_ms)
    }

    /// Stores the approvals of one round of the paused turn `token`; those about which a chat was asked are stored
    /// already.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn open(
        &self,
        principal: &str,
        token: &str,
        approvals: &[NewApproval],
        expires_ms: u64,
    ) -> Result<(), RequestFailure> {
        for approval in approvals {
            if approval.chat.is_some() {
                self.attach(principal, token, approvals.len(), &approval.id)
                    .await?;
                continue;
            }
            let record = ApprovalRecord::new(token, approvals.len(), approval, expires_ms);
            let created =
                self.records
                    .create(RecordKind::Approval, principal, &approval.id, &record);
            created.await?;
        }
        Ok(())
    }

    /// A record of this principal.
    ///
    /// # Errors
    ///
    /// 503 while the bus fails.
    pub(crate) async fn get(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<RevisedRecord<ApprovalRecord>>, RequestFailure> {
        self.records.get(RecordKind::Approval, principal, id).await
    }

    /// The record of an approval that can be decided now. A decision that no request has used can be repeated.
    ///
    /// # Errors
    ///
    /// 400 for an approval that does not exist, belongs to another caller, has expired, was decided before, or is of
    /// another call; 503 while the bus fails.
    pub(crate) async fn waiting(
        &self,
        principal: &str,
        approval: &NewApproval,
    ) -> Result<RevisedRecord<ApprovalRecord>, RequestFailure> {
        let record = self.get(principal, &approval.id).await?;
        let record = record.ok_or_else(expired_failure)?;
        if !record.value.is_undecided() {
            return Err(used_failure());
        }
        if record.value.expires_ms <= self.records.now_ms() {
            return Err(expired_failure());
        }
        if record.value.digest != approval.digest {
            return Err(mismatch_failure());
        }
        Ok(record)
    }

    /// Records a decision of the caller. From then on it holds, even if this process ends.
    ///
    /// # Errors
    ///
    /// 400 when another request has decided it meanwhile, 503 while the bus fails.
    pub(crate) async fn decide(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
        decision: ApprovalDecision,
    ) -> Result<(), RequestFailure> {
        // This request acts on the decision, so a press in a chat that was asked too does not wait for its use.
        record.value.is_used = decision.permits();
        let decided = self.record_decision(principal, id, record, decision).await;
        decided.map_err(|error| match error {
            RecordError::Stale => used_failure(),
            error @ RecordError::Failed(_) => error.into(),
        })
    }

    async fn record_decision(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
        decision: ApprovalDecision,
    ) -> Result<(), RecordError> {
        let audited = self.audits.report(principal, id, &record.value, &decision);
        audited.await.map_err(RecordError::Failed)?;
        record.value.decision = Some(decision);
        record.value.decided_ms = Some(self.records.now_ms());
        self.update(principal, id, record).await
    }

    async fn update(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
    ) -> Result<(), RecordError> {
        let updated = self
            .records
            .update(RecordKind::Approval, principal, id, record);
        record.revision = updated.await?;
        Ok(())
    }

    /// Stores the result of an approved call, for clients that do not send it back. If that fails, later requests lack
    /// the result, and this request is not affected.
    pub(crate) async fn keep_outcome(
        &self,
        principal: &str,
        id: &str,
        record: &mut RevisedRecord<ApprovalRecord>,
        message: &Message,
    ) {
        let stored = async {
            let outcome = self
                .records
                .store_document(message, MAX_OUTCOME_BYTES)
                .await?;
            record.value.outcome = Some(outcome);
            let updated = self.update(principal, id, record);
            updated.await.map_err(RequestFailure::from)
        };
        if let Err(failure) = stored.await {
            tracing::warn!(%failure, id, "the result of an approved call was not kept");
        }
    }

    /// The result of a call whose approval was decided in an earlier request, as a message without an id.
    ///
    /// # Errors
    ///
    /// 503 while the store or the bus fails.
    pub(crate) async fn outcome(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Message, RequestFailure> {
        let record = self.get(principal, id).await?.map(|record| record.value);
        let is_unused = |record: &ApprovalRecord| record.is_lapsed || record.awaits_use;
        let is_unused = record.as_ref().is_some_and(is_unused);
        let decision = record.as_ref().and_then(|record| record.decision.as_ref());
        let text = match decision.filter(|_| !is_unused) {
            Some(ApprovalDecision::Refused { reason }) => refusal_text(reason.as_deref()),
            Some(decision) => {
                let is_approved = *decision == ApprovalDecision::Approved;
                let outcome = record.and_then(|record| record.outcome);
                if let Some(outcome) = outcome
                    && let Some(message) = self.records.read_document(&outcome).await?
                {
                    return Ok(message);
                }
                if is_approved {
                    "The call was approved and may have been made. Its result was not kept."
                        .to_owned()
                } else {
                    "The user answered what the tool asked. The result of the call was not kept."
                        .to_owned()
                }
            }
            None if record
                .as_ref()
                .is_some_and(|record| record.questions.is_some()) =>
            {
                "The tool asked the user, who did not answer. The call was not continued."
                    .to_owned()
            }
            None => "The call was not approved and was not made.".to_owned(),
        };
        Ok(Message::new(Role::Tool, text))
    }
}

/// The result of a call that a person refused.
pub(crate) fn refusal_text(reason: Option<&str>) -> String {
    let text = "The user refused this call; it was not made.";
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{text} The user says: {reason}"),
        None => text.to_owned(),
    }
}

/// The approval does not wait for a decision of this caller.
pub(crate) fn expired_failure() -> RequestFailure {
    approval_failure(
        EXPIRED_CODE,
        "This approval is not waiting: it has expired, or is of another caller. Nothing was done. Ask the agent again to get \
         a new question.",
    )
}

/// The approval was decided before, by an earlier or a concurrent request.
pub(crate) fn used_failure() -> RequestFailure {
    approval_failure(
        USED_CODE,
        "This approval was decided before, and an approval holds for one call. This request did nothing. If the call was \
         approved, it may have been made: find out before you ask for it again.",
    )
}

/// The approval is of another call.
pub(crate) fn mismatch_failure() -> RequestFailure {
    approval_failure(
        MISMATCH_CODE,
        "The approval is for a call with other arguments. Nothing was done. Send the question back as it came.",
    )
}

fn approval_failure(code: &str, message: &str) -> RequestFailure {
    RequestFailure::of_parameter("messages", code, message).display(message)
}
