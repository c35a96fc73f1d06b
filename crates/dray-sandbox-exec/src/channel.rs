//! The minimum that a sandbox must offer: a channel that runs commands (sandbox-transfer 11).

use std::fmt;
use std::fmt::Debug;

use async_trait::async_trait;
use dray_sandbox::body::Body;
use dray_sandbox::error::Error;
use futures_util::future::BoxFuture;

/// The form in which a channel takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// A vector of arguments; nothing is quoted.
    Vector,
    /// One string for a shell; [`super::quote`] makes it.
    Shell,
}

/// Capabilities of a channel.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about a wire"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The form in which it takes a command.
    pub arguments: Arguments,
    /// Whether stdout carries any bytes unchanged.
    pub binary_output: bool,
    /// Whether stdin exists and carries any bytes unchanged.
    pub binary_input: bool,
    /// Whether stdin exists at all.
    pub input: bool,
    /// Whether the end of stdin can be signalled; without it a command must stop by itself (`head -c`).
    pub input_end: bool,
    /// Limit in bytes for all arguments together.
    pub longest_arguments: usize,
    /// Limit in bytes for the output of one command; `None` for no limit.
    pub longest_output: Option<usize>,
}

impl Channel {
    /// A pipe to a process: every capability, and 128 KiB for arguments (`MAX_ARG_STRLEN` without its NUL).
    pub const PIPE_CAPABILITIES: Self = Self {
        arguments: Arguments::Vector,
        binary_output: true,
        binary_input: true,
        input: true,
        input_end: true,
        longest_arguments: 131_071,
        longest_output: None,
    };
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandExit {
    /// Exit status; 128 + n when killed by signal n.
    pub status: i32,
    /// The last 4 KiB of stderr at most, lossily decoded; for the operator and for mapping to an error kind.
    pub stderr: String,
}

/// A command that is running. Read `stdout` to its end, then await `end`. Dropping either ends the remote process
/// group.
pub struct RunningCommand {
    /// Output of the command. A channel that breaks is an error, never a clean end.
    pub stdout: Body,
    /// Result of the command; resolves after `stdout` was read to its end.
    pub end: BoxFuture<'static, Result<CommandExit, Error>>,
}

impl fmt::Debug for RunningCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// Runs commands in one sandbox, as the sandbox user.
#[async_trait]
pub trait Exec: Debug + Send + Sync {
    /// Capabilities of the channel; they do not change for one incarnation.
    fn channel(&self) -> Channel;

    /// Starts `argv` (the first is searched in `PATH`), feeds it `stdin` and then, where the channel can, signals its
    /// end. For [`Arguments::Shell`] channels the implementation quotes `argv` with [`super::quote`].
    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error>;

    /// Starts a shell that reads commands from `input`: `sh`, or the command that starts it best on this channel.
    ///
    /// # Errors
    ///
    /// Those of [`Self::run`].
    async fn run_shell(&self, input: Body) -> Result<RunningCommand, Error> {
        self.run(vec![b"sh".to_vec()], Some(input)).await
    }

    /// Checks whether a command could be started now, before a running shell is used. Waits for work that must finish
    /// before it. A command that is started needs no such check, since it fails by itself.
    ///
    /// # Errors
    ///
    /// The immediate failure of [`Self::run`], such as [`dray_sandbox::ErrorKind::SandboxPaused`].
    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a request that changes nothing may be sent to a running shell while [`Self::ready`] is still pending.
    /// This is safe if a running shell cannot belong to another incarnation and only stays silent while its own sandbox
    /// is paused.
    fn sends_before_ready(&self) -> bool {
        false
    }
}

#[async_trait]
impl<T: Exec + ?Sized> Exec for std::sync::Arc<T> {
    fn channel(&self) -> Channel {
        self.as_ref().channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        self.as_ref().run(argv, stdin).await
    }

    async fn run_shell(&self, input: Body) -> Result<RunningCommand, Error> {
        self.as_ref().run_shell(input).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.as_ref().ready().await
    }

    fn sends_before_ready(&self) -> bool {
        self.as_ref().sends_before_ready()
    }
}
