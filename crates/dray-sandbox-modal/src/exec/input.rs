//! The input of a command, written by offset: bytes that a broken connection lost are sent again (sandbox-transfer
//!

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use dray_sandbox::{Body, Error, ErrorKind};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::fault;
use crate::retry::RequestRetries;
use crate::router::{Router, RouterAccess};
use crate::wire::{
    EmptyMessage, ExecWaitResponse, StdinChunk, StdinStart, StdinStatus, StdinWrite, StreamPayload,
};

/// Bytes of one message.
const CHUNK_BYTES: usize = 256 << 10;
/// Most sent bytes that are kept in case the router requests them again. Bytes that the router has not received are in
/// flight, and the flow control windows of a connection hold no more than this.
const MAX_KEPT_BYTES: usize = 8 << 20;
/// Action that errors of this module name.
const INPUT_CONTEXT: &str = "writing the input of a command";

/// The end of one stream of input.
enum InputEnd {
    /// The router received all of it, or wants no more.
    Done,
    /// The stream broke.
    Broke(Status),
}

/// Standard input of one command.
pub(super) struct CommandInput {
    router: Arc<Router>,
    exec_id: String,
    body: Option<Body>,
    /// Rest of a long chunk.
    rest: Bytes,
    /// Bytes that were sent at least once.
    sent: u64,
    /// The last of these bytes, in case they must be sent again.
    replay_chunks: VecDeque<Bytes>,
    replay_bytes: usize,
    ended: bool,
}

impl CommandInput {
    pub(super) fn new(router: Arc<Router>, exec_id: String, body: Option<Body>) -> Self {
        Self {
            router,
            exec_id,
            body,
            rest: Bytes::new(),
            sent: 0,
            replay_chunks: VecDeque::new(),
            replay_bytes: 0,
            ended: false,
        }
    }

    /// Feeds all input. Fails when the source does or the router cannot be reached. It is not a failure when a command
    /// does not read all of it; its status shows that.
    pub(super) async fn feed(mut self) -> Result<(), Error> {
        if self.body.is_none() {
            return self.close().await;
        }
        let mut retry = RequestRetries::default();
        let mut renewed = false;
        let mut offset = 0;
        loop {
            let access = self.router.access();
            let status = match self.stream(&access, offset, retry.throttles()).await? {
                InputEnd::Done => return Ok(()),
                InputEnd::Broke(status) => status,
            };
            // Access tokens of a router live for minutes. A new token that is refused as well is a real refusal.
            if status.code() == Code::Unauthenticated && !renewed {
                renewed = true;
                let fresh = self.router.renew(&access).await;
                fresh.map_err(|status| fault::failed(INPUT_CONTEXT, &status))?;
            } else if !retry.wait_for_retry(&status).await {
                return self.check_unwanted(&status).await;
            }
            let Some(received_bytes) = self.received_bytes().await? else {
                return Ok(());
            };
            // Progress: a command that reads for hours may see more breaks than the retries allow in a row.
            if received_bytes > offset {
                retry.progress();
                renewed = false;
            }
            offset = received_bytes;
            tracing::debug!(offset, code = ?status.code(), "an input is resumed");
        }
    }

    /// Ends an empty input.
    async fn close(&mut self) -> Result<(), Error> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStdinWrite";
        let write = StdinWrite {
            task_id: self.router.task_id().to_owned(),
            exec_id: self.exec_id.clone(),
            offset: 0,
            data: Bytes::new(),
            eof: true,
        };
        match self.router.ask::<_, EmptyMessage>(path, &write).await {
            Ok(EmptyMessage {}) => Ok(()),
            // It is not a failure when the command ended before its input was closed.
            Err(status) => self.check_unwanted(&status).await,
        }
    }

    /// Succeeds if the command takes no more input because it has ended or closed it; otherwise fails with the refusal.
    async fn check_unwanted(&mut self, status: &Status) -> Result<(), Error> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecPoll";
        let request = self.router.exec_request(&self.exec_id);
        let polled = self.router.ask::<_, ExecWaitResponse>(path, &request).await;
        if polled.is_ok_and(|polled| polled.exit_status.is_some()) {
            return Ok(());
        }
        // A command closes its input before the router knows its exit status. Other refusals may have cut the input.
        if status.code() == Code::FailedPrecondition
            && self.status().await.is_ok_and(|status| status.closed)
        {
            return Ok(());
        }
        Err(fault::failed(INPUT_CONTEXT, status))
    }

    async fn status(&mut self) -> Result<StdinStatus, Status> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStdinStatus";
        let request = self.router.exec_request(&self.exec_id);
        self.router.ask(path, &request).await
    }

    /// Number of bytes that the router has; `None` when it wants no more.
    async fn received_bytes(&mut self) -> Result<Option<u64>, Error> {
        match self.status().await {
            Ok(status) if status.closed => Ok(None),
            Ok(status) => Ok(Some(status.num_bytes_written)),
            Err(status) => self.check_unwanted(&status).await.map(|()| None),
        }
    }

    /// One stream, from an offset on.
    async fn stream(
        &mut self,
        access: &RouterAccess,
        offset: u64,
        throttles: u32,
    ) -> Result<InputEnd, Error> {
        let replay = self.replay(offset)?;
        // Room for one message: a larger queue would hold more bytes than `MAX_KEPT_BYTES` accounts for.
        let (chunks, receiver) = mpsc::channel(1);
        let start = StdinStart {
            task_id: self.router.task_id().to_owned(),
            exec_id: self.exec_id.clone(),
            offset,
        };
        let call = Router::input(access, ReceiverStream::new(receiver), throttles);
        tokio::pin!(call);
        let response = tokio::select! {
            response = &mut call => response,
            sent = self.send_chunks(&chunks, start, replay) => {
                sent?;
                // The end of the stream; the response comes only after it.
                drop(chunks);
                call.await
            }
        };
        match response {
            Ok(()) => Ok(InputEnd::Done),
            Err(status) => Ok(InputEnd::Broke(status)),
        }
    }

    /// Sends the chunks. Bytes from the source are kept before they are sent, so that this future may be dropped at any
    /// time.
    async fn send_chunks(
        &mut self,
        chunks: &mpsc::Sender<StdinChunk>,
        start: StdinStart,
        replay: Vec<Bytes>,
    ) -> Result<(), Error> {
        let payloads = std::iter::once(StreamPayload::Start(start))
            .chain(replay.into_iter().map(StreamPayload::Data));
        for payload in payloads {
            send(chunks, payload).await;
        }
        while let Some(chunk) = self.next_chunk().await? {
            send(chunks, StreamPayload::Data(chunk)).await;
        }
        send(chunks, StreamPayload::End(EmptyMessage {})).await;
        Ok(())
    }

    /// The next chunk of the source.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while self.rest.is_empty() && !self.ended {
            match &mut self.body {
                Some(body) => match body.next().await {
                    Some(chunk) => self.rest = chunk?,
                    None => self.ended = true,
                },
                None => self.ended = true,
            }
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let chunk = self.rest.split_to(self.rest.len().min(CHUNK_BYTES));
        self.sent += chunk.len() as u64;
        self.replay_bytes += chunk.len();
        // A cheap clone: both share the buffer of the chunk.
        self.replay_chunks.push_back(chunk.clone());
        while self.replay_bytes > MAX_KEPT_BYTES {
            match self.replay_chunks.pop_front() {
                Some(old) => self.replay_bytes -= old.len(),
                None => self.replay_bytes = 0,
            }
        }
        Ok(Some(chunk))
    }

    /// The chunks that must be sent again from this offset.
    fn replay(&self, offset: u64) -> Result<Vec<Bytes>, Error> {
        let first = self.sent - self.replay_bytes as u64;
        // Without this check, a faulty router that claims bytes that were never sent would corrupt the file.
        if offset > self.sent {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the router reports more bytes than were sent",
            ));
        }
        // The router lost bytes that it had reported as received and that are no longer kept here.
        let Some(skip) = offset.checked_sub(first) else {
            let lost = "more bytes were lost than are kept for sending again";
            return Err(Error::new(ErrorKind::Unavailable, lost));
        };
        let mut skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let mut replay = Vec::new();
        for chunk in &self.replay_chunks {
            let mut chunk = chunk.clone();
            let known = skip.min(chunk.len());
            chunk.advance(known);
            skip -= known;
            if !chunk.is_empty() {
                replay.push(chunk);
            }
        }
        Ok(replay)
    }
}

/// Sends one message. If the call has ended, waits forever: the response of the call has the reason.
async fn send(chunks: &mpsc::Sender<StdinChunk>, payload: StreamPayload) {
    let chunk = StdinChunk {
        payload: Some(payload),
    };
    if chunks.send(chunk).await.is_err() {
        // The `select` in `stream` then ends with the response of the call, which names the reason.
        std::future::pending::<()>().await;
    }
}
