//! Limits for what a server may send in addition to the limit on bytes of one response: values in one message, requests
//! without a response, notifications, and unused messages.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_types::json_values::JsonValueCounter;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use tokio::time::Instant;

use crate::error::WireError;

/// Most values in one message. A parsed value takes up to 40 times the memory of its text.
const MAX_MESSAGE_VALUES: usize = 250_000;

/// Most requests of a server that have no response yet. Each one occupies a task and memory until its response is sent,
/// and a server can send them faster than it takes responses.
const MAX_OPEN_REQUESTS: usize = 64;

/// Most bytes of one request of a server. It is kept until its response is sent, which may wait for a user.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Time for which messages of a server are counted together.
const COUNT_WINDOW: Duration = Duration::from_mins(1);

/// Most requests of a server in [`COUNT_WINDOW`], answered or not.
const MAX_REQUESTS: usize = 1_000;

/// Most notifications for the session in [`COUNT_WINDOW`].
const MAX_NEEDED_NOTIFICATIONS: usize = 1_000;

/// Most unused messages in [`COUNT_WINDOW`]: other notifications, responses to unknown requests, and lines that are not
/// messages.
const MAX_UNUSED_MESSAGES: usize = 200_000;

/// Most bytes in [`COUNT_WINDOW`] that are not used.
const MAX_UNUSED_BYTES: usize = 64 << 20;

/// Counts the values of a message before it is parsed. The message may come in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueCounter(JsonValueCounter);

impl ValueCounter {
    /// Adds the next part of the message.
    ///
    /// # Errors
    ///
    /// The message has more than [`MAX_MESSAGE_VALUES`] values.
    pub(super) fn add(&mut self, text: &[u8]) -> Result<(), WireError> {
        if self.0.add(text) > MAX_MESSAGE_VALUES {
            return Err(WireError::Malformed("a message has too many values"));
        }
        Ok(())
    }
}

/// What a server has sent on one connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct InboundLimits(Arc<Mutex<InboundState>>);

#[derive(Debug, Default)]
struct InboundState {
    /// Requests of the server that have no response yet.
    open_requests: HashSet<RequestId>,
    /// Requests to the server that have no response yet, by the text of their ids: some servers answer the id 1 with
    /// "1". Used on connections that carry the responses to all requests.
    awaited: HashSet<String>,
    window: MessageWindow,
}

impl InboundLimits {
    /// Counts a message of the server with this number of bytes. Returns whether the message is for the session. A
    /// notification is for the session only if the session acts on it: each one is a task with a copy of its message,
    /// and a server can send them faster than tasks end.
    ///
    /// # Errors
    ///
    /// A request is too long, [`MAX_OPEN_REQUESTS`] requests have no response yet, or the messages in [`COUNT_WINDOW`]
    /// are too many.
    pub(super) fn admit(
        &self,
        message: &ServerJsonRpcMessage,
        bytes: usize,
    ) -> Result<bool, WireError> {
        let mut state = self.state();
        match message {
            JsonRpcMessage::Request(request) => {
                if bytes > MAX_REQUEST_BYTES {
                    return Err(WireError::Malformed("one of its requests is too long"));
                }
                let is_new = state.open_requests.insert(request.id.clone());
                if is_new && state.open_requests.len() > MAX_OPEN_REQUESTS {
                    return Err(WireError::Malformed("it sends too many requests at a time"));
                }
                state.window.count_request(Instant::now())?;
                Ok(true)
            }
            JsonRpcMessage::Notification(notification) => {
                let notification = &notification.notification;
                if let ServerNotification::CancelledNotification(cancelled) = notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // A cancelled request gets no response.
                    state.open_requests.remove(id);
                }
                let is_needed = is_needed(notification);
                if is_needed {
                    state.window.count_needed(Instant::now())?;
                } else {
                    state.window.count_unused(bytes, Instant::now())?;
                }
                Ok(is_needed)
            }
            JsonRpcMessage::Response(response) => state.admit_response(Some(&response.id), bytes),
            JsonRpcMessage::Error(error) => state.admit_response(error.id.as_ref(), bytes),
        }
    }

    /// Counts bytes of the server that are not a message.
    ///
    /// # Errors
    ///
    /// There are too many of them in [`COUNT_WINDOW`].
    pub(super) fn count_unused(&self, bytes: usize) -> Result<(), WireError> {
        self.state().window.count_unused(bytes, Instant::now())
    }

    /// Counts the bytes of a stream as they arrive, before it is known whether they belong to a message.
    ///
    /// # Errors
    ///
    /// Those of [`Self::count_unused`].
    pub(super) fn count_stream_bytes(&self, bytes: usize) -> Result<(), WireError> {
        self.state().window.count_bytes(bytes, Instant::now())
    }

    /// Takes back the count of stream bytes that belong to a message; [`Self::admit`] counts the message.
    pub(super) fn release_stream_bytes(&self, bytes: usize) {
        let window = &mut self.state().window;
        window.unused_bytes = window.unused_bytes.saturating_sub(bytes);
    }

    /// Records a request to the server if its response comes on this connection, and the end of requests that get no
    /// response.
    pub(super) fn record_request(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.state().awaited.insert(request.id.to_string());
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.state().awaited.remove(&id.to_string());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// Records a response to a request of the server, once it is sent or cannot be sent.
    pub(super) fn record_response(&self, request: Option<&RequestId>) {
        if let Some(id) = request {
            self.state().open_requests.remove(id);
        }
    }

    fn state(&self) -> MutexGuard<'_, InboundState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InboundState {
    /// Whether a response is for the session. Other responses are only counted: a response to no request would end a
    /// handshake.
    fn admit_response(&mut self, id: Option<&RequestId>, bytes: usize) -> Result<bool, WireError> {
        if id.is_some_and(|id| self.awaited.remove(&id.to_string())) {
            return Ok(true);
        }
        self.window.count_unused(bytes, Instant::now())?;
        // An error without an id may be the answer to a message that the server could not read.
        Ok(id.is_none())
    }
}

/// Whether the session acts on a notification: changed lists invalidate what `rmcp` caches, and the others belong to
/// subscriptions.
const fn is_needed(notification: &ServerNotification) -> bool {
    matches!(
        notification,
        ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_)
            | ServerNotification::SubscriptionsAcknowledgedNotification(_)
            | ServerNotification::CancelledNotification(_)
    )
}

/// The messages that are counted together.
#[derive(Debug, Default)]
struct MessageWindow {
    begun_at: Option<Instant>,
    requests: usize,
    needed: usize,
    unused: usize,
    unused_bytes: usize,
}

impl MessageWindow {
    fn count_request(&mut self, now: Instant) -> Result<(), WireError> {
        self.advance(now);
        self.requests += 1;
        if self.requests > MAX_REQUESTS {
            return Err(WireError::Malformed("it sends too many requests"));
        }
        Ok(())
    }

    fn count_needed(&mut self, now: Instant) -> Result<(), WireError> {
        self.advance(now);
        self.needed += 1;
        if self.needed > MAX_NEEDED_NOTIFICATIONS {
            return Err(WireError::Malformed("it sends too many notifications"));
        }
        Ok(())
    }

    fn count_unused(&mut self, bytes: usize, now: Instant) -> Result<(), WireError> {
        self.advance(now);
        self.unused += 1;
        if self.unused > MAX_UNUSED_MESSAGES {
            return Err(WireError::Malformed("it sends too many messages"));
        }
        self.count_bytes(bytes, now)
    }

    fn count_bytes(&mut self, bytes: usize, now: Instant) -> Result<(), WireError> {
        self.advance(now);
        self.unused_bytes = self.unused_bytes.saturating_add(bytes);
        if self.unused_bytes > MAX_UNUSED_BYTES {
            return Err(WireError::Malformed("it sends too much besides responses"));
        }
        Ok(())
    }

    fn advance(&mut self, now: Instant) {
        let begun_at = *self.begun_at.get_or_insert(now);
        if now.duration_since(begun_at) >= COUNT_WINDOW {
            *self = Self {
                begun_at: Some(now),
                ..Self::default()
            };
        }
    }
}

/// The id in a message to the server that is a response to a request of the server.
pub(super) const fn response_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_with_too_many_values_is_refused() {
        let text = format!("[{}1]", "1,".repeat(MAX_MESSAGE_VALUES - 1));
        ValueCounter::default().add(text.as_bytes()).unwrap();
        let text = format!("[1,{}", &text[1..]);
        assert!(ValueCounter::default().add(text.as_bytes()).is_err());
        let string = format!("\"{}\"", ",".repeat(MAX_MESSAGE_VALUES * 2));
        ValueCounter::default().add(string.as_bytes()).unwrap();
    }

    fn message(value: serde_json::Value) -> ServerJsonRpcMessage {
        serde_json::from_value(value).unwrap()
    }

    fn ping(id: usize) -> ServerJsonRpcMessage {
        message(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
    }

    fn refusal_text(outcome: Result<bool, WireError>) -> String {
        outcome.unwrap_err().to_string()
    }

    const MALFORMED: &str = "the server does not respond as an MCP server: ";

    fn id(number: usize) -> RequestId {
        RequestId::Number(i64::try_from(number).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_may_send_further_requests_after_responses() {
        let limits = InboundLimits::default();
        for number in 0..MAX_OPEN_REQUESTS {
            assert!(limits.admit(&ping(number), 50).unwrap());
        }
        limits.record_response(None);
        let text = format!("{MALFORMED}it sends too many requests at a time");
        assert_eq!(refusal_text(limits.admit(&ping(500), 50)), text);
        limits.record_response(Some(&id(500)));
        limits.record_response(Some(&id(0)));
        assert!(limits.admit(&ping(501), 50).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_the_server_cancels_is_not_open() {
        let limits = InboundLimits::default();
        for number in 0..MAX_OPEN_REQUESTS * 2 {
            assert!(limits.admit(&ping(number), 50).unwrap());
            let params = json!({"requestId": number});
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            limits.admit(&message(cancelled), 80).unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_without_end_are_refused_though_each_has_its_response() {
        let limits = InboundLimits::default();
        for number in 0..MAX_REQUESTS {
            assert!(limits.admit(&ping(number), 50).unwrap());
            limits.record_response(Some(&id(number)));
        }
        let text = format!("{MALFORMED}it sends too many requests");
        assert_eq!(refusal_text(limits.admit(&ping(5000), 50)), text);
        tokio::time::advance(COUNT_WINDOW).await;
        limits.record_response(Some(&id(5000)));
        assert!(limits.admit(&ping(5001), 50).unwrap(), "in the next window");
        let text = format!("{MALFORMED}one of its requests is too long");
        assert_eq!(
            refusal_text(limits.admit(&ping(5002), MAX_REQUEST_BYTES + 1)),
            text
        );
    }

    fn notification(method: &str) -> ServerJsonRpcMessage {
        let params = json!({"progressToken": 1, "progress": 1, "level": "info", "data": "x"});
        message(json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    #[tokio::test(start_paused = true)]
    async fn only_notifications_that_the_session_acts_on_reach_it_and_too_many_are_refused() {
        let limits = InboundLimits::default();
        for method in ["progress", "message", "resources/updated", "anything"] {
            let message = notification(&format!("notifications/{method}"));
            assert!(!limits.admit(&message, 80).unwrap(), "{method}");
        }
        let changed = notification("notifications/tools/list_changed");
        for _ in 0..MAX_NEEDED_NOTIFICATIONS {
            assert!(limits.admit(&changed, 80).unwrap());
        }
        let text = format!("{MALFORMED}it sends too many notifications");
        assert_eq!(refusal_text(limits.admit(&changed, 80)), text);
        tokio::time::advance(COUNT_WINDOW).await;
        assert!(limits.admit(&changed, 80).unwrap(), "in the next window");
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_no_request_waits_for_are_counted() {
        let limits = InboundLimits::default();
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
        let request: ClientJsonRpcMessage = serde_json::from_value(request).unwrap();
        // The id is text, and the response is as long as all unused bytes together may be.
        let response = message(json!({"jsonrpc": "2.0", "id": "7", "result": {}}));
        limits.record_request(&request);
        assert!(limits.admit(&response, MAX_UNUSED_BYTES).unwrap());
        assert!(!limits.admit(&response, MAX_UNUSED_BYTES).unwrap(), "again");
        let text = format!("{MALFORMED}it sends too much besides responses");
        assert_eq!(refusal_text(limits.admit(&response, 1)), text);
        limits.record_request(&request);
        assert!(limits.admit(&response, 1).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_a_stream_count_until_their_message_is_complete() {
        let limits = InboundLimits::default();
        limits.count_stream_bytes(MAX_UNUSED_BYTES).unwrap();
        limits.release_stream_bytes(1 << 20);
        limits.count_stream_bytes(1 << 20).unwrap();
        let text = format!("{MALFORMED}it sends too much besides responses");
        assert_eq!(limits.count_unused(1).unwrap_err().to_string(), text);
        tokio::time::advance(COUNT_WINDOW).await;
        limits.count_unused(1).unwrap();
    }
}
