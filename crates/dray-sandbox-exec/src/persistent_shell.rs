//! One shell that stays open for all requests.
//!
//! Starting a command costs far more than running it: an engine creates a process in a container, and a host runs the
//! start files of a login shell. Requests are therefore written as lines to the input of one shell, and each runs in a
//! separate process. Responses are distinguished by their nonce. When a caller is dropped in the middle of a response,
//! the shell is ended too, so that no command keeps running.

mod feed;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use futures_util::stream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::channel::{CommandExit, Exec, RunningCommand};
use super::failure::unanswered;
use super::quote;
use super::reply::{Nonce, Reply, command, find};

/// How long a shell waits for its next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a shell to end after its input did.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line that ends a response, in bytes.
const MAX_LAST_LINE_BYTES: usize = 64;

/// Holds at most one waiting shell. A second one ends when its request is done.
#[derive(Debug)]
pub(super) struct PersistentShell {
    parked: Arc<Mutex<Option<ShellProcess>>>,
    sweeper: OnceLock<JoinSet<()>>,
}

/// A shell that reads commands from its input.
#[derive(Debug)]
struct ShellProcess {
    input: mpsc::Sender<Bytes>,
    running: RunningCommand,
    /// Scripts that the shell has in variables, by their numbers.
    scripts: Vec<&'static str>,
    /// When its last request ended.
    idle_since: Instant,
}

/// Whether a request whose response was lost may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// The request changes nothing.
    Harmless,
    /// Running the request twice has the same effect as running it once.
    Idempotent,
    /// Running the request twice has another effect.
    Never,
}

/// A request that ended without a response.
#[derive(Debug)]
struct LostReply {
    error: Error,
    /// Whether no output arrived.
    silent: bool,
}

impl PersistentShell {
    pub(super) fn new() -> Self {
        Self {
            parked: Arc::default(),
            sweeper: OnceLock::new(),
        }
    }

    /// Sends a request to the waiting shell, or to a new one. A request that may be repeated is sent again when the
    /// waiting shell turns out to be gone.
    pub(super) async fn run_script<E: Exec>(
        &self,
        exec: &E,
        script: &'static str,
        arguments: &[&[u8]],
        limit: usize,
        repeat: RetrySafety,
    ) -> Result<Reply, Error> {
        if let Some(shell) = self.take() {
            let request = self.send_request(exec, shell, script, arguments, limit);
            match send_when_ready(exec, repeat, request).await {
                // No output suggests that the shell was gone before it read the line; even then a rename is not
                // repeated.
                Err(lost) if lost.silent && repeat != RetrySafety::Never => {}
                Err(lost) => return Err(lost.error),
                Ok(reply) => return Ok(reply),
            }
        }
        let shell = ShellProcess::start(exec).await?;
        let request = self
            .send_request(exec, shell, script, arguments, limit)
            .await;
        request.map_err(|lost| lost.error)
    }

    /// Runs a script with a long output in the waiting shell, or in a new one. Once all output was read, the shell
    /// waits for the next request; a caller that is dropped earlier ends the shell. Standard error is not part of the
    /// output.
    pub(super) async fn run<E: Exec>(
        self: &Arc<Self>,
        exec: &E,
        script: &'static str,
        nonce: &Nonce,
        arguments: &[&[u8]],
    ) -> Result<RunningCommand, Error> {
        let line =
            |shell: &mut ShellProcess| shell.line(script, nonce, false, arguments, " </dev/null");
        let shell = self.begin(exec, line).await?;
        Ok(LentShell::new(Arc::clone(self), shell, nonce.clone()).running())
    }

    /// Writes a line to the waiting shell, or to a new one.
    async fn begin<E: Exec>(
        &self,
        exec: &E,
        line: impl Fn(&mut ShellProcess) -> Bytes,
    ) -> Result<ShellProcess, Error> {
        if let Some(mut shell) = self.take() {
            exec.ready().await?;
            let line = line(&mut shell);
            if shell.input.send(line).await.is_ok() {
                return Ok(shell);
            }
        }
        let mut shell = ShellProcess::start(exec).await?;
        let line = line(&mut shell);
        let gone_error = |_| Error::new(ErrorKind::Unavailable, "the shell is gone");
        shell.input.send(line).await.map_err(gone_error)?;
        Ok(shell)
    }

    /// Sends a request to this shell, which waits for the next one afterwards.
    async fn send_request<E: Exec>(
        &self,
        exec: &E,
        mut shell: ShellProcess,
        script: &'static str,
        arguments: &[&[u8]],
        limit: usize,
    ) -> Result<Reply, LostReply> {
        let nonce = Nonce::new();
        let text = !exec.channel().binary_output;
        let line = shell.line(script, &nonce, text, arguments, " </dev/null 2>&1");
        let silent = |error| LostReply {
            error,
            silent: true,
        };
        if shell.input.send(line).await.is_err() {
            let gone_error = Error::new(ErrorKind::Unavailable, "the shell is gone");
            return Err(silent(gone_error));
        }
        let mut output = Vec::new();
        loop {
            match shell.running.stdout.next().await {
                Some(Ok(chunk)) => {
                    // The last line may have begun in the previous chunk.
                    let before = output.len().saturating_sub(MAX_LAST_LINE_BYTES);
                    output.extend_from_slice(&chunk);
                    if let Some(status) = last_line(&output, before, &nonce) {
                        self.park(shell);
                        let exit = CommandExit {
                            status,
                            stderr: String::new(),
                        };
                        return parse_response(&output, &nonce, &exit).map_err(|error| LostReply {
                            error,
                            silent: false,
                        });
                    }
                    // The shell is not kept: it would still be writing the rest of this response.
                    if output.len() > limit {
                        return Reply::cut(&output, &nonce).map_err(|error| LostReply {
                            error,
                            silent: false,
                        });
                    }
                }
                Some(Err(error)) => {
                    let silent = output.is_empty();
                    return Err(LostReply { error, silent });
                }
                None => return shell.ended(&output, &nonce).await,
            }
        }
    }

    fn take(&self) -> Option<ShellProcess> {
        let mut shell = lock(&self.parked).take()?;
        // A waiting shell has no output. Any output means that it ended or cannot be trusted.
        let quiet = shell.running.stdout.next().now_or_never().is_none();
        quiet.then_some(shell)
    }

    /// Ends the waiting shell.
    pub(super) async fn release(&self) {
        let waiting = lock(&self.parked).take();
        if let Some(shell) = waiting {
            shell.close().await;
        }
    }

    fn park(&self, mut shell: ShellProcess) {
        shell.idle_since = Instant::now();
        self.sweeper.get_or_init(|| {
            let mut sweeper = JoinSet::new();
            sweeper.spawn(sweep(Arc::downgrade(&self.parked)));
            sweeper
        });
        // Two concurrent requests opened two shells; the older one ends here.
        let second = lock(&self.parked).replace(shell);
        // The second shell is dropped outside the lock, since dropping a shell ends its command.
        drop(second);
    }
}

impl Drop for PersistentShell {
    fn drop(&mut self) {
        let waiting = lock(&self.parked).take();
        // A waiting shell runs nothing. Dropping it would kill its process group, which takes a separate command on
        // some channels.
        if let (Some(shell), Ok(runtime)) = (waiting, Handle::try_current()) {
            runtime.spawn(shell.close());
        }
    }
}

impl ShellProcess {
    async fn start<E: Exec>(exec: &E) -> Result<Self, Error> {
        // Some channels take input only while their output is read, and between two requests no task reads it. So the
        // queue needs room for both the mark that ends the last input and the next request.
        let (input, lines) = mpsc::channel::<Bytes>(2);
        let lines = stream::unfold(lines, async |mut lines| {
            lines.recv().await.map(|line| (Ok(line), lines))
        });
        let running = exec.run_shell(Body::new(lines));
        Ok(Self {
            input,
            running: running.await?,
            scripts: Vec::new(),
            idle_since: Instant::now(),
        })
    }

    /// The line to write: the script, when it is new, and a process for the request, with this redirection. Words are
    /// quoted; none of them is executed (sandbox-transfer R-16).
    fn line(
        &mut self,
        script: &'static str,
        nonce: &Nonce,
        text: bool,
        arguments: &[&[u8]],
        redirection: &'static str,
    ) -> Bytes {
        let mut line = self.command(script, nonce, text, arguments, redirection);
        line.push(b'\n');
        line.into()
    }

    /// The command of the line, without its end.
    fn command(
        &mut self,
        script: &'static str,
        nonce: &Nonce,
        text: bool,
        arguments: &[&[u8]],
        redirection: &'static str,
    ) -> Vec<u8> {
        let argv = command(script, nonce, text, arguments);
        let mut words = argv.iter().skip(2);
        let whole = words.next().map(Vec::as_slice).unwrap_or_default();
        let mut line = Vec::with_capacity(whole.len() + 256);
        let known = self.scripts.iter().position(|known| *known == script);
        let number = known.unwrap_or(self.scripts.len());
        // A script is sent once and kept in a variable, since it is longer than most requests.
        if known.is_none() {
            self.scripts.push(script);
            line.extend_from_slice(format!("k{number}=").as_bytes());
            line.extend(quote(whole));
            line.push(b'\n');
        }
        line.extend_from_slice(format!("sh -c \"$k{number}\"").as_bytes());
        for word in words {
            line.push(b' ');
            line.extend(quote(word));
        }
        line.extend_from_slice(redirection.as_bytes());
        line.extend_from_slice(b"; printf '");
        line.extend_from_slice(b"\\n");
        line.extend(nonce.mark("over"));
        line.extend_from_slice(b" %s\\n' \"$?\"");
        line
    }

    /// Handles a stream that ended before the response did.
    async fn ended(self, output: &[u8], nonce: &Nonce) -> Result<Reply, LostReply> {
        let RunningCommand { stdout, end } = self.running;
        drop(stdout);
        let silent = output.is_empty();
        let answered = match end.await {
            Ok(exit) => parse_response(output, nonce, &exit),
            Err(error) => Err(error),
        };
        answered.map_err(|error| LostReply { error, silent })
    }

    /// Ends the shell through its input, without killing it.
    async fn close(self) {
        let Self { input, running, .. } = self;
        drop(input);
        let RunningCommand { mut stdout, end } = running;
        let ending = async {
            while let Some(Ok(_)) = stdout.next().await {}
            end.await
        };
        if let Ok(Err(error)) = timeout(END_TIMEOUT, ending).await {
            tracing::debug!(%error, "a shell did not end after its input was closed");
        }
    }
}

/// A shell whose long output is being read.
struct LentShell {
    persistent_shell: Arc<PersistentShell>,
    /// The shell, until its output ended.
    shell: Option<ShellProcess>,
    nonce: Nonce,
    /// The end of the output so far, in which the last line is searched.
    tail: Vec<u8>,
    status: Option<oneshot::Sender<i32>>,
}

impl LentShell {
    fn new(persistent_shell: Arc<PersistentShell>, shell: ShellProcess, nonce: Nonce) -> Self {
        Self {
            persistent_shell,
            shell: Some(shell),
            nonce,
            tail: Vec::new(),
            status: None,
        }
    }

    fn running(mut self) -> RunningCommand {
        let (status, ended) = oneshot::channel();
        self.status = Some(status);
        let stdout = stream::try_unfold(self, |mut lent| async {
            Ok(lent.next().await?.map(|chunk| (chunk, lent)))
        });
        let end = async {
            let gone = |_| Error::new(ErrorKind::Unavailable, "the shell is gone");
            Ok(CommandExit {
                status: ended.await.map_err(gone)?,
                stderr: String::new(),
            })
        };
        RunningCommand {
            stdout: Body::new(stdout),
            end: end.boxed(),
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(shell) = &mut self.shell else {
            return Ok(None);
        };
        let Some(chunk) = shell.running.stdout.next().await else {
            self.shell = None;
            let ended = "the shell ended before its output did";
            return Err(Error::new(ErrorKind::Unavailable, ended));
        };
        let chunk = chunk?;
        let last = chunk.len().saturating_sub(MAX_LAST_LINE_BYTES);
        // Chunks may cut the line anywhere, so the end of the previous one is kept.
        self.tail
            .extend_from_slice(chunk.get(last..).unwrap_or_default());
        let surplus = self.tail.len().saturating_sub(MAX_LAST_LINE_BYTES);
        self.tail.drain(..surplus);
        if let Some(status) = last_line(&self.tail, 0, &self.nonce)
            && let Some(shell) = self.shell.take()
        {
            // The shell is parked before the status is sent, so that the caller's next request finds the shell waiting.
            self.persistent_shell.park(shell);
            if let Some(sender) = self.status.take() {
                // The receiver may be gone; the output does not depend on it.
                let _ = sender.send(status);
            }
        }
        Ok(Some(chunk))
    }
}

/// Awaits a response, unless the channel is not ready for a request.
async fn send_when_ready<E: Exec>(
    exec: &E,
    repeat: RetrySafety,
    call: impl Future<Output = Result<Reply, LostReply>>,
) -> Result<Reply, LostReply> {
    let unready = |error| LostReply {
        error,
        silent: false,
    };
    if repeat != RetrySafety::Harmless || !exec.sends_before_ready() {
        exec.ready().await.map_err(unready)?;
        return call.await;
    }
    // A request that changes nothing is sent without waiting for `ready`, which saves a round trip.
    match select(pin!(call), pin!(exec.ready())).await {
        Either::Left((answered, _)) => answered,
        Either::Right((Ok(()), call)) => call.await,
        Either::Right((Err(error), _)) => Err(unready(error)),
    }
}

/// Ends the shell when it has waited too long.
async fn sweep(parked: Weak<Mutex<Option<ShellProcess>>>) {
    // The reference is weak: the task must not keep the shell alive when the files are gone.
    loop {
        sleep(IDLE_TIMEOUT / 2).await;
        let Some(parked) = parked.upgrade() else {
            return;
        };
        let expired = lock(&parked).take_if(|shell| shell.idle_since.elapsed() >= IDLE_TIMEOUT);
        drop(parked);
        if let Some(shell) = expired {
            shell.close().await;
        }
    }
}

/// The status in the line that ends a response, searched from the byte `from`.
fn last_line(output: &[u8], from: usize, nonce: &Nonce) -> Option<i32> {
    let mark = [b"\n".to_vec(), nonce.mark("over ")].concat();
    let rest = output.get(from..)?;
    let rest = rest.get(find(rest, &mark)? + mark.len()..)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    str::from_utf8(rest.get(..end)?).ok()?.trim().parse().ok()
}

fn parse_response(output: &[u8], nonce: &Nonce, exit: &CommandExit) -> Result<Reply, Error> {
    Reply::parse(output, nonce)?.ok_or_else(|| {
        let begun = find(output, &nonce.mark("begin ")).is_some();
        let tail = output.len().saturating_sub(4096);
        unanswered(exit, output.get(tail..).unwrap_or_default(), begun)
    })
}

fn lock(parked: &Mutex<Option<ShellProcess>>) -> MutexGuard<'_, Option<ShellProcess>> {
    parked.lock().unwrap_or_else(PoisonError::into_inner)
}
