//! Members that were left out, with their reasons.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// Lines that are kept; more are only counted.
const MAX_LINES: usize = 1000;
/// Characters of a name that are kept.
const MAX_NAME_CHARACTERS: usize = 200;

/// The reason for which a member was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SkipReason {
    /// A symbolic or hard link.
    Link,
    /// A device, pipe or socket, or a kind of tar entry that is not supported.
    Special,
    /// A file with holes, in one of the formats for that.
    Sparse,
    /// A name that leaves the directory or that no file can have.
    Name,
    /// The entry is below the deepest level.
    TooDeep,
    /// Larger than one file may be.
    TooLarge,
    /// Refused by the policy on names.
    Denied,
    /// The file could not be read.
    Unreadable,
    /// A header that would rename all members after it.
    GlobalHeader,
    /// Bytes after the end of the archive.
    AfterEnd,
}

impl SkipReason {
    /// The word for receipts and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Special => "special",
            Self::Sparse => "sparse",
            Self::Name => "name",
            Self::TooDeep => "too_deep",
            Self::TooLarge => "too_large",
            Self::Denied => "denied",
            Self::Unreadable => "unreadable",
            Self::GlobalHeader => "global_header",
            Self::AfterEnd => "after_end",
        }
    }

    /// The words for the reader of the archive.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Link => "a link",
            Self::Special => "not a regular file",
            Self::Sparse => "a file with holes",
            Self::Name => "its name cannot be used",
            Self::TooDeep => "too many directories deep",
            Self::TooLarge => "larger than the limit for one file",
            Self::Denied => "may hold credentials or system data",
            Self::Unreadable => "could not be read",
            Self::GlobalHeader => "a header for all that follows",
            Self::AfterEnd => "after the end of the archive",
        }
    }
}

/// One member that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedMember {
    /// The member's name made printable: control characters and broken encoding escaped, shortened.
    pub name: String,
    /// The reason for which it was left out.
    pub reason: SkipReason,
}

#[derive(Debug, Default)]
struct ReportState {
    first: Vec<SkippedMember>,
    more: u64,
}

/// The members that were left out of a tree. A cheap handle: clones share the report.
#[derive(Clone, Debug, Default)]
pub struct Report(Arc<Mutex<ReportState>>);

impl Report {
    /// Records a member that was left out. After the first thousand only their number grows.
    pub fn skip(&self, name: &[u8], reason: SkipReason) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.first.len() < MAX_LINES {
            let name = printable(name);
            inner.first.push(SkippedMember { name, reason });
        } else {
            // A hostile archive may hold millions of refused members; the report must not grow with them.
            inner.more += 1;
        }
    }

    /// The first thousand lines, in their order.
    pub fn skipped(&self) -> Vec<SkippedMember> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.first.clone()
    }

    /// Number of all members that were left out.
    pub fn count(&self) -> u64 {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.first.len() as u64 + inner.more
    }

    /// A line each, for `_skipped.txt`; empty when nothing was left out.
    pub fn text(&self) -> String {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for skipped in &inner.first {
            text.push_str(&skipped.name);
            text.push_str(": ");
            text.push_str(skipped.reason.sentence());
            // Notepad shows lone line feeds as one line on older Windows.
            text.push_str("\r\n");
        }
        if inner.more > 0 {
            // Writing into a string does not fail.
            let _ = write!(text, "... and {} more\r\n", inner.more);
        }
        text
    }
}

/// A name for a line of text: no control or direction-changing characters, no broken encoding.
fn printable(name: &[u8]) -> String {
    let mut printable_name = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || is_invisible(character) {
                printable_name.extend(character.escape_unicode());
            } else {
                printable_name.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing into a string does not fail.
            let _ = write!(printable_name, "\\x{byte:02x}");
        }
        // The length is checked before the rest is escaped: a name may have 4,096 bytes, and each may become ten
        // characters.
        if printable_name.chars().count() > MAX_NAME_CHARACTERS {
            break;
        }
    }
    match printable_name.char_indices().nth(MAX_NAME_CHARACTERS) {
        Some((cut, _)) => {
            printable_name.truncate(cut);
            printable_name + "..."
        }
        None => printable_name,
    }
}

/// Line separators, and characters that change the direction of text.
const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
