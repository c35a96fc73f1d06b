//! One entry of an archive: its header data, its display name, and the matching with the name that a caller gives.

use std::fmt::Write as _;

use dray_types::invisible::is_unprintable;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::container::exceeds_ratio;
use crate::limits::Limits;

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    /// A symbolic link, with its target.
    SymbolicLink(String),
    /// A hard link, and the entry that it repeats.
    HardLink(String),
    /// A device, a pipe, a sparse file or another entry without content that could be read.
    Other,
}

/// The header data of an entry. Names and sizes are unverified claims of the file's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The entry's name, as the archive spells it; never used as a path here.
    pub(super) name: String,
    pub(super) kind: EntryKind,
    /// Unpacked size, as the archive claims it.
    pub(super) bytes: u64,
    /// Packed size, where the archive packs each entry separately.
    pub(super) packed_bytes: Option<u64>,
    /// Time of the last change, such as `2031-03-14 09:30:00`; in UTC for tar, without zone for ZIP.
    pub(super) modified: Option<String>,
    pub(super) encrypted: bool,
    /// Whether the entry is packed by a method that is not supported.
    pub(super) is_unsupported: bool,
}

/// How well an entry's name matches the name that a caller gave; greater is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameMatch {
    /// The name without the backslashes of Markdown that a model copied from the listing.
    Unescaped,
    /// The name as the listing shows it, apart from a leading `./`.
    Shown,
    /// Byte for byte as it is in the archive.
    Exact,
}

impl Entry {
    /// The content of a compressed file that is not an archive.
    pub(super) fn compressed_file(bytes: u64) -> Self {
        Self {
            name: "(the compressed file)".to_owned(),
            kind: EntryKind::File,
            bytes,
            packed_bytes: None,
            modified: None,
            encrypted: false,
            is_unsupported: false,
        }
    }

    /// The entry's name, with escapes for characters that hide or reverse text.
    pub(super) fn shown_name(&self) -> String {
        listed_name(&self.name)
    }

    /// The displayed word for the type.
    pub(super) fn kind_word(&self) -> &'static str {
        match self.kind {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::SymbolicLink(_) => "symbolic link",
            EntryKind::HardLink(_) => "hard link",
            EntryKind::Other => "other",
        }
    }

    /// A warning before reading the entry or unpacking the archive elsewhere.
    pub(super) fn note(&self) -> String {
        let mut notes = Vec::new();
        if let EntryKind::SymbolicLink(target) | EntryKind::HardLink(target) = &self.kind
            && !target.is_empty()
        {
            notes.push(format!("to {}", listed_name(target)));
        }
        if self.encrypted {
            notes.push("encrypted".to_owned());
        }
        if self.is_unsupported {
            notes.push("packing method not supported".to_owned());
        }
        if let Some(packed) = self.packed_bytes
            && exceeds_ratio(self.bytes, packed, MAX_ENTRY_RATIO)
        {
            notes.push("packed too tightly to be read".to_owned());
        }
        if leaves_directory(&self.name) {
            notes.push("path leads out of the archive".to_owned());
        }
        notes.join(", ")
    }

    /// How well the name matches the caller's `wanted`; `None` if they name different files.
    pub(super) fn matches(&self, wanted: &str) -> Option<NameMatch> {
        if !matches!(self.kind, EntryKind::File) {
            return None;
        }
        if self.name == wanted {
            return Some(NameMatch::Exact);
        }
        let normalized = |name: &str| name.trim().trim_start_matches("./").to_owned();
        let name = normalized(&self.shown_name());
        if name == normalized(wanted) {
            return Some(NameMatch::Shown);
        }
        (name == normalized(&without_escapes(wanted))).then_some(NameMatch::Unescaped)
    }
}

/// Times that an entry may be larger than it is packed.
pub(super) const MAX_ENTRY_RATIO: u64 = 100;
/// Times that all of a packed archive may be larger than the file.
pub(super) const MAX_ARCHIVE_RATIO: u64 = 50;
/// Most bytes of one file of an archive that are read.
pub(super) fn max_bytes(limits: &Limits) -> u64 {
    limits.max_member_bytes.min(limits.max_inflated_bytes)
}

/// A name for a listing: invisible characters and those that reverse text are written as `\u{…}`.
pub(super) fn listed_name(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        if is_unprintable(character) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(character));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Bytes of a name as text; invalid UTF-8 is written as `\xNN`, so that different names stay different.
pub(super) fn name_of(bytes: &[u8]) -> String {
    let mut name = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(name, "\\x{byte:02x}");
        }
    }
    name
}

/// Seconds since 1970 as `2031-03-14 09:30:00`, UTC; `None` before the year 0 and after the year 9999.
pub(super) fn utc_text(seconds: i64) -> Option<String> {
    let time = Timestamp::from_second(seconds).ok()?;
    let time = time.to_zoned(TimeZone::UTC);
    (time.year() >= 0).then(|| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Whether unpacking the name as it is would write outside the directory of the archive.
fn leaves_directory(name: &str) -> bool {
    // The name is only for the listing: no name is ever used as a path here. Programs that unpack it elsewhere may do
    // so (zip slip).
    let has_drive = name.as_bytes().get(1) == Some(&b':');
    name.starts_with(['/', '\\']) || has_drive || name.split(['/', '\\']).any(|part| part == "..")
}

/// A text without the backslashes that Markdown puts before punctuation.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let escapes =
            character == '\\' && characters.peek().is_some_and(char::is_ascii_punctuation);
        if !escapes {
            plain.push(character);
        } else if let Some(escaped) = characters.next() {
            plain.push(escaped);
        }
    }
    plain
}
