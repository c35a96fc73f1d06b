//! The syntax of tags: the results of the table, the corrections, streams and hostile texts.

mod corrections;
mod hostile;
mod prose;
mod stream;
mod table;

use super::*;

/// Extracts the media of `text` when exactly the paths in `existing` exist.
fn given(text: &str, existing: &[&str]) -> MediaExtraction {
    extract_media(text, |path| existing.contains(&path))
}

/// Checks files and remaining text.
fn check(text: &str, existing: &[&str], files: &[&str], remaining: &str) {
    let found = given(text, existing);
    assert_eq!(found.files, files, "{text:?}");
    assert_eq!(found.text, remaining, "{text:?}");
}

/// Checks a text whose only tag refers to an existing file.
fn one(text: &str, file: &str, remaining: &str) {
    check(text, &[file], &[file], remaining);
}
