//! The events of one response, with a bound for all of them. A stream that breaks after an event with an id is resumed
//! there (MCP 2025-11-25, SEP-1699).

use std::collections::VecDeque;
use std::time::Duration;

use dray_http::HttpResponse;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::Method;
use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::events::{EventDecoder, message_data};
use super::streamable::{Endpoint, admit_response, message_event};
use super::{is_type, parse_json, parse_messages};
use crate::error::{REQUEST_TIMEOUT, WireError};

/// Attempts to resume a stream without an event in between.
const MAX_RESUME_ATTEMPTS: u32 = 5;

/// Attempts to resume a stream in all. A server may end it after each event.
const MAX_RESUMES: u32 = 500;

/// Delay before a stream is resumed, when the server names none.
const RESUME_DELAY: Duration = Duration::from_secs(1);

/// Longest delay that a server may ask for.
const MAX_RESUME_DELAY: Duration = Duration::from_mins(1);

/// A response that comes as events.
pub(super) struct ResponseStream {
    response: HttpResponse,
    endpoint: Endpoint,
    id: RequestId,
    decoder: EventDecoder,
    ready: VecDeque<Sse>,
    bytes_read: usize,
    last_event_id: Option<String>,
    resume_delay: Duration,
    resume_attempts: u32,
    resumes: u32,
    is_over: bool,
}

impl ResponseStream {
    pub(super) fn new(response: HttpResponse, endpoint: Endpoint, id: RequestId) -> Self {
        let decoder = EventDecoder::new(endpoint.settings.limit);
        Self {
            response,
            endpoint,
            id,
            decoder,
            ready: VecDeque::new(),
            bytes_read: 0,
            last_event_id: None,
            resume_delay: RESUME_DELAY,
            resume_attempts: 0,
            resumes: 0,
            is_over: false,
        }
    }

    /// The messages, the response last. If the response does not arrive, a JSON-RPC error replaces it, because the
    /// transport cannot report a failure to the caller of this request in another way.
    pub(super) fn events(self) -> BoxStream<'static, Result<Sse, SseError>> {
        stream::unfold(self, |mut state| async move {
            let event = state.next().await?;
            Some((Ok(event), state))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            if let Err(error) = self.read_more().await {
                self.is_over = true;
                self.ready.extend(self.failure(&error));
            }
        }
    }

    async fn read_more(&mut self) -> Result<(), WireError> {
        let broken = match self.response.chunk().await {
            Ok(Some(chunk)) => return self.take_chunk(&chunk),
            Ok(None) => WireError::Broken(None),
            Err(error) => error.into(),
        };
        if !matches!(broken, WireError::Broken(_)) || self.last_event_id.is_none() {
            return Err(broken);
        }
        self.resume(broken).await
    }

    fn take_chunk(&mut self, chunk: &[u8]) -> Result<(), WireError> {
        let limit = self.endpoint.settings.limit;
        self.bytes_read += chunk.len();
        if self.bytes_read > limit {
            return Err(WireError::TooLong(limit));
        }
        for event in self.decoder.push(chunk)? {
            self.resume_attempts = 0;
            if let Some(delay) = event.retry {
                self.resume_delay = Duration::from_millis(delay).min(MAX_RESUME_DELAY);
            }
            if let Some(data) = message_data(&event) {
                let messages = parse_messages(parse_json(data.as_bytes())?)?;
                let inbound = &self.endpoint.inbound;
                let (messages, is_answered) =
                    admit_response(messages, data.len(), &self.id, inbound)?;
                self.is_over |= is_answered;
                // The id of the event is left out, so that the transport does not resume the stream on its own.
                self.ready.extend(messages.iter().filter_map(message_event));
            }
            self.last_event_id = event.id.or(self.last_event_id.take());
            if self.is_over {
                break;
            }
        }
        Ok(())
    }

    /// Continues after the last event. A server that does not know the stream leaves `broken` as the outcome.
    async fn resume(&mut self, broken: WireError) -> Result<(), WireError> {
        self.resume_attempts += 1;
        self.resumes += 1;
        let Some(last) = &self.last_event_id else {
            return Err(broken);
        };
        if self.resume_attempts > MAX_RESUME_ATTEMPTS || self.resumes > MAX_RESUMES {
            return Err(broken);
        }
        tokio::time::sleep(self.resume_delay).await;
        let request = self
            .endpoint
            .request(Method::GET)
            .header("accept", "text/event-stream")
            .header("last-event-id", last);
        match request.send(&|_| {}).await {
            Ok(response) if response.is_success() && is_type(&response, "text/event-stream") => {
                self.response = response;
                self.decoder = EventDecoder::new(self.endpoint.settings.limit);
                Ok(())
            }
            Ok(_) => Err(broken),
            // The old response is kept; when it ends, this code runs again.
            Err(error) => {
                tracing::debug!(%error, "a response of an MCP server could not be resumed yet");
                Ok(())
            }
        }
    }

    fn failure(&self, error: &WireError) -> Option<Sse> {
        let code = match error {
            WireError::Idle => ErrorCode(REQUEST_TIMEOUT),
            _ => ErrorCode::INTERNAL_ERROR,
        };
        let source = std::error::Error::source(error);
        tracing::debug!(%error, source, "a response of an MCP server broke off");
        let error = ErrorData::new(code, error.to_string(), None);
        message_event(&ServerJsonRpcMessage::error(error, Some(self.id.clone())))
    }
}
