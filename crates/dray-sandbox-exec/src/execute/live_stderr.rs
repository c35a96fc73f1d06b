//! Standard error that arrives between parts of the output, while the program writes it.

use bytes::Bytes;
use dray_sandbox::command::CommandEnd;
use dray_sandbox::error::Error;
use tokio::sync::mpsc;

use crate::decode::TextDecoder;

/// Standard error that has arrived so far.
pub(super) struct LiveStderr {
    /// Sends each part to the caller; a dropped receiver gets none.
    sender: Option<mpsc::Sender<Bytes>>,
    /// The encoder that the script chose.
    coding: String,
    limit: usize,
    kept: Vec<u8>,
    truncated: bool,
}

impl LiveStderr {
    pub(super) const fn new(sender: Option<mpsc::Sender<Bytes>>, limit: usize) -> Self {
        Self {
            sender,
            coding: String::new(),
            limit,
            kept: Vec::new(),
            truncated: false,
        }
    }

    pub(super) fn set_coding(&mut self, coding: &str) {
        coding.clone_into(&mut self.coding);
    }

    /// Decodes a part, keeps its bytes up to the limit, and sends the kept bytes.
    pub(super) async fn take(&mut self, text: &[u8]) -> Result<(), Error> {
        let mut decoder = TextDecoder::new(&self.coding)?;
        let mut chunk = decoder.feed(text)?;
        decoder.finish()?;
        let room = self.limit - self.kept.len();
        self.truncated |= chunk.len() > room;
        chunk.truncate(room);
        self.kept.extend_from_slice(&chunk);
        if let Some(sender) = self.sender.as_ref().filter(|_| !chunk.is_empty()) {
            // A caller that reads only the output has dropped the receiver.
            drop(sender.send(chunk.into()).await);
        }
        Ok(())
    }

    /// Puts the standard error that has arrived into the end of the program.
    pub(super) fn complete(&mut self, end: CommandEnd) -> CommandEnd {
        // A sandbox without `dd` reports all of it at the end.
        if self.kept.is_empty() && !self.truncated {
            return end;
        }
        CommandEnd {
            stderr: std::mem::take(&mut self.kept),
            stderr_truncated: self.truncated,
            ..end
        }
    }
}
