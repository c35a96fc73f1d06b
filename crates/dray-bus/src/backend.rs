//! The narrow interface that both backends offer; everything above it is written once.
//!
//! Core messages (publish, subscribe, inboxes), stream messages (publish with acknowledgement, pull, read by
//! sequence), keys with compare-and-set, and provisioning. It has no retries, no limits of this
//! crate and no protobuf.

pub(crate) mod local;
pub(crate) mod nats;

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::cloud_event;
use crate::error::TransportError;
use crate::headers::MessageHeaders;
use crate::topology::{ConsumerSpec, ConsumerState, StreamSpec, StreamState};

/// Status of the reply that a server sends when the subject has no listener.
pub(crate) const NO_RESPONDERS: u16 = 503;

/// Status of a notice that this crate creates: the connection was lost while a reply was awaited.
pub(crate) const CONNECTION_LOST: u16 = 599;

/// A core message as it arrives.
#[derive(Clone, Debug)]
pub(crate) struct CoreMessage {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    pub(crate) headers: MessageHeaders,
    pub(crate) payload: Bytes,
    pub(crate) status: Option<u16>,
}

/// A message to publish into a stream.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) subject: String,
    pub(crate) headers: MessageHeaders,
    pub(crate) payload: Bytes,
}

impl OutgoingMessage {
    /// Payload and headers, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.headers.wire_size() + self.payload.len()
    }
}

/// The acknowledgement of a published message by its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamAck {
    pub(crate) stream: String,
    pub(crate) sequence: u64,
    pub(crate) duplicate: bool,
}

/// A message of a stream, with the sequence and the time (Unix milliseconds) that the stream gave it.
#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) sequence: u64,
    pub(crate) subject: String,
    pub(crate) headers: MessageHeaders,
    pub(crate) payload: Bytes,
    pub(crate) time_ms: u64,
}

/// A stored message handed out by a consumer.
#[derive(Debug)]
pub(crate) struct PulledMessage {
    pub(crate) message: StoredMessage,
    pub(crate) delivered: u64,
    pub(crate) acker: Acker,
}

/// The acknowledgement that a worker sends for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckAction {
    /// The message is acknowledged: it is not delivered again, and no event is published.
    Done,
    /// The message is delivered again, not before the delay.
    Redeliver(Duration),
    /// The work continues: `ack_wait` starts again.
    Progress,
    /// The message is never delivered again. Unlike after [`Self::Done`], the server publishes an advisory about it.
    Term,
}

/// The last change of a key: a value, or the mark of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    /// Whether the last write deleted the key; it has no value then.
    pub(crate) deleted: bool,
    /// Whether the message was not written as a key: it is a reply whose request named this key as its reply subject.
    pub(crate) is_foreign: bool,
    pub(crate) value: Bytes,
    pub(crate) revision: u64,
    pub(crate) time_ms: u64,
}

impl From<StoredMessage> for KeyEntry {
    fn from(stored: StoredMessage) -> Self {
        Self {
            deleted: stored.headers.get(KV_OPERATION) == Some(KV_DELETE),
            is_foreign: !is_written_as_key(&stored),
            value: stored.payload,
            revision: stored.sequence,
            time_ms: stored.time_ms,
        }
    }
}

/// Whether the message in a bucket is a write of a key. A server stores there whatever is published to the key's subject:
/// also its own acknowledgements, and messages of other streams, that a client requested with this subject for the reply.
fn is_written_as_key(stored: &StoredMessage) -> bool {
    if stored.headers.replayed().is_some() {
        return false;
    }
    match stored.headers.get(crate::headers::KEY_HEADER) {
        Some(key) => key == stored.subject,
        // Earlier versions wrote no such header, and always this one. Deletions by the command line of NATS have the
        // operation alone. Replies of a server have none of the three.
        None => [EXPECTED_REVISION_HEADER, KV_OPERATION]
            .iter()
            .any(|name| stored.headers.get(name).is_some()),
    }
}

/// Where a cursor over a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CursorStart {
    New,
    Sequence(u64),
}

#[derive(Clone, Debug)]
pub(crate) enum Backend {
    Nats(Box<nats::NatsBackend>),
    Local(local::LocalBackend),
}

#[derive(Debug)]
pub(crate) enum Subscription {
    Nats(nats::NatsSubscription),
    Local(local::LocalSubscription),
}

#[derive(Debug)]
pub(crate) enum Inbox {
    Nats(nats::NatsInbox),
    Local(local::LocalInbox),
}

#[derive(Debug)]
pub(crate) enum Puller {
    Nats(Box<nats::NatsPuller>),
    Local(local::LocalPuller),
}

#[derive(Clone, Debug)]
pub(crate) enum Acker {
    Nats(nats::NatsAcker),
    Local(local::LocalAcker),
}

#[derive(Debug)]
pub(crate) enum Cursor {
    Nats(Box<nats::NatsCursor>),
    Local(local::LocalCursor),
}

type Result<T> = std::result::Result<T, TransportError>;

/// Calls the same method of the backend in use.
macro_rules! each {
    ($value:expr, $inner:ident => $body:expr) => {
        match $value {
            Self::Nats($inner) => $body,
            Self::Local($inner) => $body,
        }
    };
}

impl Backend {
    pub(crate) async fn publish(
        &self,
        reply: Option<&str>,
        message: &OutgoingMessage,
    ) -> Result<()> {
        // The client would refuse it too, but this way both backends give the same error with the sizes in it.
        check_message_size(message, self.max_payload())?;
        each!(self, inner => inner.publish(reply, message).await)
    }

    pub(crate) async fn subscribe(
        &self,
        subject: &str,
        group: Option<&str>,
    ) -> Result<Subscription> {
        Ok(match self {
            Self::Nats(nats) => Subscription::Nats(nats.subscribe(subject, group).await?),
            Self::Local(local) => Subscription::Local(local.subscribe(subject, group)),
        })
    }

    /// An address for replies.
    pub(crate) fn inbox(&self) -> Inbox {
        match self {
            Self::Nats(nats) => Inbox::Nats(nats.inbox()),
            Self::Local(local) => Inbox::Local(local.inbox()),
        }
    }

    /// Publishes into the stream that captures the subject, and waits at most `wait` for its acknowledgement.
    pub(crate) async fn store(
        &self,
        message: &OutgoingMessage,
        wait: Duration,
    ) -> Result<StreamAck> {
        check_message_size(message, self.max_payload())?;
        each!(self, inner => inner.store(message, wait).await)
    }

    pub(crate) async fn puller(&self, stream: &str, durable: &str) -> Result<Puller> {
        Ok(match self {
            Self::Nats(nats) => Puller::Nats(Box::new(nats.puller(stream, durable).await?)),
            Self::Local(local) => Puller::Local(local.puller(stream, durable)?),
        })
    }

    /// The first message at or after `sequence` whose subject matches `filter`.
    pub(crate) async fn read_next(
        &self,
        stream: &str,
        filter: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>> {
        each!(self, inner => inner.read_next(stream, filter, sequence).await)
    }

    /// The message with exactly this sequence.
    pub(crate) async fn read_at(
        &self,
        stream: &str,
        sequence: u64,
    ) -> Result<Option<StoredMessage>> {
        each!(self, inner => inner.read_at(stream, sequence).await)
    }

    pub(crate) async fn cursor(
        &self,
        stream: &str,
        filter: &str,
        start: CursorStart,
    ) -> Result<Cursor> {
        Ok(match self {
            Self::Nats(nats) => Cursor::Nats(Box::new(nats.cursor(stream, filter, start).await?)),
            Self::Local(local) => Cursor::Local(local.cursor(stream, filter, start)?),
        })
    }

    pub(crate) async fn key_get(&self, bucket: &str, key: &str) -> Result<Option<KeyEntry>> {
        each!(self, inner => inner.key_get(bucket, key).await)
    }

    /// The first key below `prefix` (all when empty) whose last change is at or after `from`.
    pub(crate) async fn key_next(
        &self,
        bucket: &str,
        prefix: &str,
        from: u64,
    ) -> Result<Option<(String, KeyEntry)>> {
        // Keys are subjects of the bucket's stream (ADR-8 of NATS), so a prefix is a wildcard over whole parts.
        let root = format!("$KV.{bucket}.");
        let filter = match prefix {
            "" => format!("{root}>"),
            prefix => format!("{root}{prefix}.>"),
        };
        let found = each!(self, inner => inner.key_next(bucket, &filter, from).await)?;
        Ok(found.map(|stored| {
            let key = stored.subject.strip_prefix(&root).unwrap_or_default();
            (key.to_owned(), stored.into())
        }))
    }

    /// The writes of a key as they are sent: a bucket's stream captures them, and core subscribers get them as well.
    pub(crate) async fn key_watch(&self, bucket: &str, key: &str) -> Result<Subscription> {
        self.subscribe(&format!("$KV.{bucket}.{key}"), None).await
    }

    /// Writes a key whose last revision is `expected` (0: the key has none) and returns the new revision. If
    /// `expected_bucket` is given, the last revision of the whole bucket must also equal it.
    pub(crate) async fn key_put(
        &self,
        bucket: &str,
        key: &str,
        value: Option<Bytes>,
        expected: u64,
        expected_bucket: Option<u64>,
    ) -> Result<u64> {
        let subject = format!("$KV.{bucket}.{key}");
        let mut headers = MessageHeaders::new();
        headers.append(crate::headers::KEY_HEADER, subject.as_str());
        if let Some(bucket) = expected_bucket {
            headers.append(crate::headers::EXPECTED_BUCKET_REVISION, bucket.to_string());
        }
        // The server compares it with the last sequence on the subject; 0 means that the subject has no message.
        headers.append(EXPECTED_REVISION_HEADER, expected.to_string());
        let payload = value.unwrap_or_else(|| {
            headers.append(KV_OPERATION, KV_DELETE);
            Bytes::new()
        });
        let message = OutgoingMessage {
            subject,
            headers,
            payload,
        };
        Ok(self.store(&message, KEY_WAIT).await?.sequence)
    }

    pub(crate) async fn stream(&self, name: &str) -> Result<Option<StreamState>> {
        each!(self, inner => inner.stream(name).await)
    }

    pub(crate) async fn consumer(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<Option<ConsumerState>> {
        each!(self, inner => inner.consumer(stream, durable).await)
    }

    pub(crate) async fn provision_stream(&self, spec: &StreamSpec) -> Result<()> {
        each!(self, inner => inner.provision_stream(spec).await)
    }

    pub(crate) async fn provision_consumer(&self, spec: &ConsumerSpec) -> Result<()> {
        each!(self, inner => inner.provision_consumer(spec).await)
    }

    /// Most bytes of one message, headers included.
    pub(crate) fn max_payload(&self) -> usize {
        each!(self, inner => inner.max_payload())
    }

    /// Flushes buffered messages, then closes the connection.
    pub(crate) async fn close(&self) {
        each!(self, inner => inner.close().await);
    }
}

/// Longest wait for the acknowledgement of a key's write.
const KEY_WAIT: Duration = Duration::from_secs(5);
/// Header with the revision that a key must still have when it is written.
const EXPECTED_REVISION_HEADER: &str = crate::headers::EXPECTED_REVISION;
/// Header that names the operation of a message in a key-value bucket.
pub(crate) const KV_OPERATION: &str = "KV-Operation";
/// Value of [`KV_OPERATION`] that marks a deleted key.
pub(crate) const KV_DELETE: &str = "DEL";

fn check_message_size(message: &OutgoingMessage, limit: usize) -> Result<()> {
    // The client panics on a line break in a header value, and a colon in a name would make another header.
    if let Some(name) = message.headers.unsendable() {
        return Err(TransportError::Header(name.to_owned()));
    }
    let size = message.size();
    if size > limit {
        return Err(TransportError::TooLarge {
            size,
            limit: Some(limit),
        });
    }
    Ok(())
}

impl Subscription {
    pub(crate) async fn next(&mut self) -> Option<CoreMessage> {
        each!(self, inner => inner.next().await)
    }

    /// Stops new messages; `next` returns messages that were already delivered and then ends.
    pub(crate) async fn drain(&mut self) {
        each!(self, inner => inner.drain().await);
    }
}

impl Inbox {
    pub(crate) fn address(&self) -> &str {
        each!(self, inner => inner.address())
    }

    pub(crate) async fn next(&mut self) -> Option<CoreMessage> {
        each!(self, inner => inner.next().await)
    }
}

impl Puller {
    pub(crate) fn ack_wait(&self) -> Duration {
        each!(self, inner => inner.ack_wait())
    }

    /// Most messages that one request may fetch.
    pub(crate) fn max_batch(&self) -> usize {
        each!(self, inner => inner.max_batch())
    }

    /// Up to `count` messages: those that are available now, otherwise the first that arrives within `wait`. After
    /// `stop` only messages that were already in transit. Work that was published as a `CloudEvent` has its envelope.
    pub(crate) async fn fetch(
        &mut self,
        count: usize,
        wait: Duration,
        stop: &CancellationToken,
    ) -> Result<Vec<PulledMessage>> {
        let mut fetched = each!(self, inner => inner.fetch(count, wait, stop).await)?;
        for pulled in &mut fetched {
            cloud_event::adopt_envelope(&mut pulled.message);
        }
        Ok(fetched)
    }
}

impl Acker {
    /// Sends the acknowledgement without a confirmation; it may be lost.
    pub(crate) async fn send(&self, ack: AckAction) -> Result<()> {
        each!(self, inner => inner.send(ack).await)
    }

    /// Sends the acknowledgement and waits at most `wait` until the server confirms it.
    pub(crate) async fn confirm(&self, ack: AckAction, wait: Duration) -> Result<()> {
        each!(self, inner => inner.confirm(ack, wait).await)
    }
}

impl Cursor {
    /// Sequence of the stream at which the cursor begins; call it before the first message.
    pub(crate) fn begins_at(&self) -> u64 {
        each!(self, inner => inner.begins_at())
    }

    pub(crate) async fn next(&mut self) -> Result<StoredMessage> {
        each!(self, inner => inner.next().await)
    }
}
