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

/// Most bytes of stderr that are kept: those at its end.
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

    /// Whether a session may be on another connection than the expected one. A client program connects to the socket by
    /// itself. So only a socket that is still the same afterwards shows that the client found the expected master.
    pub(crate) fn has_uncertain_master(&self) -> bool {
        self.used_client.load(Ordering::Relaxed) && self.master.identity() != Some(self.socket)
    }

    /// Time for the host to open a session, and then for the login shell to begin.
    pub(crate) fn start_timeout(&self) -> Duration {
        self.client.settings().config.start_timeout.as_duration()
    }

    /// Starts a program on the host, with a pipe from its output, and a pipe to its input if `has_input`.
    pub(crate) async fn start(
        &self,
        program: RemoteProgram<'_>,
        has_input: bool,
    ) -> Result<(Session, Option<ChildStdin>, ChildStdout), Refusal> {
        let error = match self.open(program, has_input).await {
            Ok(opened) => return Ok(opened),
            Err(MuxError::NoMaster(error)) => return Err(Refusal::NotConnected(error)),
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
        Client::add_socket(&mut command, self.master.socket(), false);
        self.client.add_program(&mut command, program);
        Session::spawn(command, has_input).map_err(Refusal::Final)
    }

    async fn open(
        &self,
        program: RemoteProgram<'_>,
        has_input: bool,
    ) -> Result<(Session, Option<ChildStdin>, ChildStdout), MuxError> {
        let connection = ControlConnection::connect(self.master.socket()).await?;
        // The sockets are compared after connecting. If the socket is still the same now, it is the socket to which the
        // client connected.
        if self.master.identity() != Some(self.socket) {
            let replaced = "another process replaced the shared connection";
            return Err(MuxError::NoMaster(Error::new(
                ErrorKind::Unavailable,
                replaced,
            )));
        }
        let pipes = SessionPipes::new(has_input).map_err(MuxError::Refused)?;
        let remote = [
            pipes.remote_stdin.as_fd(),
            pipes.remote_stdout.as_fd(),
            pipes.remote_stderr.as_fd(),
        ];
        let session = connection
            .open_session(program, remote, self.start_timeout())
            .await?;
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
    fn new(has_input: bool) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "no pipes for a session").caused_by(error)
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let (stdin, remote_stdin) = if has_input {
            let (remote_stdin, stdin) = pipe()?;
            let stdin = ChildStdin::from_std(stdin.into()).map_err(failed)?;
            (Some(stdin), remote_stdin)
        } else {
            (None, File::open("/dev/null").map_err(failed)?.into())
        };
        let (stdout, remote_stdout) = pipe()?;
        let (stderr, remote_stderr) = pipe()?;
        let stdout = ChildStdout::from_std(stdout.into()).map_err(failed)?;
        enlarge_pipes(stdin.as_ref(), &stdout);
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

/// Enlarges the pipes if the system permits it. Smaller pipes work as well.
fn enlarge_pipes(stdin: Option<&ChildStdin>, stdout: &ChildStdout) {
    let _ = rustix::pipe::fcntl_setpipe_size(stdout, PIPE_BYTES);
    if let Some(stdin) = stdin {
        let _ = rustix::pipe::fcntl_setpipe_size(stdin, PIPE_BYTES);
    }
}

/// The resource that keeps a session open.
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
        // Stderr is read from the beginning: a program that fills the pipe of stderr would block in the middle of a
        // transfer. A `JoinSet`, because dropping it ends the task.
        let mut stderr_task = JoinSet::new();
        stderr_task.spawn(read_tail(stderr));
        Self {
            carrier,
            stderr_task,
        }
    }

    /// Starts `ssh`, with a pipe from its output, and a pipe to its input if `has_input`.
    fn spawn(
        mut command: Command,
        has_input: bool,
    ) -> Result<(Self, Option<ChildStdin>, ChildStdout), Error> {
        if has_input {
            command.stdin(Stdio::piped());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(crate::fault::not_started)?;
        let stdin = child.stdin.take();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Error::new(ErrorKind::Unavailable, "ssh has no pipes"));
        };
        enlarge_pipes(stdin.as_ref(), &stdout);
        let session = Self::new(SessionCarrier::Client(child), stderr);
        Ok((session, stdin, stdout))
    }

    /// Whether a client program carries the session, so that stderr has the messages of `ssh` too.
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

    /// Waits for the end of the session. Returns the exit status, if there is one, and the last bytes of stderr.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`] when the session does not end within [`END_TIMEOUT`]; the output has to end before.
    pub(crate) async fn wait(mut self) -> Result<(Option<i32>, String), Error> {
        let ending = async {
            match self.carrier {
                SessionCarrier::Mux(session) => session.wait().await,
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

/// Reads stderr to its end and returns its last bytes.
async fn read_tail(mut stderr: ChildStderr) -> String {
    let mut tail = Vec::new();
    let mut chunk = [0; STDERR_TAIL_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        tail.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..surplus);
    }
    String::from_utf8_lossy(&tail).into_owned()
}

#[cfg(test)]
mod tests;
