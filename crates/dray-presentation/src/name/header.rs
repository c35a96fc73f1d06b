//! File names in the `Content-Disposition` of mail parts (RFC 2183, RFC 2231), escaped so that they cannot end the
//! header or the parameter (platform-delivery 14.3). `dray-http-server` has the function for HTTP responses.

use std::fmt::Write as _;

use super::ascii_safe;

/// `attachment; filename="…"`, and `filename*=UTF-8''…` if the name needs it. Old mail readers use the quoted form; the
/// extended form has the exact name.
pub fn attachment_disposition(name: &str) -> String {
    // `filename*` has priority if the reader supports it, and is left out if the plain form is complete.
    let plain = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !plain {
        return format!(
            "attachment; filename=\"{}\"; filename*=UTF-8''{}",
            ascii_safe(name),
            extended_value(name)
        );
    }
    // Mail readers differ on escapes and on `%` inside quotes, so the extended form is added.
    if name.contains(['"', '\\', '%']) {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        return format!(
            "attachment; filename=\"{quoted}\"; filename*=UTF-8''{}",
            extended_value(name)
        );
    }
    format!("attachment; filename=\"{name}\"")
}

/// Keeps `attr-char` of RFC 8187 and percent-encodes all other bytes.
fn extended_value(name: &str) -> String {
    let mut value = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_ascii_alphanumeric() || "!#$&+-.^_`|~".contains(character) {
            value.push(character);
        } else {
            push_percent_encoded(&mut value, character);
        }
    }
    value
}

/// The UTF-8 bytes of one character, each as `%XX`.
fn push_percent_encoded(value: &mut String, character: char) {
    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
        // Writing into a string cannot fail.
        let _ = write!(value, "%{byte:02X}");
    }
}
