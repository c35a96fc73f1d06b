//! The listing of an archive: one row for each entry, and the sums below it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use super::entry::{Entry, EntryKind};
use crate::limits::Failure;
use crate::markdown::{Cell, Markdown, Table};

/// Most entries that are shown; `range` (`rows 2001-`) shows later ones, and a search reads all.
const MAX_ROWS: usize = 2000;

/// The note of an entry whose name an earlier entry has, too.
const REPEATED_NAME: &str = "name repeated; the last one is read";

/// A listing to which entries are still added.
pub(super) struct Listing {
    table: Table,
    entries: u64,
    files: u64,
    directories: u64,
    bytes: u64,
    /// Hashes of the names of files: the names of a large archive would take too much memory.
    names: HashSet<u64>,
    hasher: RandomState,
}

impl Listing {
    pub(super) fn new(out: &Markdown) -> Self {
        let mut table = out.new_table().limit(MAX_ROWS);
        let header = ["path", "type", "bytes", "modified", "note"];
        table.row(0, header.map(Cell::plain).to_vec());
        Self {
            table,
            entries: 0,
            files: 0,
            directories: 0,
            bytes: 0,
            names: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    /// Adds an entry. Only rows that are shown use memory.
    pub(super) fn add(&mut self, entry: &Entry) {
        self.entries += 1;
        match entry.kind {
            EntryKind::File => self.files += 1,
            EntryKind::Directory => self.directories += 1,
            EntryKind::SymbolicLink(_) | EntryKind::HardLink(_) | EntryKind::Other => {}
        }
        let repeats = matches!(entry.kind, EntryKind::File)
            && !self.names.insert(self.hasher.hash_one(&entry.name));
        let is_file = matches!(entry.kind, EntryKind::File | EntryKind::Other);
        if is_file {
            // Sizes are claims of the file, so their sum may exceed 64 bits.
            self.bytes = self.bytes.saturating_add(entry.bytes);
        }
        if !self.table.wants(self.entries) {
            self.table.skip(self.entries);
            return;
        }
        let bytes = if is_file {
            entry.bytes.to_string()
        } else {
            String::new()
        };
        let mut notes = vec![entry.note()];
        if repeats {
            notes.push(REPEATED_NAME.to_owned());
        }
        notes.retain(|note| !note.is_empty());
        let cells = [
            entry.shown_name(),
            entry.kind_word().to_owned(),
            bytes,
            entry.modified.clone().unwrap_or_default(),
            notes.join(", "),
        ];
        self.table.row(
            self.entries,
            cells.iter().map(|text| Cell::plain(text)).collect(),
        );
    }

    /// Writes the listing, which is complete unless `result` is an error. `is_nested`: the archive is inside another
    /// one.
    ///
    /// # Errors
    ///
    /// `result`, or the limit of the text.
    pub(super) fn finish(
        self,
        result: Result<(), Failure>,
        is_nested: bool,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        if self.entries == 0 {
            result?;
            return Ok(out.note("The archive is empty")?);
        }
        let sums = self.sums(is_nested);
        if result.is_err() {
            out.table_so_far(self.table)?;
        } else {
            out.table(self.table)?;
        }
        result?;
        Ok(out.note(&sums)?)
    }

    fn sums(&self, is_nested: bool) -> String {
        let other_entries = self.entries - self.files - self.directories;
        let counts = [
            counted_text(self.files, "file", "files"),
            counted_text(self.directories, "directory", "directories"),
            counted_text(other_entries, "other entry", "other entries"),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        let hint = if is_nested {
            "an archive within an archive is only listed"
        } else {
            "to read a file, pass its path as member"
        };
        format!(
            "{}; {} bytes unpacked, by the archive's own account; {hint}",
            counts.join(", "),
            self.bytes
        )
    }
}

fn counted_text(count: u64, singular: &str, plural: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {singular}")),
        _ => Some(format!("{count} {plural}")),
    }
}
