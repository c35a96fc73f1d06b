//! The lines that list the files of a user for an agent (platform-delivery 11.5).

use crate::{chars, name, size};

/// The reason for a missing file if none is known.
const NO_REASON: &str = "unknown reason";

/// Most characters of a reason; a longer one is cut.
const MAX_REASON_CHARACTERS: usize = 300;

/// `[User uploaded: report.csv (42 KB) at /workspace/uploads/report.csv]`.
///
/// `path` is the path in the agent's sandbox. It is written unchanged, except for characters that would end the line or
/// the bracket. A path with a name from [`name::upload_name`] in a directory of this system has no such character.
pub fn uploaded_line(raw_name: &str, bytes: u64, path: &str) -> String {
    // `]` would end the line early, so that the rest of a path would look like text of the user (prompt injection).
    let path: String = path.chars().map(bracket_safe).collect();
    format!(
        "[User uploaded: {} ({}) at {path}]",
        name::for_prompt(raw_name),
        size::human_size(bytes)
    )
}

/// `[User uploaded: report.csv (42 KB) — not available: <reason>]`. An unknown size is written as `unknown size`.
pub fn not_available(raw_name: &str, bytes: Option<u64>, reason: &str) -> String {
    let reason: String = reason
        .trim()
        .chars()
        .take(MAX_REASON_CHARACTERS)
        .map(bracket_safe)
        .collect();
    let reason = if reason.is_empty() {
        NO_REASON
    } else {
        &reason
    };
    let size = bytes.map_or_else(|| "unknown size".to_owned(), size::human_size);
    format!(
        "[User uploaded: {} ({size}) — not available: {reason}]",
        name::for_prompt(raw_name)
    )
}

/// Replaces a character that is not allowed inside the brackets by `?`.
fn bracket_safe(character: char) -> char {
    if character == ']' || chars::is_unsafe(character) {
        '?'
    } else {
        character
    }
}

#[cfg(test)]
mod tests;
