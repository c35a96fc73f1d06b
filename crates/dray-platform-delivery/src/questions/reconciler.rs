//! Keeps chats current: shows questions about hosts, and shows the end of questions that end without a press.
//!
//! Each round reads one record for each chat. A replica claims a step in that record before it does it, and at most
//! [`MAX_STEPS`] of a chat in a round.

use std::collections::VecDeque;
use std::time::Duration;

use dray_bus::{KeyError, Meta};
use dray_platform::{
    ButtonPress, DeliveryTarget, ErrorKind, PlatformError, QuestionChannel, ShownQuestion,
};
use dray_proto::v1::{self, EgressAnswer};
use dray_types::Deadline;
use tokio_util::sync::CancellationToken;

use super::hosts::{
    HostQuestionList, answer_outcome, answerer_of, expired_outcome, principal_prefix,
    shown_host_question,
};
use super::open::{KeptPress, OpenQuestion, QuestionKind, QuestionText, RevisedQuestions};
use super::{
    DECIDE_TIMEOUT, QuestionChat, QuestionService, REPLY_TIMEOUT, log_key_failure, shown_minute,
};
use crate::accounts::PlatformAccount;

/// Between two rounds.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(2);
/// Most steps of one chat in one round.
const MAX_STEPS: usize = 8;
/// How long a step is left to the replica that claimed it; each further attempt waits twice as long.
const CLAIM_MS: u64 = 60_000;
/// How long after the claim the last step of a round begins. A step takes 35 s at most, so it ends before another
/// replica begins it.
const LAST_START_MS: u64 = 20_000;
/// Doublings of the time of a claim: the longest is about an hour.
const MAX_DOUBLINGS: u32 = 6;
/// Attempts to show the end of a question. The message keeps its buttons then, and a press learns the outcome.
const MAX_ATTEMPTS: u32 = 12;
/// How long the end of a question is left to the process that has its press, which takes 25 s at most.
const PRESS_GRACE_MS: u64 = 30_000;
/// How long after its expiry a question whose outcome cannot be learned is shown as ended.
const UNKNOWN_GRACE_MS: u64 = 3_600_000;
/// Longest wait for the rate of a chat.
const MAX_RATE_WAIT: Duration = Duration::from_secs(20);

/// What one replica does for one question.
#[derive(Clone, Debug, PartialEq)]
enum QuestionStep {
    /// Shows a question about a host.
    Show(Box<v1::EgressQuestion>),
    /// Shows the outcome in the message.
    Close { id: String, outcome: String },
    /// Learns the outcome of a call from the orchestrator, and shows it.
    Settle { id: String, expires_ms: u64 },
    /// Takes a press to its end whose process died.
    Repeat { id: String, press: KeptPress },
    /// Leaves the message as it is.
    Forget(String),
}

impl QuestionStep {
    fn question_id(&self) -> &str {
        match self {
            Self::Show(question) => &question.id,
            Self::Close { id, .. }
            | Self::Settle { id, .. }
            | Self::Repeat { id, .. }
            | Self::Forget(id) => id,
        }
    }

    /// Whether it sends a message or an edit within the rate of the chat.
    const fn is_sent(&self) -> bool {
        matches!(
            self,
            Self::Show(_) | Self::Close { .. } | Self::Settle { .. }
        )
    }
}

/// A chat of the configuration with the account that writes in it.
struct ChatAccess<'a> {
    name: &'a str,
    chat: &'a QuestionChat,
    target: DeliveryTarget,
    account: &'a PlatformAccount,
    channel: &'a dyn QuestionChannel,
}

impl QuestionService {
    /// Keeps all chats current until `stop`.
    pub(crate) async fn keep_current(&self, stop: CancellationToken) {
        if self.config.question_chats.is_empty() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.reconcile() => {}
            }
        }
    }

    /// One round.
    pub(crate) async fn reconcile(&self) {
        for (name, chat) in &self.config.question_chats {
            let Ok(target) = chat.chat.parse::<DeliveryTarget>() else {
                continue;
            };
            // An entry names no tenant, so the account does. The configuration refuses entries with several.
            let accounts = self.accounts.iter().filter(|account| {
                account.platform.name() == target.platform
                    && (target.account.is_empty() || account.name == target.account)
            });
            let accounts: Vec<_> = accounts.collect();
            let [account] = accounts.as_slice() else {
                continue;
            };
            let Some(channel) = account.platform.questions() else {
                continue;
            };
            let access = ChatAccess {
                name,
                chat,
                target,
                account,
                channel,
            };
            if let Err(error) = self.reconcile_chat(&access).await {
                log_key_failure(name, &error);
            }
        }
    }

    async fn reconcile_chat(&self, access: &ChatAccess<'_>) -> Result<(), KeyError> {
        // Before the questions are listed: what is answered in between makes the claim stale, and is not shown again.
        let mut record = self.open.read(access.name).await?;
        let hosts = self.host_list(access).await;
        let now_ms = self.clock.now_ms();
        // Nothing is claimed that cannot be sent: another replica may have room in its rate.
        let can_send = self.takes_message(access);
        let steps = plan_steps(&mut record, access, hosts.as_ref(), (now_ms, can_send));
        if steps.is_empty() {
            return Ok(());
        }
        match self.open.write(access.name, &record).await {
            Ok(()) => {}
            // Another replica has the steps, or a press; the next round looks again.
            Err(KeyError::Stale | KeyError::Exists) => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut steps = VecDeque::from(steps);
        while let Some(step) = steps.pop_front() {
            let is_late = self.clock.now_ms() >= now_ms.saturating_add(LAST_START_MS);
            if is_late || (step.is_sent() && !self.takes_message(access)) {
                steps.push_front(step);
                break;
            }
            self.run_step(access, step).await?;
        }
        if steps.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = steps.iter().map(QuestionStep::question_id).collect();
        self.open.release_claims(access.name, &ids, &record).await
    }

    fn takes_message(&self, access: &ChatAccess<'_>) -> bool {
        self.has_room(access.account, &access.target, MAX_RATE_WAIT)
    }

    async fn host_list(&self, access: &ChatAccess<'_>) -> Option<HostQuestionList> {
        if !access.chat.host_questions {
            return None;
        }
        let tenant = access.account.tenant.clone().unwrap_or_default();
        let listed = self.list_hosts(&tenant).await;
        let listed = listed.inspect_err(|fault| {
            tracing::debug!(chat = access.name, code = %fault.code, "questions about hosts cannot be listed");
        });
        listed.ok()
    }

    async fn run_step(&self, access: &ChatAccess<'_>, step: QuestionStep) -> Result<(), KeyError> {
        match step {
            QuestionStep::Show(question) => self.show_host(access, &question).await,
            QuestionStep::Close { id, outcome } => self.close(access, &id, &outcome).await,
            QuestionStep::Settle { id, expires_ms } => {
                match self.call_outcome(access, &id, expires_ms).await {
                    Some(outcome) => self.close(access, &id, &outcome).await,
                    None => Ok(()),
                }
            }
            QuestionStep::Repeat { id, press } => self.repeat_press(access, &id, press).await,
            QuestionStep::Forget(id) => self.open.remove(access.name, &id).await,
        }
    }

    /// Shows a question about a host. What fails is tried again after the claim.
    async fn show_host(
        &self,
        access: &ChatAccess<'_>,
        question: &v1::EgressQuestion,
    ) -> Result<(), KeyError> {
        let (name, id) = (access.name, &question.id);
        let shown = shown_host_question(question, access.chat);
        let text = QuestionText {
            target: access.target.to_string(),
            text: shown.text.clone(),
            detail: shown.detail.clone(),
        };
        // Before the message, which could not be ended without it.
        self.open.keep_text(name, id, &text).await?;
        let asked = self
            .send(access, access.channel.ask(&access.target, &shown))
            .await;
        match asked {
            Ok(message_id) => {
                tracing::info!(
                    chat = name,
                    question = id,
                    message_id,
                    "a question is shown"
                );
                self.open.set_message(name, id, &message_id).await
            }
            Err(error) => {
                self.report_failure(access.account, (name, id), &access.target, &error);
                Ok(())
            }
        }
    }

    async fn repeat_press(
        &self,
        access: &ChatAccess<'_>,
        id: &str,
        kept: KeptPress,
    ) -> Result<(), KeyError> {
        let text = self.open.text(access.name, id).await?;
        let text = text.map_or_else(String::new, |text| {
            format!("{}\n\n{}", text.text, text.detail)
        });
        let press = ButtonPress {
            target: access.target.clone(),
            message_id: kept.message_id,
            text,
            sender: kept.sender,
            sender_name: kept.sender_name,
            data: kept.data,
            reference: kept.reference,
        };
        self.take_press(access.account, &press).await;
        Ok(())
    }

    /// Shows the outcome in the message of a question, which is not open any more then.
    async fn close(
        &self,
        access: &ChatAccess<'_>,
        id: &str,
        outcome: &str,
    ) -> Result<(), KeyError> {
        let name = access.name;
        let record = self.open.read(name).await?;
        let mut questions = record.questions.into_iter();
        let message_id = questions.find(|one| one.id == id);
        let message_id = message_id.and_then(|one| one.message_id);
        let text = self.open.text(name, id).await?;
        let (Some(message_id), Some(text)) = (message_id, text) else {
            return self.open.remove(name, id).await;
        };
        // The chat that has the message, also when the entry names another one by now.
        let Ok(target) = text.target.parse() else {
            return self.open.remove(name, id).await;
        };
        let shown = ShownQuestion {
            target,
            message_id,
            text: text.text,
            detail: text.detail,
        };
        match self
            .send(access, access.channel.close(&shown, outcome))
            .await
        {
            Ok(()) => self.open.remove(name, id).await,
            // The message is gone, and its buttons with it.
            Err(error) if error.kind() == ErrorKind::NotFound => self.open.remove(name, id).await,
            Err(error) => {
                self.report_failure(access.account, (name, id), &shown.target, &error);
                Ok(())
            }
        }
    }

    /// Sends a request to the platform within the chat's rate.
    async fn send<T>(
        &self,
        access: &ChatAccess<'_>,
        request: impl Future<Output = Result<T, PlatformError>>,
    ) -> Result<T, PlatformError> {
        let reserved = self.reserve_message(access.account, &access.target, MAX_RATE_WAIT);
        let wait = reserved.map_err(|_wait| {
            PlatformError::new(ErrorKind::RateLimited, "the chat takes no message now")
        })?;
        tokio::time::sleep(wait).await;
        let sent = tokio::time::timeout(REPLY_TIMEOUT, request).await;
        sent.unwrap_or_else(|_elapsed| {
            let text = "the platform did not answer";
            Err(PlatformError::new(ErrorKind::Transient, text))
        })
    }

    /// The outcome of a call that has expired, as the orchestrator knows it; `None` while that cannot be learned.
    async fn call_outcome(
        &self,
        access: &ChatAccess<'_>,
        id: &str,
        expires_ms: u64,
    ) -> Option<String> {
        // Without a choice: the orchestrator reports and decides nothing.
        let request = v1::DecideInChatRequest {
            question_id: id.to_owned(),
            chat: access.name.to_owned(),
            ..v1::DecideInChatRequest::default()
        };
        let now_ms = self.clock.now_ms();
        let deadline = Deadline::after(now_ms, DECIDE_TIMEOUT);
        let tenant = access.account.tenant.clone().unwrap_or_default();
        let outcome = match self.bus.call(&Meta::new(tenant, deadline), &request).await {
            Ok(reply) => reply.outcome,
            Err(error) => {
                tracing::warn!(
                    question = id,
                    error = &error as &dyn std::error::Error,
                    "the outcome of a question cannot be read"
                );
                String::new()
            }
        };
        if outcome.is_empty() {
            return is_unknown(expires_ms, now_ms).then(|| ended_outcome(expires_ms));
        }
        Some(outcome)
    }
}

/// Whether the outcome of a question is not waited for any more.
const fn is_unknown(expires_ms: u64, now_ms: u64) -> bool {
    now_ms >= expires_ms.saturating_add(UNKNOWN_GRACE_MS)
}

fn ended_outcome(expires_ms: u64) -> String {
    format!("Ended, {}.", shown_minute(expires_ms))
}

/// What is to be done for a chat now, without messages when it takes none. The steps are claimed in the record, which
/// holds for others once it is written.
fn plan_steps(
    record: &mut RevisedQuestions,
    access: &ChatAccess<'_>,
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
            (None, QuestionKind::Host) => host_step(question, access.name, hosts, now_ms),
        };
        let Some(step) = step.filter(|step| can_send || !step.is_sent()) else {
            continue;
        };
        // A question about a host is shown as long as it waits.
        if question.attempts >= MAX_ATTEMPTS && !matches!(step, QuestionStep::Show(_)) {
            steps.push(QuestionStep::Forget(question.id.clone()));
        } else {
            steps.push(step);
        }
        claim(question, now_ms);
    }
    let listed = hosts.filter(|_| can_send);
    let listed = listed.map(|hosts| hosts.questions.as_slice());
    for question in listed.unwrap_or_default() {
        let is_known = record.questions.iter().any(|one| one.id == question.id);
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
    // A press just before the expiry may be on its way.
    if question.expires_ms.saturating_add(1_000) > now_ms {
        return None;
    }
    // It may be visible, and where is not known.
    if question.message_id.is_none() {
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
