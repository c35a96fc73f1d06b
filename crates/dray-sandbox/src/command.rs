//! One program that runs in a sandbox, with its limits and its result.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::error::Error;
use crate::path::SandboxPath;

/// A program to run: argument vector, never a line for a shell.
#[derive(Debug)]
pub struct CommandRequest {
    /// The program, which is searched in `PATH` unless it has a `/`, and its arguments. None holds a NUL.
    pub argv: Vec<Vec<u8>>,
    /// Existing directory in which it runs, with links resolved.
    pub directory: SandboxPath,
    /// Variables to set in addition to those that the sandbox gives every command. Names are those of a shell.
    pub environment: Vec<(String, Vec<u8>)>,
    /// Standard input; without it the program reads an empty one.
    pub input: Option<CommandInput>,
    /// Most bytes of standard error that are kept, from its beginning.
    pub max_stderr_bytes: usize,
    /// Takes standard error while the program writes it, where the channel can carry it; everything is in
    /// [`CommandEnd::stderr`] as well. Its receiver must be read together with the output, or dropped.
    pub stderr: Option<mpsc::Sender<Bytes>>,
    /// Whole seconds after which the sandbox itself ends the program. This is for a caller whose process ended or that
    /// can no longer reach the sandbox.
    pub lifetime_seconds: u64,
    /// Ends the program: when it is cancelled, the program and all that it started are killed, and what was written so
    /// far is reported. Best effort: a sandbox that does not respond leaves the program running.
    pub stop: CancellationToken,
}

/// Standard input of a program.
#[derive(Debug)]
pub struct CommandInput {
    /// Length of `body` in bytes.
    pub size: u64,
    /// The bytes.
    pub body: Body,
}

/// A program that runs. Read `output` to its end, then await `end`. Dropping either before kills the program and all
/// that it started; [`Sandbox::settled`](crate::backend::Sandbox::settled) waits for that.
pub struct SandboxCommand {
    /// Standard output. It ends with the program, even while a child still holds it.
    pub output: Body,
    /// Result of the program; resolves after `output` was read to its end.
    pub end: BoxFuture<'static, Result<CommandEnd, Error>>,
}

/// The end of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit status; 128 + n when signal n killed it, as shells report it.
    pub status: u8,
    /// The beginning of standard error.
    pub stderr: Vec<u8>,
    /// Whether standard error was longer.
    pub stderr_truncated: bool,
    /// Whether the channel carried only the beginning of standard output.
    pub output_truncated: bool,
}

impl fmt::Debug for SandboxCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SandboxCommand")
    }
}
