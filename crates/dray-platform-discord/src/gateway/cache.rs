//! State that outlives a connection: the session, the parents of threads, and the newest handled message of
//! each channel.

use std::collections::BTreeMap;

use serde_json::Value;

/// Most channels in the cache; this bounds the memory that a bot in many servers uses.
const MAX_CHANNELS: usize = 20_000;
/// How many channels are evicted from a full cache together, so that a full cache is not searched for each new channel.
const EVICTED_CHANNELS: usize = MAX_CHANNELS / 4;

/// A session that can be resumed.
#[derive(Debug)]
struct GatewaySession {
    id: String,
    /// The address to resume at, from `READY`. `None` after a failure there.
    url: Option<String>,
    /// Number of the last handled event.
    seq: u64,
}

/// The cached state of a channel.
#[derive(Debug, Default)]
struct CachedChannel {
    /// Whether its type is known: a server announced it, or it was requested. Otherwise it is a conversation with a
    /// person.
    has_type: bool,
    /// For a thread the id of its channel.
    parent: Option<String>,
    /// Id of the newest handled message.
    newest: Option<u64>,
    /// Value of [`GatewayCache::uses`] at its last use.
    last_use: u64,
}

#[derive(Debug, Default)]
pub(super) struct GatewayCache {
    session: Option<GatewaySession>,
    /// Id of our own user, whose messages are skipped.
    pub(super) own_id: String,
    /// Channels by id, at most [`MAX_CHANNELS`].
    channels: BTreeMap<String, CachedChannel>,
    /// How often channels were used; the order of their last uses.
    uses: u64,
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

    /// Adds a channel whose type is known; only a thread has a parent.
    pub(super) fn add_channel(&mut self, id: &str, parent: Option<&str>) {
        let channel = self.use_channel(id);
        channel.has_type = true;
        channel.parent = parent.map(str::to_owned);
    }

    /// Whether the channel is in the cache with its type.
    pub(super) fn is_known(&self, id: &str) -> bool {
        self.channels
            .get(id)
            .is_some_and(|channel| channel.has_type)
    }

    /// The channel to which this thread belongs; `None` for other channels.
    pub(super) fn parent(&self, id: &str) -> Option<&str> {
        self.channels.get(id)?.parent.as_deref()
    }

    /// Records that a message and all earlier ones are handled: stored, or skipped because they are not for this bot.
    pub(super) fn note_message(&mut self, channel: &str, id: u64) {
        let newest = &mut self.use_channel(channel).newest;
        *newest = (*newest).max(Some(id));
    }

    /// The id of the newest handled message of a channel.
    pub(super) fn newest(&self, channel: &str) -> Option<u64> {
        self.channels.get(channel)?.newest
    }

    /// Conversations with people: channels with handled messages that no server announced.
    pub(super) fn conversations(&self) -> Vec<String> {
        let conversations = self.channels.iter();
        conversations
            .filter(|(_, channel)| !channel.has_type)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The entry of a channel, which becomes the most recently used one.
    fn use_channel(&mut self, id: &str) -> &mut CachedChannel {
        if self.channels.len() >= MAX_CHANNELS && !self.channels.contains_key(id) {
            self.evict_channels();
        }
        self.uses += 1;
        let channel = self.channels.entry(id.to_owned()).or_default();
        channel.last_use = self.uses;
        channel
    }

    /// Removes the channels whose last use is longest ago, those of servers first.
    fn evict_channels(&mut self) {
        // The type of a server's channel can be requested again. Messages of a forgotten conversation from a time
        // without a session would not be found.
        let rank = |channel: &CachedChannel| (!channel.has_type, channel.last_use);
        let mut ranks: Vec<_> = self.channels.values().map(rank).collect();
        ranks.sort_unstable();
        if let Some(limit) = ranks.get(EVICTED_CHANNELS).copied() {
            self.channels.retain(|_, channel| rank(channel) >= limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_evicts_the_server_channels_with_the_oldest_use_and_keeps_conversations() {
        let mut cache = GatewayCache::default();
        cache.note_message("conversation", 1);
        for number in 1..MAX_CHANNELS {
            cache.add_channel(&number.to_string(), Some("parent"));
        }
        cache.note_message("1", 7);
        cache.add_channel("new", Some("other"));
        assert_eq!(cache.channels.len(), MAX_CHANNELS - EVICTED_CHANNELS + 1);
        assert!(!cache.is_known("2"));
        assert_eq!(cache.parent("2"), None);
        assert_eq!(
            (cache.parent("1"), cache.newest("1")),
            (Some("parent"), Some(7))
        );
        assert_eq!(cache.parent("new"), Some("other"));
        assert_eq!(cache.conversations(), ["conversation"]);
        assert_eq!(cache.newest("conversation"), Some(1));
    }

    #[test]
    fn conversations_do_not_fill_the_cache_beyond_its_limit() {
        let mut cache = GatewayCache::default();
        for number in 0..=MAX_CHANNELS {
            cache.note_message(&number.to_string(), 1);
        }
        assert_eq!(cache.channels.len(), MAX_CHANNELS - EVICTED_CHANNELS + 1);
        assert_eq!(cache.newest("0"), None);
        assert_eq!(cache.newest(&MAX_CHANNELS.to_string()), Some(1));
    }
}
