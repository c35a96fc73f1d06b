//! The methods of the API.

use std::sync::Arc;

use serde_json::{Value, json};

use super::MAX_DOWNLOAD_BYTES;
use super::album;
use super::buttons;
use super::fault::{FaultPoint, InjectedFault};
use super::files::{self, FILE_KINDS};
use super::form::FormData;
use super::media::message_json;
use super::response::{ApiResponse, MethodError};
use super::state::{FakeState, SharedState, StoredFile, WebhookTarget, bot_json};
use super::stored_message::{ShownFile, StoredMessage};

/// Longest text, in UTF-16 units.
const MAX_TEXT_UNITS: usize = 4096;
/// Longest caption, in UTF-16 units.
const MAX_CAPTION_UNITS: usize = 1024;

/// Runs a method. `getUpdates` is not here, because it waits, which is not possible with the lock.
pub(super) fn call_method(
    shared: &Arc<SharedState>,
    method: &str,
    form: &FormData,
    fault: Option<&InjectedFault>,
) -> ApiResponse {
    let date = shared.clock.now_ms() / 1000;
    let mut state = shared.state();
    match method {
        "getMe" => Ok(bot_json()),
        "sendMessage" => send_text(&mut state, form, date),
        "sendMediaGroup" => album::send_album(&mut state, form, fault, shared.upload, date),
        "sendChatAction" => send_action(&mut state, form),
        "editMessageText" => edit_message(&mut state, form, date),
        "answerCallbackQuery" => buttons::answer_query(&mut state, form),
        "getFile" => get_file(&mut state, form, shared.upload),
        "setWebhook" => {
            let webhook = WebhookTarget {
                url: form.get("url").to_owned(),
                secret: form.get("secret_token").to_owned(),
            };
            state.webhook = (!webhook.url.is_empty()).then_some(webhook);
            Ok(json!(true))
        }
        "deleteWebhook" => {
            state.webhook = None;
            Ok(json!(true))
        }
        _ => match FILE_KINDS.iter().find(|kind| is_method(method, kind)) {
            // This pattern is last, because `sendMessage` and `sendChatAction` begin with `send` too.
            Some(kind) => send_one(&mut state, form, kind, fault, shared.upload, date),
            None => Err(MethodError::of(404, "Not Found: method not found")),
        },
    }
}

/// Whether `method` sends this kind, as `sendPhoto` does for `photo`.
fn is_method(method: &str, kind: &str) -> bool {
    method
        .strip_prefix("send")
        .is_some_and(|rest| rest.eq_ignore_ascii_case(kind))
}

/// Checks the chat, topic, reply and text of a message, and creates it. It is not visible yet.
pub(super) fn prepare_message(
    state: &mut FakeState,
    form: &FormData,
    text: &str,
    limit: usize,
) -> Result<(i64, bool, StoredMessage), MethodError> {
    let (id, chat) = state.chat(form.get("chat_id"))?;
    let thread = form.number("message_thread_id");
    if thread != 0 && !chat.topics.contains(&thread) {
        return Err(MethodError::bad("message thread not found"));
    }
    let reply = form.json("reply_parameters").unwrap_or_default();
    let mut reply_to = reply.get("message_id").and_then(Value::as_i64).unwrap_or(0);
    let known = chat
        .messages
        .iter()
        .any(|message| message.message_id == reply_to);
    if reply_to != 0 && !known {
        if reply.get("allow_sending_without_reply") != Some(&json!(true)) {
            return Err(MethodError::bad("message to be replied not found"));
        }
        reply_to = 0;
    }
    if text.encode_utf16().count() > limit {
        return Err(MethodError::bad(if limit == MAX_CAPTION_UNITS {
            "message caption is too long"
        } else {
            "message is too long"
        }));
    }
    // This check is not a parser, but enough to refuse text that the sender did not escape.
    if !form.get("parse_mode").is_empty() && text.contains(['*', '_', '<']) {
        return Err(MethodError::bad(
            "can't parse entities: Can't find end of the entity starting at byte offset 0",
        ));
    }
    let is_group = chat.is_group;
    let message = StoredMessage {
        message_id: state.next(),
        text: text.to_owned(),
        thread,
        reply_to,
        spoiler: form.flag("has_spoiler"),
        ..StoredMessage::default()
    };
    Ok((id, is_group, message))
}

pub(super) fn show_message(state: &mut FakeState, chat: i64, message: StoredMessage) {
    if let Some(chat) = state.chats.get_mut(&chat) {
        chat.messages.push(message);
    }
}

fn send_text(state: &mut FakeState, form: &FormData, date: u64) -> ApiResponse {
    let text = form.get("text").trim();
    if text.is_empty() {
        return Err(MethodError::bad("message text is empty"));
    }
    let (chat, is_group, mut stored) = prepare_message(state, form, text, MAX_TEXT_UNITS)?;
    let preview = form.json("link_preview_options");
    stored.preview = preview.and_then(|all| all.get("is_disabled").cloned()) != Some(json!(true));
    stored.code = buttons::code_block(form, text)?;
    stored.buttons = buttons::keyboard(form)?;
    let message = message_json(chat, is_group, &stored, None, date);
    show_message(state, chat, stored);
    Ok(message)
}

/// A file as users see it. Photos and voice messages have no name.
pub(super) fn visible_file(file: &StoredFile) -> ShownFile {
    let named = !matches!(file.kind, "photo" | "voice");
    ShownFile {
        kind: file.kind,
        name: named.then(|| file.name.clone()),
        size: file.size,
        sha256: file.sha256,
    }
}

fn send_one(
    state: &mut FakeState,
    form: &FormData,
    kind: &'static str,
    fault: Option<&InjectedFault>,
    upload: u64,
    date: u64,
) -> ApiResponse {
    let (chat, is_group, mut stored) =
        prepare_message(state, form, form.get("caption").trim(), MAX_CAPTION_UNITS)?;
    let detects = !form.flag("disable_content_type_detection");
    let (id, mut file) = files::find_file(state, form, kind, form.get(kind), detects, upload)?;
    stored.file = Some(visible_file(&file));
    if let Some(InjectedFault::MisstateSize(size)) = fault {
        file.size = *size;
    }
    let file_id = (fault != Some(&InjectedFault::ForgetFiles)).then_some((id.as_str(), &file));
    let message = message_json(chat, is_group, &stored, file_id, date);
    show_message(state, chat, stored);
    Ok(message)
}

fn send_action(state: &mut FakeState, form: &FormData) -> ApiResponse {
    let action = form.get("action").to_owned();
    let (_, chat) = state.chat(form.get("chat_id"))?;
    chat.actions.push(action);
    Ok(json!(true))
}

fn edit_message(state: &mut FakeState, form: &FormData, date: u64) -> ApiResponse {
    let text = form.get("text").trim().to_owned();
    let number = form.number("message_id");
    let (id, chat) = state.chat(form.get("chat_id"))?;
    let is_group = chat.is_group;
    let message = chat
        .messages
        .iter_mut()
        .find(|message| message.message_id == number && message.file.is_none())
        .ok_or_else(|| MethodError::bad("message to edit not found"))?;
    let buttons = buttons::keyboard(form)?;
    if message.text == text && message.buttons == buttons {
        return Err(MethodError::bad(
            "message is not modified: specified new message content and reply markup are exactly the same as a current \
             content and reply markup of the message",
        ));
    }
    message.text = text;
    message.buttons = buttons;
    Ok(message_json(id, is_group, &message.clone(), None, date))
}

/// Returns the path of a file. A self-hosted server returns a path on its disk.
fn get_file(state: &mut FakeState, form: &FormData, upload: u64) -> ApiResponse {
    let id = form.get("file_id");
    let Some(file) = state.files.get(id).cloned() else {
        return Err(MethodError::bad(
            "wrong file_id or the file is temporarily unavailable",
        ));
    };
    // A self-hosted server has no limit for downloads.
    let is_self_hosted = upload > super::MAX_UPLOAD_BYTES;
    if file.size > MAX_DOWNLOAD_BYTES && !is_self_hosted {
        return Err(MethodError::bad("file is too big"));
    }
    let path = match state.fault(FaultPoint::File) {
        Some(InjectedFault::ReturnPath(path)) => path,
        _ => file.path,
    };
    Ok(json!({
        "file_id": id, "file_unique_id": "AgADx", "file_size": file.size, "file_path": path,
    }))
}
