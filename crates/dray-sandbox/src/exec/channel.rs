//! The least that a sandbox must offer: run a command (sandbox-transfer 11).

use std::fmt;
use std::fmt::Debug;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::body::Body;
use crate::error::Error;

/// How a channel takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// A vector; nothing is quoted.
    Vector,
    /// One string for a shell; [`super::quote`] makes it.
    Shell,
}

/// What a channel can carry.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about a wire"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// How it takes a command.
    pub arguments: Arguments,
    /// Whether stdout carries any bytes unchanged.
    pub binary_output: bool,
    /// Whether stdin exists and carries any bytes unchanged.
    pub binary_input: bool,
    /// Whether stdin exists at all.
    pub input: bool,
    /// Whether the end of stdin can be signalled; without it a command must stop by itself (`head -c`).
    pub input_end: bool,
    /// Most bytes of all arguments together.
    pub longest_arguments: usize,
    /// Most bytes of output of one command; `None` for no limit.
    pub longest_output: Option<usize>,
}

impl Channel {
    /// A pipe to a process: everything is carried, 128 KiB for one argument.
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

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit status; 128 + n when killed by signal n.
    pub status: i32,
    /// At most the last 4 KiB of stderr, lossily decoded; for the operator and for mapping to an error kind.
    pub stderr: String,
}

/// A command under way. Read `stdout` to its end, then await `end`. Dropping either ends the remote process group.
pub struct Running {
    /// Its output. A channel that breaks is an error, never a clean end.
    pub stdout: Body,
    /// How it ended; resolves after `stdout` was read to its end.
    pub end: BoxFuture<'static, Result<Exit, Error>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// Runs commands in one sandbox, as the sandbox user.
#[async_trait]
pub trait Exec: Debug + Send + Sync {
    /// What the channel can carry.
    fn channel(&self) -> Channel;

    /// Starts `argv` (the first is looked up in `PATH`), feeding it `stdin` and then, where the channel can, the end of
    /// it. For [`Arguments::Shell`] channels `argv` is quoted by the implementation with [`super::quote`].
    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<Running, Error>;

    /// Whether a command could be started now, asked before a running shell is used. Waits
    /// for what must come before. A command that is started fails by itself where this does.
    ///
    /// # Errors
    ///
    /// What [`Self::run`] would fail with immediately, such as [`crate::ErrorKind::SandboxPaused`].
    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a question that changes nothing may be put to a shell while [`Self::ready`] is still asked: a shell that
    /// runs can belong to no other incarnation, and only does not answer while that one is paused.
    fn asks_beside_ready(&self) -> bool {
        false
    }
}

#[async_trait]
impl<T: Exec + ?Sized> Exec for std::sync::Arc<T> {
    fn channel(&self) -> Channel {
        self.as_ref().channel()
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<Running, Error> {
        self.as_ref().run(argv, stdin).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.as_ref().ready().await
    }

    fn asks_beside_ready(&self) -> bool {
        self.as_ref().asks_beside_ready()
    }
}
