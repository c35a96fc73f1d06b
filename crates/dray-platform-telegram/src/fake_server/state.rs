//! The state of the server: chats, files, updates and faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use dray_types::{Clock, Sha256Digest};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::buttons::CallbackNotice;
use super::fault::{FaultPoint, InjectedFault};
use super::response::MethodError;
use super::stored_message::StoredMessage;

/// The topic that every group has.
pub(super) const GENERAL_TOPIC: i64 = 7;

/// The id of the bot. The user of a private chat has the id of the chat.
pub(super) const BOT_ID: i64 = 4242;

/// Shared by all connections.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) state: Mutex<FakeState>,
    pub(super) upload: u64,
    /// Notified of new updates, and when another client starts to poll.
    pub(super) updates_changed: Notify,
    pub(super) clock: Clock,
}

impl SharedState {
    pub(super) fn new(upload: u64) -> Self {
        Self {
            state: Mutex::default(),
            upload,
            updates_changed: Notify::new(),
            clock: Clock::system(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeState {
    pub(super) chats: BTreeMap<i64, FakeChat>,
    pub(super) files: BTreeMap<String, StoredFile>,
    pub(super) faults: VecDeque<InjectedFault>,
    pub(super) requests: Vec<String>,
    pub(super) updates: VecDeque<Value>,
    pub(super) webhook: Option<WebhookTarget>,
    /// Ids of callback queries that the bot has not answered yet.
    pub(super) open_queries: BTreeSet<String>,
    pub(super) notices: Vec<CallbackNotice>,
    /// Number of the newest `getUpdates`. Earlier ones are replaced by it and end with 409.
    pub(super) poll_number: u64,
    /// The newest number of [`FakeState::next`].
    pub(super) last: i64,
}

/// The address and the secret for posting updates.
#[derive(Clone, Debug)]
pub(super) struct WebhookTarget {
    pub(super) url: String,
    pub(super) secret: String,
}

#[derive(Debug, Default)]
pub(super) struct FakeChat {
    pub(super) is_group: bool,
    pub(super) topics: BTreeSet<i64>,
    pub(super) messages: Vec<StoredMessage>,
    pub(super) actions: Vec<String>,
    pub(super) migrated_to: Option<i64>,
}

/// A file that has an id.
#[derive(Clone, Debug)]
pub(super) struct StoredFile {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) size: u64,
    pub(super) sha256: Sha256Digest,
    /// The bytes for downloads; only for files of users.
    pub(super) bytes: Option<Bytes>,
    pub(super) path: String,
}

impl FakeState {
    /// A new number. Messages, files and updates share the sequence.
    pub(super) fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    pub(super) fn new_chat(&mut self, is_group: bool) -> i64 {
        let id = if is_group {
            // Ids of supergroups begin with -100.
            -1_001_000_000_000 - self.next()
        } else {
            700_000_000 + self.next()
        };
        let topics = is_group.then_some(GENERAL_TOPIC).into_iter().collect();
        let chat = FakeChat {
            is_group,
            topics,
            ..FakeChat::default()
        };
        self.chats.insert(id, chat);
        id
    }

    pub(super) fn upgrade(&mut self, group: i64) -> i64 {
        let id = self.new_chat(true);
        if let Some(old) = self.chats.get_mut(&group) {
            old.migrated_to = Some(id);
        }
        id
    }

    pub(super) fn visible_messages(&self, chat: i64) -> Vec<StoredMessage> {
        self.chats
            .get(&chat)
            .map(|chat| chat.messages.clone())
            .unwrap_or_default()
    }

    pub(super) fn actions(&self, chat: i64) -> Vec<String> {
        self.chats
            .get(&chat)
            .map(|chat| chat.actions.clone())
            .unwrap_or_default()
    }

    /// The chat of a request. A group that was upgraded is refused with its new id.
    pub(super) fn chat(&mut self, id: &str) -> Result<(i64, &mut FakeChat), MethodError> {
        let missing = || MethodError::bad("chat not found");
        let id: i64 = id.parse().map_err(|_| missing())?;
        let chat = self.chats.get_mut(&id).ok_or_else(missing)?;
        match chat.migrated_to {
            Some(to) => Err(MethodError::migrated(to)),
            None => Ok((id, chat)),
        }
    }

    /// Removes the oldest fault for this kind of request; faults for other kinds stay in the queue.
    pub(super) fn fault(&mut self, point: FaultPoint) -> Option<InjectedFault> {
        let index = self
            .faults
            .iter()
            .position(|fault| fault.point() == point)?;
        self.faults.remove(index)
    }

    /// Stores a file and returns its new id.
    pub(super) fn store(&mut self, file: StoredFile) -> String {
        let number = self.next();
        let id = format!("BQAC-{}-{number:08}", file.kind);
        self.files.insert(id.clone(), file);
        id
    }
}

/// The JSON of a chat in a message.
pub(super) fn chat_json(id: i64, is_group: bool) -> Value {
    if is_group {
        json!({ "id": id, "type": "supergroup", "title": "Group", "is_forum": true })
    } else {
        json!({ "id": id, "type": "private", "first_name": "Ada" })
    }
}

/// The JSON of the bot in messages and from `getMe`.
pub(super) fn bot_json() -> Value {
    json!({ "id": BOT_ID, "is_bot": true, "first_name": "Fake", "username": "fake_bot" })
}
