//! Asks people about hosts: the outcome `ask` of the policy files, and the effect of an answer on a judgement.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dray_guard::{AllowedPorts, Caller, CanonicalUrl, Chain, Code, HostGrant};
use dray_types::hex::{hex_digits, parse_hex};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{FetchContext, FetchJob, Fetcher};
use crate::budget::TimeBudget;
use crate::error::{FetchError, FetchPhase};
use crate::record::FetchRecord;

/// Longest wait for the record of a question. Without it the request is refused.
const CONSULT_TIMEOUT: Duration = Duration::from_secs(2);
/// Prefix of the id of every question.
const QUESTION_PREFIX: &str = "egq_";
/// Bytes of an id that name the session.
pub(crate) const SESSION_DIGEST_BYTES: usize = 12;
/// Bytes of a complete id.
const QUESTION_ID_BYTES: usize = 20;

/// The id of a question: a digest of its session, and a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionId([u8; QUESTION_ID_BYTES]);

/// A text that is not the id of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a question is `egq_` and 40 hexadecimal digits")]
pub struct InvalidQuestionId;

impl QuestionId {
    /// The id of question `number` of a session.
    pub fn new(session: [u8; SESSION_DIGEST_BYTES], number: u64) -> Self {
        let mut bytes = [0; QUESTION_ID_BYTES];
        let parts = session.into_iter().chain(number.to_be_bytes());
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = part;
        }
        Self(bytes)
    }

    /// The digest of the session, and the number.
    pub fn parts(self) -> ([u8; SESSION_DIGEST_BYTES], u64) {
        let mut session = [0; SESSION_DIGEST_BYTES];
        for (byte, part) in session.iter_mut().zip(self.0) {
            *byte = part;
        }
        let number = self.0.iter().skip(SESSION_DIGEST_BYTES);
        let number = number.fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        (session, number)
    }
}

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(QUESTION_PREFIX)?;
        f.write_str(&hex_digits(&self.0))
    }
}

impl FromStr for QuestionId {
    type Err = InvalidQuestionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Upper case is refused: an id has one form, so that it can be compared as text.
        let digits = text
            .strip_prefix(QUESTION_PREFIX)
            .ok_or(InvalidQuestionId)?;
        if digits.contains(|digit: char| digit.is_ascii_uppercase()) {
            return Err(InvalidQuestionId);
        }
        parse_hex(digits).map(Self).ok_or(InvalidQuestionId)
    }
}

/// Whether a session may reach a host and port.
#[derive(Clone, Debug)]
pub struct HostQuestion {
    /// Who wants to reach it; the session is not empty.
    pub caller: Caller,
    /// The host in canonical form, without a port.
    pub host: String,
    /// The port to which the answer applies.
    pub port: u16,
    /// The rule that asks.
    pub rule: String,
    /// Whether a question may be asked. Otherwise only an earlier one is looked for.
    pub may_ask: bool,
}

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAnswer {
    /// A person allowed it.
    Allowed {
        /// The question.
        id: QuestionId,
        /// How long the answer holds from now on.
        valid_for: Duration,
    },
    /// A person denied it.
    Denied(QuestionId),
    /// The question waits for an answer.
    Waiting(QuestionId),
    /// No question was recorded. The request may not ask, the session has too many questions, or the record could not
    /// be written.
    NotAsked,
}

/// The answer of a person that allows an open connection or a running fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAnswer {
    /// The tenant of the session.
    pub tenant: String,
    /// The question.
    pub id: QuestionId,
}

/// The questions and answers of all sessions.
pub trait HostApprovals: Send + Sync + 'static {
    /// Finds the answer to a question, and asks it if it was not asked before.
    fn consult<'a>(&'a self, question: &'a HostQuestion) -> BoxFuture<'a, HostAnswer>;

    /// Ends when the answer allows its host no longer. Records that cannot be read take nothing back.
    fn withdrawal<'a>(&'a self, answer: &'a HeldAnswer) -> BoxFuture<'a, ()>;
}

/// Limits of the questions that a request may ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskScope<'a> {
    /// Whether a person may be asked; otherwise a rule that asks refuses.
    pub(super) may_ask: bool,
    /// The only ports about which a person may be asked; a request for another port is refused without a question.
    /// `None` for no limit except the policy.
    pub(super) ports: Option<&'a AllowedPorts>,
}

impl AskScope<'_> {
    /// A fetch, which may ask and is limited by the policy alone.
    pub(super) const FETCH: AskScope<'static> = AskScope {
        may_ask: true,
        ports: None,
    };
    /// An explanation, which asks nothing.
    pub(super) const EXPLANATION: AskScope<'static> = AskScope {
        may_ask: false,
        ports: None,
    };
}

impl Fetcher {
    /// Like [`Self::begin`], with the answer of a person where the rules ask for it.
    pub(super) async fn begin_approved<'a>(
        &'a self,
        request: &'a FetchJob,
        scope: AskScope<'_>,
        record: &mut FetchRecord,
    ) -> Result<(Chain, FetchContext<'a>), FetchError> {
        let started = Instant::now();
        let refused = match self.begin(request, None, record) {
            Err(failure) if failure.code == Code::ApprovalRequired => failure,
            result => return result,
        };
        let Some(url) = record.url.clone() else {
            return Err(refused);
        };
        // The ports are checked before the question: a person must not be asked about a host that is refused in any
        // case.
        if scope.ports.is_some_and(|ports| !ports.allows(url.port())) {
            return Err(FetchError::new(Code::PortNotAllowed, FetchPhase::Policy));
        }
        let grant = self.consult(request, &url, scope.may_ask, record).await?;
        // The request is judged again from the start: the answer counts only if the rules still ask about exactly this
        // URL.
        record.judge_again();
        let (chain, mut context) = self.begin(request, Some(grant), record)?;
        // The wait for the answer is part of the whole time.
        context.budget = TimeBudget::starting_at(started, context.settings.limits.total(request));
        Ok((chain, context))
    }

    /// Ends when the answer that allows a connection or a fetch is taken back. Never ends where no person was asked.
    pub async fn answer_withdrawal(&self, answer: Option<&HeldAnswer>) {
        match (&self.approvals, answer) {
            (Some(approvals), Some(answer)) => approvals.withdrawal(answer).await,
            _ => std::future::pending().await,
        }
    }

    /// Runs a part of a fetch, unless the answer that allows it is taken back meanwhile.
    pub(super) async fn while_allowed<T>(
        &self,
        answer: Option<HeldAnswer>,
        work: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.answer_withdrawal(answer.as_ref()) => {
                Err(FetchError::new(Code::PolicyDenied, FetchPhase::Policy))
            }
        }
    }

    /// The grant of a person for `url`, about which the rules ask.
    pub(super) async fn consult(
        &self,
        request: &FetchJob,
        url: &CanonicalUrl,
        may_ask: bool,
        record: &mut FetchRecord,
    ) -> Result<HostGrant, FetchError> {
        let refuse = |code| Err(FetchError::new(code, FetchPhase::Policy));
        let rule = record
            .decision
            .as_ref()
            .map(|decision| decision.rule.to_string());
        let question = HostQuestion {
            caller: request.caller.clone(),
            host: url.host().to_string(),
            port: url.port(),
            rule: rule.unwrap_or_default(),
            may_ask,
        };
        // An answer is bound to a session, so a request without one cannot get any.
        let approvals = self.approvals.as_ref();
        let Some(approvals) = approvals.filter(|_| !question.caller.session.is_empty()) else {
            return refuse(Code::PolicyDenied);
        };
        let limit = CONSULT_TIMEOUT.min(self.settings().limits.total(request));
        let response = tokio::time::timeout(limit, approvals.consult(&question)).await;
        match response.unwrap_or(HostAnswer::NotAsked) {
            HostAnswer::Allowed { id, valid_for } => {
                record.question = Some(id);
                record.approval_ends = Some(Instant::now() + valid_for);
                Ok(HostGrant::of_url(url))
            }
            HostAnswer::Waiting(id) => {
                record.question = Some(id);
                refuse(Code::ApprovalRequired)
            }
            HostAnswer::Denied(id) => {
                record.question = Some(id);
                refuse(Code::PolicyDenied)
            }
            // A fetch would ask now, so an explanation reports that.
            HostAnswer::NotAsked if !may_ask => refuse(Code::ApprovalRequired),
            HostAnswer::NotAsked => refuse(Code::PolicyDenied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_as_they_were_written_are_accepted() {
        let id = QuestionId::new([7; SESSION_DIGEST_BYTES], 0x0102_0304_0506_0708);
        let text = id.to_string();
        assert_eq!(text, "egq_0707070707070707070707070102030405060708");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(
            id.parts(),
            ([7; SESSION_DIGEST_BYTES], 0x0102_0304_0506_0708)
        );
        let (short, upper) = (&text[..43], text.to_uppercase());
        for wrong in [
            "",
            "egq_",
            short,
            &upper,
            "egq_é707070707070707070707070102030405060708",
        ] {
            assert_eq!(
                wrong.parse::<QuestionId>(),
                Err(InvalidQuestionId),
                "{wrong}"
            );
        }
    }
}
