//! The universal transport: every system that can run a command can transfer files (sandbox-transfer 11).
//!
//! [`ExecFiles`] does all file operations over any implementation of [`Exec`]. [`LocalExec`] runs processes on this
//! host, which can be programs that run commands on other systems; [`CommandBackend`] makes sandboxes from such command
//! lines. [`ExecFiles::execute`] runs a program for a caller. [`Supervisor`] kills a command and its children when its
//! caller is gone.
//!
//! ```no_run
//! use dray_sandbox::{Follow, SandboxPath};
//! use dray_sandbox_exec::{ExecFiles, LocalExec};
//!
//! # async fn stat() -> Result<(), dray_sandbox::Error> {
//! let files = ExecFiles::new(LocalExec::new(["ssh", "box"]));
//! let metadata = files.stat(&SandboxPath::new("/work/report.pdf")?, Follow::Yes).await?;
//! # Ok(())
//! # }
//! ```
//!
//! What it does not do: it has no policy about the files that may be read, and knows no provider's protocol.

mod channel;
mod command;
mod decode;
mod directory;
mod execute;
mod failure;
mod files;
mod input;
mod list;
mod local;
mod metadata;
mod persistent_shell;
mod pipes;
mod probe;
mod read;
mod reply;
mod sandbox;
mod stream;
mod supervisor;
mod tail;
mod text_command;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub use channel::{Arguments, Channel, CommandExit, Exec, RunningCommand};
pub use command::{ChannelConfig, CommandBackend, CommandConfig};
pub use directory::DirectoryIdentity;
pub use failure::kind_of_text;
pub use files::ExecFiles;
pub use local::{Failure, LocalExec, SEARCH_PATH};
pub use sandbox::{ExecSandbox, GuardedExec, IncarnationGuard};
pub use supervisor::{
    CommandControl, CommandState, KillGuard, MARK_VARIABLE, SupervisedCommand, Supervisor, new_mark,
};
pub use tail::StderrTail;
pub use text_command::spelled;

/// Quotes one argument for a POSIX shell: in single quotes, with `'` as `'\''`.
pub fn quote(argument: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(argument.len() + 2);
    quoted.push(b'\'');
    for byte in argument {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}
