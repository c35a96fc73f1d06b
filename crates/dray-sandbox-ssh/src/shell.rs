//! Commands on the host, through the login shell of its user.
//!
//! What start files print is told from what the command prints by a line that nobody can guess. Without a terminal
//! the server ends no command whose client is gone, so ending one means killing its process group.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dray_sandbox::exec::{Arguments, Channel, Exec, Exit, Running, quote};
use dray_sandbox::{Body, Error, ErrorKind};
use futures_util::FutureExt as _;
use futures_util::stream;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::client::Client;
use crate::fault::{self, Refusal};
use crate::link::{Ask, Link};
use crate::session::Session;

/// Says that the command begins, and which process leads its group; the shell stays to tell how it ended.
const SCRIPT: &str = r#"printf '\n@@%s %s\n' "$1" "$$"; shift; "$@"; exit "$?""#;
/// Kills the group of a process that still is the one that was started.
const KILL: &str = r#"if [ ! -d /proc/self ] || grep -q "$2" "/proc/$1/cmdline" 2>/dev/null; then kill -KILL "-$1" || kill -KILL "$1"; fi"#;
/// Most bytes that start files may print.
const NOISE: usize = 256 * 1024;
/// Time for start files to run.
const START: Duration = Duration::from_mins(1);
/// Bytes of one piece of output.
const PIECE: usize = 128 * 1024;
/// Most bytes of a command, in which arguments are quoted and our own words are contained.
const LONGEST: usize = 131_071;

/// Runs commands over shared connections.
#[derive(Clone, Debug)]
pub(crate) struct Shell {
    link: Arc<Link>,
    tasks: TaskTracker,
    /// How many commands must still be killed.
    dying: Arc<watch::Sender<usize>>,
}

impl Shell {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            tasks: TaskTracker::new(),
            dying: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Runs a command to its end and gives at most `limit` bytes of its output.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] where there is no shell.
    pub(crate) async fn output(
        &self,
        argv: Vec<Vec<u8>>,
        limit: usize,
    ) -> Result<(Exit, Vec<u8>), Error> {
        let running = self.run(argv, None).await?;
        let output = running.stdout.read_all(limit).await?;
        Ok((running.end.await?, output))
    }

    async fn start(&self, argv: &[Vec<u8>], input: bool) -> Result<Started, Error> {
        let nonce = format!("{:032x}", rand::random::<u128>());
        let line = command_line(&nonce, argv)?;
        self.link.channel(&Begin { line, nonce, input }).await
    }

    /// Waits until nothing of what was dropped still runs, so that it cannot undo what comes now.
    pub(crate) async fn settle(&self) {
        let mut dying = self.dying.subscribe();
        // The sender lives as long as we do.
        let _ = dying.wait_for(|dying| *dying == 0).await;
    }

    /// Kills the group of a command.
    async fn kill(&self, leader: u32, nonce: &str) {
        let words = ["sh", "-c", KILL, "sh", &leader.to_string(), nonce];
        let argv = words.map(|word| word.as_bytes().to_vec()).to_vec();
        if let Err(error) = self.output(argv, NOISE).await {
            tracing::warn!(%error, "a command on the host may still run");
        }
    }

    /// Kills what a dropped transfer left behind, for which nobody waits.
    fn kill_later(&self, leader: u32, nonce: String) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let dying = Dying::new(&self.dying);
        let shell = self.clone();
        let killing = async move {
            shell.kill(leader, &nonce).await;
            drop(dying);
        };
        self.tasks.spawn_on(killing, &runtime);
    }
}

/// Counts one command that must be killed.
struct Dying(Arc<watch::Sender<usize>>);

impl Dying {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// `exec` keeps the process that leads the group, so that its number is the one that is printed.
fn command_line(nonce: &str, argv: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let mut line = b"exec sh -c ".to_vec();
    line.extend(quote(SCRIPT.as_bytes()));
    line.extend_from_slice(b" sh ");
    line.extend_from_slice(nonce.as_bytes());
    for argument in argv {
        if argument.contains(&0) {
            return Err(Error::new(ErrorKind::InvalidName, "an argument holds NUL"));
        }
        line.push(b' ');
        line.extend(quote(argument));
    }
    if line.len() > LONGEST {
        return Err(Error::too_large(line.len() as u64, LONGEST as u64));
    }
    Ok(line)
}

/// Asks for a command.
struct Begin {
    line: Vec<u8>,
    nonce: String,
    /// Whether it is fed.
    input: bool,
}

impl Ask for Begin {
    type Channel = Started;

    fn fill(&self, client: &Client, command: &mut Command) {
        client.host(command);
        command.arg(OsStr::from_bytes(&self.line));
    }

    async fn open(&self, command: Command) -> Result<Started, Refusal> {
        Started::new(command, self.input, &self.nonce).await
    }
}

/// A command that has begun.
struct Started {
    session: Session,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// First bytes of its output.
    first: Bytes,
    leader: u32,
    nonce: String,
}

impl Started {
    async fn new(command: Command, input: bool, nonce: &str) -> Result<Self, Refusal> {
        let (session, stdin, mut stdout) =
            Session::start(command, input).map_err(Refusal::Final)?;
        let found = timeout(START, begin(&mut stdout, nonce)).await;
        match found {
            Ok(Ok(Some((leader, first)))) => Ok(Self {
                session,
                stdin,
                stdout,
                first,
                leader,
                nonce: nonce.to_owned(),
            }),
            Ok(Ok(None)) => Err(no_shell(session).await),
            Ok(Err(error)) => Err(Refusal::Final(error)),
            Err(_) => Err(Refusal::Final(Error::new(
                ErrorKind::Timeout,
                "the login shell does not begin",
            ))),
        }
    }
}

/// Reads to the line that says that the command begins: number of the leader, and what came with the line. Nothing
/// when the output ends before.
async fn begin(stdout: &mut ChildStdout, nonce: &str) -> Result<Option<(u32, Bytes)>, Error> {
    let mark = format!("@@{nonce} ");
    let mut seen = BytesMut::new();
    loop {
        let broken =
            |error| Error::new(ErrorKind::Unavailable, "the channel broke").caused_by(error);
        if stdout.read_buf(&mut seen).await.map_err(broken)? == 0 {
            return Ok(None);
        }
        if let Some(at) = find(&seen, mark.as_bytes()) {
            let after = at + mark.len();
            let rest = seen.get(after..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let number = rest.get(..end).and_then(|text| str::from_utf8(text).ok());
                let leader = number.and_then(|text| text.parse().ok());
                let leader = leader.filter(|leader| *leader > 1).ok_or_else(|| {
                    Error::new(ErrorKind::Protocol, "the shell tells no process number")
                })?;
                let first = seen.split_off(after + end + 1).freeze();
                return Ok(Some((leader, first)));
            }
        }
        if seen.len() > NOISE {
            return Err(Error::new(
                ErrorKind::Protocol,
                "start files print without end",
            ));
        }
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Why a command did not begin.
async fn no_shell(session: Session) -> Refusal {
    match session.end().await {
        // The client itself fails with 255; anything else came from the host.
        Ok((Some(255) | None, text)) => fault::refusal("running a command", &text),
        Ok((Some(status), text)) => Refusal::Final(Error::new(
            ErrorKind::ToolMissing,
            format!("no shell: status {status}: {}", text.escape_debug()),
        )),
        Err(error) => Refusal::Final(error),
    }
}

#[async_trait]
impl Exec for Shell {
    fn channel(&self) -> Channel {
        Channel {
            arguments: Arguments::Shell,
            // The longest argument may double when it is quoted.
            longest_arguments: 60_000,
            ..Channel::PIPE
        }
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<Running, Error> {
        let started = self.start(&argv, stdin.is_some()).await?;
        let job = Arc::new(Job {
            shell: self.clone(),
            leader: started.leader,
            nonce: started.nonce,
            state: Mutex::new(State {
                session: Some(started.session),
                input: JoinSet::new(),
                end: None,
            }),
        });
        if let (Some(pipe), Some(body)) = (started.stdin, stdin) {
            let feeding = feed(Arc::downgrade(&job), pipe, body);
            job.state().input.spawn(feeding);
        }
        let output = Output {
            job: Half(Arc::clone(&job)),
            stdout: started.stdout,
            first: started.first,
        };
        let half = Half(job);
        Ok(Running {
            stdout: Body::new(stream::try_unfold(Some(output), |state| async {
                let Some(mut output) = state else {
                    return Ok(None);
                };
                Ok(output.next().await?.map(|piece| (piece, Some(output))))
            })),
            end: async move { half.0.end().await }.boxed(),
        })
    }
}

/// A command under way.
struct Job {
    shell: Shell,
    leader: u32,
    nonce: String,
    state: Mutex<State>,
}

struct State {
    /// There until somebody awaits it or gives up.
    session: Option<Session>,
    /// The task that feeds it.
    input: JoinSet<()>,
    /// How it ended: the error in parts, for it is told twice.
    end: Option<Result<Exit, (ErrorKind, String)>>,
}

impl Job {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Awaits the end; 255 is how `ssh` says that the channel broke.
    async fn end(&self) -> Result<Exit, Error> {
        let session = self.state().session.take();
        if let Some(session) = session {
            let end = match session.end().await {
                Ok((Some(status), stderr)) if status != 255 => Ok(Exit { status, stderr }),
                Ok((_, text)) => {
                    let error = fault::failure("the channel broke", &text);
                    Err((ErrorKind::Unavailable, error.context().to_owned()))
                }
                Err(error) => Err((error.kind(), error.context().to_owned())),
            };
            // A body that failed says why better than the end that it caused.
            self.state().end.get_or_insert(end);
        }
        match self.state().end.clone() {
            Some(end) => end.map_err(|(kind, context)| Error::new(kind, context)),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                "the command was given up",
            )),
        }
    }

    /// Ends the command unless it has ended. Nobody waits for it.
    fn give_up(&self) {
        let mut state = self.state();
        let ended = state.session.take().is_none() && state.end.is_some();
        if ended {
            return;
        }
        let why = (
            ErrorKind::Unavailable,
            "the command was given up".to_owned(),
        );
        state.end.get_or_insert(Err(why));
        state.input.abort_all();
        drop(state);
        self.shell.kill_later(self.leader, self.nonce.clone());
    }

    /// Ends the command because what it is fed with broke. Whoever awaits its end learns why when it is gone.
    async fn fail(&self, why: &Error) {
        let why = (why.kind(), why.context().to_owned());
        self.state().end.get_or_insert(Err(why));
        self.shell.kill(self.leader, &self.nonce).await;
    }
}

/// One of the two ends that a caller holds.
struct Half(Arc<Job>);

impl Drop for Half {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// What a command prints.
struct Output {
    job: Half,
    stdout: ChildStdout,
    first: Bytes,
}

impl Output {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if !self.first.is_empty() {
            return Ok(Some(std::mem::take(&mut self.first)));
        }
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = self.stdout.read_buf(&mut piece).await;
        let count = read.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the channel broke").caused_by(error)
        })?;
        if count > 0 {
            return Ok(Some(piece.freeze()));
        }
        // A clean end of the pipe says nothing; how the client ended does.
        self.job.0.end().await.map(|_| None)
    }
}

/// Feeds a command. A body that fails must not look like one that ends.
async fn feed(job: std::sync::Weak<Job>, mut pipe: ChildStdin, mut body: Body) {
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => {
                if pipe.write_all(&piece).await.is_err() {
                    // The command wants no more, and says at its end whether that is well.
                    return;
                }
            }
            Err(error) => {
                if let Some(job) = job.upgrade() {
                    job.fail(&error).await;
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
