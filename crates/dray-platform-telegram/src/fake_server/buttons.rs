//! Inline keyboards, and what users press.

use serde_json::{Value, json};

use super::FakeTelegram;
use super::form::FormData;
use super::media::message_json;
use super::response::{ApiResponse, MethodError};
use super::state::FakeState;

/// Most bytes of the data of a button.
const MAX_DATA_BYTES: usize = 64;
/// Most characters of a notice.
const MAX_NOTICE_CHARS: usize = 200;

/// A button under a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownButton {
    /// The text that a user sees.
    pub text: String,
    /// The data that a press sends.
    pub data: String,
}

/// The answer to a press, which the user who pressed sees alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackNotice {
    /// The text that a user sees.
    pub text: String,
    /// Whether it is shown as a dialog that the user has to close.
    pub is_alert: bool,
}

impl FakeTelegram {
    /// A user presses a button with this data under a message of the bot. Returns the update.
    pub fn user_presses(&self, chat: i64, message_id: i64, user: i64, data: &str) -> Value {
        let mut state = self.state();
        let (update_id, query) = (state.next(), state.next().to_string());
        let shown = state.chats.get(&chat).and_then(|chat| {
            let mut messages = chat.messages.iter();
            let message = messages.find(|message| message.message_id == message_id)?;
            Some((chat.is_group, message.clone()))
        });
        let date = self.shared.clock.now_ms() / 1000;
        let message = match shown {
            Some((is_group, message)) => message_json(chat, is_group, &message, None, date),
            // A message that is too old or was deleted has a chat and an id alone.
            None => {
                json!({"chat": {"id": chat, "type": "supergroup"}, "message_id": message_id, "date": 0})
            }
        };
        let update = json!({ "update_id": update_id, "callback_query": {
            "id": query,
            "from": { "id": user, "is_bot": false, "first_name": "Ada", "last_name": "L" },
            "message": message,
            "chat_instance": "-1",
            "data": data,
        }});
        state.open_queries.insert(query);
        state.updates.push_back(update.clone());
        drop(state);
        self.shared.updates_changed.notify_waiters();
        update
    }

    /// Answers to presses, oldest first.
    pub fn notices(&self) -> Vec<CallbackNotice> {
        self.state().notices.clone()
    }
}

/// The buttons of a form, row after row.
pub(super) fn keyboard(form: &FormData) -> Result<Vec<ShownButton>, MethodError> {
    let markup = form.json("reply_markup").unwrap_or_default();
    let rows = markup.get("inline_keyboard").and_then(Value::as_array);
    let buttons = rows.into_iter().flatten().filter_map(Value::as_array);
    buttons
        .flatten()
        .map(|button| {
            let field = |name: &str| {
                let value = button.get(name).and_then(Value::as_str);
                value.unwrap_or_default().to_owned()
            };
            let (text, data) = (field("text"), field("callback_data"));
            if data.is_empty() || data.len() > MAX_DATA_BYTES {
                return Err(MethodError::bad("BUTTON_DATA_INVALID"));
            }
            Ok(ShownButton { text, data })
        })
        .collect()
}

/// The text that the entities of a form mark as code. Offsets count UTF-16 units.
pub(super) fn code_block(form: &FormData, text: &str) -> Result<String, MethodError> {
    let entities = form.json("entities").unwrap_or_default();
    let mut entities = entities.as_array().into_iter().flatten();
    let Some(block) = entities.find(|entity| entity.get("type") == Some(&json!("pre"))) else {
        return Ok(String::new());
    };
    let number = |name: &str| {
        let number = block.get(name).and_then(Value::as_u64);
        usize::try_from(number.unwrap_or_default()).unwrap_or_default()
    };
    let units: Vec<u16> = text.encode_utf16().collect();
    let (begin, end) = (number("offset"), number("offset") + number("length"));
    let block = units.get(begin..end);
    let block = block.ok_or_else(|| MethodError::bad("entity is out of the text"))?;
    Ok(String::from_utf16_lossy(block))
}

pub(super) fn answer_query(state: &mut FakeState, form: &FormData) -> ApiResponse {
    if !state.open_queries.remove(form.get("callback_query_id")) {
        return Err(MethodError::bad(
            "query is too old and response timeout expired or query ID is invalid",
        ));
    }
    let text = form.get("text");
    if text.chars().count() > MAX_NOTICE_CHARS {
        return Err(MethodError::bad("MESSAGE_TOO_LONG"));
    }
    state.notices.push(CallbackNotice {
        text: text.to_owned(),
        is_alert: form.flag("show_alert"),
    });
    Ok(json!(true))
}
