//! Rooms, events and media.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dray_http::fake_server::ContentDigest;
use dray_types::Sha256Digest;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{BOT_USER, InjectedFault, SERVER_NAME, StoredMessage};

/// An upload of the bot or of a user.
#[derive(Clone, Debug)]
pub(super) struct UploadedMedia {
    pub(super) content: ContentDigest,
    /// The bytes, unless they exceed the limit.
    pub(super) bytes: Option<Vec<u8>>,
    /// Media type of the upload request.
    pub(super) kind: String,
}

#[derive(Debug)]
pub(super) struct FakeState {
    pub(super) largest: u64,
    pub(super) now: u64,
    pub(super) rooms: BTreeSet<String>,
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) encrypted: BTreeSet<String>,
    pub(super) media: BTreeMap<String, UploadedMedia>,
    /// Events with their rooms, in the order of arrival. The tokens of `sync` are positions in this list.
    pub(super) events: Vec<(String, Value)>,
    /// Ids of events by room and transaction.
    pub(super) transactions: BTreeMap<(String, String), String>,
    pub(super) faults: Vec<InjectedFault>,
    pub(super) requests: Vec<String>,
    pub(super) changed: Arc<Notify>,
    count: u64,
}

impl FakeState {
    pub(super) fn new(largest: u64) -> Self {
        Self {
            largest,
            now: 1_700_000_000_000,
            rooms: BTreeSet::new(),
            aliases: BTreeMap::new(),
            encrypted: BTreeSet::new(),
            media: BTreeMap::new(),
            events: Vec::new(),
            transactions: BTreeMap::new(),
            faults: Vec::new(),
            requests: Vec::new(),
            changed: Arc::default(),
            count: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(super) fn room(&mut self) -> String {
        let room = format!("!room{}:{SERVER_NAME}", self.next());
        self.rooms.insert(room.clone());
        room
    }

    pub(super) fn event(
        &mut self,
        room: &str,
        sender: &str,
        kind: &str,
        content: &Value,
    ) -> String {
        let id = format!("$event{}", self.next());
        let event = json!({
            "event_id": id,
            "sender": sender,
            "type": kind,
            "origin_server_ts": self.now,
            "room_id": room,
            "content": content,
        });
        self.events.push((room.to_owned(), event));
        self.changed.notify_waiters();
        id
    }

    /// The bot joins a room that it has left.
    pub(super) fn join(&mut self, room: &str) {
        let event = json!({
            "event_id": format!("$event{}", self.next()),
            "sender": BOT_USER,
            "state_key": BOT_USER,
            "type": "m.room.member",
            "origin_server_ts": self.now,
            "room_id": room,
            "content": { "membership": "join" },
            "unsigned": { "prev_content": { "membership": "leave" } },
        });
        self.events.push((room.to_owned(), event));
        self.changed.notify_waiters();
    }

    pub(super) fn upload(&mut self, media: UploadedMedia) -> String {
        let id = format!("media{}", self.next());
        self.media.insert(id.clone(), media);
        format!("mxc://{SERVER_NAME}/{id}")
    }

    pub(super) fn keep(&mut self, bytes: Vec<u8>) -> String {
        let content = ContentDigest {
            size: bytes.len() as u64,
            sha256: Sha256Digest::of(&bytes),
            head: Vec::new(),
        };
        self.upload(UploadedMedia {
            content,
            bytes: Some(bytes),
            kind: "application/octet-stream".to_owned(),
        })
    }

    /// The upload at an `mxc` address of this server.
    pub(super) fn find(&self, uri: &str) -> Option<&UploadedMedia> {
        let id = uri.strip_prefix("mxc://")?.strip_prefix(SERVER_NAME)?;
        self.media.get(id.strip_prefix('/')?)
    }

    pub(super) fn visible_messages(&self, room: &str) -> Vec<StoredMessage> {
        let own_events = self.events.iter().filter(|(event_room, event)| {
            event_room == room && event.get("sender").and_then(Value::as_str) == Some(BOT_USER)
        });
        own_events
            .map(|(_, event)| {
                let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
                let media = text("/content/url").and_then(|uri| self.find(uri));
                StoredMessage {
                    event_id: text("/event_id").unwrap_or_default().to_owned(),
                    content: event.get("content").cloned().unwrap_or_default(),
                    file: media.map(|media| media.content.clone()),
                }
            })
            .collect()
    }

    pub(super) fn fault(
        &mut self,
        is_match: impl Fn(&InjectedFault) -> bool,
    ) -> Option<InjectedFault> {
        let index = self.faults.iter().position(is_match)?;
        Some(self.faults.remove(index))
    }

    pub(super) fn has_permanent_fault(&self, fault: &InjectedFault) -> bool {
        self.faults.contains(fault)
    }
}
