//! A sink for messages of users, for tests of inbound sources.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{ErrorKind, PlatformError};
use crate::platform::{InboundMessage, InboundSink};

/// Records messages, after refusing the first ones as not stored.
#[derive(Debug)]
pub struct RecordingSink {
    refuses: AtomicU32,
    messages: UnboundedSender<InboundMessage>,
}

impl RecordingSink {
    /// A sink that refuses the first `refuses` messages, and the receiver of those that it records.
    pub fn new(refuses: u32) -> (Self, UnboundedReceiver<InboundMessage>) {
        let (sender, messages) = unbounded_channel();
        let sink = Self {
            refuses: AtomicU32::new(refuses),
            messages: sender,
        };
        (sink, messages)
    }
}

#[async_trait]
impl InboundSink for RecordingSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        // At zero `fetch_update` fails, and the message is recorded.
        let decrement = |left: u32| left.checked_sub(1);
        let refused = self
            .refuses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement);
        if refused.is_ok() {
            return Err(PlatformError::new(ErrorKind::Transient, "not stored"));
        }
        let receiver_dropped =
            |_| PlatformError::new(ErrorKind::Transient, "the receiver of messages is gone");
        self.messages.send(message).map_err(receiver_dropped)
    }
}
