//! The state that outlives a connection: the session, the parents of threads, and the newest stored message of
//! each channel.

use std::collections::BTreeMap;

use serde_json::Value;

/// Most channels in the cache; this bounds the memory that a bot in many servers uses.
const MAX_CHANNELS: usize = 20_000;

/// A session that can be resumed.
#[derive(Debug)]
struct GatewaySession {
    id: String,
    /// The address to resume at, from `READY`. `None` after a failure there.
    url: Option<String>,
    /// Number of the last handled event.
    seq: u64,
}

#[derive(Debug, Default)]
pub(super) struct GatewayCache {
    session: Option<GatewaySession>,
    /// Id of our own user, whose messages are skipped.
    pub(super) own_id: String,
    /// Channels by id: for a thread the id of its channel, for other channels `None`.
    parents: BTreeMap<String, Option<String>>,
    /// Id of the newest stored message, by channel.
    newest: BTreeMap<String, u64>,
    /// Whether conversations may have messages from before the session that are not stored yet.
    needs_catch_up: bool,
}

impl GatewayCache {
    /// Begins the session of the event `READY`.
    pub(super) fn begin_session(&mut self, payload: &Value, seq: u64) {
        let text = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
        if let Some(id) = text("/user/id") {
            id.clone_into(&mut self.own_id);
        }
        self.session = text("/session_id").map(|id| GatewaySession {
            id: id.to_owned(),
            url: text("/resume_gateway_url").map(str::to_owned),
            seq,
        });
        self.needs_catch_up = true;
    }

    /// Whether the conversations must be caught up before the next event is handled.
    pub(super) const fn needs_catch_up(&self) -> bool {
        self.needs_catch_up
    }

    /// Notes that all messages in conversations from before the session are stored.
    pub(super) const fn finish_catch_up(&mut self) {
        self.needs_catch_up = false;
    }

    /// Notes that an event was handled. The number never decreases.
    pub(super) fn note_handled(&mut self, seq: u64) {
        if let Some(session) = &mut self.session {
            session.seq = session.seq.max(seq);
        }
    }

    /// The id of the session and the number of its last event; `None` when there is nothing to resume.
    pub(super) fn session(&self) -> Option<(&str, u64)> {
        let session = self.session.as_ref()?;
        Some((&session.id, session.seq))
    }

    pub(super) const fn has_session(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn address(&self) -> Option<&str> {
        self.session.as_ref()?.url.as_deref()
    }

    pub(super) fn forget_address(&mut self) {
        if let Some(session) = &mut self.session {
            session.url = None;
        }
    }

    pub(super) fn forget_session(&mut self) {
        self.session = None;
    }

    /// Adds a channel; only a thread has a parent. A full cache ignores further channels.
    pub(super) fn add_channel(&mut self, id: &str, parent: Option<&str>) {
        if self.parents.len() < MAX_CHANNELS {
            self.parents
                .insert(id.to_owned(), parent.map(str::to_owned));
        }
    }

    /// Whether the channel is in the cache, so that its type is known.
    pub(super) fn is_known(&self, id: &str) -> bool {
        self.parents.contains_key(id)
    }

    /// The channel to which this thread belongs; `None` for other channels.
    pub(super) fn parent(&self, id: &str) -> Option<&str> {
        self.parents.get(id)?.as_deref()
    }

    /// Notes that a message was stored.
    pub(super) fn note_stored(&mut self, channel: &str, id: &str) {
        // An id that is not a number has no order.
        let Ok(id) = id.parse::<u64>() else {
            return;
        };
        if let Some(newest) = self.newest.get_mut(channel) {
            *newest = (*newest).max(id);
        } else if self.newest.len() < MAX_CHANNELS {
            self.newest.insert(channel.to_owned(), id);
        }
    }

    /// The id of the newest stored message of a channel.
    pub(super) fn newest(&self, channel: &str) -> Option<u64> {
        self.newest.get(channel).copied()
    }

    /// Conversations with people: channels with stored messages that no server announced.
    pub(super) fn conversations(&self) -> Vec<String> {
        let known = self.newest.keys();
        known
            .filter(|channel| !self.is_known(channel))
            .cloned()
            .collect()
    }
}
