//! The records of questions about hosts, and their answers.
//!
//! A session has one record with all of its questions in the bucket [`QUESTION_BUCKET`], and every change is a
//! compare-and-set. So a host is asked about once, however many requests and replicas want to reach it, and the number
//! of questions of a session is exact. A record that cannot be read or written answers nothing, and the request is
//! refused.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::{Bus, KeyError, KeyValue, Meta};
use dray_proto::v1::{self, EgressAnswer, EgressQuestionStage};
use dray_types::hex::hex_digits;
use dray_types::{Clock, Deadline, Fault, FaultCode, Sha256Digest, TenantId};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::config::QuestionSettings;
use crate::fetch::approval::SESSION_DIGEST_BYTES;
use crate::fetch::{HeldAnswer, HostAnswer, HostApprovals, HostQuestion, QuestionId};
use crate::metrics::EgressMetrics;

mod held;
mod list;

use self::list::ListStarts;

/// Bucket of the questions about hosts and of their answers, one record for each session.
pub const QUESTION_BUCKET: &str = "dray_egress_questions";
/// Most attempts at a change while other writers change the record first.
const MAX_ATTEMPTS: usize = 8;
/// How long an audit event may take to be stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest name of a person in bytes.
const MAX_PRINCIPAL_BYTES: usize = 128;

/// All questions of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SessionQuestions {
    session: String,
    questions: Vec<QuestionRecord>,
}

/// A question as it is stored for all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct QuestionRecord {
    number: u64,
    app: String,
    host: String,
    port: u16,
    rule: String,
    asked_ms: u64,
    /// Unix milliseconds at which it is withdrawn, or its answer ends.
    expires_ms: u64,
    /// `None` while it waits.
    answer: Option<AnswerRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AnswerRecord {
    is_allowed: bool,
    principal: String,
    answered_ms: u64,
}

/// The key of a session's record.
#[derive(Clone, Debug)]
struct SessionKey {
    digest: [u8; SESSION_DIGEST_BYTES],
    text: String,
}

impl SessionKey {
    fn of_session(tenant: &TenantId, session: &str) -> Self {
        let mut digest = [0; SESSION_DIGEST_BYTES];
        let whole = Sha256Digest::of(session.as_bytes());
        for (byte, part) in digest.iter_mut().zip(whole.as_bytes()) {
            *byte = *part;
        }
        Self::of_digest(tenant, digest)
    }

    fn of_digest(tenant: &TenantId, digest: [u8; SESSION_DIGEST_BYTES]) -> Self {
        Self {
            digest,
            text: format!("{}.{}", tenant_prefix(tenant), hex_digits(&digest)),
        }
    }

    fn id(&self, question: &QuestionRecord) -> QuestionId {
        QuestionId::new(self.digest, question.number)
    }
}

fn tenant_prefix(tenant: &TenantId) -> String {
    format!("session.{}", tenant.token())
}

impl SessionQuestions {
    fn to_proto(&self, key: &SessionKey, question: &QuestionRecord) -> v1::EgressQuestion {
        let mut shown = v1::EgressQuestion {
            id: key.id(question).to_string(),
            session: self.session.clone(),
            app: question.app.clone(),
            host: question.host.clone(),
            port: question.port.into(),
            rule: question.rule.clone(),
            asked_at_ms: question.asked_ms,
            expires_at_ms: question.expires_ms,
            ..v1::EgressQuestion::default()
        };
        if let Some(answer) = &question.answer {
            shown.set_answer(if answer.is_allowed {
                EgressAnswer::Allow
            } else {
                EgressAnswer::Deny
            });
            shown.answered_by.clone_from(&answer.principal);
            shown.answered_at_ms = answer.answered_ms;
        }
        shown
    }
}

/// The reason why a question could not be asked or answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    /// The records cannot be reached, or a key is not valid.
    #[error("the records of questions cannot be reached")]
    Keys(#[from] KeyError),
    /// A record is not valid, or is that of another session.
    #[error("a record of questions cannot be read")]
    InvalidRecord,
    /// The tenant or session of the caller is not valid.
    #[error("the caller is not valid")]
    InvalidCaller,
    /// Others kept changing the record.
    #[error("the record of questions keeps changing")]
    Contended,
    /// There is no such question of the tenant, or its time is over.
    #[error("the question does not exist any more")]
    Gone,
    /// The request has no answer, or the name of the person is not valid.
    #[error("the answer is not valid: {0}")]
    InvalidAnswer(&'static str),
    /// The question has an answer, and the caller wants to answer one that waits.
    #[error("the question is answered already")]
    Answered,
    /// The audit event was not stored, so the answer is not valid.
    #[error("the audit event of an answer was not stored")]
    Audit(#[source] dray_bus::PublishError),
}

impl From<QuestionError> for Fault {
    fn from(error: QuestionError) -> Self {
        match error {
            QuestionError::Keys(error) => error.into(),
            QuestionError::InvalidRecord => Self::new(
                FaultCode::Unavailable,
                "The record of the questions of this session cannot be read.",
            )
            .detail("invalid_question_record")
            .advice(
                "Ask an operator to remove the session's key from the bucket `dray_egress_questions`.",
            ),
            QuestionError::InvalidCaller => Self::internal(),
            QuestionError::Contended => Self::new(
                FaultCode::Unavailable,
                "The questions of this session are being changed.",
            )
            .detail("contended")
            .retry_after(Duration::from_millis(200)),
            QuestionError::Gone => Self::new(
                FaultCode::NotFound,
                "This question does not exist, or its time is over.",
            )
            .detail("question_gone")
            .advice("List the questions with `dray policy questions`."),
            QuestionError::InvalidAnswer(what) => Self::new(
                FaultCode::InvalidArgument,
                format!("The answer is not valid: {what}."),
            )
            .detail("invalid_answer"),
            QuestionError::Answered => Self::new(
                FaultCode::InvalidArgument,
                "This question has an answer already.",
            )
            .detail("question_answered"),
            QuestionError::Audit(_) => Self::new(
                FaultCode::Unavailable,
                "The answer cannot be recorded at the moment, so it is not valid.",
            )
            .detail("question_not_audited")
            .retry_after(Duration::from_secs(1)),
        }
    }
}

/// The answer to a question, as a person gives it.
#[derive(Clone, Debug)]
pub(crate) struct GivenAnswer {
    pub(crate) is_allowed: bool,
    /// How long it is valid; at most the longest time of the configuration.
    pub(crate) valid_for: Option<Duration>,
    pub(crate) principal: String,
    /// Whether an earlier answer must not be replaced.
    pub(crate) only_waiting: bool,
}

impl GivenAnswer {
    /// Checks the answer in a request: only allow and deny are accepted.
    pub(crate) fn of_request(
        body: &v1::AnswerEgressQuestionRequest,
    ) -> Result<Self, QuestionError> {
        let is_allowed = match body.answer() {
            EgressAnswer::Allow => true,
            EgressAnswer::Deny => false,
            EgressAnswer::Unspecified => {
                return Err(QuestionError::InvalidAnswer("it is neither allow nor deny"));
            }
        };
        let is_name = !body.principal.is_empty()
            && body.principal.len() <= MAX_PRINCIPAL_BYTES
            && body
                .principal
                .bytes()
                .all(|byte| matches!(byte, b' '..=b'~'));
        if !is_name {
            let what = "the principal is not 1 to 128 printable ASCII characters";
            return Err(QuestionError::InvalidAnswer(what));
        }
        Ok(Self {
            is_allowed,
            valid_for: (body.valid_ms > 0).then(|| Duration::from_millis(body.valid_ms)),
            principal: body.principal.clone(),
            only_waiting: body.only_waiting,
        })
    }
}

/// Questions and answers on the bus.
#[derive(Clone, Debug)]
pub(crate) struct QuestionStore {
    bus: Bus,
    keys: KeyValue,
    clock: Clock,
    settings: QuestionSettings,
    metrics: EgressMetrics,
    list_starts: ListStarts,
}

impl QuestionStore {
    pub(crate) fn new(
        bus: &Bus,
        clock: Clock,
        settings: QuestionSettings,
        metrics: EgressMetrics,
    ) -> Self {
        Self {
            bus: bus.clone(),
            keys: bus.key_value(QUESTION_BUCKET),
            clock,
            settings,
            metrics,
            list_starts: ListStarts::default(),
        }
    }

    /// Answers a question of the tenant. The audit event comes first.
    pub(crate) async fn answer(
        &self,
        meta: &Meta,
        id: QuestionId,
        given: &GivenAnswer,
    ) -> Result<v1::EgressQuestion, QuestionError> {
        let (digest, number) = id.parts();
        let key = SessionKey::of_digest(&meta.tenant, digest);
        let mut is_audited = false;
        for _ in 0..MAX_ATTEMPTS {
            let now_ms = self.clock.now_ms();
            // The record is read again in each attempt: another answer, or the end of the question, may have overtaken
            // this one.
            let (mut record, revision) = self.read(&key, now_ms).await?;
            let mut questions = record.questions.iter_mut();
            let question = questions.find(|question| question.number == number);
            let question = question.ok_or(QuestionError::Gone)?;
            if given.only_waiting && question.answer.is_some() {
                return Err(QuestionError::Answered);
            }
            let longest = self.settings.answer_time;
            let valid_for = given.valid_for.unwrap_or(longest).min(longest);
            question.expires_ms = Deadline::after(now_ms, valid_for).unix_ms();
            question.answer = Some(AnswerRecord {
                is_allowed: given.is_allowed,
                principal: given.principal.clone(),
                answered_ms: now_ms,
            });
            let question = question.clone();
            let shown = record.to_proto(&key, &question);
            // One audit event stands for all attempts to store the answer, because they are one decision.
            if !is_audited {
                self.audit(meta, EgressQuestionStage::Answered, &shown)
                    .await
                    .map_err(QuestionError::Audit)?;
                is_audited = true;
            }
            match self.write(&key, &record, revision).await {
                Ok(()) => {
                    self.metrics.questioned(if given.is_allowed {
                        "allowed"
                    } else {
                        "denied"
                    });
                    return Ok(shown);
                }
                Err(KeyError::Stale | KeyError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(QuestionError::Contended)
    }

    async fn try_consult(&self, question: &HostQuestion) -> Result<HostAnswer, QuestionError> {
        let tenant = TenantId::new(&question.caller.tenant);
        let tenant = tenant.map_err(|_| QuestionError::InvalidCaller)?;
        let session = &question.caller.session;
        let key = SessionKey::of_session(&tenant, session);
        for _ in 0..MAX_ATTEMPTS {
            let now_ms = self.clock.now_ms();
            let (mut record, revision) = self.read(&key, now_ms).await?;
            // Two sessions with one digest would share their answers.
            if revision.is_some() && record.session != *session {
                return Err(QuestionError::InvalidRecord);
            }
            let mut questions = record.questions.iter();
            let found =
                questions.find(|known| known.host == question.host && known.port == question.port);
            if let Some(found) = found {
                return Ok(state_of(found, &key, now_ms));
            }
            if !question.may_ask {
                return Ok(HostAnswer::NotAsked);
            }
            if record.questions.len() >= self.settings.max_per_session {
                self.metrics.questioned("too_many");
                return Ok(HostAnswer::NotAsked);
            }
            let new_record = self.new_question(question, now_ms);
            record.session.clone_from(session);
            record.questions.push(new_record.clone());
            match self.write(&key, &record, revision).await {
                Ok(()) => {
                    self.metrics.questioned("asked");
                    self.report_asked(&tenant, &record.to_proto(&key, &new_record))
                        .await;
                    return Ok(HostAnswer::Waiting(key.id(&new_record)));
                }
                Err(KeyError::Stale | KeyError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(QuestionError::Contended)
    }

    fn new_question(&self, question: &HostQuestion, now_ms: u64) -> QuestionRecord {
        // The second half of a version 7 UUID has 62 random bits (RFC 9562, section 5.7).
        let random = uuid::Uuid::now_v7().as_u64_pair().1;
        QuestionRecord {
            number: random,
            app: question.caller.app.clone(),
            host: question.host.clone(),
            port: question.port,
            rule: question.rule.clone(),
            asked_ms: now_ms,
            expires_ms: Deadline::after(now_ms, self.settings.wait_time).unix_ms(),
            answer: None,
        }
    }

    /// The record without expired questions, and its revision; an empty record if none is stored.
    async fn read(
        &self,
        key: &SessionKey,
        now_ms: u64,
    ) -> Result<(SessionQuestions, Option<u64>), QuestionError> {
        let Some(entry) = self.keys.get(&key.text).await? else {
            return Ok((SessionQuestions::default(), None));
        };
        let record = serde_json::from_slice::<SessionQuestions>(&entry.value);
        let mut record = record.map_err(|_| QuestionError::InvalidRecord)?;
        record
            .questions
            .retain(|question| question.expires_ms > now_ms);
        Ok((record, Some(entry.revision)))
    }

    // The answer and its audit event are not one write: an event without its answer is harmless, and an answer without
    // its event is not.
    async fn write(
        &self,
        key: &SessionKey,
        record: &SessionQuestions,
        revision: Option<u64>,
    ) -> Result<(), KeyError> {
        // Texts and numbers always have a form in JSON.
        let value = Bytes::from(serde_json::to_vec(record).unwrap_or_default());
        match revision {
            Some(revision) => self.keys.update(&key.text, value, revision).await,
            None => self.keys.create(&key.text, value).await,
        }
        .map(drop)
    }

    /// Records that a question was asked. It waits in any case, so a failure is only reported to the operator.
    async fn report_asked(&self, tenant: &TenantId, question: &v1::EgressQuestion) {
        let deadline = Deadline::after(self.clock.now_ms(), AUDIT_TIMEOUT);
        let meta = Meta::new(tenant.clone(), deadline);
        let stage = EgressQuestionStage::Asked;
        if let Err(error) = self.audit(&meta, stage, question).await {
            self.metrics.audit_failed();
            tracing::warn!(%error, id = question.id, "the audit event of a question was not stored");
        }
    }

    async fn audit(
        &self,
        meta: &Meta,
        stage: EgressQuestionStage,
        question: &v1::EgressQuestion,
    ) -> Result<(), dray_bus::PublishError> {
        let mut audit = v1::EgressQuestionAudit {
            question: Some(question.clone()),
            ..v1::EgressQuestionAudit::default()
        };
        audit.set_stage(stage);
        let deadline = Deadline::after(self.clock.now_ms(), AUDIT_TIMEOUT);
        let meta = meta.clone().with_deadline(deadline);
        tracing::info!(
            stage = ?stage, id = question.id, session = question.session, host = question.host,
            port = question.port, answer = ?question.answer(), principal = question.answered_by,
            "a person is asked about a host, or has answered"
        );
        self.bus.publish_audit(&meta, &audit).await.map(drop)
    }
}

fn state_of(question: &QuestionRecord, key: &SessionKey, now_ms: u64) -> HostAnswer {
    let id = key.id(question);
    match &question.answer {
        None => HostAnswer::Waiting(id),
        Some(answer) if answer.is_allowed => HostAnswer::Allowed {
            id,
            valid_for: Duration::from_millis(question.expires_ms.saturating_sub(now_ms)),
        },
        Some(_) => HostAnswer::Denied(id),
    }
}

impl HostApprovals for QuestionStore {
    fn consult<'a>(&'a self, question: &'a HostQuestion) -> BoxFuture<'a, HostAnswer> {
        Box::pin(async move {
            self.try_consult(question).await.unwrap_or_else(|error| {
                self.metrics.questioned("failed");
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "no person could be asked about a host; the request is refused"
                );
                HostAnswer::NotAsked
            })
        })
    }

    fn withdrawal<'a>(&'a self, answer: &'a HeldAnswer) -> BoxFuture<'a, ()> {
        Box::pin(self.await_withdrawal(answer))
    }
}

#[cfg(test)]
mod tests;
