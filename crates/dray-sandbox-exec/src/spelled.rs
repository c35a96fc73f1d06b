//! Commands of any bytes for a wire that carries text only.

use super::quote;

/// A command as text for `eval "exec $(printf %b "$1")"` in a shell: `printf` makes the bytes again, and they are words
/// in single quotes, so that nothing in them is executed.
pub fn spelled(argv: &[Vec<u8>]) -> String {
    let mut spelled = String::new();
    for word in argv {
        for byte in quote(word) {
            match byte {
                // Any other character may mean something to printf or the shell.
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b' ' => {
                    spelled.push(char::from(byte));
                }
                byte => {
                    spelled.push_str("\\0");
                    for shift in [6, 3, 0] {
                        spelled.push(char::from(b'0' + ((byte >> shift) & 7)));
                    }
                }
            }
        }
        spelled.push(' ');
    }
    spelled
}
