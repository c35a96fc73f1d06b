//! The exact texts of the tool outside a frame, and how paths are written in them (read-attachment 3, 10, 11.2).

use dray_documents::classify::Kind;
use dray_documents::limits::{Damage, Limit};
pub use dray_presentation::escape::escape_path;

/// Step 1: the path is missing.
pub const FILE_PATH_REQUIRED: &str = "Error: file_path is required";
/// Step 1: the path holds NUL or is too long.
pub const FILE_PATH_INVALID: &str = "Error: file_path is not valid";
/// Body of the note on a file without anything in it.
pub const EMPTY_FILE_NOTE: &str = "_(The file is empty.)_";
/// Body of the note on a PDF without text.
pub const NO_TEXT_PDF: &str = "_(No extractable text found in this PDF -- it may be scanned or image-only. No OCR is performed in-process.)_";
/// Body of the note on any other document without text.
pub const NO_TEXT: &str = "_(No text found in this document.)_";

/// The sentences of a note without the marks around them, for people.
pub(crate) fn note_sentence(body: &str) -> String {
    let sentences: Vec<&str> = body
        .split("\n\n")
        .map(|paragraph| {
            let inner = paragraph.strip_prefix("_(");
            let inner = inner.and_then(|inner| inner.strip_suffix(")_"));
            inner.unwrap_or(paragraph)
        })
        .collect();
    sentences.join(" ")
}

/// A path as a word for a POSIX shell.
pub fn quote_for_shell(path: &str) -> String {
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "._/-+@:,".contains(character);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// Refusal of steps 3 to 7, with its reason.
pub fn cannot_read(path: &str, reason: &str) -> String {
    format!(
        "Error: cannot read {}: {reason}. Attachments must be regular files inside the workspace, under the size cap.",
        escape_path(path)
    )
}

/// Refusal of step 2. The sentence is the same for files that exist and files that do not.
pub fn outside_workspace(path: &str, root: &str) -> String {
    format!(
        "Error: refusing to access '{}' — outside {root}. Set tools.workspace_strict=false in config.yml to disable this check.",
        escape_path(path)
    )
}

/// The reason for a refusal in step 6.
pub fn too_large(size: u64, cap: u64) -> String {
    format!("exceeds max_file_bytes ({size} > {cap})")
}

/// Refusal of step 8: the tool or the policy does not allow this kind.
pub fn kind_not_allowed(path: &str, kind: Kind, mime: &str) -> String {
    format!(
        "Error: {} is a {} ({mime}); read_attachment only reads documents and text. Inspect other kinds via the shell.",
        escape_path(path),
        kind.word()
    )
}

/// A member was requested from a file that is not an archive.
pub fn not_an_archive(path: &str, kind: Kind, mime: &str) -> String {
    format!(
        "Error: {} is a {} ({mime}), not an archive that can be opened here. `member` names a file in a ZIP or tar archive.",
        escape_path(path),
        kind.word()
    )
}

/// An archive has no such file.
pub fn member_not_found(path: &str, member: &str) -> String {
    format!(
        "Error: {} holds no file '{}'. Read it without `member` for the list of its files.",
        escape_path(path),
        escape_path(member)
    )
}

/// The displayed name of a file in an archive.
pub fn member_path(path: &str, member: &str) -> String {
    format!("{path}!/{member}")
}

/// Message for an unexpected failure, without a cause: the message of a panic may contain content of a file.
pub fn internal(path: &str) -> String {
    format!(
        "Error: could not read {}: internal error.",
        escape_path(path)
    )
}

/// The result of a cancelled call.
pub fn cancelled(path: &str) -> String {
    format!("Reading {} was cancelled.", escape_path(path))
}

/// The reason why no text could be produced, for the line before a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A password is needed.
    Encrypted,
    /// Damaged or incomplete; the detail is from a fixed list, never from the file.
    Corrupt(Damage),
    /// The conversion reached a limit before it had any text.
    Limit(Limit),
    /// The type has no converter; a shell tool may have one.
    Unsupported,
    /// The converter failed or its process ended without a result.
    Internal,
}

impl Cause {
    fn line(self, mime: &str) -> String {
        match self {
            Self::Encrypted => {
                "This file is encrypted; a password is needed to read it.".to_owned()
            }
            Self::Corrupt(damage) => {
                format!("This file is damaged or incomplete ({}).", damage.words())
            }
            Self::Limit(limit) => format!("Conversion stopped: {} limit reached.", limit.word()),
            Self::Unsupported => format!("No in-process converter for {mime}."),
            Self::Internal => "The converter failed on this file.".to_owned(),
        }
    }
}

/// Other ways to read a file, after a line that names the cause.
pub fn hint(path: &str, mime: &str, cause: Cause) -> String {
    let line = cause.line(mime);
    if cause == Cause::Encrypted {
        return format!(
            "{line}\n[Attached document: {} ({mime})]\nNot inlined. Do not assume contents you have not extracted.",
            escape_path(path)
        );
    }
    format!("{line}\n{}", shell_hint(path, mime))
}

/// The reason why a file of an archive has no text, and other ways to read it. A shell tool needs a file, so unpacking
/// comes first.
pub fn member_hint(path: &str, mime: &str, cause: Cause) -> String {
    let advice = if cause == Cause::Encrypted {
        "Not inlined. Do not assume contents you have not extracted."
    } else {
        "Not inlined. Unpack it from the archive and extract its text with a shell tool. Do not assume contents you have not extracted."
    };
    format!(
        "{}\n[Attached document: {} ({mime})]\n{advice}",
        cause.line(mime),
        escape_path(path)
    )
}

/// Other ways to read a document without a converter.
pub fn shell_hint(path: &str, mime: &str) -> String {
    let escaped = escape_path(path);
    // The escaped path is quoted, not the raw one: the hint is outside of any frame, where a raw file name could insert
    // its own sentences (prompt injection).
    let word = quote_for_shell(&escaped);
    format!(
        "[Attached document: {escaped} ({mime})]\n\
         Not inlined. Extract its text with a shell tool, e.g. `markitdown {word}` (fallback `pdftotext {word} -`, or `textutil -convert txt {word}` on macOS), then read\n\
         the output. Do not assume contents you have not extracted."
    )
}

/// The line after a text that a limit cut short.
pub fn stopped(limit: Limit) -> String {
    format!(
        "_(Stopped: {} limit reached; the text above is incomplete.)_",
        limit.word()
    )
}

/// The line after a text that damage cut short.
pub fn damaged(damage: Damage) -> String {
    format!(
        "_(This file is damaged or incomplete ({}); the text above is incomplete.)_",
        damage.words()
    )
}

/// The line after the results of a search that did not read all of the document.
pub fn not_searched(count: u64) -> String {
    format!("_(Not searched: {count} rows or lines that the text leaves out.)_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_exactly_these() {
        assert_eq!(
            cannot_read("a b", "cannot stat: ENOENT"),
            "Error: cannot read a b: cannot stat: ENOENT. Attachments must be regular files inside the workspace, under the size cap."
        );
        assert_eq!(
            outside_workspace("/etc/passwd", "/w"),
            "Error: refusing to access '/etc/passwd' — outside /w. Set tools.workspace_strict=false in config.yml to disable this check."
        );
        assert_eq!(
            kind_not_allowed("a.png", Kind::Image, "image/png"),
            "Error: a.png is a image (image/png); read_attachment only reads documents and text. Inspect other kinds via the shell."
        );
        assert_eq!(internal("x"), "Error: could not read x: internal error.");
        assert_eq!(too_large(5, 4), "exceeds max_file_bytes (5 > 4)");
    }

    #[test]
    fn hints_name_the_cause_first() {
        assert_eq!(
            hint("a.doc", "application/msword", Cause::Unsupported),
            "No in-process converter for application/msword.\n\
             [Attached document: a.doc (application/msword)]\n\
             Not inlined. Extract its text with a shell tool, e.g. `markitdown a.doc` (fallback `pdftotext a.doc -`, or `textutil -convert txt a.doc` on macOS), then read\n\
             the output. Do not assume contents you have not extracted."
        );
        assert_eq!(
            hint("a.pdf", "application/pdf", Cause::Encrypted),
            "This file is encrypted; a password is needed to read it.\n\
             [Attached document: a.pdf (application/pdf)]\n\
             Not inlined. Do not assume contents you have not extracted."
        );
        let first = |cause| hint("a", "m", cause).lines().next().map(str::to_owned);
        assert_eq!(
            first(Cause::Corrupt(Damage::Truncated)).unwrap(),
            "This file is damaged or incomplete (it ends too early)."
        );
        assert_eq!(
            first(Cause::Limit(Limit::Time)).unwrap(),
            "Conversion stopped: time limit reached."
        );
        assert_eq!(
            first(Cause::Internal).unwrap(),
            "The converter failed on this file."
        );
    }

    #[test]
    fn shell_hints_quote_the_path() {
        assert_eq!(quote_for_shell("a/b-c_d"), "a/b-c_d");
        assert_eq!(quote_for_shell("/a.b/c-d+e@f:g,1"), "/a.b/c-d+e@f:g,1");
        assert_eq!(quote_for_shell("a b's.pdf"), r"'a b'\''s.pdf'");
        assert_eq!(quote_for_shell("$(rm -rf)"), "'$(rm -rf)'");
        assert_eq!(quote_for_shell(""), "''");
        assert!(hint("a;b", "m", Cause::Internal).contains("`markitdown 'a;b'`"));
    }
}
