//! A program of the operator: one message per line on its input and output (MCP, stdio). This module handles the
//! process and the handshake; `rmcp` writes the lines.

use std::process::Stdio as Pipe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{BufReader, Empty};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::CLOSE_TIMEOUT;
use super::limits::{InboundLimits, response_id};
use super::program_lines::MessageLines;
use super::program_log::relay_stderr;
use super::streamable::{address_response, is_discovery};
use crate::error::{CloseReason, WireError};
use crate::options::ProgramCommand;

/// A running program. Dropping it ends the program with its whole process group.
pub(crate) struct ProgramTransport {
    lines: MessageLines<ChildStdout>,
    input: AsyncRwTransport<RoleClient, Empty, ChildStdin>,
    group: Option<ProcessGroup>,
    /// The request for the server's versions, while it has no response.
    discovery: Option<RequestId>,
    /// The time at which the wait for its response ends.
    discovery_deadline: Instant,
    /// Whether the handshake continues without the response.
    is_discovery_over: bool,
    handshake: ProgramHandshake,
    inbound: InboundLimits,
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

impl ProcessGroup {
    fn send_signal(&self, signal: Signal) {
        let id = self.leader.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw)
            && let Err(error) = kill_process_group(group, signal)
        {
            tracing::debug!(%error, "an MCP server was gone before it was ended");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.send_signal(Signal::KILL);
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
    let inbound = InboundLimits::default();
    Ok(ProgramTransport {
        lines: MessageLines::new(output, limit, inbound.clone(), close_reason.clone()),
        input: AsyncRwTransport::new_client(tokio::io::empty(), input),
        group: Some(group),
        discovery: None,
        discovery_deadline: Instant::now(),
        is_discovery_over: false,
        handshake: handshake.clone(),
        inbound,
        close_reason: close_reason.clone(),
        _log: relay,
    })
}

/// The response from which `rmcp` concludes that the server has no `server/discover`: it continues with `initialize`.
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
        self.inbound.record_request(&item);
        let (inbound, answered) = (self.inbound.clone(), response_id(&item).cloned());
        let sending = self.input.send(item);
        // Without a line end this is not a message, so the program did not get it.
        async move {
            let sent = sending.await;
            inbound.record_response(answered.as_ref());
            sent.map_err(|error| WireError::NotSent(error.into()))
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let discovery_id = self.discovery.clone().filter(|_| !self.is_discovery_over);
            let mut message = match discovery_id {
                None => self.lines.next().await?,
                Some(id) => {
                    let answered = timeout_at(self.discovery_deadline, self.lines.next()).await;
                    let Ok(message) = answered else {
                        self.is_discovery_over = true;
                        return Some(silence_error(id));
                    };
                    message?
                }
            };
            match self.inbound.admit(&message, self.lines.message_bytes()) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    self.close_reason.set(error);
                    return None;
                }
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

    /// Closes the input and waits a moment until the program exits. A program that does not exit gets SIGTERM, and after
    /// another moment its group is killed.
    async fn close(&mut self) -> Result<(), WireError> {
        // The end of its input asks the program to end (MCP, stdio). A program that does not read keeps a message in
        // the pipe, and the writer of that message holds the input.
        let closing = tokio::time::timeout(CLOSE_TIMEOUT, self.input.close());
        let has_ended = match closing.await {
            Ok(closed) => {
                if let Err(error) = closed {
                    tracing::debug!(%error, "the input of an MCP server could not be closed");
                }
                self.ends_in_time().await
            }
            Err(_) => false,
        };
        if !has_ended {
            tracing::debug!("an MCP server did not end by itself");
            // A program may run its server elsewhere, as `docker run` does, and SIGKILL would leave that one running.
            if let Some(group) = &self.group {
                group.send_signal(Signal::TERM);
            }
            self.ends_in_time().await;
        }
        drop(self.group.take());
        Ok(())
    }
}

impl ProgramTransport {
    /// Waits for the end of the program's output. Returns whether it came in time.
    async fn ends_in_time(&mut self) -> bool {
        let ends = async { while self.lines.next().await.is_some() {} };
        tokio::time::timeout(CLOSE_TIMEOUT, ends).await.is_ok()
    }
}
