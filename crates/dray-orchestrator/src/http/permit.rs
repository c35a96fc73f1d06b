//! One of the concurrent chats, and the memory for its request.

use dray_agent::failure::RequestFailure;
use dray_http_server::BytePermit;
use tokio::sync::OwnedSemaphorePermit;

/// One of the concurrent chats, until it is dropped.
#[derive(Debug)]
pub(super) struct ChatPermit {
    /// Memory for the body of the request; `None` for a chat that continues without one.
    body: Option<BytePermit>,
    _chat: OwnedSemaphorePermit,
}

impl ChatPermit {
    pub(super) const fn new(chat: OwnedSemaphorePermit) -> Self {
        Self {
            body: None,
            _chat: chat,
        }
    }

    /// Holds the memory for the body as long as the chat.
    pub(super) fn hold_body(&mut self, memory: BytePermit) {
        self.body = Some(memory);
    }

    /// Takes memory for further content of the request.
    ///
    /// # Errors
    ///
    /// 503 when other requests use it.
    pub(super) fn grow_body(&mut self, bytes: u64) -> Result<(), RequestFailure> {
        let Some(memory) = &mut self.body else {
            return Ok(());
        };
        let bytes = memory.bytes().saturating_add(bytes);
        if memory.resize(bytes) {
            Ok(())
        } else {
            Err(memory_failure())
        }
    }
}

/// Other requests use the memory for bodies.
pub(super) fn memory_failure() -> RequestFailure {
    RequestFailure::new(503, "Too many bytes in concurrent requests")
        .display("The service is busy. Please try again later.")
}
