//! A response while it arrives.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use dray_http::{HttpResponse, SseDecoder};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::delta::ChunkDelta;
use super::error::{ChatError, ChatKind};
use super::surrogates::SplitPairs;
use crate::error::Error;

/// Longest event of a response, in bytes. Models that make pictures send them in one event.
const MAX_EVENT_BYTES: usize = 32 << 20;

/// How long a call waits for the end of the body after the last event. Services send both together, or one right after
/// the other, and then the next call uses the connection.
const BODY_END_WAIT: Duration = Duration::from_millis(2);
/// How long the end of the body is read in the background after that.
const BODY_END_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads one chunk of a response.
type ChunkReader<T> = fn(&mut ChatStream, &[u8]) -> Result<T, ChatError>;

/// A response while it arrives: events, or one JSON document if the peer does not stream.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact about the response"
)]
pub struct ChatStream {
    /// `None` once its last event was taken.
    response: Option<HttpResponse>,
    body_ends: TaskTracker,
    decoder: SseDecoder,
    events: VecDeque<String>,
    /// `Some` while the form of the response is unknown, and while it is one document.
    document: Option<Vec<u8>>,
    is_known: bool,
    split_pairs: SplitPairs,
    /// Whether a chunk had a part of an answer, even an empty one.
    has_choice: bool,
    finished: bool,
    is_closed: bool,
}

impl ChatStream {
    pub(super) fn new(response: HttpResponse, body_ends: TaskTracker) -> Self {
        Self {
            response: Some(response),
            body_ends,
            decoder: SseDecoder::new(MAX_EVENT_BYTES),
            events: VecDeque::new(),
            document: None,
            is_known: false,
            split_pairs: SplitPairs::default(),
            has_choice: false,
            finished: false,
            is_closed: false,
        }
    }

    /// The next chunk, `None` after the last one. After an error no further chunk follows.
    ///
    /// # Errors
    ///
    /// [`ChatKind::Broken`] if it ends without a finish reason or without any choice, [`ChatKind::Timeout`],
    /// [`ChatKind::Malformed`] and errors that the service reports.
    pub async fn next(&mut self) -> Result<Option<ChunkDelta>, ChatError> {
        self.next_with(Self::read_delta).await
    }

    /// [`ChatStream::next`] as the raw chunk, for callers that pass on unknown members.
    ///
    /// # Errors
    ///
    /// The errors of [`ChatStream::next`].
    pub async fn chunk(&mut self) -> Result<Option<Value>, ChatError> {
        self.next_with(Self::read_value).await
    }

    async fn next_with<T>(&mut self, read: ChunkReader<T>) -> Result<Option<T>, ChatError> {
        if self.is_closed {
            return Ok(None);
        }
        let next = self.advance(read).await;
        // After the end or an error, the connection is no longer read.
        self.is_closed = !matches!(next, Ok(Some(_)));
        next
    }

    async fn advance<T>(&mut self, read: ChunkReader<T>) -> Result<Option<T>, ChatError> {
        loop {
            while let Some(event) = self.events.pop_front() {
                let event = event.trim();
                if event == "[DONE]" {
                    self.read_body_end().await;
                    return self.check_end();
                }
                if !event.is_empty() {
                    return read(self, event.as_bytes()).map(Some);
                }
            }
            let Some(response) = &mut self.response else {
                return Ok(None);
            };
            match response.chunk().await {
                Ok(Some(chunk)) => self.add_bytes(&chunk)?,
                Ok(None) => return self.read_end(read),
                // The response was complete; only `[DONE]` is missing.
                Err(_) if self.finished => return Ok(None),
                Err(error) => return Err(Error::from(error).into()),
            }
        }
    }

    /// Ends the response. Fails if no choice arrived, because that would look like an empty answer.
    fn check_end<T>(&self) -> Result<Option<T>, ChatError> {
        if self.has_choice {
            return Ok(None);
        }
        Err(ChatError::new(
            ChatKind::Broken,
            "the response has no choice",
        ))
    }

    /// Reads the body to its end, so that a later call can use the connection: a connection whose response was not read
    /// completely is closed. The answer is complete in any case, so a service that keeps the response open causes no
    /// delay.
    async fn read_body_end(&mut self) {
        let Some(mut response) = self.response.take() else {
            return;
        };
        if timeout(BODY_END_WAIT, read_to_end(&mut response))
            .await
            .is_err()
        {
            self.body_ends.spawn(async move {
                // A connection that is still open then is closed.
                let _ = timeout(BODY_END_TIMEOUT, read_to_end(&mut response)).await;
            });
        }
    }

    fn add_bytes(&mut self, chunk: &[u8]) -> Result<(), ChatError> {
        if !self.is_known {
            let first = chunk.iter().find(|byte| !byte.is_ascii_whitespace());
            if let Some(first) = first {
                self.is_known = true;
                // No line of an event stream begins with a brace, so this is one JSON document.
                self.document = (*first == b'{').then(Vec::new);
            }
        }
        let too_long = || ChatError::new(ChatKind::Malformed, "an event is longer than 32 MiB");
        match &mut self.document {
            Some(document) if document.len() + chunk.len() > MAX_EVENT_BYTES => Err(too_long()),
            Some(document) => {
                document.extend_from_slice(chunk);
                Ok(())
            }
            None => {
                let events = self.decoder.push(chunk).map_err(|_| too_long())?;
                self.events
                    .extend(events.into_iter().filter_map(|event| event.data));
                Ok(())
            }
        }
    }

    fn read_end<T>(&mut self, read: ChunkReader<T>) -> Result<Option<T>, ChatError> {
        if let Some(document) = self.document.take() {
            let whole = read(self, &document)?;
            self.check_end::<T>()?;
            self.finished = true;
            return Ok(Some(whole));
        }
        match self.decoder.finish() {
            Some(event) if event.trim() == "[DONE]" => self.check_end(),
            // The last event, without the empty line after it.
            Some(event) if serde_json::from_str::<Value>(&event).is_ok() => {
                read(self, event.as_bytes()).map(Some)
            }
            // Some services leave `[DONE]` out; a finish reason is enough.
            _ if self.finished => Ok(None),
            _ => Err(ChatError::new(
                ChatKind::Broken,
                "the stream ended in the middle",
            )),
        }
    }

    fn read_delta(&mut self, event: &[u8]) -> Result<ChunkDelta, ChatError> {
        // A waiting half of a character is joined with this chunk, for which the tree is needed.
        if !self.split_pairs.is_waiting()
            && let Some(delta) = ChunkDelta::read_plain(event)
        {
            self.has_choice = true;
            self.finished |= delta.finish_reason.is_some();
            return Ok(delta);
        }
        Ok(ChunkDelta::read(&self.read_value(event)?))
    }

    fn read_value(&mut self, event: &[u8]) -> Result<Value, ChatError> {
        let chunk = self
            .split_pairs
            .read(event)
            .map_err(|_| ChatError::new(ChatKind::Malformed, "a chunk is not JSON"))?;
        if !chunk.is_object() {
            return Err(ChatError::new(
                ChatKind::Malformed,
                "a chunk is not an object",
            ));
        }
        // After the status was sent, a failure is reported as an event (quickapps 4).
        if let Some(error) = reported_error(&chunk, self.has_choice) {
            return Err(ChatError::from_value(error));
        }
        let choices = chunk.get("choices").and_then(Value::as_array);
        self.has_choice |= choices.is_some_and(|choices| !choices.is_empty());
        let reason = chunk.pointer("/choices/0/finish_reason");
        self.finished |= reason.is_some_and(|reason| !reason.is_null());
        Ok(chunk)
    }
}

/// The error that a chunk reports in place of a part of the answer, after a part of it if `has_choice`.
fn reported_error(chunk: &Value, has_choice: bool) -> Option<&Value> {
    if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
        return Some(error);
    }
    if chunk.get("choices").is_some() {
        return None;
    }
    // Versions of vLLM write the members of the error beside `"object": "error"`. Servers on FastAPI write `detail` in
    // place of the response.
    let is_error = chunk.get("object").and_then(Value::as_str) == Some("error");
    let detail = chunk.get("detail");
    let detail = detail.filter(|detail| !has_choice && !detail.is_null());
    is_error.then_some(chunk).or(detail)
}

async fn read_to_end(response: &mut HttpResponse) {
    while let Ok(Some(_)) = response.chunk().await {}
}

impl fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream")
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
