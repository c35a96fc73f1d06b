//! Questions in chats of the configuration, answered by buttons. They are about calls that wait for approval, about
//! hosts for which a rule of the egress policy asks, or come from tools during calls.
//!
//! A caller names a chat of the configuration and nothing else, and only people whom the operator named for that chat
//! may answer. The service that asks keeps the question and decides what an answer means. This module records which
//! messages show open questions ([`open`]), and shows there when a question ends without a press ([`reconciler`]).

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_platform::{
    ButtonPress, DeliveryTarget, ErrorKind, PlatformError, PressReply, QuestionChannel,
};
use dray_presentation::name::shown_text;
use dray_proto::v1::{self, ApprovalChoice};
use dray_service::ReplaceableValue;
use dray_types::{Clock, Deadline, Fault, FaultCode, whole_millis};

use self::buttons::{PressedButton, PressedChoice, check_question, shown_question};
use self::open::{KeptPress, OpenQuestion, OpenQuestionStore, QuestionKind, QuestionText};
use self::watch::OutcomeWatch;
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::config::Config;
use crate::rate_limit::RateLimiter;

mod buttons;
mod chats;
mod hosts;
pub(crate) mod open;
mod plan;
mod reconciler;
pub(crate) mod watch;

pub use self::chats::QuestionChat;
pub(crate) use self::chats::question_problems;

/// How long the service that asked may take to record a decision. Platforms end a press without a reply after seconds.
const DECIDE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a request to the platform after a press.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for the acknowledgement of a press: Discord accepts none after 3 s.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Reason of the fault for a chat without `tool_questions`.
const NOT_TAKEN_DETAIL: &str = "no_tool_questions";
/// Longest time for a question of a caller to become visible.
const MAX_ASK_TIME: Duration = Duration::from_mins(1);
/// Time after the caller's deadline for which a question is left to the process that shows it.
const POST_GRACE_MS: u64 = 5_000;
/// Longest name of a person, in characters.
const MAX_NAME_CHARS: usize = 60;

/// Notice for people who are not named for the chat.
const NOT_ALLOWED: &str =
    "You are not one of the people who may answer in this chat. Nothing was done.";
/// Notice for a decision that could not be recorded.
const NOT_RECORDED: &str =
    "Your answer could not be recorded yet. Press again if no outcome is shown within a minute.";
/// Notice in a chat that the operator removed from the configuration.
const NOT_CONFIGURED: &str = "Questions are not answered in this chat any more. Nothing was done.";

/// Shows questions and takes answers.
#[derive(Debug)]
pub(crate) struct QuestionService {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
    pub(crate) accounts: AccountRegistry,
    /// Shared with deliveries.
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) open: OpenQuestionStore,
    /// Questions about hosts that this replica asks.
    pub(crate) watch: OutcomeWatch,
}

impl QuestionService {
    /// Shows a question in a chat of the configuration.
    ///
    /// # Errors
    ///
    /// `NotFound`: the chat is not configured for the tenant. `Denied`: a tool asks, and the chat does not take
    /// questions of tools. `Unsupported`: the platform has no buttons. `TooLarge`: the question does not fit into a
    /// message. `RateLimited`: the chat accepts no message within the caller's time.
    pub(crate) async fn ask(
        &self,
        meta: &Meta,
        request: &v1::AskInChatRequest,
    ) -> Result<v1::AskInChatReply, Fault> {
        check_question(request)?;
        let config = self.config.get();
        let chat = config.question_chats.get(&request.chat);
        let chat = chat.ok_or_else(unknown_chat)?;
        if !request.options.is_empty() && !chat.tool_questions {
            return Err(not_taken());
        }
        let target = chat.chat.parse::<DeliveryTarget>();
        let target = target.map_err(|_| unknown_chat())?;
        let account = self
            .accounts
            .find(&meta.tenant, &target.platform, &target.account)?;
        let channel = account.platform.questions().ok_or_else(|| {
            Fault::new(FaultCode::Unsupported, "This platform has no buttons.").detail("no_buttons")
        })?;
        let remaining_time = meta.deadline.remaining(self.clock.now_ms());
        let remaining_time = remaining_time.min(MAX_ASK_TIME);
        // The request is refused instead of a question after the deadline of its caller.
        let wait = self
            .reserve_message(&account, &target, remaining_time)
            .map_err(busy)?;
        tokio::time::sleep(wait).await;
        let (chat, id) = (&request.chat, &request.question_id);
        // The question is recorded before it is shown: after a crash of this process, another replica shows the
        // question and ends it.
        let remaining_time = remaining_time.saturating_sub(wait);
        self.remember(request, &target, remaining_time).await;
        let shown = shown_question(request);
        let sent = tokio::time::timeout(remaining_time, channel.ask(&target, &shown)).await;
        let sent = sent.unwrap_or_else(|_elapsed| Err(silent_platform()));
        let message_id = match sent {
            Ok(message_id) => message_id,
            Err(error) => {
                // Nothing was sent, or the id of the message is unknown. A press on such a message is answered all the
                // same.
                self.forget(chat, id).await;
                self.report_failure(&account, (chat, id), &target, &error);
                return Err(platform_fault(&error));
            }
        };
        tracing::info!(chat, question = id, message_id, "a question is shown");
        self.note_message(chat, id, &message_id).await;
        Ok(v1::AskInChatReply { message_id })
    }

    /// Whether a message to a chat would wait less than `limit`.
    fn has_room(
        &self,
        account: &PlatformAccount,
        target: &DeliveryTarget,
        limit: Duration,
    ) -> bool {
        let rates = account.platform.rate_limits(target);
        let (account, chat) = (account.id(), &target.chat);
        self.limiter.next_wait(&account, chat, rates) < limit
    }

    /// How long to wait before a message to a chat. The message counts from now on, unless it would wait for `limit`:
    /// then the wait is the error.
    fn reserve_message(
        &self,
        account: &PlatformAccount,
        target: &DeliveryTarget,
        limit: Duration,
    ) -> Result<Duration, Duration> {
        let rates = account.platform.rate_limits(target);
        let (account, chat) = (account.id(), &target.chat);
        self.limiter.reserve_within(&account, chat, rates, limit)
    }

    fn report_failure(
        &self,
        account: &PlatformAccount,
        (chat, id): (&str, &str),
        target: &DeliveryTarget,
        error: &PlatformError,
    ) {
        tracing::warn!(
            chat,
            question = id,
            error = error as &dyn std::error::Error,
            "a question was not shown, or its outcome was not"
        );
        if error.retry_after().is_some() {
            self.limiter
                .hold_refused(&account.id(), &target.chat, error);
        }
    }

    /// Records a question of a caller as open. Without the record its message shows the expiry only after a press.
    async fn remember(
        &self,
        request: &v1::AskInChatRequest,
        target: &DeliveryTarget,
        left: Duration,
    ) {
        // Older callers do not say when their questions expire.
        if request.expires_at_ms == 0 {
            return;
        }
        let now_ms = self.clock.now_ms();
        let left_ms = whole_millis(left);
        let question = OpenQuestion {
            id: request.question_id.clone(),
            kind: QuestionKind::Call,
            message_id: None,
            expires_ms: request.expires_at_ms,
            // Due when this process has shown the question, or must have died.
            due_ms: now_ms.saturating_add(left_ms).saturating_add(POST_GRACE_MS),
            attempts: 0,
            press: None,
        };
        let text = QuestionText {
            target: target.to_string(),
            text: request.text.clone(),
            detail: request.detail.clone(),
            options: request.options.clone(),
        };
        let added = async {
            self.open
                .keep_text(&request.chat, &request.question_id, &text)
                .await?;
            self.open.add(&request.chat, question).await
        };
        match added.await {
            Ok(true) => {}
            Ok(false) => tracing::warn!(chat = request.chat, "too many questions are open"),
            Err(error) => log_key_failure(&request.chat, &error),
        }
    }

    async fn note_message(&self, chat: &str, id: &str, message_id: &str) {
        if let Err(error) = self.open.set_message(chat, id, message_id).await {
            log_key_failure(chat, &error);
        }
    }

    async fn forget(&self, chat: &str, id: &str) {
        if let Err(error) = self.open.remove(chat, id).await {
            log_key_failure(chat, &error);
        }
    }

    /// Keeps a press of a person who may answer, so that the press is decided even when this process ends after it
    /// confirmed the press to the platform. Returns `false` for a press without a record, which is decided before the
    /// confirmation.
    ///
    /// # Errors
    ///
    /// The press was not kept: the platform must not get a confirmation.
    pub(crate) async fn keep_press(
        &self,
        account: &PlatformAccount,
        press: &ButtonPress,
    ) -> Result<bool, dray_bus::KeyError> {
        let Some(button) = PressedButton::read(&press.data) else {
            return Ok(true);
        };
        let config = self.config.get();
        let Some((name, chat)) = self.chat_of(&config, account, &press.target) else {
            return Ok(true);
        };
        // Others get a notice alone, which needs no record.
        if !chat.people.contains(&press.sender) {
            return Ok(true);
        }
        let kept = KeptPress {
            message_id: press.message_id.clone(),
            sender: press.sender.clone(),
            sender_name: shown_text(&press.sender_name, MAX_NAME_CHARS),
            data: press.data.clone(),
            reference: press.reference.clone(),
            taken_ms: self.clock.now_ms(),
        };
        self.open.keep_press(name, button.id, &kept).await
    }

    /// Takes a press of a button to its end. Buttons of other programs are left to them.
    pub(crate) async fn take_press(&self, account: &PlatformAccount, press: &ButtonPress) {
        // Anyone in the chat may send any data, with their own client.
        let Some(button) = PressedButton::read(&press.data) else {
            return;
        };
        let id = button.id;
        let Some(channel) = account.platform.questions() else {
            return;
        };
        // Both run concurrently, because a decision may take longer than the platform waits for the acknowledgement.
        let (decided, ()) = tokio::join!(
            self.decide(account, press, button),
            acknowledge(channel, press, id)
        );
        let is_decided = decided.is_some();
        let reply = decided.unwrap_or_else(|| notice(NOT_RECORDED));
        let replied = channel.reply(press, &reply);
        let replied = tokio::time::timeout(REPLY_TIMEOUT, replied).await;
        let replied = replied.unwrap_or_else(|_elapsed| Err(silent_platform()));
        let config = self.config.get();
        let chat = self.chat_of(&config, account, &press.target);
        let chat = chat.map(|(name, _)| name);
        if let Err(error) = &replied {
            // The decision holds; the reconciler or the next press shows its outcome.
            tracing::warn!(
                question = id,
                error = error as &dyn std::error::Error,
                "the outcome of a question was not shown"
            );
        }
        match chat {
            // The message shows the end, so it is no longer open.
            Some(chat) if reply.outcome.is_some() && replied.is_ok() => {
                self.forget(chat, id).await;
            }
            // A press without a decision stays in the record: the reconciler repeats it.
            Some(chat) if is_decided => self.end_press(chat, id, press).await,
            _ => {}
        }
    }

    async fn end_press(&self, chat: &str, id: &str, press: &ButtonPress) {
        if let Err(error) = self.open.clear_press(chat, id, press).await {
            log_key_failure(chat, &error);
        }
    }

    /// Decides what a press says; `None` when the decision could not be recorded.
    async fn decide(
        &self,
        account: &PlatformAccount,
        press: &ButtonPress,
        button: PressedButton<'_>,
    ) -> Option<PressReply> {
        let id = button.id;
        let config = self.config.get();
        let Some((name, chat)) = self.chat_of(&config, account, &press.target) else {
            return Some(notice(NOT_CONFIGURED));
        };
        // People are identified by id, because they choose their names.
        if !chat.people.contains(&press.sender) {
            tracing::warn!(
                chat = name,
                question = id,
                sender = press.sender,
                "a person who may not answer pressed a button"
            );
            return Some(notice(NOT_ALLOWED));
        }
        let (choice, option) = match (button.kind, button.choice) {
            (QuestionKind::Call, PressedChoice::Approval(choice)) => (choice, 0),
            (QuestionKind::Call, PressedChoice::Option(option)) if chat.tool_questions => {
                (ApprovalChoice::Unspecified, option)
            }
            (QuestionKind::Host, PressedChoice::Approval(choice)) if chat.host_questions => {
                let answer = (id, choice == ApprovalChoice::Approved);
                return self.answer_host(account, (name, chat), press, answer).await;
            }
            // The operator has switched off this kind of question since the message was sent.
            _ => return Some(notice(NOT_CONFIGURED)),
        };
        let mut request = v1::DecideInChatRequest {
            question_id: id.to_owned(),
            chat: name.to_owned(),
            sender: press.sender.clone(),
            sender_name: shown_text(&press.sender_name, MAX_NAME_CHARS),
            option,
            ..v1::DecideInChatRequest::default()
        };
        request.set_choice(choice);
        // The deadline is short, because the platform ends a press without a reply after seconds.
        let deadline = Deadline::after(self.clock.now_ms(), DECIDE_TIMEOUT);
        let meta = Meta::new(account.tenant.clone().unwrap_or_default(), deadline);
        match self.bus.call(&meta, &request).await {
            Ok(decided) => Some(PressReply {
                notice: decided.notice,
                outcome: Some(decided.outcome).filter(|outcome| !outcome.is_empty()),
            }),
            Err(error) => {
                tracing::warn!(
                    question = id,
                    error = &error as &dyn std::error::Error,
                    "a decision was not recorded"
                );
                None
            }
        }
    }

    /// The entry of the configuration for the chat of a press.
    fn chat_of<'a>(
        &self,
        config: &'a Config,
        account: &PlatformAccount,
        pressed: &DeliveryTarget,
    ) -> Option<(&'a str, &'a QuestionChat)> {
        let tenant = account.tenant.clone().unwrap_or_default();
        let is_pressed = |chat: &QuestionChat| {
            let Ok(target) = chat.chat.parse::<DeliveryTarget>() else {
                return false;
            };
            let own = self
                .accounts
                .find(&tenant, &target.platform, &target.account);
            target.chat == pressed.chat && own.is_ok_and(|own| own.id() == account.id())
        };
        let mut chats = config.question_chats.iter();
        let (name, chat) = chats.find(|(_, chat)| is_pressed(chat))?;
        Some((name.as_str(), chat))
    }
}

/// Reports to the platform that the press arrived. A failure is logged: the press counts nevertheless.
async fn acknowledge(channel: &dyn QuestionChannel, press: &ButtonPress, id: &str) {
    let acknowledged = channel.acknowledge(press);
    if let Ok(Err(error)) = tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, acknowledged).await {
        tracing::warn!(
            question = id,
            error = &error as &dyn std::error::Error,
            "a press of a button was not acknowledged"
        );
    }
}

fn log_key_failure(chat: &str, error: &dray_bus::KeyError) {
    tracing::warn!(
        chat,
        error = error as &dyn std::error::Error,
        "the record of the open questions of a chat cannot be used"
    );
}

fn notice(text: &str) -> PressReply {
    PressReply {
        notice: text.to_owned(),
        outcome: None,
    }
}

fn silent_platform() -> PlatformError {
    PlatformError::new(ErrorKind::Transient, "the platform did not respond")
}

fn unknown_chat() -> Fault {
    Fault::new(FaultCode::NotFound, "No chat for questions has this name.")
        .detail("no_chat")
        .advice("Tell the operator to configure it in `question_chats`.")
}

fn not_taken() -> Fault {
    Fault::new(
        FaultCode::Denied,
        "This chat does not take questions of tools.",
    )
    .detail(NOT_TAKEN_DETAIL)
    .advice("Tell the operator to set `tool_questions` of the chat in `question_chats`.")
}

fn too_long() -> Fault {
    Fault::new(
        FaultCode::TooLarge,
        "The question is too long for a message.",
    )
    .detail("too_long")
}

fn busy(wait: Duration) -> Fault {
    Fault::new(FaultCode::RateLimited, ErrorKind::RateLimited.sentence()).retry_after(wait)
}

fn platform_fault(error: &PlatformError) -> Fault {
    let kind = error.kind();
    let code = match kind {
        ErrorKind::TooLong => return too_long(),
        ErrorKind::RateLimited => return busy(error.retry_after().unwrap_or(DECIDE_TIMEOUT)),
        ErrorKind::Transient => FaultCode::Unavailable,
        ErrorKind::NotFound => FaultCode::NotFound,
        _ => FaultCode::Denied,
    };
    Fault::new(code, kind.sentence()).detail(kind.as_str())
}

/// A time for people.
fn shown_minute(time_ms: u64) -> String {
    let time = i64::try_from(time_ms).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(time).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
