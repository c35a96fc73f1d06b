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
    /// Name as the user's client sent it; may hold any characters.
    pub name: String,
    /// Media type as the user's client claims it.
    pub media_type: String,
    /// The bytes that `getFile` serves.
    pub bytes: Bytes,
    /// The size that is announced; the bytes' own when `None`.
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
    /// A user writes into the chat, with a file or without. Returns the update, which `getUpdates` returns too.
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
        let mut put = |name: &str, value: Value| {
            if let Some(message) = message.as_object_mut() {
                message.insert(name.to_owned(), value);
            }
        };
        if is_group {
            put("message_thread_id", super::state::GENERAL_TOPIC.into());
            put("is_topic_message", true.into());
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
            // Animations stand under `document` too, for clients that know no animations.
            if key == "animation" {
                put("document", value.clone());
            }
            put(key, value);
            if !text.is_empty() {
                put("caption", text.into());
            }
        } else {
            put("text", text.into());
        }
        let update = json!({ "update_id": update_id, "message": message });
        state.updates.push_back(update.clone());
        drop(state);
        self.shared.news.notify_waiters();
        update
    }

    /// An update of any shape.
    pub fn update(&self, mut update: Value) {
        let mut state = self.state();
        let number = state.next();
        if let Some(update) = update.as_object_mut() {
            update.insert("update_id".to_owned(), number.into());
        }
        state.updates.push_back(update);
        drop(state);
        self.shared.news.notify_waiters();
    }

    /// Posts waiting updates to the webhook, in order, until one is not accepted. Returns how many were.
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
            // By value: another update may have been acknowledged by `getUpdates` meanwhile.
            self.state().updates.retain(|other| *other != update);
        }
    }

    /// Updates that were not acknowledged yet.
    pub fn waiting(&self) -> usize {
        self.state().updates.len()
    }
}
