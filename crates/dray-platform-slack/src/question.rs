//! Questions with Block Kit buttons, and what the chat shows after a press.

use dray_platform::{
    ButtonPress, ChatQuestion, DeliveryTarget, ErrorKind, PlatformError, PressReply, SendOutcome,
    ShownQuestion,
};
use serde_json::{Value, json};

use crate::api::SlackApi;
use crate::options::MAX_TEXT_CHARACTERS;
use crate::plan::escape_text;

/// Longest text of `chat.update`, in characters of markup; a longer one is refused with `msg_too_long`. Blocks do not
/// count.
const MAX_UPDATE_CHARACTERS: usize = 4000;

/// Posts the question with its buttons.
pub(crate) async fn ask_question(
    api: &SlackApi,
    target: &DeliveryTarget,
    question: &ChatQuestion,
) -> Result<String, PlatformError> {
    let plain = format!("{}\n\n{}", question.text, question.detail);
    if plain.chars().count() > MAX_TEXT_CHARACTERS {
        return Err(PlatformError::new(
            ErrorKind::TooLong,
            "the question is longer than a message",
        ));
    }
    let buttons: Vec<Value> = question
        .buttons
        .iter()
        .enumerate()
        .map(|(number, button)| {
            json!({
                "type": "button",
                "action_id": format!("answer-{number}"),
                "text": { "type": "plain_text", "text": button.label, "emoji": false },
                "value": button.data,
            })
        })
        .collect();
    // Rich text has no markup: nothing in it has to be escaped, and it mentions no one.
    let mut message = json!({
        "channel": target.chat,
        // Notifications show it, and a press repeats it.
        "text": escape_text(&plain),
        "blocks": [
            rich_text(&[section(&question.text), block_of_code(&question.detail)]),
            { "type": "actions", "elements": buttons },
        ],
        "unfurl_links": false,
        "unfurl_media": false,
    });
    if let (false, Some(members)) = (target.thread.is_empty(), message.as_object_mut()) {
        members.insert("thread_ts".to_owned(), json!(target.thread));
    }
    let posted = api.json("chat.postMessage", &message).await?;
    let id = posted.get("ts").and_then(Value::as_str);
    id.map(str::to_owned)
        .ok_or_else(|| PlatformError::new(ErrorKind::Transient, "the response is not a message"))
}

/// Shows the outcome in the message in place of its buttons, and the notice to the person alone.
pub(crate) async fn reply_to_press(
    api: &SlackApi,
    press: &ButtonPress,
    reply: &PressReply,
) -> Result<(), PlatformError> {
    let mut notice = json!({
        "channel": press.target.chat,
        "user": press.sender,
        "text": escape_text(&reply.notice),
    });
    if let (false, Some(members)) = (press.target.thread.is_empty(), notice.as_object_mut()) {
        members.insert("thread_ts".to_owned(), json!(press.target.thread));
    }
    let noticed = api.json("chat.postEphemeral", &notice).await.map(|_| ());
    let Some(outcome) = &reply.outcome else {
        return noticed;
    };
    let question = press.question(outcome);
    let message = json!({
        "channel": press.target.chat,
        "ts": press.message_id,
        "text": updated_text(question, outcome),
        "blocks": [rich_text(&[section(question)]), rich_text(&[section(outcome)])],
    });
    // Without an `actions` block the buttons disappear.
    let updated = api.json("chat.update", &message).await;
    updated.map_err(|error| error.with_outcome(SendOutcome::NotSent))?;
    noticed
}

/// Shows the outcome in the message of a question that was not pressed, in place of its buttons.
pub(crate) async fn close_question(
    api: &SlackApi,
    question: &ShownQuestion,
    outcome: &str,
) -> Result<(), PlatformError> {
    let plain = format!("{}\n\n{}", question.text, question.detail);
    let message = json!({
        "channel": question.target.chat,
        "ts": question.message_id,
        "text": updated_text(&plain, outcome),
        "blocks": [
            rich_text(&[section(&question.text), block_of_code(&question.detail)]),
            rich_text(&[section(outcome)]),
        ],
    });
    let updated = api.json("chat.update", &message).await;
    updated
        .map(drop)
        .map_err(|error| error.with_outcome(SendOutcome::NotSent))
}

/// The text beside the blocks, for notifications. If it is too long, the end of the question is left out, and never half
/// of an escape.
fn updated_text(question: &str, outcome: &str) -> String {
    let end = escape_text(&format!("\n\n{outcome}"));
    let mut room = MAX_UPDATE_CHARACTERS.saturating_sub(end.chars().count());
    let mut text = String::new();
    for character in question.chars() {
        let escaped = escape_text(&character.to_string());
        let Some(rest) = room.checked_sub(escaped.chars().count()) else {
            break;
        };
        room = rest;
        text.push_str(&escaped);
    }
    text + &end
}

fn rich_text(elements: &[Value]) -> Value {
    json!({ "type": "rich_text", "elements": elements })
}

fn section(text: &str) -> Value {
    json!({ "type": "rich_text_section", "elements": [{ "type": "text", "text": text }] })
}

fn block_of_code(text: &str) -> Value {
    json!({ "type": "rich_text_preformatted", "elements": [{ "type": "text", "text": text }] })
}
