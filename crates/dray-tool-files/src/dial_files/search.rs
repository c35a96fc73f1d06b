//! The result of a search: hits, and what was not searched. It reads no file.

/// Files that a search found and did not read, by reason.
#[derive(Debug, Default)]
pub(super) struct SkippedFiles {
    pub(super) too_large: usize,
    pub(super) not_text: usize,
    pub(super) refused: usize,
}

impl SkippedFiles {
    /// How many files were not searched, and why; `None` if all were.
    pub(super) fn sentence(&self) -> Option<String> {
        let counts = [
            (self.too_large, "too large"),
            (self.not_text, "no text in UTF-8"),
            (self.refused, "refused by the file storage"),
        ];
        let reasons: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, reason)| format!("{count} {reason}"))
            .collect();
        (!reasons.is_empty()).then(|| format!("Files not searched: {}.", reasons.join(", ")))
    }
}

/// The text in the bytes of a file. NUL is valid UTF-8, but a file with one is binary.
pub(super) fn text_of_bytes(bytes: bytes::Bytes) -> Option<String> {
    String::from_utf8(bytes.into())
        .ok()
        .filter(|content| !content.contains('\0'))
}

/// The lines of a result.
pub(super) fn search_result(mut hits: Vec<String>, is_complete: bool) -> String {
    if hits.is_empty() {
        hits.push("Nothing was found.".to_owned());
    }
    if !is_complete {
        hits.push("Not all files were searched; search in a folder.".to_owned());
    }
    hits.join("\n")
}
