//! Keeps chats current. It shows questions about hosts, shows a caller's question again when its process died before it
//! knew the message, and shows the end of questions that end without a press.
//!
//! Each round reads one record for each chat. A replica claims the steps of a round ([`super::plan`]) in that record
//! before it does them.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use dray_bus::{KeyError, Meta};
use dray_platform::{
    ButtonPress, DeliveryTarget, ErrorKind, PlatformError, QuestionChannel, ShownQuestion,
};
use dray_proto::v1;
use dray_types::Deadline;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::buttons::shown_question;
use super::hosts::{HostQuestionList, shown_host_question};
use super::open::{KeptPress, OpenQuestion, QuestionKind, QuestionText, RevisedQuestions};
use super::plan::{QuestionStep, SETTLE_GRACE_MS, ended_outcome, is_unknown, plan_steps};
use super::{
    DECIDE_TIMEOUT, QuestionChat, QuestionService, REPLY_TIMEOUT, log_key_failure, silent_platform,
};
use crate::accounts::PlatformAccount;

/// Time between two rounds.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(2);
/// How long after the claim the last step of a round begins. A step takes 35 s at most, so it ends before another
/// replica begins it.
const LAST_START_MS: u64 = 20_000;
/// Longest wait for the rate of a chat.
const MAX_RATE_WAIT: Duration = Duration::from_secs(20);

/// A chat of the configuration with the account that writes in it.
struct ChatAccess<'a> {
    name: &'a str,
    chat: &'a QuestionChat,
    target: DeliveryTarget,
    account: &'a PlatformAccount,
    channel: &'a dyn QuestionChannel,
}

impl QuestionService {
    /// Keeps all chats current until `stop`. Each chat has separate rounds: a round that waits for a platform, or for
    /// an unavailable service, delays no other chat.
    pub(crate) async fn keep_current(&self, stop: CancellationToken) {
        let mut names = BTreeSet::new();
        let mut rounds = FuturesUnordered::new();
        loop {
            // Entries of the configuration come and go while the service runs.
            for name in self.config.get().question_chats.keys() {
                if names.insert(name.clone()) {
                    rounds.push(self.delayed_round(name.clone()));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Some(name) = rounds.next() => {
                    names.remove(&name);
                }
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
            }
        }
    }

    /// Runs one round of the chat after [`RECONCILE_INTERVAL`], with the entry that the configuration then has. Returns
    /// the name.
    async fn delayed_round(&self, name: String) -> String {
        tokio::time::sleep(RECONCILE_INTERVAL).await;
        if let Some(chat) = self.config.get().question_chats.get(&name) {
            self.reconcile_entry(&name, chat).await;
        }
        name
    }

    /// One round of the chat of an entry of the configuration.
    pub(crate) async fn reconcile_entry(&self, name: &str, chat: &QuestionChat) {
        let Ok(target) = chat.chat.parse::<DeliveryTarget>() else {
            return;
        };
        // An entry names no tenant, so the account does. The configuration refuses entries with several.
        let accounts = self.accounts.iter().filter(|account| {
            account.platform.name() == target.platform
                && (target.account.is_empty() || account.name == target.account)
        });
        let accounts: Vec<_> = accounts.collect();
        let [account] = accounts.as_slice() else {
            return;
        };
        let Some(channel) = account.platform.questions() else {
            return;
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

    async fn reconcile_chat(&self, access: &ChatAccess<'_>) -> Result<(), KeyError> {
        // The record is read before the questions are listed. A question that is answered in between makes the claim
        // stale, and is not shown again.
        let mut record = self.open.read(access.name).await?;
        let hosts = self.host_list(access).await;
        self.end_decided(access, &mut record).await;
        let now_ms = self.clock.now_ms();
        // Nothing is claimed that cannot be sent: another replica may have room in its rate.
        let can_send = self.accepts_message(access);
        let steps = plan_steps(&mut record, access.name, hosts.as_ref(), (now_ms, can_send));
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
            if is_late || (step.is_sent() && !self.accepts_message(access)) {
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

    /// Ends those questions about calls in `record` that were decided without a press, such as by the caller.
    async fn end_decided(&self, access: &ChatAccess<'_>, record: &mut RevisedQuestions) {
        let (chat, now_ms) = (access.name, self.clock.now_ms());
        let waits = |question: &&OpenQuestion| {
            question.kind == QuestionKind::Call
                && question.message_id.is_some()
                && question.press.is_none()
                && question.due_ms <= now_ms
                && question.expires_ms > now_ms
        };
        let open = record.questions.iter().filter(waits);
        let open: Vec<_> = open.map(|question| question.id.clone()).collect();
        for id in self.watch.due_questions(chat, &open, now_ms) {
            let outcome = self.decision_outcome(access, &id).await;
            let has_ended = outcome.as_ref().is_some_and(|outcome| !outcome.is_empty());
            let is_confirmed = self.watch.note_outcome(chat, &id, has_ended, now_ms);
            let mut questions = record.questions.iter_mut();
            if is_confirmed && let Some(question) = questions.find(|question| question.id == id) {
                // The question is treated like an expired one: its outcome is read again, and shown.
                question.expires_ms = now_ms.saturating_sub(SETTLE_GRACE_MS);
            }
            // An orchestrator that is away costs one timeout in a round.
            if outcome.is_none() {
                return;
            }
        }
    }

    fn accepts_message(&self, access: &ChatAccess<'_>) -> bool {
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
            QuestionStep::ShowAgain { id, expires_ms } => {
                self.show_again(access, &id, expires_ms).await
            }
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
            options: Vec::new(),
        };
        // The text is stored before the message is sent, because the message could not be ended without it.
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

    /// Shows a question of a caller again while it waits. A press on either message counts, since both have its id.
    async fn show_again(
        &self,
        access: &ChatAccess<'_>,
        id: &str,
        expires_ms: u64,
    ) -> Result<(), KeyError> {
        let name = access.name;
        let Some(text) = self.open.text(name, id).await? else {
            return self.open.remove(name, id).await;
        };
        match self.decision_outcome(access, id).await {
            // The question still waits for an answer.
            Some(outcome) if outcome.is_empty() => {}
            // No message is known to be visible. One that is visible nevertheless shows the outcome after a press.
            Some(_) => return self.open.remove(name, id).await,
            None => return Ok(()),
        }
        let shown = shown_question(&v1::AskInChatRequest {
            chat: name.to_owned(),
            question_id: id.to_owned(),
            text: text.text,
            detail: text.detail,
            expires_at_ms: expires_ms,
            options: text.options,
        });
        let asked = access.channel.ask(&access.target, &shown);
        match self.send(access, asked).await {
            Ok(message_id) => {
                tracing::info!(
                    chat = name,
                    question = id,
                    message_id,
                    "a question is shown again"
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

    /// Shows the outcome in the message of a question, which is no longer open then.
    async fn close(
        &self,
        access: &ChatAccess<'_>,
        id: &str,
        outcome: &str,
    ) -> Result<(), KeyError> {
        let name = access.name;
        let record = self.open.read(name).await?;
        let mut questions = record.questions.into_iter();
        let message_id = questions.find(|question| question.id == id);
        let message_id = message_id.and_then(|question| question.message_id);
        let text = self.open.text(name, id).await?;
        let (Some(message_id), Some(text)) = (message_id, text) else {
            return self.open.remove(name, id).await;
        };
        // The chat that has the message, even when the entry names another one by now.
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
        sent.unwrap_or_else(|_elapsed| Err(silent_platform()))
    }

    /// The outcome of an expired call, as the orchestrator knows it; `None` while the orchestrator does not report it.
    async fn call_outcome(
        &self,
        access: &ChatAccess<'_>,
        id: &str,
        expires_ms: u64,
    ) -> Option<String> {
        let outcome = self.decision_outcome(access, id).await.unwrap_or_default();
        if outcome.is_empty() {
            let now_ms = self.clock.now_ms();
            return is_unknown(expires_ms, now_ms).then(|| ended_outcome(expires_ms));
        }
        Some(outcome)
    }

    /// Asks the orchestrator for the outcome of a question. An empty text while it waits; `None` while the orchestrator
    /// does not report it.
    async fn decision_outcome(&self, access: &ChatAccess<'_>, id: &str) -> Option<String> {
        // The request contains no choice, so the orchestrator only reports and decides nothing.
        let request = v1::DecideInChatRequest {
            question_id: id.to_owned(),
            chat: access.name.to_owned(),
            ..v1::DecideInChatRequest::default()
        };
        let deadline = Deadline::after(self.clock.now_ms(), DECIDE_TIMEOUT);
        let tenant = access.account.tenant.clone().unwrap_or_default();
        match self.bus.call(&Meta::new(tenant, deadline), &request).await {
            Ok(reply) => Some(reply.outcome),
            Err(error) => {
                tracing::warn!(
                    question = id,
                    error = &error as &dyn std::error::Error,
                    "the outcome of a question cannot be read"
                );
                None
            }
        }
    }
}
