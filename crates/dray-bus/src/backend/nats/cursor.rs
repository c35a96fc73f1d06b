//! Follows a stream by the sequences of its messages.
//!
//! It needs no consumer: the right to create one is the right to change every durable consumer of the stream, whose name
//! can be in the body of the request, and to take messages from it.

use std::time::Duration;

use super::super::{CursorStart, StoredMessage};
use super::NatsBackend;
use crate::error::TransportError;

/// Time between two looks for new messages at the end of a stream.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Reads a stream in order, and waits for new messages at its end.
#[derive(Debug)]
pub(crate) struct NatsCursor {
    backend: NatsBackend,
    stream: String,
    filter: String,
    begins_at: u64,
    /// No message before this sequence is left to read.
    next: u64,
    /// The last sequence of the stream at the last look. Up to it, a message may match.
    known_end: u64,
}

impl NatsBackend {
    pub(crate) async fn cursor(
        &self,
        stream: &str,
        filter: &str,
        start: CursorStart,
    ) -> Result<NatsCursor, TransportError> {
        let end = self.last_sequence(stream).await?;
        let begins_at = match start {
            CursorStart::New => end + 1,
            CursorStart::Sequence(sequence) => sequence,
        };
        // The first read also shows here whether the identity may read the stream.
        self.read_next(stream, filter, begins_at).await?;
        Ok(NatsCursor {
            backend: self.clone(),
            stream: stream.to_owned(),
            filter: filter.to_owned(),
            begins_at,
            next: begins_at,
            known_end: end,
        })
    }

    async fn last_sequence(&self, stream: &str) -> Result<u64, TransportError> {
        let state = self.stream(stream).await?;
        let state = state.ok_or_else(|| TransportError::NotProvisioned(stream.to_owned()))?;
        Ok(state.last_sequence)
    }
}

impl NatsCursor {
    /// Sequence of the stream at which the cursor begins.
    pub(crate) fn begins_at(&self) -> u64 {
        self.begins_at
    }

    /// Cancellation safe: a message counts as read when it is returned.
    pub(crate) async fn next(&mut self) -> Result<StoredMessage, TransportError> {
        loop {
            if self.next <= self.known_end {
                let backend = &self.backend;
                let found = backend.read_next(&self.stream, &self.filter, self.next);
                match found.await.map_err(reading_again)? {
                    Some(stored) => {
                        self.next = stored.sequence + 1;
                        return Ok(stored);
                    }
                    // Without this step, each look would search the whole stream for a message that matches.
                    None => self.next = self.known_end + 1,
                }
            }
            let end = self.backend.last_sequence(&self.stream).await;
            self.known_end = end.map_err(reading_again)?;
            if self.known_end + 1 < self.next {
                // The stream lost its last messages or was created again. The reader decides where to continue.
                return Err(TransportError::Disconnected);
            }
            if self.known_end < self.next {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }
}

/// A stream that was there when the cursor was opened is created again soon, as after a server has lost its disk.
fn reading_again(error: TransportError) -> TransportError {
    match error {
        TransportError::NotProvisioned(_) => TransportError::Disconnected,
        other => other,
    }
}
