//! Questions with an inline keyboard, and callback queries.

use dray_http::MultipartForm;
use dray_platform::{
    ButtonPress, ChatQuestion, DeliveryTarget, ErrorKind, PlatformError, PressReply, ShownQuestion,
};
use serde_json::{Value, json};

use crate::api::TelegramApi;
use crate::options::MAX_TEXT_UNITS;
use crate::send::ChatAddress;

/// Longest text of `answerCallbackQuery`, in characters.
const MAX_NOTICE_CHARS: usize = 200;

/// Most buttons beside each other: clients share the width of a row among them, and cut their labels.
const MAX_ROW_BUTTONS: usize = 2;

/// Stands between a question and its outcome.
const OUTCOME_SEPARATOR: &str = "\n\n";

/// Description of the server's error when an edit changes nothing: the outcome is shown already.
const NOT_MODIFIED: &str = "message is not modified";

/// Sends the question with its buttons.
pub(crate) async fn ask_question(
    api: &TelegramApi,
    target: &DeliveryTarget,
    question: &ChatQuestion,
) -> Result<String, PlatformError> {
    let head = format!("{}\n\n", question.text);
    let text = format!("{head}{}", question.detail);
    if utf16_units(&text) > MAX_TEXT_UNITS {
        return Err(PlatformError::new(
            ErrorKind::TooLong,
            "the question is longer than a message",
        ));
    }
    let buttons: Vec<Value> = question
        .buttons
        .iter()
        .map(|button| json!({ "text": button.label, "callback_data": button.data }))
        .collect();
    let row_length = if buttons.len() > MAX_ROW_BUTTONS {
        1
    } else {
        MAX_ROW_BUTTONS
    };
    let rows: Vec<_> = buttons.chunks(row_length).collect();
    let form = ChatAddress::of(target)?
        .message()
        .text("text", text)
        .text("entities", code_entity(&head, &question.detail))
        .text(
            "link_preview_options",
            json!({ "is_disabled": true }).to_string(),
        )
        .text(
            "reply_markup",
            json!({ "inline_keyboard": rows }).to_string(),
        );
    let sent = api.call("sendMessage", form, 0, &|_| {}).await;
    let sent = sent.map_err(|refused| match refused.moved {
        Some(chat) => refused.error.with_moved_to(chat.to_string()),
        None => refused.error,
    })?;
    let id = sent.get("message_id").and_then(Value::as_i64);
    id.map(|id| id.to_string())
        .ok_or_else(|| PlatformError::new(ErrorKind::Transient, "the response is not a message"))
}

/// Ends the progress bar on the button with a notice, and shows the outcome in the message, without its buttons.
pub(crate) async fn reply_to_press(
    api: &TelegramApi,
    press: &ButtonPress,
    reply: &PressReply,
) -> Result<(), PlatformError> {
    let notice: String = reply.notice.chars().take(MAX_NOTICE_CHARS).collect();
    let form = MultipartForm::new()
        .text("callback_query_id", &press.reference)
        .text("text", notice)
        // Without an outcome the message does not change, so an alert shows the reason.
        .text("show_alert", reply.outcome.is_none().to_string());
    // A failure does not keep the outcome from being shown below.
    let notice_result = api.ask("answerCallbackQuery", form).await.map(|_| ());
    let Some(outcome) = &reply.outcome else {
        return notice_result;
    };
    let text = with_outcome(press.question(outcome), outcome);
    let form = edited_message(&press.target, &press.message_id, text);
    edit_message(api, form).await?;
    notice_result
}

/// Shows the outcome in the message of a question that was not pressed, without its buttons.
pub(crate) async fn close_question(
    api: &TelegramApi,
    question: &ShownQuestion,
    outcome: &str,
) -> Result<(), PlatformError> {
    let head = format!("{}\n\n", question.text);
    let whole = format!("{head}{}", question.detail);
    let text = with_outcome(&whole, outcome);
    let is_whole = text.starts_with(&whole);
    let mut form = edited_message(&question.target, &question.message_id, text);
    // An entity beyond the end of a shortened text would be refused.
    if is_whole {
        form = form.text("entities", code_entity(&head, &question.detail));
    }
    edit_message(api, form).await
}

fn edited_message(target: &DeliveryTarget, message_id: &str, text: String) -> MultipartForm {
    MultipartForm::new()
        .text("chat_id", &target.chat)
        .text("message_id", message_id)
        .text("text", text)
        // An edit without `reply_markup` removes the buttons.
        .text(
            "link_preview_options",
            json!({ "is_disabled": true }).to_string(),
        )
}

async fn edit_message(api: &TelegramApi, form: MultipartForm) -> Result<(), PlatformError> {
    match api.ask("editMessageText", form).await {
        Err(error) if !error.to_string().contains(NOT_MODIFIED) => Err(error),
        _ => Ok(()),
    }
}

/// The detail as a block of code. An entity instead of a `parse_mode`: nothing in the text has to be escaped, and
/// nothing of it is formatted.
fn code_entity(head: &str, detail: &str) -> String {
    json!([{
        "type": "pre",
        "offset": utf16_units(head),
        "length": utf16_units(detail),
    }])
    .to_string()
}

/// The question and its outcome, in one message. If both are too long for it, the end of the question is left out.
fn with_outcome(question: &str, outcome: &str) -> String {
    let room = MAX_TEXT_UNITS.saturating_sub(utf16_units(outcome) + OUTCOME_SEPARATOR.len());
    let mut units = 0;
    let shortened: String = question
        .chars()
        .take_while(|character| {
            units += character.len_utf16();
            units <= room
        })
        .collect();
    if shortened.is_empty() {
        return outcome.to_owned();
    }
    format!("{shortened}{OUTCOME_SEPARATOR}{outcome}")
}

fn utf16_units(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_never_cut_and_a_question_is_where_both_are_too_long() {
        assert_eq!(with_outcome("May I?", "Approved."), "May I?\n\nApproved.");
        assert_eq!(with_outcome("", "Approved."), "Approved.");
        let long = with_outcome(&"🙂".repeat(2048), "Approved.");
        assert!(long.ends_with("🙂\n\nApproved."));
        assert_eq!(utf16_units(&long), MAX_TEXT_UNITS - 1);
    }
}
