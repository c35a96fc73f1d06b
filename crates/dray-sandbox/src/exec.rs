//! The universal transport: every system that can run a command can move files (sandbox-transfer 11).
//!
//! [`ExecFiles`] does everything with files over any implementation of [`Exec`]. [`LocalExec`] runs processes on
//! this host, which is also the way into every system that a command line reaches; [`CommandBackend`] makes sandboxes
//! of such command lines.

mod channel;
mod command;
mod decode;
mod failure;
mod files;
mod input;
mod list;
mod local;
mod metadata;
mod pipes;
mod probe;
mod read;
mod reply;
mod sandbox;
mod standing;
mod stream;
mod tree;
mod write;

#[cfg(test)]
mod tests;

pub use channel::{Arguments, Channel, Exec, Exit, Running};
pub use command::{ChannelConfig, CommandBackend, CommandConfig};
pub use failure::kind_of_text;
pub use files::ExecFiles;
pub use local::{Failure, LocalExec, SEARCH_PATH};
pub use sandbox::{ExecSandbox, Guard, Guarded};

/// One argument for a POSIX shell: single-quoted, `'` as `'\''`.
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
