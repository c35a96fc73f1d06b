//! Limits for what a server may send besides bytes: values in one message, requests without a response, and
//! notifications.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use tokio::time::Instant;

use crate::error::WireError;

/// Most values in one message. A parsed value takes up to 40 times the memory of its text.
const MAX_MESSAGE_VALUES: usize = 250_000;

/// Most requests of a server that have no response yet. Each one occupies a task and memory until its response is sent,
/// and a server can send them faster than it takes responses.
const MAX_OPEN_REQUESTS: usize = 64;

/// Time for which notifications are counted together.
const NOTIFICATION_WINDOW: Duration = Duration::from_secs(10);

/// Most notifications of a server in [`NOTIFICATION_WINDOW`].
const MAX_NOTIFICATIONS: usize = 200_000;

/// Most notifications for the session in [`NOTIFICATION_WINDOW`].
const MAX_NEEDED_NOTIFICATIONS: usize = 1_000;

/// Counts the values of a JSON text without parsing it. The text may come in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValueCounter {
    values: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl ValueCounter {
    /// Adds the next part of the text.
    ///
    /// # Errors
    ///
    /// The text has more than [`MAX_MESSAGE_VALUES`] values.
    pub(super) fn add(&mut self, text: &[u8]) -> Result<(), WireError> {
        for byte in text {
            if self.is_escaped {
                self.is_escaped = false;
                continue;
            }
            match byte {
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                // Each value but the first follows one of these.
                b',' | b'[' | b'{' if !self.is_in_string => self.values += 1,
                _ => {}
            }
        }
        if self.values > MAX_MESSAGE_VALUES {
            return Err(WireError::Malformed("a message has too many values"));
        }
        Ok(())
    }
}

/// The requests of a server that have no response yet, and its notifications. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct InboundLimits {
    open_requests: Arc<AtomicUsize>,
    notifications: Arc<Mutex<NotificationWindow>>,
}

impl InboundLimits {
    /// Counts a message of the server. Returns whether it is for the session: of notifications only those that it acts
    /// on, because each one is a task with a copy of its message, and a server can send them faster than tasks end.
    ///
    /// # Errors
    ///
    /// [`MAX_OPEN_REQUESTS`] requests have no response yet, or the notifications in [`NOTIFICATION_WINDOW`] are too many.
    pub(super) fn admit(&self, message: &ServerJsonRpcMessage) -> Result<bool, WireError> {
        match message {
            JsonRpcMessage::Request(_) => {
                if self.open_requests.fetch_add(1, Ordering::Relaxed) < MAX_OPEN_REQUESTS {
                    return Ok(true);
                }
                self.release();
                Err(WireError::Malformed("it sends too many requests at a time"))
            }
            JsonRpcMessage::Notification(notification) => {
                let is_needed = is_needed(&notification.notification);
                let window = self.notifications.lock();
                let mut window = window.unwrap_or_else(PoisonError::into_inner);
                window.count(is_needed, Instant::now())?;
                Ok(is_needed)
            }
            _ => Ok(true),
        }
    }

    /// Counts a message to the server, once it is sent or cannot be sent, if it is a response.
    pub(super) fn record_sent(&self, is_response: bool) {
        if is_response {
            self.release();
        }
    }

    fn release(&self) {
        // Not below zero: `rmcp` may respond to a message that is not counted here, because it cannot be parsed.
        let one_less = |count: usize| count.checked_sub(1);
        let _ = self
            .open_requests
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

/// Whether the session acts on a notification: changed lists end what `rmcp` caches, the others belong to subscriptions.
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

/// The notifications that are counted together.
#[derive(Debug, Default)]
struct NotificationWindow {
    begun_at: Option<Instant>,
    all: usize,
    needed: usize,
}

impl NotificationWindow {
    fn count(&mut self, is_needed: bool, now: Instant) -> Result<(), WireError> {
        let begun_at = *self.begun_at.get_or_insert(now);
        if now.duration_since(begun_at) >= NOTIFICATION_WINDOW {
            *self = Self {
                begun_at: Some(now),
                ..Self::default()
            };
        }
        self.all += 1;
        self.needed += usize::from(is_needed);
        if self.all > MAX_NOTIFICATIONS || self.needed > MAX_NEEDED_NOTIFICATIONS {
            return Err(WireError::Malformed("it sends too many notifications"));
        }
        Ok(())
    }
}

/// Whether a message to the server is the response to a request of the server.
pub(super) const fn is_response(message: &ClientJsonRpcMessage) -> bool {
    matches!(
        message,
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_counted_outside_strings_and_across_parts() {
        let mut counter = ValueCounter::default();
        for part in [r#"{"a": [1, 2, "x, {\"#, r#"", [ "], "b": {}}"#] {
            counter.add(part.as_bytes()).unwrap();
        }
        assert_eq!(counter.values, 6);
    }

    #[test]
    fn a_message_with_too_many_values_is_refused() {
        let text = format!("[{}1]", "1,".repeat(MAX_MESSAGE_VALUES - 1));
        ValueCounter::default().add(text.as_bytes()).unwrap();
        let text = format!("[1,{}", &text[1..]);
        assert!(ValueCounter::default().add(text.as_bytes()).is_err());
        let string = format!("\"{}\"", ",".repeat(MAX_MESSAGE_VALUES * 2));
        ValueCounter::default().add(string.as_bytes()).unwrap();
    }

    #[test]
    fn a_server_may_send_further_requests_after_responses() {
        let ping = r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}"#;
        let ping: ServerJsonRpcMessage = serde_json::from_str(ping).unwrap();
        let open = InboundLimits::default();
        for _ in 0..MAX_OPEN_REQUESTS {
            assert!(open.admit(&ping).unwrap());
        }
        assert!(open.admit(&ping).is_err());
        open.record_sent(false);
        assert!(open.admit(&ping).is_err());
        open.record_sent(true);
        assert!(open.admit(&ping).unwrap());
    }

    fn notification(method: &str) -> ServerJsonRpcMessage {
        let params = json!({"progressToken": 1, "progress": 1, "level": "info", "data": "x"});
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        serde_json::from_value(message).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn only_notifications_that_the_session_acts_on_reach_it_and_too_many_are_refused() {
        let limits = InboundLimits::default();
        for method in ["progress", "message", "resources/updated", "anything"] {
            let message = notification(&format!("notifications/{method}"));
            assert!(!limits.admit(&message).unwrap(), "{method}");
        }
        let changed = notification("notifications/tools/list_changed");
        for _ in 0..MAX_NEEDED_NOTIFICATIONS {
            assert!(limits.admit(&changed).unwrap());
        }
        assert!(limits.admit(&changed).is_err());
        tokio::time::advance(NOTIFICATION_WINDOW).await;
        assert!(limits.admit(&changed).unwrap(), "in the next window");
    }
}
