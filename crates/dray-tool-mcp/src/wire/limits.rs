//! Limits for what a server may send besides bytes: values in one message, and requests without a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};

use crate::error::WireError;

/// Most values in one message. A parsed value takes up to 40 times the memory of its text.
const MAX_MESSAGE_VALUES: usize = 250_000;

/// Most requests of a server that have no response yet. Each one occupies a task and memory until its response is sent,
/// and a server can send them faster than it takes responses.
const MAX_OPEN_REQUESTS: usize = 64;

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

/// The number of requests of a server that have no response yet. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRequests(Arc<AtomicUsize>);

impl OpenRequests {
    /// Counts a message of the server if it is a request.
    ///
    /// # Errors
    ///
    /// [`MAX_OPEN_REQUESTS`] requests have no response yet.
    pub(super) fn record_received(&self, message: &ServerJsonRpcMessage) -> Result<(), WireError> {
        if !matches!(message, JsonRpcMessage::Request(_)) {
            return Ok(());
        }
        if self.0.fetch_add(1, Ordering::Relaxed) < MAX_OPEN_REQUESTS {
            return Ok(());
        }
        self.release();
        Err(WireError::Malformed("it sends too many requests at a time"))
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
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
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
        let open = OpenRequests::default();
        for _ in 0..MAX_OPEN_REQUESTS {
            open.record_received(&ping).unwrap();
        }
        assert!(open.clone().record_received(&ping).is_err());
        open.record_sent(false);
        assert!(open.record_received(&ping).is_err());
        open.record_sent(true);
        open.record_received(&ping).unwrap();
    }
}
