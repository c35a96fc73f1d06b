//! Reads streams in order, for operators and tests.

use dray_proto::Event;

use crate::backend::{Backend, Cursor, CursorStart, StoredMessage};
use crate::backoff::Backoff;
use crate::bus_core::Bus;
use crate::error::TransportError;
use crate::headers::MessageHeaders;
use crate::subject;
use crate::topology::{AUDIT_STREAM, DEAD_LETTER_STREAM, EVENT_STREAM, WORK_STREAM};

/// Selects messages of a stream.
#[derive(Clone, Debug)]
pub struct EventFilter {
    subject: String,
    start: CursorStart,
}

impl EventFilter {
    /// Messages whose subject matches, from now on. The filter has to be within `dray.event.>`, `dray.audit.>`,
    /// `dray.dead.>` or `dray.work.>`.
    pub fn new(subject: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            start: CursorStart::New,
        }
    }

    /// All events of one kind, of all tenants, from now on.
    pub fn of<E: Event>() -> Self {
        Self::new(format!(
            "dray.event.{}.v1.{}.*",
            E::AREA,
            E::PAST_PARTICIPLE
        ))
    }

    /// Begins with the oldest message that the stream still has.
    #[must_use]
    pub fn from_start(self) -> Self {
        self.from_sequence(1)
    }

    /// Begins with the message of this sequence.
    #[must_use]
    pub fn from_sequence(mut self, sequence: u64) -> Self {
        // The server treats a start sequence of 0 as missing and refuses the consumer.
        self.start = CursorStart::Sequence(sequence.max(1));
        self
    }
}

/// The reasons why no events can be read.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The filter is not within one of the streams.
    #[error("`{0}` is not within dray.event.>, dray.audit.>, dray.dead.> or dray.work.>")]
    Filter(String),
    /// The transport refused the read, or the bus was closed.
    #[error("the stream cannot be read")]
    Transport(#[source] TransportError),
}

/// A message as it was read.
#[derive(Clone, Debug)]
pub struct ObservedEvent {
    /// Subject it was published on, with the tenant as its last token.
    pub subject: String,
    /// Headers as stored, with those of the envelope.
    pub headers: MessageHeaders,
    /// The encoded message; its type is in the `Dray-Schema` header.
    pub payload: bytes::Bytes,
    /// Sequence of the event in the stream.
    pub sequence: u64,
    /// Unix milliseconds at which the stream stored it.
    pub time_ms: u64,
}

impl ObservedEvent {
    /// Reads the payload.
    ///
    /// # Errors
    /// The payload is not an `M`.
    pub fn decode<M: prost::Message + Default>(&self) -> Result<M, prost::DecodeError> {
        M::decode(self.payload.clone())
    }
}

impl From<StoredMessage> for ObservedEvent {
    fn from(stored: StoredMessage) -> Self {
        let StoredMessage {
            sequence,
            subject,
            headers,
            payload,
            time_ms,
        } = stored;
        Self {
            subject,
            headers,
            payload,
            sequence,
            time_ms,
        }
    }
}

/// Messages in order, each once. After an outage, reading continues after the last returned message. A stream that was
/// created again meanwhile, because the server lost it, is read from its first message.
#[derive(Debug)]
pub struct EventStream {
    backend: Backend,
    stream: &'static str,
    filter: String,
    cursor: Cursor,
    /// The sequence after the last returned message. Earlier messages are never returned again, and after an outage
    /// reading continues here.
    next: u64,
    /// When the stream stored the last returned message, in Unix milliseconds.
    last_time_ms: u64,
    /// Messages before this sequence may have been returned before the stream lost its newest ones.
    replayed_before: u64,
}

impl EventStream {
    pub(crate) async fn open(bus: &Bus, filter: EventFilter) -> Result<Self, EventError> {
        let stream =
            stream_of(&filter.subject).ok_or_else(|| EventError::Filter(filter.subject.clone()))?;
        let backend = bus.inner.backend.clone();
        let cursor = backend
            .cursor(stream, &filter.subject, filter.start)
            .await
            .map_err(EventError::Transport)?;
        Ok(Self {
            backend,
            stream,
            filter: filter.subject,
            next: cursor.begins_at(),
            cursor,
            last_time_ms: 0,
            replayed_before: 0,
        })
    }

    /// Waits for the next message, without a limit.
    ///
    /// # Errors
    /// The bus was closed, or refuses.
    pub async fn next(&mut self) -> Result<ObservedEvent, EventError> {
        let mut backoff = Backoff::new(
            std::time::Duration::from_millis(100),
            std::time::Duration::from_secs(4),
        );
        loop {
            let error = match self.cursor.next().await {
                // A server that was killed may not have stored its position, and delivers earlier messages again.
                Ok(stored) if stored.sequence < self.next => continue,
                Ok(stored) => {
                    self.next = stored.sequence + 1;
                    let is_replayed = stored.sequence < self.replayed_before
                        && stored.time_ms <= self.last_time_ms;
                    if is_replayed {
                        continue;
                    }
                    self.last_time_ms = stored.time_ms;
                    return Ok(stored.into());
                }
                Err(error) => error,
            };
            if !error.is_temporary() {
                return Err(EventError::Transport(error));
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "reading the stream starts again"
            );
            tokio::time::sleep(backoff.next_delay()).await;
            // If this fails, the next read of the old cursor returns the error.
            if let Ok(cursor) = self.open_again().await {
                self.cursor = cursor;
            }
        }
    }

    /// Opens a cursor after the last returned message. If the sequences of the stream do not reach that message, it
    /// begins at the first message.
    async fn open_again(&mut self) -> Result<Cursor, TransportError> {
        let open = |start| self.backend.cursor(self.stream, &self.filter, start);
        let end = open(CursorStart::New).await?.begins_at();
        let start = if end < self.next { 1 } else { self.next };
        let cursor = open(CursorStart::Sequence(start)).await?;
        if start < self.next {
            tracing::warn!(
                stream = self.stream,
                "the stream has lost messages or was created again, and is read from its beginning"
            );
            self.replayed_before = self.next;
            self.next = start;
        }
        Ok(cursor)
    }
}

fn stream_of(filter: &str) -> Option<&'static str> {
    [
        ("dray.event.>", EVENT_STREAM),
        ("dray.audit.>", AUDIT_STREAM),
        ("dray.dead.>", DEAD_LETTER_STREAM),
        ("dray.work.>", WORK_STREAM),
    ]
    .into_iter()
    .find(|(all, _)| subject::matches_filter(all, filter))
    .map(|(_, stream)| stream)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dray_proto::v1;

    use super::*;
    use crate::conformance::BusFixture;

    #[tokio::test]
    async fn a_redelivered_message_is_not_returned_again() {
        let fixture = BusFixture::in_process();
        fixture.provision(Duration::from_secs(1)).await;
        for operation in ["one", "two"] {
            let meta = fixture.meta(operation);
            let event = v1::ToolCallResolved::default();
            fixture.bus.publish_event(&meta, &event).await.unwrap();
        }
        let mut events = fixture.events("dray.event.>").await;
        assert_eq!(events.next().await.unwrap().sequence, 1);
        // A server that was killed before it stored its position delivers the first message again.
        let filter = events.filter.clone();
        let repeated = fixture
            .backend()
            .cursor(EVENT_STREAM, &filter, CursorStart::Sequence(1));
        events.cursor = repeated.await.unwrap();
        assert_eq!(events.next().await.unwrap().sequence, 2);
    }

    #[test]
    fn filters_stay_within_one_stream() {
        assert_eq!(stream_of("dray.event.>"), Some(EVENT_STREAM));
        assert_eq!(stream_of("dray.audit.egress.v1.*.*"), Some(AUDIT_STREAM));
        for wrong in [
            "",
            ">",
            "dray.>",
            "dray.event",
            "dray.egress.v1.fetch",
            "$JS.>",
        ] {
            assert_eq!(stream_of(wrong), None, "{wrong}");
        }
    }
}
