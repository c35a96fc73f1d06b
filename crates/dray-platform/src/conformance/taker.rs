//! Takes what users write, for tests of ways in.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::{Error, ErrorKind};
use crate::platform::{Deliver, InboundMessage};

/// Takes messages, after refusing so many as not stored.
#[derive(Debug)]
pub struct Taker {
    refuses: AtomicU32,
    taken: UnboundedSender<InboundMessage>,
}

impl Taker {
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
impl Deliver for Taker {
    async fn message(&self, message: InboundMessage) -> Result<(), Error> {
        let less = |left: u32| left.checked_sub(1);
        let refused = self
            .refuses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if refused.is_ok() {
            return Err(Error::new(ErrorKind::Transient, "not stored"));
        }
        let gone = |_| Error::new(ErrorKind::Transient, "nobody takes messages any more");
        self.taken.send(message).map_err(gone)
    }
}
