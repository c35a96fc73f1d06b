//! One stream in process: an ordered log with limits, deduplication and last-per-subject.

use std::collections::{BTreeMap, HashMap, VecDeque};

use dray_types::whole_millis;
use tokio::time::Instant;

use super::super::{OutgoingMessage, StoredMessage, StreamAck};
use crate::error::TransportError;
use crate::headers;
use crate::subject;
use crate::topology::{FullStreamPolicy, StreamSpec, StreamState};

/// The messages of a stream in order, with the state that the server keeps for them.
#[derive(Debug)]
pub(super) struct StreamLog {
    spec: StreamSpec,
    messages: BTreeMap<u64, StoredMessage>,
    last_sequence: u64,
    bytes: u64,
    last_by_subject: HashMap<String, u64>,
    /// Sequences by message id, for ids within the duplicate window.
    recent_ids: HashMap<String, u64>,
    /// The same ids with the time of their arrival, oldest first.
    recent_ids_by_age: VecDeque<(Instant, String)>,
}

fn stored_bytes(stored: &StoredMessage) -> u64 {
    (stored.subject.len() + stored.headers.wire_size() + stored.payload.len()) as u64
}

impl StreamLog {
    pub(super) fn new(spec: StreamSpec) -> Self {
        Self {
            spec,
            messages: BTreeMap::new(),
            last_sequence: 0,
            bytes: 0,
            last_by_subject: HashMap::new(),
            recent_ids: HashMap::new(),
            recent_ids_by_age: VecDeque::new(),
        }
    }

    pub(super) fn reconfigure(&mut self, spec: StreamSpec) {
        self.spec = spec;
    }

    pub(super) fn captures(&self, subject: &str) -> bool {
        self.spec
            .subjects
            .iter()
            .any(|filter| subject::matches_filter(filter, subject))
    }

    /// Appends a message, or returns an error. Checks in the same order as the server.
    pub(super) fn append(
        &mut self,
        message: &OutgoingMessage,
        now_ms: u64,
    ) -> Result<StreamAck, TransportError> {
        self.forget_old_ids();
        let stream = self.spec.name.clone();
        let acknowledged = |sequence, duplicate| StreamAck {
            stream,
            sequence,
            duplicate,
        };
        let id = message.headers.get(headers::MESSAGE_ID);
        // The id alone decides; another body or subject under the same id is a duplicate too (F-10).
        if let Some(&sequence) = id.and_then(|id| self.recent_ids.get(id)) {
            return Ok(acknowledged(sequence, true));
        }
        let limit = self.spec.max_message_size as usize;
        if message.size() > limit {
            return Err(TransportError::TooLarge {
                size: message.size(),
                limit: Some(limit),
            });
        }
        let last = self.last_by_subject.get(&message.subject).copied();
        let expected = message.headers.get(headers::EXPECTED_REVISION);
        // A value that is not a number differs from every revision and is refused.
        if expected.is_some_and(|expected| expected.parse() != Ok(last.unwrap_or(0))) {
            return Err(TransportError::WrongRevision);
        }
        let expected = message.headers.get(headers::EXPECTED_BUCKET_REVISION);
        if expected.is_some_and(|expected| expected.parse() != Ok(self.last_sequence)) {
            return Err(TransportError::WrongRevision);
        }
        let stored = StoredMessage {
            sequence: self.last_sequence + 1,
            subject: message.subject.clone(),
            headers: message.headers.clone(),
            payload: message.payload.clone(),
            time_ms: now_ms,
        };
        let accepted = acknowledged(stored.sequence, false);
        // This is the last check, because it may remove messages, which a refused message must not do.
        self.make_room(stored_bytes(&stored), last)?;
        if let Some(id) = id {
            self.recent_ids.insert(id.to_owned(), stored.sequence);
            self.recent_ids_by_age
                .push_back((Instant::now(), id.to_owned()));
        }
        self.last_sequence = stored.sequence;
        self.bytes += stored_bytes(&stored);
        self.last_by_subject
            .insert(stored.subject.clone(), stored.sequence);
        self.messages.insert(stored.sequence, stored);
        Ok(accepted)
    }

    fn make_room(&mut self, needed: u64, last: Option<u64>) -> Result<(), TransportError> {
        // In a bucket the new value replaces the old one, so a full bucket still accepts updates.
        let replaced = last.filter(|_| self.spec.max_per_subject == 1);
        let freed = replaced
            .and_then(|sequence| self.messages.get(&sequence))
            .map_or(0, stored_bytes);
        let exceeds_limit = |bytes: u64| bytes + needed > self.spec.max_bytes;
        if self.spec.discard == FullStreamPolicy::New && exceeds_limit(self.bytes - freed) {
            return Err(TransportError::Full);
        }
        if let Some(sequence) = replaced {
            self.remove(sequence);
        }
        // Only streams that discard the oldest messages reach this loop without space; with `New` the check above has
        // returned.
        while self.bytes + needed > self.spec.max_bytes {
            let Some((&oldest, _)) = self.messages.first_key_value() else {
                return Err(TransportError::Full);
            };
            self.remove(oldest);
        }
        Ok(())
    }

    fn remove(&mut self, sequence: u64) {
        if let Some(stored) = self.messages.remove(&sequence) {
            self.bytes -= stored_bytes(&stored);
            // A newer message on the subject may have replaced the entry.
            if self.last_by_subject.get(&stored.subject) == Some(&sequence) {
                self.last_by_subject.remove(&stored.subject);
            }
        }
    }

    fn forget_old_ids(&mut self) {
        // All ids have the same window, so the oldest expires first.
        while let Some((since, id)) = self.recent_ids_by_age.front() {
            if since.elapsed() < self.spec.duplicate_window {
                break;
            }
            self.recent_ids.remove(id);
            self.recent_ids_by_age.pop_front();
        }
    }

    /// Drops messages that are older than the maximum age of the stream. An age of zero is no limit, as on a server.
    pub(super) fn expire(&mut self, now_ms: u64) {
        if self.spec.max_age.is_zero() {
            return;
        }
        let age = whole_millis(self.spec.max_age);
        while let Some((&sequence, stored)) = self.messages.first_key_value() {
            if now_ms.saturating_sub(stored.time_ms) < age {
                break;
            }
            self.remove(sequence);
        }
    }

    pub(super) fn next(&self, filter: &str, from: u64) -> Option<StoredMessage> {
        self.messages
            .range(from..)
            .map(|(_, stored)| stored)
            .find(|stored| filter.is_empty() || subject::matches_filter(filter, &stored.subject))
            .cloned()
    }

    pub(super) fn message_at(&self, sequence: u64) -> Option<StoredMessage> {
        self.messages.get(&sequence).cloned()
    }

    pub(super) fn last_on(&self, subject: &str) -> Option<StoredMessage> {
        self.last_by_subject
            .get(subject)
            .and_then(|sequence| self.message_at(*sequence))
    }

    pub(super) const fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    pub(super) fn state(&self) -> StreamState {
        StreamState {
            spec: self.spec.clone(),
            messages: self.messages.len() as u64,
            bytes: self.bytes,
            first_sequence: self
                .messages
                .first_key_value()
                // The server reports an empty stream this way: its first sequence is the next one.
                .map_or(self.last_sequence + 1, |(&sequence, _)| sequence),
            last_sequence: self.last_sequence,
        }
    }
}
