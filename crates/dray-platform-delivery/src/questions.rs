//! Questions about calls that wait for approval: shown in chats of the configuration, answered by buttons.
//!
//! A caller names a chat of the configuration and nothing else, and only people whom the operator named for that chat may
//! answer. What an answer means is decided by the service that asked; it keeps the question, and this one keeps nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_platform::question::MAX_BUTTON_DATA_BYTES;
use dray_platform::{
    ButtonPress, ChatQuestion, DeliveryTarget, ErrorKind, PlatformError, PressReply,
    QuestionButton, QuestionChannel,
};
use dray_presentation::name::shown_text;
use dray_proto::v1::{self, ApprovalChoice};
use dray_service::config::ConfigProblem;
use dray_types::{Clock, Deadline, Fault, FaultCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::config::{Config, is_name};
use crate::rate_limit::RateLimiter;

/// How the data of our buttons begins: the bot may have buttons of other programs.
const DATA_PREFIX: &str = "dray:";
/// Longest id of a question.
const MAX_ID_CHARS: usize = 40;
/// Most bytes of a question, which has to fit into one message of a chat anyway.
const MAX_QUESTION_BYTES: usize = 64 << 10;
/// How long the service that asked may take to record a decision. Platforms end a press without a reply after seconds.
const DECIDE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for a request to the platform after a press.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for the acknowledgement of a press: Discord takes it for this long.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest name of a person, in characters.
const MAX_NAME_CHARS: usize = 60;

/// Said to people who are not named for the chat.
const NOT_ALLOWED: &str =
    "You are not one of the people who may answer in this chat. Nothing was done.";
/// Said when a decision could not be recorded.
const NOT_RECORDED: &str =
    "Your answer could not be recorded. Nothing was done. Please press again.";
/// Said in a chat that was taken out of the configuration.
const NOT_CONFIGURED: &str = "Questions are not answered in this chat any more. Nothing was done.";

/// A chat whose people are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionChat {
    /// The chat, written as `telegram:-1001234` or `telegram/ACCOUNT:-1001234#TOPIC`, with the id that the platform
    /// itself has for it.
    pub chat: String,
    /// Who may answer, by the platform's ids of people. At least one.
    pub people: Vec<String>,
}

/// What is wrong with chats for questions.
pub(crate) fn question_problems(chats: &BTreeMap<String, QuestionChat>) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let mut unless = |right: bool, field: &str, message: &str| {
        if !right {
            problems.push(ConfigProblem::new(field, message));
        }
    };
    let chat_name = |chat: &QuestionChat| {
        let target = chat.chat.parse::<DeliveryTarget>().ok()?;
        Some((target.platform, target.account, target.chat))
    };
    for (name, chat) in chats {
        let field = format!("question_chats.{name}");
        unless(
            is_name(name),
            &field,
            "must be 1 to 64 of a-z, 0-9, _ and -",
        );
        unless(
            chat_name(chat).is_some(),
            &format!("{field}.chat"),
            "must be written like telegram:12345",
        );
        unless(
            !chat.people.is_empty() && chat.people.iter().all(|person| !person.is_empty()),
            &format!("{field}.people"),
            "must name at least one person",
        );
        // A press shows its chat alone, so the chat must say who may answer.
        let is_only = chats
            .iter()
            .all(|(other, given)| other == name || chat_name(given) != chat_name(chat));
        unless(
            is_only,
            &format!("{field}.chat"),
            "must be the chat of one entry only",
        );
    }
    problems
}

/// Shows questions and takes answers.
#[derive(Debug)]
pub(crate) struct QuestionService {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: Arc<Config>,
    pub(crate) accounts: AccountRegistry,
    /// Shared with deliveries.
    pub(crate) limiter: Arc<RateLimiter>,
}

impl QuestionService {
    /// Shows a question in a chat of the configuration.
    ///
    /// # Errors
    ///
    /// `NotFound` for a chat that is not configured for the tenant, `Unsupported` for a platform without buttons, `TooLarge`
    /// for a question that does not fit into a message, `RateLimited` when the chat takes none within the caller's time.
    pub(crate) async fn ask(
        &self,
        meta: &Meta,
        request: &v1::AskInChatRequest,
    ) -> Result<v1::AskInChatReply, Fault> {
        check_question(request)?;
        let target = self.config.question_chats.get(&request.chat);
        let target = target.and_then(|chat| chat.chat.parse::<DeliveryTarget>().ok());
        let target = target.ok_or_else(unknown_chat)?;
        let account = self
            .accounts
            .find(&meta.tenant, &target.platform, &target.account)?;
        let channel = account.platform.questions().ok_or_else(|| {
            Fault::new(FaultCode::Unsupported, "This platform has no buttons.").detail("no_buttons")
        })?;
        let left = meta.deadline.remaining(self.clock.now_ms());
        let rates = account.platform.rates(&target);
        let wait = self.limiter.reserve(&account.id(), &target.chat, rates);
        let wait = wait.max(self.limiter.held(&account.id(), &target.chat));
        // Refused instead of a question after the deadline of its caller.
        if wait >= left {
            return Err(busy(wait));
        }
        tokio::time::sleep(wait).await;
        let sent = channel.ask(&target, &shown_question(request)).await;
        let message_id = sent.map_err(|error| {
            tracing::warn!(
                chat = request.chat,
                question = request.question_id,
                error = &error as &dyn std::error::Error,
                "a question was not shown"
            );
            if let Some(delay) = error.retry_after() {
                self.limiter.hold(&account.id(), &target.chat, delay);
            }
            platform_fault(&error)
        })?;
        tracing::info!(
            chat = request.chat,
            question = request.question_id,
            message_id,
            "a question is shown"
        );
        Ok(v1::AskInChatReply { message_id })
    }

    /// Takes a press of a button to its end. Buttons of other programs are left to them.
    pub(crate) async fn take_press(&self, account: &PlatformAccount, press: &ButtonPress) {
        // Anyone in the chat may send any data, with a client of their own.
        let Some((id, choice)) = read_data(&press.data) else {
            return;
        };
        let Some(channel) = account.platform.questions() else {
            return;
        };
        // Together: a decision may take longer than the platform waits for the acknowledgement.
        let (reply, ()) = tokio::join!(
            self.decide(account, press, id, choice),
            acknowledge(channel, press, id)
        );
        let replied = channel.reply(press, &reply);
        let failed = match tokio::time::timeout(REPLY_TIMEOUT, replied).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_elapsed) => {
                PlatformError::new(ErrorKind::Transient, "the platform did not answer")
            }
        };
        // What was decided holds; the next press shows it.
        tracing::warn!(
            question = id,
            error = &failed as &dyn std::error::Error,
            "the outcome of a question was not shown"
        );
    }

    async fn decide(
        &self,
        account: &PlatformAccount,
        press: &ButtonPress,
        id: &str,
        choice: ApprovalChoice,
    ) -> PressReply {
        let Some((name, chat)) = self.chat_of(account, &press.target) else {
            return notice(NOT_CONFIGURED);
        };
        // By id: names are chosen by their owners.
        if !chat.people.contains(&press.sender) {
            tracing::warn!(
                chat = name,
                question = id,
                sender = press.sender,
                "a person who may not answer pressed a button"
            );
            return notice(NOT_ALLOWED);
        }
        let mut request = v1::DecideInChatRequest {
            question_id: id.to_owned(),
            chat: name.to_owned(),
            sender: press.sender.clone(),
            sender_name: shown_text(&press.sender_name, MAX_NAME_CHARS),
            ..v1::DecideInChatRequest::default()
        };
        request.set_choice(choice);
        // Short: the platform ends a press without a reply after seconds.
        let deadline = Deadline::after(self.clock.now_ms(), DECIDE_TIMEOUT);
        let meta = Meta::new(account.tenant.clone().unwrap_or_default(), deadline);
        match self.bus.call(&meta, &request).await {
            Ok(decided) => PressReply {
                notice: decided.notice,
                outcome: Some(decided.outcome).filter(|outcome| !outcome.is_empty()),
            },
            Err(error) => {
                tracing::warn!(
                    question = id,
                    error = &error as &dyn std::error::Error,
                    "a decision was not recorded"
                );
                notice(NOT_RECORDED)
            }
        }
    }

    /// The entry of the configuration for the chat of a press.
    fn chat_of(
        &self,
        account: &PlatformAccount,
        pressed: &DeliveryTarget,
    ) -> Option<(&str, &QuestionChat)> {
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
        let mut chats = self.config.question_chats.iter();
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

fn check_question(request: &v1::AskInChatRequest) -> Result<(), Fault> {
    let invalid = |what: &str| Fault::new(FaultCode::InvalidArgument, what);
    let is_id = (1..=MAX_ID_CHARS).contains(&request.question_id.len())
        && request
            .question_id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if !is_id {
        return Err(invalid("`question_id` is not an id of a question."));
    }
    if request.text.is_empty() || request.detail.is_empty() {
        return Err(invalid("`text` and `detail` must not be empty."));
    }
    // Each platform has a lower limit; this one bounds the work before it.
    if request.text.len() + request.detail.len() > MAX_QUESTION_BYTES {
        return Err(too_long());
    }
    Ok(())
}

fn shown_question(request: &v1::AskInChatRequest) -> ChatQuestion {
    let button = |label: &str, choice: &str| QuestionButton {
        label: label.to_owned(),
        data: format!("{DATA_PREFIX}{}:{choice}", request.question_id),
    };
    ChatQuestion {
        text: request.text.clone(),
        detail: request.detail.clone(),
        buttons: vec![button("Approve", "y"), button("Refuse", "n")],
    }
}

const _: () = assert!(
    DATA_PREFIX.len() + MAX_ID_CHARS + ":y".len() <= MAX_BUTTON_DATA_BYTES,
    "the data of each button fits on every platform"
);

/// Question and choice of one of our buttons.
fn read_data(data: &str) -> Option<(&str, ApprovalChoice)> {
    let (id, choice) = data.strip_prefix(DATA_PREFIX)?.split_once(':')?;
    let choice = match choice {
        "y" => ApprovalChoice::Approved,
        "n" => ApprovalChoice::Refused,
        _ => return None,
    };
    Some((id, choice))
}

fn notice(text: &str) -> PressReply {
    PressReply {
        notice: text.to_owned(),
        outcome: None,
    }
}

fn unknown_chat() -> Fault {
    Fault::new(FaultCode::NotFound, "No chat for questions has this name.")
        .detail("no_chat")
        .advice("Tell the operator to configure it in `question_chats`.")
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
