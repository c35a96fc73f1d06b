//! Actions of users.

use bytes::Bytes;
use dray_types::Sha256Digest;
use serde_json::{Value, json};

use super::FakeTelegram;
use super::media::file_json;
use super::state::{StoredFile, chat_json};

/// A file that a user sends.
#[derive(Clone, Debug)]
pub struct UserFile {
    /// `photo`, `document`, `audio`, `voice`, `video`, `animation`, `video_note`, `sticker`.
    pub kind: &'static str,
    /// The file's name from the user's client, with any characters.
    pub name: String,
    /// The file's media type from the user's client.
    pub media_type: String,
    /// The bytes to download.
    pub bytes: Bytes,
    /// The announced size; `None` for the real one.
    pub size: Option<u64>,
}

impl UserFile {
    /// A file of this kind.
    pub fn new(kind: &'static str, name: &str, bytes: impl Into<Bytes>) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            media_type: "application/octet-stream".to_owned(),
            bytes: bytes.into(),
            size: None,
        }
    }
}

impl FakeTelegram {
    /// A user writes in a chat, with or without a file. Returns the update, which `getUpdates` returns too.
    pub fn user_writes(&self, chat: i64, text: &str, file: Option<UserFile>) -> Value {
        let mut state = self.state();
        let (update_id, message_id) = (state.next(), state.next());
        let is_group = state.chats.get(&chat).is_some_and(|chat| chat.is_group);
        let mut message = json!({
            "message_id": message_id,
            "from": { "id": chat.abs(), "is_bot": false, "first_name": "Ada", "username": "ada" },
            "chat": chat_json(chat, is_group),
            "date": self.shared.clock.now_ms() / 1000,
        });
        let mut set_field = |name: &str, value: Value| {
            if let Some(message) = message.as_object_mut() {
                message.insert(name.to_owned(), value);
            }
        };
        if is_group {
            set_field("message_thread_id", super::state::GENERAL_TOPIC.into());
            set_field("is_topic_message", true.into());
        }
        if let Some(file) = file {
            let length = u64::try_from(file.bytes.len()).unwrap_or_default();
            let stored = StoredFile {
                kind: file.kind,
                name: file.name,
                media_type: file.media_type,
                size: file.size.unwrap_or(length),
                sha256: Sha256Digest::of(&file.bytes),
                bytes: Some(file.bytes),
                path: format!("{}s/file_{message_id}", file.kind),
            };
            let id = state.store(stored.clone());
            let (key, value) = file_json(&id, &stored);
            // Animations are also in `document`, for clients that do not support animations.
            if key == "animation" {
                set_field("document", value.clone());
            }
            set_field(key, value);
            if !text.is_empty() {
                set_field("caption", text.into());
            }
        } else {
            set_field("text", text.into());
        }
        let update = json!({ "update_id": update_id, "message": message });
        state.updates.push_back(update.clone());
        drop(state);
        self.shared.updates_changed.notify_waiters();
        update
    }

    /// Adds an update with any content.
    pub fn update(&self, mut update: Value) {
        let mut state = self.state();
        let number = state.next();
        if let Some(update) = update.as_object_mut() {
            update.insert("update_id".to_owned(), number.into());
        }
        state.updates.push_back(update);
        drop(state);
        self.shared.updates_changed.notify_waiters();
    }

    /// Posts the waiting updates to the webhook, in order, until one is refused. Returns how many were accepted.
    ///
    /// # Errors
    ///
    /// When the webhook cannot be reached. Updates without a response are kept, as the API does.
    pub async fn push(&self) -> Result<usize, dray_http::HttpError> {
        let client = dray_http::HttpClient::new(dray_http::HttpTimeouts::default(), None)?;
        let mut accepted = 0;
        loop {
            let (webhook, update) = {
                let state = self.state();
                (state.webhook.clone(), state.updates.front().cloned())
            };
            let (Some(webhook), Some(update)) = (webhook, update) else {
                return Ok(accepted);
            };
            let mut request = client.post(&webhook.url).json(&update);
            if !webhook.secret.is_empty() {
                request = request.header("X-Telegram-Bot-Api-Secret-Token", &webhook.secret);
            }
            if !request.send(&|_| {}).await?.is_success() {
                return Ok(accepted);
            }
            accepted += 1;
            // The updates are compared by value, because `getUpdates` may have acknowledged other updates meanwhile.
            self.state().updates.retain(|other| *other != update);
        }
    }

    /// Updates that were not acknowledged yet.
    pub fn waiting(&self) -> usize {
        self.state().updates.len()
    }
}
