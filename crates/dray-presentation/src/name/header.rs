//! File names in `Content-Disposition` of a part of a mail (RFC 2183, RFC 2231): no name ends the header, the parameter
//! or the line (platform-delivery 14.3). For HTTP responses the crate `dray-http-server` has the rule.

use std::fmt::Write as _;

use super::ascii_safe;

/// `attachment; filename="…"`, and `filename*=UTF-8''…` where the name needs it: quoted text for old readers, the
/// extended form for the exact name.
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
    // Readers disagree on escapes and on `%` inside quotes; with the extended form beside it all get the name.
    if name.contains(['"', '\\', '%']) {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        return format!(
            "attachment; filename=\"{quoted}\"; filename*=UTF-8''{}",
            extended_value(name)
        );
    }
    format!("attachment; filename=\"{name}\"")
}

/// `attr-char` of RFC 8187 as they are, every other byte in percent.
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
