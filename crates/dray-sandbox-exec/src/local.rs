//! Runs commands as processes on this host, or through a program on this host that runs them elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::stream;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout, Command};

use super::channel::{Arguments, Channel, CommandExit, Exec, RunningCommand};
use super::pipes::{GroupKiller, ProcessGroup, ProcessPipes};

/// Directories in which programs are searched unless the environment of the command sets others.
pub const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest read of output, in bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// How long to wait for the end of stderr after the program has ended: another process may still hold it open.
const STDERR_LINGER: Duration = Duration::from_secs(1);

/// Recognizes failures of the program that runs commands, as opposed to those of the command.
pub type Failure = fn(&CommandExit) -> Option<Error>;

/// Runs `PREFIX… ARGV…` in a separate process group, which is killed when its result is no longer needed. The
/// command gets only the environment that is set here, so that no variable of this service reaches a sandbox.
#[derive(Clone, Debug)]
pub struct LocalExec {
    prefix: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    directory: Option<PathBuf>,
    channel: Channel,
    failure: Option<Failure>,
}

impl LocalExec {
    /// Runs commands after this prefix; an empty one runs them on this host.
    pub fn new<P: Into<OsString>>(prefix: impl IntoIterator<Item = P>) -> Self {
        Self {
            prefix: prefix.into_iter().map(Into::into).collect(),
            environment: BTreeMap::from([("PATH".into(), SEARCH_PATH.into())]),
            directory: None,
            channel: Channel::PIPE_CAPABILITIES,
            failure: None,
        }
    }

    /// Adds variables to the environment of the command.
    #[must_use]
    pub fn with_environment<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        self.environment
            .extend(variables.map(|(key, value)| (key.into(), value.into())));
        self
    }

    /// Runs commands in this directory.
    #[must_use]
    pub fn with_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the capabilities of the channel that the prefix forms. Its limits are applied here too.
    #[must_use]
    pub fn with_channel(mut self, channel: Channel) -> Self {
        self.channel = channel;
        self
    }

    /// Sets the function that recognizes failures of the prefix itself.
    #[must_use]
    pub fn with_failure(mut self, failure: Failure) -> Self {
        self.failure = Some(failure);
        self
    }

    fn command(&self, argv: Vec<Vec<u8>>) -> Result<Command, Error> {
        if super::reply::weight(&self.channel, &argv) > self.channel.longest_arguments {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the command is longer than the channel allows",
            ));
        }
        let mut command_line = self.prefix.clone();
        match self.channel.arguments {
            Arguments::Vector => command_line.extend(argv.into_iter().map(OsString::from_vec)),
            Arguments::Shell => {
                let quoted: Vec<_> = argv.iter().map(|word| super::quote(word)).collect();
                command_line.push(OsString::from_vec(quoted.join(&b' ')));
            }
        }
        let mut command_line = command_line.into_iter();
        let program = command_line
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "an empty command"))?;
        let mut command = Command::new(program);
        command
            .args(command_line)
            .env_clear()
            .envs(&self.environment)
            // A separate group can be killed with all that the command started (sandbox-transfer 1.6).
            .process_group(0)
            // This ends only the leader; `GroupKiller` covers the rest of the group.
            .kill_on_drop(true)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }
}

#[async_trait]
impl Exec for LocalExec {
    fn channel(&self) -> Channel {
        self.channel
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let mut command = self.command(argv)?;
        let stdin = stdin.filter(|_| self.channel.input);
        command.stdin(match stdin {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        });
        let mut child = command.spawn().map_err(|error| self.start_error(error))?;
        let group = Arc::new(ProcessGroup::of(&child));
        let killer = GroupKiller::new(Arc::clone(&group));
        let pipes = ProcessPipes::start(&mut child, stdin, self.channel.input_end, &group);
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no stdout"))?;
        let failure = self.failure;
        Ok(RunningCommand {
            stdout: output(stdout, GroupKiller::new(group), self.channel.longest_output),
            end: Box::pin(await_exit(child, killer, pipes, failure)),
        })
    }
}

impl LocalExec {
    fn start_error(&self, error: io::Error) -> Error {
        let kind = match error.kind() {
            io::ErrorKind::ArgumentListTooLong => ErrorKind::ToolMissing,
            // Without a prefix the missing program is the command itself.
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if self.prefix.is_empty() => {
                ErrorKind::ToolMissing
            }
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, "the command was not started").caused_by(error)
    }
}

/// Output up to its end, or up to the limit of the channel.
fn output(stdout: ChildStdout, killer: GroupKiller, longest: Option<usize>) -> Body {
    let state = (stdout, killer, BytesMut::new(), longest);
    Body::new(stream::try_unfold(
        state,
        |(mut stdout, mut killer, mut buffer, mut left)| async move {
            loop {
                buffer.reserve(CHUNK_BYTES);
                let read = stdout.read_buf(&mut buffer).await.map_err(|error| {
                    Error::new(ErrorKind::Unavailable, "the output could not be read")
                        .caused_by(error)
                })?;
                if read == 0 {
                    // All output was read. `await_exit` waits for the end of the command, which is not killed.
                    killer.disarm();
                    return Ok(None);
                }
                let mut chunk: Bytes = buffer.split().freeze();
                if let Some(left) = &mut left {
                    chunk.truncate(*left);
                    *left -= chunk.len();
                }
                // Beyond the limit the output is read and dropped, so that the command does not block on a full pipe.
                if !chunk.is_empty() {
                    return Ok(Some((chunk, (stdout, killer, buffer, left))));
                }
            }
        },
    ))
}

async fn await_exit(
    mut child: Child,
    mut killer: GroupKiller,
    mut pipes: ProcessPipes,
    failure: Option<Failure>,
) -> Result<CommandExit, Error> {
    let status = child.wait().await;
    // From here on the number may belong to another group, so no killer may use it.
    killer.group().set_reaped();
    killer.disarm();
    let status = status.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the command cannot be awaited").caused_by(error)
    })?;
    let stderr = pipes.stderr(STDERR_LINGER).await;
    // The failed source is the cause: it made `feed` kill the group, so the exit status means nothing.
    if let Some(error) = pipes.source_failure() {
        return Err(error);
    }
    let exit = CommandExit {
        status: status_of(status),
        stderr,
    };
    match failure.and_then(|failure| failure(&exit)) {
        Some(error) => Err(error),
        None => Ok(exit),
    }
}

fn status_of(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        // The status that shells report for a signal.
        (None, Some(signal)) => 128 + signal,
        (None, None) => -1,
    }
}
