//! A program of the operator: one message per line on its input and output (MCP, stdio). `rmcp` reads and writes the
//! lines; this module handles the process, the limit of a line and the log.

use std::pin::Pin;
use std::process::Stdio as Pipe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::CLOSE_TIMEOUT;
use super::limits::{OpenRequests, ValueCounter, is_response};
use super::streamable::{address_response, is_discovery};
use crate::error::{CloseReason, WireError};
use crate::options::ProgramCommand;

/// Most bytes of one line of the program's standard error that are logged.
const MAX_LOG_LINE_BYTES: usize = 8 << 10;

/// A running program. Dropping it ends the program with its whole process group.
pub(crate) struct ProgramTransport {
    lines: AsyncRwTransport<RoleClient, BoundedLines<ChildStdout>, ChildStdin>,
    group: Option<ProcessGroup>,
    /// The request for the server's versions, while it has no response.
    discovery: Option<RequestId>,
    /// The time at which the wait for its response ends.
    discovery_deadline: Instant,
    /// Whether the handshake continues without the response.
    is_discovery_over: bool,
    handshake: ProgramHandshake,
    open_requests: OpenRequests,
    close_reason: CloseReason,
    _log: JoinSet<()>,
}

/// How a session with a program begins, and what is learnt about it. Clones share that.
#[derive(Clone, Debug)]
pub(crate) struct ProgramHandshake {
    /// Longest wait for the versions of the program; after that, the session begins with `initialize` (MCP 2026-07-28,
    /// stdio: earlier servers may ignore what they do not know).
    pub(crate) discovery_timeout: Duration,
    is_late: Arc<AtomicBool>,
}

impl ProgramHandshake {
    pub(crate) fn new(discovery_timeout: Duration) -> Self {
        Self {
            discovery_timeout,
            is_late: Arc::default(),
        }
    }

    /// Whether the program named its versions after the wait for them was over.
    pub(crate) fn has_late_discovery(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }
}

/// A process group; killed when it is dropped. The leader is reaped only after that, so its number cannot be reused.
#[derive(Debug)]
struct ProcessGroup {
    leader: Child,
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.leader.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw)
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "an MCP server was gone before it was ended");
        }
    }
}

/// Starts the program with only the environment of its configuration. The reason why it ends later is stored in
/// `close_reason`.
pub(crate) fn open_program(
    name: &str,
    command: &ProgramCommand,
    limit: usize,
    handshake: &ProgramHandshake,
    close_reason: &CloseReason,
) -> Result<ProgramTransport, WireError> {
    let mut starting = tokio::process::Command::new(&command.command);
    starting
        .args(&command.args)
        .env_clear()
        .envs(
            command
                .env
                .iter()
                .map(|(name, value)| (name, value.expose())),
        )
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        // A separate process group, so that its children end with it.
        .process_group(0)
        .kill_on_drop(true);
    if let Some(directory) = &command.cwd {
        starting.current_dir(directory);
    }
    let mut leader = starting
        .spawn()
        .map_err(|error| WireError::NotSent(error.into()))?;
    let pipes = (
        leader.stdin.take(),
        leader.stdout.take(),
        leader.stderr.take(),
    );
    let group = ProcessGroup { leader };
    let (Some(input), Some(output), Some(log)) = pipes else {
        return Err(WireError::Malformed("it has no pipes"));
    };
    let mut relay = JoinSet::new();
    relay.spawn(relay_stderr(name.to_owned(), BufReader::new(log)));
    let output = BoundedLines {
        inner: output,
        limit,
        line_bytes: 0,
        values: ValueCounter::default(),
        close_reason: close_reason.clone(),
    };
    Ok(ProgramTransport {
        // `BoundedLines` enforces the limit: for a line that is too long, `rmcp` reports nothing to the caller of a
        // request.
        lines: AsyncRwTransport::new_client(output, input).with_max_line_length(usize::MAX),
        group: Some(group),
        discovery: None,
        discovery_deadline: Instant::now(),
        is_discovery_over: false,
        handshake: handshake.clone(),
        open_requests: OpenRequests::default(),
        close_reason: close_reason.clone(),
        _log: relay,
    })
}

/// The output of a program. A line that is too long or has too many values ends it, and the end is recorded.
struct BoundedLines<R> {
    inner: R,
    limit: usize,
    line_bytes: usize,
    values: ValueCounter,
    close_reason: CloseReason,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, buffer)).inspect_err(
            |error| {
                let cause = std::io::Error::from(error.kind());
                self.close_reason.set(WireError::Broken(Some(cause.into())));
            },
        )?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if read.is_empty() {
            self.close_reason.set(WireError::Broken(None));
        }
        for part in read.split_inclusive(|byte| *byte == b'\n') {
            let line_bytes = self.line_bytes + part.len();
            if line_bytes > self.limit {
                self.close_reason.set(WireError::TooLong(self.limit));
                return Poll::Ready(Err(std::io::ErrorKind::InvalidData.into()));
            }
            if let Err(error) = self.values.add(part) {
                self.close_reason.set(error);
                return Poll::Ready(Err(std::io::ErrorKind::InvalidData.into()));
            }
            self.line_bytes = line_bytes;
            if part.ends_with(b"\n") {
                self.line_bytes = 0;
                self.values = ValueCounter::default();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Passes what the program writes to its standard error on to the service's log, line by line. A line that is too long
/// is cut.
async fn relay_stderr(program: String, mut log: impl AsyncBufRead + Unpin) {
    let mut line = Vec::new();
    let mut is_cut = false;
    loop {
        let chunk = match log.fill_buf().await {
            Ok(chunk) if !chunk.is_empty() => chunk,
            _ => break,
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part_length = end.unwrap_or(chunk.len());
        let room_left = MAX_LOG_LINE_BYTES.saturating_sub(line.len());
        is_cut |= part_length > room_left;
        line.extend(chunk.iter().take(part_length.min(room_left)));
        log.consume(end.map_or(part_length, |end| end + 1));
        if end.is_some() {
            log_line(&program, &line, is_cut);
            line.clear();
            is_cut = false;
        }
    }
    if !line.is_empty() {
        log_line(&program, &line, is_cut);
    }
}

fn log_line(program: &str, line: &[u8], is_cut: bool) {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end();
    tracing::info!(
        program,
        line,
        is_cut,
        "an MCP program wrote to its standard error"
    );
}

/// The response that `rmcp` treats as that of a server without `server/discover`: it continues with `initialize`.
fn silence_error(id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::invalid_request(WireError::Idle.to_string(), None);
    ServerJsonRpcMessage::error(error, Some(id))
}

impl Transport<RoleClient> for ProgramTransport {
    type Error = WireError;

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), WireError>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item {
            match request.request {
                ClientRequest::DiscoverRequest(_) => {
                    self.discovery = Some(request.id.clone());
                    self.discovery_deadline = Instant::now() + self.handshake.discovery_timeout;
                }
                ClientRequest::InitializeRequest(_) => self.is_discovery_over = true,
                _ => {}
            }
        }
        let (open_requests, is_response) = (self.open_requests.clone(), is_response(&item));
        let sending = self.lines.send(item);
        // Without its end a line is not a message, so the program did not get it.
        async move {
            let sent = sending.await;
            open_requests.record_sent(is_response);
            sent.map_err(|error| WireError::NotSent(error.into()))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let discovery_id = self.discovery.clone().filter(|_| !self.is_discovery_over);
            let mut message = match discovery_id {
                None => self.lines.receive().await?,
                Some(id) => {
                    let answered = timeout_at(self.discovery_deadline, self.lines.receive()).await;
                    let Ok(message) = answered else {
                        self.is_discovery_over = true;
                        return Some(silence_error(id));
                    };
                    message?
                }
            };
            if let Err(error) = self.open_requests.record_received(&message) {
                self.close_reason.set(error);
                return None;
            }
            let discovery = self
                .discovery
                .take_if(|id| address_response(&mut message, id));
            // The handshake has continued without it, and `rmcp` would treat the response to another request as a
            // failure.
            if discovery.is_none() || !self.is_discovery_over {
                return Some(message);
            }
            let is_answer = matches!(message, JsonRpcMessage::Response(_));
            if is_answer && is_discovery(&message) {
                self.handshake.is_late.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Closes the input, waits a moment until the program exits, and kills its group.
    async fn close(&mut self) -> Result<(), WireError> {
        // The end of its input asks the program to end (MCP, stdio).
        if let Err(error) = self.lines.close().await {
            tracing::debug!(%error, "the input of an MCP server could not be closed");
        }
        let ends = async { while self.lines.receive().await.is_some() {} };
        if tokio::time::timeout(CLOSE_TIMEOUT, ends).await.is_err() {
            tracing::debug!("an MCP server did not end by itself");
        }
        drop(self.group.take());
        Ok(())
    }
}
