//! One session on a shared connection. The master moves the bytes between the host and the pipes made here.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::Client;
use crate::fault::Refusal;
use crate::master::{Master, SocketId};
use crate::mux::{ControlConnection, MuxError, MuxSession, RemoteProgram};

/// Most of the last bytes of stderr that are kept.
const STDERR_TAIL_BYTES: usize = 4096;
/// Time limit for the session to close after its output has ended.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Capacity of the pipes, so that the master continues while this process hashes or writes. Linux limits the total for
/// each user.
const PIPE_BYTES: usize = 256 * 1024;

/// Starts sessions on one shared connection.
#[derive(Debug)]
pub(crate) struct SessionStarter<'a> {
    client: &'a Client,
    master: &'a Master,
    /// The socket behind which the expected host was found.
    socket: SocketId,
    used_client: AtomicBool,
}

impl<'a> SessionStarter<'a> {
    pub(crate) fn new(client: &'a Client, master: &'a Master, socket: SocketId) -> Self {
        Self {
            client,
            master,
            socket,
            used_client: AtomicBool::new(false),
        }
    }

    /// Whether a session may be on another connection than the expected one. A client program connects by itself, so
    /// only the socket after that shows which master it has found.
    pub(crate) fn is_misled(&self) -> bool {
        self.used_client.load(Ordering::Relaxed) && self.master.identity() != Some(self.socket)
    }

    /// Starts a program on the host, with a pipe to its input when `input`, and always one from its output.
    pub(crate) async fn start(
        &self,
        program: RemoteProgram<'_>,
        input: bool,
    ) -> Result<(Session, Option<ChildStdin>, ChildStdout), Refusal> {
        let error = match self.open(program, input).await {
            Ok(opened) => return Ok(opened),
            Err(MuxError::Gone(error)) => return Err(Refusal::Gone(error)),
            Err(MuxError::Full(error)) => return Err(Refusal::Full(error)),
            Err(MuxError::Refused(error) | MuxError::Unreachable(error)) => {
                return Err(Refusal::Final(error));
            }
            Err(MuxError::Uncertain(error)) => return Err(Refusal::Lost(error)),
            Err(MuxError::Unsupported(error)) => error,
        };
        // No session was opened, so nothing runs twice.
        tracing::debug!(%error, "a client program opens the session");
        self.used_client.store(true, Ordering::Relaxed);
        let mut command = self.client.command();
        Client::socket(&mut command, self.master.socket(), false);
        self.client.program(&mut command, program);
        Session::spawn(command, input).map_err(Refusal::Final)
    }

    async fn open(
        &self,
        program: RemoteProgram<'_>,
        input: bool,
    ) -> Result<(Session, Option<ChildStdin>, ChildStdout), MuxError> {
        let connection = ControlConnection::connect(self.master.socket()).await?;
        // After connecting: a socket that is still the same now was the one that was connected to.
        if self.master.identity() != Some(self.socket) {
            let replaced = "another process replaced the shared connection";
            return Err(MuxError::Gone(Error::new(ErrorKind::Unavailable, replaced)));
        }
        let pipes = SessionPipes::new(input).map_err(MuxError::Refused)?;
        let remote = [
            pipes.remote_stdin.as_fd(),
            pipes.remote_stdout.as_fd(),
            pipes.remote_stderr.as_fd(),
        ];
        let session = connection.open_session(program, remote).await?;
        let carrier = SessionCarrier::Mux(session);
        let opened = Session::new(carrier, pipes.stderr);
        Ok((opened, pipes.stdin, pipes.stdout))
    }
}

/// The pipes of a session: the ends of this process, and those that the master duplicates.
struct SessionPipes {
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
    remote_stdin: OwnedFd,
    remote_stdout: OwnedFd,
    remote_stderr: OwnedFd,
}

impl SessionPipes {
    fn new(input: bool) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "no pipes for a session").caused_by(error)
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let (stdin, remote_stdin) = if input {
            let (remote, ours) = pipe()?;
            let ours = ChildStdin::from_std(ours.into()).map_err(failed)?;
            (Some(ours), remote)
        } else {
            (None, File::open("/dev/null").map_err(failed)?.into())
        };
        let (stdout, remote_stdout) = pipe()?;
        let (stderr, remote_stderr) = pipe()?;
        let stdout = ChildStdout::from_std(stdout.into()).map_err(failed)?;
        enlarge(stdin.as_ref(), &stdout);
        Ok(Self {
            stdin,
            stdout,
            stderr: ChildStderr::from_std(stderr.into()).map_err(failed)?,
            remote_stdin,
            remote_stdout,
            remote_stderr,
        })
    }
}

/// Smaller pipes work as well; the system may not grant larger ones.
fn enlarge(stdin: Option<&ChildStdin>, stdout: &ChildStdout) {
    let _ = rustix::pipe::fcntl_setpipe_size(stdout, PIPE_BYTES);
    if let Some(stdin) = stdin {
        let _ = rustix::pipe::fcntl_setpipe_size(stdin, PIPE_BYTES);
    }
}

/// What keeps a session open.
#[derive(Debug)]
enum SessionCarrier {
    Mux(MuxSession),
    /// An `ssh` process that passes its pipes to the master.
    Client(Child),
}

/// A running session. Dropping it closes the session.
#[derive(Debug)]
pub(crate) struct Session {
    carrier: SessionCarrier,
    /// The task that reads stderr.
    stderr_task: JoinSet<String>,
}

impl Session {
    fn new(carrier: SessionCarrier, stderr: ChildStderr) -> Self {
        // Read from the beginning: a program that fills the pipe of stderr would block in the middle of a transfer. A
        // `JoinSet`, because dropping it ends the task.
        let mut stderr_task = JoinSet::new();
        stderr_task.spawn(read_tail(stderr));
        Self {
            carrier,
            stderr_task,
        }
    }

    /// Starts `ssh`, with a pipe to its input when `input`, and always one from its output.
    fn spawn(
        mut command: Command,
        input: bool,
    ) -> Result<(Self, Option<ChildStdin>, ChildStdout), Error> {
        if input {
            command.stdin(Stdio::piped());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "ssh cannot be started").caused_by(error)
        })?;
        let stdin = child.stdin.take();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Error::new(ErrorKind::Unavailable, "ssh has no pipes"));
        };
        enlarge(stdin.as_ref(), &stdout);
        let session = Self::new(SessionCarrier::Client(child), stderr);
        Ok((session, stdin, stdout))
    }

    /// Whether a client program carries the session, so that stderr has its messages too.
    pub(crate) fn has_client(&self) -> bool {
        matches!(self.carrier, SessionCarrier::Client(_))
    }

    /// Whether the session is still open.
    pub(crate) fn is_alive(&mut self) -> bool {
        match &mut self.carrier {
            SessionCarrier::Mux(session) => session.is_alive(),
            SessionCarrier::Client(child) => matches!(child.try_wait(), Ok(None)),
        }
    }

    /// Waits for the end: exit status, where there is one, and the last of stderr.
    pub(crate) async fn end(mut self) -> Result<(Option<i32>, String), Error> {
        let ending = async {
            match self.carrier {
                SessionCarrier::Mux(session) => session.end().await,
                SessionCarrier::Client(mut child) => match child.wait().await {
                    Ok(status) => Ok(status.code()),
                    Err(error) => Err(Error::new(ErrorKind::Unavailable, "ssh cannot be awaited")
                        .caused_by(error)),
                },
            }
        };
        // The output has ended, so only the cleanup of the session is left.
        let status = timeout(END_TIMEOUT, ending)
            .await
            .map_err(|_| Error::new(ErrorKind::Timeout, "the session does not end"))??;
        // A process that outlives the command may hold stderr open.
        let text = match timeout(END_TIMEOUT, self.stderr_task.join_next()).await {
            Ok(Some(Ok(text))) => text,
            _ => String::new(),
        };
        Ok((status, text))
    }
}

/// Reads to the end and keeps the last of it.
async fn read_tail(mut stderr: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; STDERR_TAIL_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let surplus = kept.len().saturating_sub(STDERR_TAIL_BYTES);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests;
