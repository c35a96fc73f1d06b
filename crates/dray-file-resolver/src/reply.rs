//! The sentences that an agent reads when an argument cannot be used (quickapps 19.4, 30.3, 30.4, 31, 34).
//!
//! They are wire format, and this list is the only place that writes them.

use dray_types::ByteSize;

use crate::shown::DisplayName;

/// Longest shown argument name, in characters.
const MAX_SHOWN_NAME_CHARACTERS: usize = 200;

/// The tool message for an argument that the model can correct.
pub fn invalid_parameter(name: &str, message: &str) -> String {
    dray_types::fault::invalid_parameter_message(&shown_name(name), message)
}

/// Message about a file above the limit.
pub fn file_size(size: u64, limit: ByteSize) -> String {
    format!(
        "File size {size} exceeds the limit of {} bytes.",
        limit.as_u64()
    )
}

/// Message about a file that was requested as text and is not text.
pub fn binary_file_message(url: &DisplayName, name: &str) -> String {
    format!(
        "File at {url} appears to be binary ({name}). Use `file:base64::...` or `file:URL::...` instead of `file:text::...`."
    )
}

/// A name as it is shown: cut at 200 characters, with controls escaped.
pub fn shown_name(name: &str) -> String {
    let mut shown = String::new();
    // The model reads the name back, so it must not fill its context.
    for character in name.chars().take(MAX_SHOWN_NAME_CHARACTERS) {
        if is_invisible(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Invisible characters that change how a line reads: controls, separators, bidirectional overrides.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wire_format_to_the_letter() {
        let url = DisplayName::url("https://u:p@h.example/a?secret=1");
        assert_eq!(
            invalid_parameter(
                "file",
                "Missing required file prefix (base64::, url::, text::)"
            ),
            "Parameter file is invalid, try to call the tool again with fixed exception: \
             Missing required file prefix (base64::, url::, text::)"
        );
        assert_eq!(
            file_size(11, ByteSize::bytes(10)),
            "File size 11 exceeds the limit of 10 bytes."
        );
        assert_eq!(
            binary_file_message(&url, "PDF document"),
            "File at https://h.example/a appears to be binary (PDF document). Use `file:base64::...` or \
             `file:URL::...` instead of `file:text::...`."
        );
    }

    #[test]
    fn names_are_cut_and_controls_escaped() {
        assert_eq!(shown_name("a\nb"), "a\\u{a}b");
        assert_eq!(shown_name(&"x".repeat(999)).len(), 200);
    }
}
