//! Commands on the host, through the login shell of its user.
//!
//! A line that cannot be guessed separates the output of start files from that of the command. Without a terminal the
//! server does not end a command whose client has disconnected, so its process group is killed.

mod group;
mod job;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{Arguments, Channel, CommandExit, Exec, RunningCommand, quote};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use self::group::ProcessGroup;
use self::job::RemoteJob;
use crate::fault::{self, Refusal};
use crate::link::{ChannelKind, HostLink};
use crate::mux::RemoteProgram;
use crate::session::{Session, SessionStarter};

/// Prints a line with the nonce and the number of the process that leads the group, and then runs the command. The
/// shell stays to return its status; when the line cannot be printed, it ends.
const START_SCRIPT: &str = r#"printf '\n@@%s %s\n' "$1" "$$" || exit 1; shift; "$@"; exit "$?""#;
/// Begins the input of a shell. A host that runs an SFTP server instead of every command (`ForceCommand internal-sftp`)
/// waits for a request, as a shell does. These bytes are the length of an impossible request, so the server ends
/// immediately.
const BLANK_LINES: &[u8] = b"\n\n\n\n\n\n\n\n";
/// The first command of a shell that reads commands: prints the line with its first argument and its own number.
const START_LINE: &[u8] = b"printf '\\n@@%s %s\\n' \"$1\" \"$$\" || exit 1\n";
/// Most bytes that start files may print.
const MAX_START_OUTPUT_BYTES: usize = 256 * 1024;
/// Most bytes of a command, with the quoted arguments and the words that are added here.
const MAX_COMMAND_BYTES: usize = 131_071;

/// Runs commands over shared connections.
#[derive(Clone, Debug)]
pub(crate) struct Shell {
    link: Arc<HostLink>,
    /// Whether another command kills a command that is given up.
    kills: bool,
}

impl Shell {
    pub(crate) fn new(link: Arc<HostLink>) -> Self {
        Self { link, kills: true }
    }

    /// The same host, for commands that kill others. Where a kill command hangs, a second kill command would hang too.
    fn without_kills(&self) -> Self {
        Self {
            link: Arc::clone(&self.link),
            kills: false,
        }
    }

    /// Runs a command to its end and returns its output of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ToolMissing`] without a shell, [`ErrorKind::TooLarge`] for a longer output.
    pub(crate) async fn output(
        &self,
        argv: Vec<Vec<u8>>,
        limit: usize,
    ) -> Result<(CommandExit, Vec<u8>), Error> {
        let running = self.run(argv, None).await?;
        let output = running.stdout.read_all(limit).await?;
        Ok((running.end.await?, output))
    }

    async fn start(&self, argv: &[Vec<u8>], input: CommandInput) -> Result<StartedCommand, Error> {
        // 128 random bits: no start file can print the line by chance or on purpose.
        let nonce = format!("{:032x}", rand::random::<u128>());
        let line = match input {
            // One process fewer than with the script. The nonce is in its command line, where `KILL_SCRIPT` looks for
            // it.
            CommandInput::Commands => format!("exec sh -s {nonce}").into_bytes(),
            _ => command_line(&nonce, argv)?,
        };
        let shell = self.clone();
        self.link
            .open_channel(&ChannelRequest {
                shell,
                line,
                nonce,
                input,
            })
            .await
    }
}

/// The command line for the login shell. `exec` keeps the process that leads the group, so the
/// printed number is its own.
fn command_line(nonce: &str, argv: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let mut line = b"exec sh -c ".to_vec();
    line.extend(quote(START_SCRIPT.as_bytes()));
    line.extend_from_slice(b" sh ");
    line.extend_from_slice(nonce.as_bytes());
    for argument in argv {
        if argument.contains(&0) {
            return Err(Error::new(ErrorKind::InvalidName, "an argument holds NUL"));
        }
        line.push(b' ');
        line.extend(quote(argument));
    }
    // The login shell gets the whole line as one argument, and Linux limits each (`MAX_ARG_STRLEN`).
    if line.len() > MAX_COMMAND_BYTES {
        return Err(Error::too_large(
            line.len() as u64,
            MAX_COMMAND_BYTES as u64,
        ));
    }
    Ok(line)
}

/// Opens a channel that runs one command.
struct ChannelRequest {
    shell: Shell,
    line: Vec<u8>,
    nonce: String,
    input: CommandInput,
}

/// Source of a command's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandInput {
    None,
    /// Bytes that are sent once the command runs.
    Stream,
    /// Commands for a shell, which are sent once it runs, after [`BLANK_LINES`].
    Commands,
}

impl ChannelKind for ChannelRequest {
    type Channel = StartedCommand;

    /// A shell that reads commands has received none before it responds; any other command may have done its work.
    fn is_repeatable(&self) -> bool {
        self.input == CommandInput::Commands
    }

    async fn open(&self, starter: &SessionStarter<'_>) -> Result<StartedCommand, Refusal> {
        StartedCommand::new(starter, self).await
    }
}

/// A command that has begun.
struct StartedCommand {
    session: Session,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// First bytes of the output, which were read with the line before them.
    first_output: Bytes,
    group: ProcessGroup,
}

impl StartedCommand {
    async fn new(starter: &SessionStarter<'_>, request: &ChannelRequest) -> Result<Self, Refusal> {
        let has_input = request.input != CommandInput::None;
        // From here on the command may run. The group kills it when the caller is dropped.
        let mut group = ProcessGroup::new(request.shell.clone(), request.nonce.clone());
        let started = starter
            .start(RemoteProgram::Command(&request.line), has_input)
            .await;
        let (session, mut stdin, mut stdout) = match started {
            Ok(started) => started,
            Err(refusal) => {
                if !matches!(refusal, Refusal::Lost(_)) {
                    group.set_ended();
                }
                return Err(refusal);
            }
        };
        if let Some(stdin) = &mut stdin
            && request.input == CommandInput::Commands
        {
            // The pipe is empty, so this does not wait. A failure means that the session ended; its output shows why.
            let _ = stdin.write_all(&[BLANK_LINES, START_LINE].concat()).await;
        }
        let reading = read_leader_line(&mut stdout, &request.nonce);
        match timeout(starter.start_timeout(), reading).await {
            Ok(Ok(Some((leader, first_output)))) => {
                group.leader = leader;
                Ok(Self {
                    session,
                    stdin,
                    stdout,
                    first_output,
                    group,
                })
            }
            Ok(Ok(None)) => {
                let has_client = session.has_client();
                // A session that does not end is killed.
                let (status, text) = session.wait().await.map_err(Refusal::Final)?;
                let refusal = classify_start_failure(status, &text, has_client);
                // With an exit status or a message, the script never ran. A shell that got no commands has done
                // nothing.
                if !matches!(refusal, Refusal::Lost(_)) || request.is_repeatable() {
                    group.set_ended();
                }
                Err(refusal)
            }
            Ok(Err(error)) => Err(Refusal::Final(error)),
            Err(_) => Err(Refusal::Final(Error::new(
                ErrorKind::Timeout,
                "the login shell does not begin",
            ))),
        }
    }
}

/// Reads up to the line with the nonce. Returns the process id of the group leader and the bytes after the line. `None`
/// when the output ends before the line.
async fn read_leader_line(
    stdout: &mut ChildStdout,
    nonce: &str,
) -> Result<Option<(u32, Bytes)>, Error> {
    let mark = format!("@@{nonce} ");
    let mut output = BytesMut::new();
    loop {
        let broken =
            |error| Error::new(ErrorKind::Unavailable, "the channel broke").caused_by(error);
        if stdout.read_buf(&mut output).await.map_err(broken)? == 0 {
            return Ok(None);
        }
        if let Some(mark_start) = find(&output, mark.as_bytes()) {
            let number_start = mark_start + mark.len();
            let rest = output.get(number_start..).unwrap_or_default();
            if let Some(number_length) = rest.iter().position(|byte| *byte == b'\n') {
                let number = rest
                    .get(..number_length)
                    .and_then(|text| str::from_utf8(text).ok());
                let leader = number.and_then(|text| text.parse().ok());
                // `kill -KILL -1` would hit every process of the user, and 0 stands for an unknown leader.
                let leader = leader.filter(|leader| *leader > 1).ok_or_else(|| {
                    Error::new(ErrorKind::Protocol, "the shell printed no process number")
                })?;
                let first_output = output.split_off(number_start + number_length + 1).freeze();
                return Ok(Some((leader, first_output)));
            }
        }
        if output.len() > MAX_START_OUTPUT_BYTES {
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

/// Classifies why a command did not begin, by the exit status and the messages of its session. `has_client` is whether
/// a client program carried the session.
fn classify_start_failure(status: Option<i32>, text: &str, has_client: bool) -> Refusal {
    match status {
        // The connection broke: the command may have begun, and its first line was lost.
        Some(255) | None if text.trim().is_empty() => Refusal::Lost(Error::new(
            ErrorKind::Unavailable,
            "the connection was lost before the command responded",
        )),
        // A client program of this machine fails with 255, and its text shows why. Without a nonce the text comes from
        // the host, perhaps from a client program there, so it does not show that no command began.
        Some(255) | None if has_client => fault::refusal("running a command", text),
        Some(255) | None => Refusal::Lost(fault::failure("running a command", text)),
        Some(status) => Refusal::Final(Error::new(
            ErrorKind::ToolMissing,
            format!("no shell: status {status}: {}", text.escape_debug()),
        )),
    }
}

#[async_trait]
impl Exec for Shell {
    fn channel(&self) -> Channel {
        Channel {
            arguments: Arguments::Shell,
            // Quoting makes some arguments longer; a command that becomes too long is refused.
            longest_arguments: 60_000,
            ..Channel::PIPE_CAPABILITIES
        }
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let input = match stdin {
            Some(_) => CommandInput::Stream,
            None => CommandInput::None,
        };
        let started = self.start(&argv, input).await?;
        Ok(Self::running_command(started, stdin))
    }

    async fn run_shell(&self, input: Body) -> Result<RunningCommand, Error> {
        let started = self.start(&[], CommandInput::Commands).await?;
        Ok(Self::running_command(started, Some(input)))
    }
}

impl Shell {
    fn running_command(started: StartedCommand, stdin: Option<Body>) -> RunningCommand {
        let job = RemoteJob::new(started.group, started.session);
        if let (Some(pipe), Some(body)) = (started.stdin, stdin) {
            job.feed(pipe, body);
        }
        job.into_running_command(started.stdout, started.first_output)
    }
}

#[cfg(test)]
mod tests;
