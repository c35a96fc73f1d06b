//! Decides from the record of a chat which steps its questions need. It sends nothing.

use dray_proto::v1::{self, EgressAnswer};

use super::hosts::{
    HostQuestionList, answer_outcome, answerer_of, expired_outcome, principal_prefix,
};
use super::open::{KeptPress, OpenQuestion, QuestionKind, RevisedQuestions};
use super::shown_minute;

/// Most steps of one chat in one round.
const MAX_STEPS: usize = 8;
/// How long a step is left to the replica that claimed it; each further attempt waits twice as long.
const CLAIM_MS: u64 = 60_000;
/// Doublings of the time of a claim: the longest is about an hour.
const MAX_DOUBLINGS: u32 = 6;
/// Attempts to show the end of a question. After the last one the message keeps its buttons, and a press shows the
/// outcome.
const MAX_ATTEMPTS: u32 = 12;
/// How long the end of a question is left to the process that handles its press, which takes 25 s at most.
const PRESS_GRACE_MS: u64 = 30_000;
/// How long after the expiry of a call its outcome is read: a press just before the expiry may be on its way.
pub(super) const SETTLE_GRACE_MS: u64 = 1_000;
/// How long after its expiry a question whose outcome cannot be learned is shown as ended.
const UNKNOWN_GRACE_MS: u64 = 3_600_000;

/// A step of one replica for one question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum QuestionStep {
    /// Shows a question about a host.
    Show(Box<v1::EgressQuestion>),
    /// Shows a question of a caller again: whether it is visible is not known.
    ShowAgain { id: String, expires_ms: u64 },
    /// Shows the outcome in the message.
    Close { id: String, outcome: String },
    /// Learns the outcome of a call from the orchestrator, and shows it.
    Settle { id: String, expires_ms: u64 },
    /// Finishes a press whose process died.
    Repeat { id: String, press: KeptPress },
    /// Leaves the message as it is.
    Forget(String),
}

impl QuestionStep {
    /// Id of the question that this step shows, closes or records.
    pub(super) fn question_id(&self) -> &str {
        match self {
            Self::Show(question) => &question.id,
            Self::Close { id, .. }
            | Self::Settle { id, .. }
            | Self::ShowAgain { id, .. }
            | Self::Repeat { id, .. }
            | Self::Forget(id) => id,
        }
    }

    /// Whether it sends a message or an edit within the rate of the chat.
    pub(super) const fn is_sent(&self) -> bool {
        matches!(
            self,
            Self::Show(_) | Self::ShowAgain { .. } | Self::Close { .. } | Self::Settle { .. }
        )
    }
}

/// Whether the outcome of a question did not arrive within the time that this service waits for it.
pub(super) const fn is_unknown(expires_ms: u64, now_ms: u64) -> bool {
    now_ms >= expires_ms.saturating_add(UNKNOWN_GRACE_MS)
}

/// The line of a message whose outcome is not known.
pub(super) fn ended_outcome(expires_ms: u64) -> String {
    format!("Ended, {}.", shown_minute(expires_ms))
}

/// Plans the steps that a chat needs now; the steps contain no messages if the chat accepts none. The steps are claimed
/// in the record, which holds for others once it is written.
pub(super) fn plan_steps(
    record: &mut RevisedQuestions,
    chat: &str,
    hosts: Option<&HostQuestionList>,
    (now_ms, can_send): (u64, bool),
) -> Vec<QuestionStep> {
    let mut steps = Vec::new();
    for question in &mut record.questions {
        if steps.len() >= MAX_STEPS {
            return steps;
        }
        if question.due_ms > now_ms {
            continue;
        }
        let step = match (&question.press, question.kind) {
            (Some(press), _) => press_step(question, press, now_ms),
            (None, QuestionKind::Call) => call_step(question, now_ms),
            (None, QuestionKind::Host) => host_step(question, chat, hosts, now_ms),
        };
        let Some(step) = step.filter(|step| can_send || !step.is_sent()) else {
            continue;
        };
        // A question is shown as long as it waits.
        let is_shown = matches!(step, QuestionStep::Show(_) | QuestionStep::ShowAgain { .. });
        if question.attempts >= MAX_ATTEMPTS && !is_shown {
            steps.push(QuestionStep::Forget(question.id.clone()));
        } else {
            steps.push(step);
        }
        claim(question, now_ms);
    }
    let listed = hosts.filter(|_| can_send);
    let listed = listed.map(|hosts| hosts.questions.as_slice());
    for question in listed.unwrap_or_default() {
        let is_known = record.questions.iter().any(|known| known.id == question.id);
        if steps.len() >= MAX_STEPS || is_known || !is_waiting(question) {
            continue;
        }
        let mut entry = OpenQuestion {
            id: question.id.clone(),
            kind: QuestionKind::Host,
            message_id: None,
            expires_ms: question.expires_at_ms,
            due_ms: 0,
            attempts: 0,
            press: None,
        };
        claim(&mut entry, now_ms);
        if record.add(entry) {
            steps.push(QuestionStep::Show(Box::new(question.clone())));
        }
    }
    steps
}

/// Leaves a question to this replica for a while.
fn claim(question: &mut OpenQuestion, now_ms: u64) {
    let time_ms = CLAIM_MS << question.attempts.min(MAX_DOUBLINGS);
    question.due_ms = now_ms.saturating_add(time_ms);
    question.attempts = question.attempts.saturating_add(1);
}

/// Repeats a press once the process that had it must have decided it.
fn press_step(question: &OpenQuestion, press: &KeptPress, now_ms: u64) -> Option<QuestionStep> {
    let is_left = now_ms >= press.taken_ms.saturating_add(PRESS_GRACE_MS);
    is_left.then(|| QuestionStep::Repeat {
        id: question.id.clone(),
        press: press.clone(),
    })
}

fn call_step(question: &OpenQuestion, now_ms: u64) -> Option<QuestionStep> {
    let id = question.id.clone();
    let is_shown = question.message_id.is_some();
    // Its process died, or the caller's time was over, between the message and the confirmation of the platform.
    if !is_shown && now_ms < question.expires_ms {
        let expires_ms = question.expires_ms;
        return Some(QuestionStep::ShowAgain { id, expires_ms });
    }
    if question.expires_ms.saturating_add(SETTLE_GRACE_MS) > now_ms {
        return None;
    }
    // The message may be visible, and its id is not known.
    if !is_shown {
        return Some(QuestionStep::Forget(id));
    }
    Some(QuestionStep::Settle {
        id,
        expires_ms: question.expires_ms,
    })
}

fn host_step(
    open: &OpenQuestion,
    chat: &str,
    hosts: Option<&HostQuestionList>,
    now_ms: u64,
) -> Option<QuestionStep> {
    let id = open.id.clone();
    let close = |outcome| {
        Some(QuestionStep::Close {
            id: id.clone(),
            outcome,
        })
    };
    let Some(hosts) = hosts else {
        let is_over = is_unknown(open.expires_ms, now_ms);
        return is_over
            .then(|| close(ended_outcome(open.expires_ms)))
            .flatten();
    };
    match hosts.find(&open.id) {
        // Its message is not known: the replica that asked died, or the platform refused it.
        Some(question) if is_waiting(question) => {
            let is_shown = open.message_id.is_some();
            (!is_shown).then(|| QuestionStep::Show(Box::new(question.clone())))
        }
        Some(question) => {
            let is_of_press = question.answered_by.starts_with(&principal_prefix(chat));
            let grace_end_ms = question.answered_at_ms.saturating_add(PRESS_GRACE_MS);
            if is_of_press && now_ms < grace_end_ms {
                return None;
            }
            close(answer_outcome(question, &answerer_of(question)))
        }
        None if hosts.is_truncated && open.expires_ms > now_ms => None,
        None => close(expired_outcome(open.expires_ms.min(now_ms))),
    }
}

fn is_waiting(question: &v1::EgressQuestion) -> bool {
    question.answer() == EgressAnswer::Unspecified
}
