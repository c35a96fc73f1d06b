//! File names in `Content-Disposition` (RFC 6266, RFC 8187, RFC 7578): no name ends the header, the parameter or the
//! line (platform-delivery 14.3).

use std::fmt::Write as _;

use super::ascii_safe;

/// `attachment; filename="…"`, and `filename*=UTF-8''…` where the name needs it.
pub fn attachment_disposition(name: &str) -> String {
    content_disposition("attachment", name)
}

/// `inline; filename="…"`, and `filename*=UTF-8''…` where the name needs it.
pub fn inline_disposition(name: &str) -> String {
    content_disposition("inline", name)
}

/// `form-data; name="…"; filename="…"` with the name as UTF-8, which is what browsers send and chat platforms read.
///
/// CR, LF, `"`, `\` and every other control are percent-encoded in both values, as the HTML standard does for the
/// first three.
pub fn form_data(field: &str, name: &str) -> String {
    format!(
        "form-data; name=\"{}\"; filename=\"{}\"",
        form_value(field),
        form_value(name)
    )
}

/// One value inside the quotes of a form part.
fn form_value(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if character.is_control() || matches!(character, '"' | '\\') {
            push_percent_encoded(&mut escaped, character);
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// A response header: quoted text for old readers, the extended form for the exact name.
fn content_disposition(kind: &str, name: &str) -> String {
    // RFC 6266 §4.3: `filename*` has priority if the reader supports it, and is left out if the plain form is complete.
    let plain = name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !plain {
        return format!(
            "{kind}; filename=\"{}\"; filename*=UTF-8''{}",
            ascii_safe(name),
            extended_value(name)
        );
    }
    // Readers disagree on escapes and on `%` inside quotes; with the extended form beside it all get the name.
    if name.contains(['"', '\\', '%']) {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        return format!(
            "{kind}; filename=\"{quoted}\"; filename*=UTF-8''{}",
            extended_value(name)
        );
    }
    format!("{kind}; filename=\"{name}\"")
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
