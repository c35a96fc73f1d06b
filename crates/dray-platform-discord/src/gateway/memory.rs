//! State that outlives one connection: the session, the parents of threads, and the newest stored message of each
//! channel.

use std::collections::BTreeMap;

use serde_json::Value;

/// Most channels that are remembered; it bounds the memory of a bot in many servers.
const MAX_CHANNELS: usize = 20_000;

/// A session that can be resumed.
#[derive(Debug)]
struct GatewaySession {
    id: String,
    /// Where to resume, as `READY` named it; `None` after a failure there.
    url: Option<String>,
    /// Number of the last event that was stored.
    seq: u64,
}

#[derive(Debug, Default)]
pub(super) struct GatewayCache {
    session: Option<GatewaySession>,
    /// Id of our own user, whose messages are not taken.
    pub(super) me: String,
    /// Channels by id. A thread has the id of its channel, other channels have `None`.
    parents: BTreeMap<String, Option<String>>,
    /// Id of the newest stored message, by channel.
    newest: BTreeMap<String, u64>,
    /// Whether conversations may hold messages that were written before the session began and are not stored.
    needs_catch_up: bool,
}

impl GatewayCache {
    /// Begins a session from the event `READY`.
    pub(super) fn ready(&mut self, payload: &Value, seq: u64) {
        let text = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
        if let Some(me) = text("/user/id") {
            me.clone_into(&mut self.me);
        }
        self.session = text("/session_id").map(|id| GatewaySession {
            id: id.to_owned(),
            url: text("/resume_gateway_url").map(str::to_owned),
            seq,
        });
        self.needs_catch_up = true;
    }

    /// Whether conversations must be looked through before the next event is handled.
    pub(super) const fn needs_catch_up(&self) -> bool {
        self.needs_catch_up
    }

    /// All that was written in conversations before the session is stored.
    pub(super) const fn caught_up(&mut self) {
        self.needs_catch_up = false;
    }

    /// Counts an event as read. Numbers never go back.
    pub(super) fn read(&mut self, seq: u64) {
        if let Some(session) = &mut self.session {
            session.seq = session.seq.max(seq);
        }
    }

    /// The id of the session and the number of its last event; `None` when there is nothing to resume.
    pub(super) fn session(&self) -> Option<(&str, u64)> {
        let session = self.session.as_ref()?;
        Some((&session.id, session.seq))
    }

    pub(super) const fn resumes(&self) -> bool {
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

    /// Notes a channel; only a thread has a parent. Dropped when too many are known.
    pub(super) fn know(&mut self, id: &str, parent: Option<&str>) {
        if self.parents.len() < MAX_CHANNELS {
            self.parents
                .insert(id.to_owned(), parent.map(str::to_owned));
        }
    }

    /// Whether the type of this channel is known.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.parents.contains_key(id)
    }

    /// The channel to which this thread belongs; `None` for other channels.
    pub(super) fn parent(&self, id: &str) -> Option<&str> {
        self.parents.get(id)?.as_deref()
    }

    /// Notes that a message was stored.
    pub(super) fn stored(&mut self, channel: &str, id: &str) {
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

    /// Channels with stored messages that no server announced: conversations with people.
    pub(super) fn conversations(&self) -> Vec<String> {
        let known = self.newest.keys();
        known
            .filter(|channel| !self.knows(channel))
            .cloned()
            .collect()
    }
}
