//! Questions with buttons (message components), and the interactions that their presses begin.
//!
//! Who may answer is decided elsewhere. Source of the wire: Discord's pages "Receiving and Responding to Interactions"
//! and "Component Reference".

use dray_platform::{
    ButtonPress, ChatQuestion, DeliveryTarget, ErrorKind, PlatformError, PressReply, SendOutcome,
    ShownQuestion,
};
use serde_json::{Value, json};

use crate::PLATFORM_NAME;
use crate::api::DiscordApi;
use crate::message::is_id;
use crate::options::MAX_TEXT_CHARACTERS;
use crate::send::{NO_EMBEDS, checked_id};

/// Longest text of a question, in characters of markup. The rest of a message has room for the outcome.
const MAX_QUESTION_CHARS: usize = MAX_TEXT_CHARACTERS - 300;
/// Longest token of an interaction, in bytes; real ones have about 200.
const MAX_TOKEN_BYTES: usize = 1024;
/// Stands between a question and its outcome.
const OUTCOME_SEPARATOR: &str = "\n\n";

/// Type of an interaction with a component of a message.
const MESSAGE_COMPONENT: u64 = 3;
/// Type of the component that is a row.
const ACTION_ROW: u64 = 1;
/// Type of the component that is a button in a row.
const BUTTON_COMPONENT: u64 = 2;
/// Most buttons of a row.
const MAX_ROW_BUTTONS: usize = 5;
/// Style of a button that stands for no particular answer.
const SECONDARY_STYLE: u64 = 2;
/// Response to a press: it arrived, and the message stays as it is for now.
const DEFERRED_UPDATE: u64 = 6;
/// Flag of a message that only the person who pressed sees.
const IS_EPHEMERAL: u64 = 64;

/// Sends the question with its buttons.
pub(crate) async fn ask_question(
    api: &DiscordApi,
    target: &DeliveryTarget,
    question: &ChatQuestion,
) -> Result<String, PlatformError> {
    let content = question_content(&question.text, &question.detail);
    if content.chars().count() > MAX_QUESTION_CHARS {
        return Err(PlatformError::new(
            ErrorKind::TooLong,
            "the question is longer than a message",
        ));
    }
    let buttons: Vec<Value> = question
        .buttons
        .iter()
        .map(|button| {
            json!({
                "type": BUTTON_COMPONENT,
                "style": SECONDARY_STYLE,
                "label": button.label,
                "custom_id": button.data,
            })
        })
        .collect();
    let mut message = plain_message(&content, NO_EMBEDS);
    if let Some(fields) = message.as_object_mut() {
        let rows = buttons.chunks(MAX_ROW_BUTTONS);
        let rows = rows.map(|row| json!({ "type": ACTION_ROW, "components": row }));
        fields.insert("components".to_owned(), rows.collect());
    }
    let url = api.url(&format!("/channels/{}/messages", channel_of(target)?));
    let request = api.client.post(&url).json(&message);
    let posted = api.call(request, &|_| {}).await?;
    let id = posted.get("id").and_then(Value::as_str);
    id.map(str::to_owned)
        .ok_or_else(|| PlatformError::new(ErrorKind::Transient, "the response is not a message"))
}

/// Ends the waiting state of the client that shows the button. Without this call Discord reports a failure to the
/// person after 3 s.
pub(crate) async fn acknowledge_press(
    api: &DiscordApi,
    press: &ButtonPress,
) -> Result<(), PlatformError> {
    let reference = InteractionReference::parse(&press.reference)?;
    let path = format!(
        "/interactions/{}/{}/callback",
        reference.id, reference.token
    );
    let request = api.client.post(&api.url(&path));
    let request = request.json(&json!({ "type": DEFERRED_UPDATE }));
    api.call_with_url_token(request).await
}

/// Shows the notice to the person alone, and the outcome in the message in place of its buttons.
pub(crate) async fn reply_to_press(
    api: &DiscordApi,
    press: &ButtonPress,
    reply: &PressReply,
) -> Result<(), PlatformError> {
    // A failure does not keep the outcome from being shown below.
    let noticed = send_notice(api, press, &reply.notice).await;
    let Some(outcome) = &reply.outcome else {
        return noticed;
    };
    let question = press.question(&escape_markdown(outcome)).to_owned();
    show_outcome(api, (&press.target, &press.message_id), &question, outcome).await?;
    noticed
}

/// Shows the outcome in the message of a question that was not pressed, in place of its buttons.
pub(crate) async fn close_question(
    api: &DiscordApi,
    question: &ShownQuestion,
    outcome: &str,
) -> Result<(), PlatformError> {
    let content = question_content(&question.text, &question.detail);
    let message = (&question.target, question.message_id.as_str());
    show_outcome(api, message, &content, outcome).await
}

/// Edits the message of a question with the bot's token, because the token of an interaction expires after 15 minutes.
async fn show_outcome(
    api: &DiscordApi,
    (target, message_id): (&DeliveryTarget, &str),
    question: &str,
    outcome: &str,
) -> Result<(), PlatformError> {
    let url = api.url(&format!(
        "/channels/{}/messages/{}",
        channel_of(target)?,
        checked_id(message_id)?
    ));
    let mut message = plain_message(&with_outcome(question, outcome), NO_EMBEDS);
    if let Some(fields) = message.as_object_mut() {
        fields.insert("components".to_owned(), json!([]));
    }
    let edited = api.call(api.client.patch(&url).json(&message), &|_| {});
    let edited = edited.await;
    edited
        .map(drop)
        .map_err(|error| error.with_outcome(SendOutcome::NotSent))
}

fn question_content(text: &str, detail: &str) -> String {
    format!("{}\n{}", escape_markdown(text), block_of_code(detail))
}

async fn send_notice(
    api: &DiscordApi,
    press: &ButtonPress,
    notice: &str,
) -> Result<(), PlatformError> {
    let reference = InteractionReference::parse(&press.reference)?;
    let path = format!("/webhooks/{}/{}", reference.application, reference.token);
    let message = plain_message(&escape_markdown(notice), IS_EPHEMERAL | NO_EMBEDS);
    let request = api.client.post(&api.url(&path)).json(&message);
    api.call_with_url_token(request).await
}

/// A message that mentions no one.
fn plain_message(content: &str, flags: u64) -> Value {
    json!({ "content": content, "allowed_mentions": { "parse": [] }, "flags": flags })
}

/// The question and its outcome. If both do not fit, only the outcome: a block of code that is cut would be read as
/// markup.
fn with_outcome(question: &str, outcome: &str) -> String {
    let outcome = escape_markdown(outcome);
    let both = format!("{question}{OUTCOME_SEPARATOR}{outcome}");
    if question.is_empty() || both.chars().count() > MAX_TEXT_CHARACTERS {
        return outcome.chars().take(MAX_TEXT_CHARACTERS).collect();
    }
    both
}

/// The channel of a target: in Discord, a thread is a separate channel.
fn channel_of(target: &DeliveryTarget) -> Result<&str, PlatformError> {
    if target.thread.is_empty() {
        checked_id(&target.chat)
    } else {
        checked_id(&target.thread)
    }
}

/// Text in which no markup, mention or link is recognised: Discord takes a backslash before punctuation as an escape.
fn escape_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// The text as a block of code, which nothing in it can end.
fn block_of_code(text: &str) -> String {
    // A block of code has no escapes. The text is JSON, which may write a backtick as an escape.
    let text = text.replace('`', "\\u0060");
    format!("```json\n{text}\n```")
}

/// Application, id and token of an interaction, for the reply to it.
#[derive(Debug)]
struct InteractionReference<'a> {
    application: &'a str,
    id: &'a str,
    token: &'a str,
}

impl<'a> InteractionReference<'a> {
    /// Reads `APPLICATION/ID/TOKEN`. Each part is safe in a path.
    fn parse(reference: &'a str) -> Result<Self, PlatformError> {
        let mut parts = reference.splitn(3, '/');
        let mut next = || parts.next().unwrap_or_default();
        let (application, id, token) = (next(), next(), next());
        if is_id(application) && is_id(id) && is_token(token) {
            return Ok(Self {
                application,
                id,
                token,
            });
        }
        Err(PlatformError::new(
            ErrorKind::BadFormat,
            "the press has no reference of an interaction",
        ))
    }
}

/// Whether a token of an interaction is safe in a path. It has the alphabet of URL-safe Base64, with or without
/// padding.
fn is_token(token: &str) -> bool {
    (1..=MAX_TOKEN_BYTES).contains(&token.len())
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'='))
}

/// The press in an interaction; its target is the channel itself. `None` for commands, other components than buttons,
/// and unknown shapes.
pub(crate) fn button_press(event: &Value) -> Option<ButtonPress> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
    let number = |pointer: &str| event.pointer(pointer).and_then(Value::as_u64);
    let is_press = number("/type") == Some(MESSAGE_COMPONENT)
        && number("/data/component_type") == Some(BUTTON_COMPONENT);
    if !is_press {
        return None;
    }
    let id = |pointer: &str| text(pointer).filter(|id| is_id(id));
    // In a server the person is a member of it, in a conversation a user.
    let user = if event.get("member").is_some_and(Value::is_object) {
        "/member/user"
    } else {
        "/user"
    };
    let named = |field: &str| text(&format!("{user}/{field}")).filter(|name| !name.is_empty());
    let (application, interaction, token) = (
        id("/application_id")?,
        id("/id")?,
        text("/token").filter(|token| is_token(token))?,
    );
    Some(ButtonPress {
        target: DeliveryTarget {
            platform: PLATFORM_NAME.to_owned(),
            account: String::new(),
            chat: id("/channel_id")?.to_owned(),
            thread: String::new(),
            reply_to: String::new(),
        },
        message_id: id("/message/id")?.to_owned(),
        text: text("/message/content").unwrap_or_default().to_owned(),
        sender: id(&format!("{user}/id"))?.to_owned(),
        sender_name: named("global_name")
            .or_else(|| named("username"))
            .unwrap_or_default()
            .to_owned(),
        data: text("/data/custom_id")?.to_owned(),
        reference: format!("{application}/{interaction}/{token}"),
    })
}
