//! What is known beyond one connection: the session, whose threads are whose, and what was read last.

use std::collections::BTreeMap;

use serde_json::Value;

/// Most channels that are remembered.
const MAX_CHANNELS: usize = 20_000;

/// A session that can be resumed.
#[derive(Debug)]
struct GatewaySession {
    id: String,
    /// Where to resume; `None` when that did not work.
    url: Option<String>,
    /// The last event that was read.
    seq: u64,
}

#[derive(Debug, Default)]
pub(super) struct GatewayCache {
    session: Option<GatewaySession>,
    /// Our own id.
    pub(super) me: String,
    /// Channels by id, with the channel that they are a thread of.
    parents: BTreeMap<String, Option<String>>,
    /// The newest message that was stored, by channel.
    newest: BTreeMap<String, u64>,
}

impl GatewayCache {
    /// Begins a session from `READY`.
    pub(super) fn ready(&mut self, told: &Value, seq: u64) {
        let text = |pointer: &str| told.pointer(pointer).and_then(Value::as_str);
        if let Some(me) = text("/user/id") {
            me.clone_into(&mut self.me);
        }
        self.session = text("/session_id").map(|id| GatewaySession {
            id: id.to_owned(),
            url: text("/resume_gateway_url").map(str::to_owned),
            seq,
        });
    }

    /// An event was read.
    pub(super) fn read(&mut self, seq: u64) {
        if let Some(session) = &mut self.session {
            session.seq = session.seq.max(seq);
        }
    }

    /// Session and last event, when there is something to resume.
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

    /// Takes note of a channel; a thread has a parent.
    pub(super) fn know(&mut self, id: &str, parent: Option<&str>) {
        if self.parents.len() < MAX_CHANNELS {
            self.parents
                .insert(id.to_owned(), parent.map(str::to_owned));
        }
    }

    /// Whether it is known what this channel is.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.parents.contains_key(id)
    }

    /// The channel that this is a thread of.
    pub(super) fn parent(&self, id: &str) -> Option<&str> {
        self.parents.get(id)?.as_deref()
    }

    /// A message was stored.
    pub(super) fn stored(&mut self, channel: &str, id: &str) {
        let Ok(id) = id.parse::<u64>() else {
            return;
        };
        if let Some(newest) = self.newest.get_mut(channel) {
            *newest = (*newest).max(id);
        } else if self.newest.len() < MAX_CHANNELS {
            self.newest.insert(channel.to_owned(), id);
        }
    }

    /// The newest message of a channel that was stored.
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
