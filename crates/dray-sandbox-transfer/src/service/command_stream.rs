//! Streams the outputs of a program to its caller while the program runs.

use bytes::{Buf as _, Bytes};
use dray_proto::v1::{self, exec_sandbox_event::Event};
use dray_sandbox::Error;
use dray_service::ReplyChunks;

use super::command_output::OutputCollector;

/// Most bytes of an output in one message.
const MAX_CHUNK_BYTES: usize = 32 << 10;

/// The stream of reply messages that carries the chunks of both outputs.
pub(super) type OutputChunks = ReplyChunks<v1::ExecSandboxEvent>;

/// An output of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputName {
    /// Standard output, descriptor 1.
    Stdout,
    /// Standard error, descriptor 2.
    Stderr,
}

/// Collects one output, and sends the kept bytes if the caller reads chunks.
pub(super) struct StreamedOutput<'a> {
    collector: OutputCollector<'a>,
    name: OutputName,
    chunks: Option<&'a OutputChunks>,
    /// Kept bytes that were not sent, because their write was dropped at the time limit.
    unsent: Bytes,
}

impl<'a> StreamedOutput<'a> {
    pub(super) fn new(
        collector: OutputCollector<'a>,
        name: OutputName,
        chunks: Option<&'a OutputChunks>,
    ) -> Self {
        Self {
            collector,
            name,
            chunks,
            unsent: Bytes::new(),
        }
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.chunks.is_some()
    }

    /// Collects and sends the next bytes. Waits for a slow caller, so that the program waits too (back-pressure).
    pub(super) async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        // Bytes of a write that was dropped come first, or the caller would read them out of order.
        self.send_unsent().await;
        let kept = self.collector.write(chunk).await?;
        if self.is_streamed() {
            self.unsent = kept;
            self.send_unsent().await;
        }
        Ok(())
    }

    /// Sends the kept bytes. Bytes that a dropped future has not sent stay for the next call.
    async fn send_unsent(&mut self) {
        let Some(chunks) = self.chunks else {
            return;
        };
        while !self.unsent.is_empty() {
            let size = self.unsent.len().min(MAX_CHUNK_BYTES);
            let chunk = self.unsent.slice(..size).to_vec();
            let event = match self.name {
                OutputName::Stdout => Event::Stdout(chunk),
                OutputName::Stderr => Event::Stderr(chunk),
            };
            if chunks.send(&wrap_event(event)).await.is_err() {
                // A caller that has disconnected cancels the call, and with it the program.
                return;
            }
            self.unsent.advance(size);
        }
    }

    /// Collects the rest of a complete output: the bytes after those that were written before.
    pub(super) async fn write_rest(&mut self, mut whole: Bytes) -> Result<(), Error> {
        // The collector counts all earlier bytes, kept or not.
        let size = usize::try_from(self.collector.size()).unwrap_or(usize::MAX);
        let rest = whole.split_off(size.min(whole.len()));
        self.write(rest).await
    }

    /// Records that the sandbox left out the rest of the output.
    pub(super) const fn set_truncated(&mut self) {
        self.collector.set_truncated();
    }

    /// Sends the rest, and completes the stored output.
    pub(super) async fn finish(mut self) -> Result<v1::CommandOutput, Error> {
        self.send_unsent().await;
        self.collector.finish().await
    }
}

/// The last event of a program.
pub(super) fn end_event(reply: v1::ExecSandboxReply) -> v1::ExecSandboxEvent {
    wrap_event(Event::End(reply))
}

const fn wrap_event(event: Event) -> v1::ExecSandboxEvent {
    v1::ExecSandboxEvent { event: Some(event) }
}
