//! Takes what users write, for tests of ways in.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{ErrorKind, PlatformError};
use crate::platform::{InboundMessage, InboundSink};

/// Takes messages, after refusing so many as not stored.
#[derive(Debug)]
pub struct RecordingSink {
    refuses: AtomicU32,
    taken: UnboundedSender<InboundMessage>,
}

impl RecordingSink {
    /// One that refuses so many first, and what it takes.
    pub fn new(refuses: u32) -> (Self, UnboundedReceiver<InboundMessage>) {
        let (sender, taken) = unbounded_channel();
        let taker = Self {
            refuses: AtomicU32::new(refuses),
            taken: sender,
        };
        (taker, taken)
    }
}

#[async_trait]
impl InboundSink for RecordingSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        let less = |left: u32| left.checked_sub(1);
        let refused = self
            .refuses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if refused.is_ok() {
            return Err(PlatformError::new(ErrorKind::Transient, "not stored"));
        }
        let gone = |_| PlatformError::new(ErrorKind::Transient, "nobody takes messages any more");
        self.taken.send(message).map_err(gone)
    }
}
