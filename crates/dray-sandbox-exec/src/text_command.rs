//! Writes commands of any bytes for a wire that carries text only.

use super::quote;

/// A command as text for `eval "exec $(printf %b "$1")"` in a shell: `printf` decodes the bytes, which form words in
/// single quotes, so that nothing in them is executed.
pub fn spelled(argv: &[Vec<u8>]) -> String {
    let mut spelled = String::new();
    for word in argv {
        spelled.push_str(&escaped(&quote(word)));
        spelled.push(' ');
    }
    spelled
}

/// Bytes as text that `printf %b` decodes.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            // Any other character may have a meaning for printf or the shell.
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b' ' => {
                escaped.push(char::from(*byte));
            }
            byte => {
                escaped.push_str("\\0");
                for shift in [6, 3, 0] {
                    escaped.push(char::from(b'0' + ((byte >> shift) & 7)));
                }
            }
        }
    }
    escaped
}
