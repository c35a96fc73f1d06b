//! The JSON of messages.

use serde_json::{Map, Value, json};

use super::state::{StoredFile, bot_json, chat_json};
use super::stored_message::StoredMessage;

/// The key and the value of a file in a message.
pub(super) fn file_json(id: &str, file: &StoredFile) -> (&'static str, Value) {
    let unique = format!("AgAD{}", file.sha256.to_hex().get(..12).unwrap_or_default());
    let mut value = json!({
        "file_id": id,
        "file_unique_id": unique,
        "file_size": file.size,
    });
    let mut more = json!({});
    match file.kind {
        // A photo is an array of sizes, smallest first.
        "photo" => {
            let small = json!({
                "file_id": format!("{id}-s"), "file_unique_id": format!("{unique}s"),
                "file_size": 900, "width": 90, "height": 67,
            });
            merge_values(&mut value, json!({ "width": 640, "height": 480 }));
            return ("photo", json!([small, value]));
        }
        "voice" => merge_values(&mut more, json!({ "duration": 1 })),
        "video_note" => merge_values(&mut more, json!({ "duration": 1, "length": 240 })),
        "sticker" => merge_values(
            &mut more,
            json!({
                "width": 512, "height": 512, "type": "regular", "emoji": "🙂",
                "is_animated": false, "is_video": false,
            }),
        ),
        "audio" => merge_values(&mut more, json!({ "duration": 1, "file_name": file.name })),
        "video" | "animation" => merge_values(
            &mut more,
            json!({ "duration": 1, "width": 640, "height": 480, "file_name": file.name }),
        ),
        _ => merge_values(&mut more, json!({ "file_name": file.name })),
    }
    merge_values(&mut more, json!({ "mime_type": file.media_type }));
    merge_values(&mut value, more);
    (file.kind, value)
}

fn merge_values(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// A message of the bot.
pub(super) fn message_json(
    chat: i64,
    is_group: bool,
    stored: &StoredMessage,
    file: Option<(&str, &StoredFile)>,
    date: u64,
) -> Value {
    let mut message = Map::new();
    let mut set_field = |name: &str, value: Value| {
        message.insert(name.to_owned(), value);
    };
    set_field("message_id", stored.message_id.into());
    set_field("from", bot_json());
    set_field("chat", chat_json(chat, is_group));
    set_field("date", date.into());
    if stored.thread != 0 {
        set_field("message_thread_id", stored.thread.into());
        set_field("is_topic_message", true.into());
    }
    if stored.reply_to != 0 {
        set_field(
            "reply_to_message",
            json!({
                "message_id": stored.reply_to, "date": date,
                "chat": chat_json(chat, is_group),
            }),
        );
    }
    if !stored.album.is_empty() {
        set_field("media_group_id", stored.album.clone().into());
    }
    match file {
        None => set_field("text", stored.text.clone().into()),
        Some((id, file)) => {
            let (key, value) = file_json(id, file);
            // The API sets `document` as well, for clients that do not support animations.
            if key == "animation" {
                set_field("document", value.clone());
            }
            set_field(key, value);
            if !stored.text.is_empty() {
                set_field("caption", stored.text.clone().into());
            }
        }
    }
    Value::Object(message)
}
