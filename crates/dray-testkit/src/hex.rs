//! Bytes as hexadecimal digits.

/// The bytes as lower-case hexadecimal digits, two for each byte.
pub fn hex_digits(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
