//! The universal way: whatever can run a command can move files (sandbox-transfer 11).

mod channel;
mod files;

pub use channel::{Arguments, Channel, Exec, Exit, Running};
pub use files::ExecFiles;

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
