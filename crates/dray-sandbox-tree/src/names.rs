//! Names of members: safe, and unique.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;

use dray_archive::name::{UnsafeName, safe_parts};
use dray_sandbox::path::MAX_NAME_BYTES;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use sha2::{Digest as _, Sha256};

use super::SkipReason;

/// The parts of a name; none for the directory itself (`.`, `./`).
pub(super) fn parts(name: &[u8]) -> Result<Vec<&[u8]>, SkipReason> {
    safe_parts(name).map_err(|UnsafeName| SkipReason::Name)
}

/// Enough of a digest to distinguish names; a collision gains an attacker nothing.
type Key = [u8; 16];

// The digests form a chain: a deep tree costs 16 bytes a name and not the length of its whole path.
fn key(parent: Key, part: &[u8]) -> Key {
    let digest: [u8; 32] = Sha256::new_with_prefix(parent)
        .chain_update(part)
        .finalize()
        .into();
    digest.first_chunk().copied().unwrap_or_default()
}

#[derive(Debug)]
struct NamedDirectory {
    /// The name in the output, if it differs from the name in the archive.
    renamed: Option<Box<[u8]>>,
    /// Whether the directory was a member itself, and not only part of the name of another member.
    given: bool,
}

/// Unique names for members. No two of them are equal for a file system that ignores case or composes characters.
#[derive(Debug, Default)]
pub(super) struct UniqueNames {
    /// Keys of names as such a file system compares them, with the number to try next.
    used: HashMap<Key, u32>,
    /// Directories, keyed by their names in the archive.
    directories: HashMap<Key, NamedDirectory>,
}

impl UniqueNames {
    /// A unique name for a file: its own, or a numbered one if that is taken.
    pub(super) fn file(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let Some((last, before)) = parts.split_last() else {
            return Vec::new();
        };
        let (mut name, _, output_key) = self.enter(before);
        let last = self.claim(output_key, last);
        name.extend_from_slice(&last);
        name
    }

    /// A unique name for a directory; `None` when the directory was named before.
    pub(super) fn directory(&mut self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let (mut name, archive_key, _) = self.enter(parts);
        let directory = self.directories.get_mut(&archive_key)?;
        if std::mem::replace(&mut directory.given, true) {
            return None;
        }
        // `enter` ends the name with a slash.
        name.pop();
        Some(name)
    }

    /// Number of names and directories kept so far.
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Enters a directory and its parents. Returns the name with a slash at its end, the key of the name in the
    /// archive, and the key of the name in the output.
    fn enter(&mut self, parts: &[&[u8]]) -> (Vec<u8>, Key, Key) {
        let (mut archive_key, mut output_key) = (Key::default(), Key::default());
        let mut name = Vec::new();
        for part in parts {
            archive_key = key(archive_key, part);
            let given = if let Some(directory) = self.directories.get(&archive_key) {
                Cow::from(directory.renamed.clone().map_or(part.to_vec(), Vec::from))
            } else {
                // The name is claimed below the renamed parent: `A/x` and `a/x` are in different directories.
                let claimed = self.claim(output_key, part);
                let directory = NamedDirectory {
                    renamed: (*claimed != **part).then(|| claimed.as_ref().into()),
                    given: false,
                };
                self.directories.insert(archive_key, directory);
                claimed
            };
            output_key = key(output_key, fold_name(&given).as_bytes());
            name.extend_from_slice(&given);
            name.push(b'/');
        }
        (name, archive_key, output_key)
    }

    fn claim<'a>(&mut self, parent: Key, part: &'a [u8]) -> Cow<'a, [u8]> {
        let wanted_key = key(parent, fold_name(part).as_bytes());
        let mut number = match self.used.entry(wanted_key) {
            Entry::Vacant(free) => {
                // A second file of this name gets the number 2: `report.csv`, `report_2.csv`.
                free.insert(2);
                return Cow::Borrowed(part);
            }
            Entry::Occupied(next) => *next.get(),
        };
        loop {
            let other = number_name(part, number);
            number += 1;
            // The archive may also contain a file that is called `report_2.csv`.
            if let Entry::Vacant(free) = self.used.entry(key(parent, fold_name(&other).as_bytes()))
            {
                free.insert(2);
                self.used.insert(wanted_key, number);
                return Cow::Owned(other);
            }
        }
    }
}

/// Numbers a name before its extension, as `report_2.csv`; names that are not UTF-8 keep their bytes.
fn number_name(part: &[u8], number: u32) -> Vec<u8> {
    if let Ok(text) = str::from_utf8(part) {
        return dray_presentation::name::numbered_name(text, number).into_bytes();
    }
    let dot = part
        .iter()
        .rposition(|byte| *byte == b'.')
        // The dot of `.profile` begins a name and not an extension.
        .filter(|position| *position > 0);
    let (stem, extension) = part
        .split_at_checked(dot.unwrap_or(part.len()))
        .unwrap_or((part, b""));
    let suffix = format!("_{number}");
    let room = MAX_NAME_BYTES.saturating_sub(suffix.len() + extension.len());
    let stem = stem.get(..room).unwrap_or(stem);
    let mut name = [stem, suffix.as_bytes(), extension].concat();
    name.truncate(MAX_NAME_BYTES);
    name
}

/// A part of a name as text, for archives that have text only: bytes that are not UTF-8 as `%FF`, and no separator of
/// any system.
pub(super) fn text(part: &[u8]) -> String {
    let mut text = String::with_capacity(part.len());
    for chunk in part.utf8_chunks() {
        text.extend(chunk.valid().chars().map(|character| match character {
            // Windows takes it for a separator, so a ZIP made here could lead out of its directory there.
            '\\' => '_',
            character => character,
        }));
        for byte in chunk.invalid() {
            // Writing into a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The form in which file systems compare names that ignore case, composition, and dots and spaces at the end.
fn fold_name(part: &[u8]) -> String {
    let text = text(part);
    // HFS+ and APFS compare names after normalisation, so `é` in one and in two code points are one name.
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(&text);
    // The text becomes upper case first: `ß` and `SS` become equal only that way.
    let folded = decomposed.to_uppercase().to_lowercase();
    ComposingNormalizerBorrowed::new_nfc()
        .normalize(&folded)
        // Windows removes them, so `a.` and `a` would be one file.
        .trim_end_matches(['.', ' '])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_system_does_not_distinguish_get_numbers() {
        let mut unique = UniqueNames::default();
        let mut file = |name: &str| {
            let parts: Vec<_> = name.split('/').map(str::as_bytes).collect();
            String::from_utf8(unique.file(&parts)).unwrap()
        };
        for (name, given) in [
            ("a.txt", "a.txt"),
            ("a.txt", "a_2.txt"),
            ("A.TXT", "A_3.TXT"),
            ("a_2.txt", "a_2_2.txt"),
            ("caf\u{e9}", "caf\u{e9}"),
            ("cafe\u{301}", "cafe\u{301}_2"),
            ("STRASSE", "STRASSE"),
            ("stra\u{df}e", "stra\u{df}e_2"),
            ("dot", "dot"),
            ("dot. .", "dot. ._2"),
            ("d/x", "d/x"),
            ("D/x", "D_2/x"),
            ("D/y", "D_2/y"),
            ("d/X", "d/X_2"),
            ("d", "d_3"),
            ("a.txt/z", "a_4.txt/z"),
        ] {
            assert_eq!(file(name), given, "{name}");
        }
    }

    #[test]
    fn a_directory_is_given_once_and_keeps_its_number() {
        let mut unique = UniqueNames::default();
        assert_eq!(unique.file(&[b"a", b"file"]), b"a/file");
        assert_eq!(unique.directory(&[b"a"]).unwrap(), b"a");
        assert_eq!(unique.directory(&[b"a"]), None);
        assert_eq!(unique.directory(&[b"A"]).unwrap(), b"A_2");
        assert_eq!(unique.file(&[b"A", b"file"]), b"A_2/file");
        assert_eq!(unique.len(), 4);
    }

    #[test]
    fn numbers_fit_into_the_longest_name() {
        let mut unique = UniqueNames::default();
        let mut broken = vec![0xff; 251];
        broken.extend_from_slice(b".bin");
        assert_eq!(unique.file(&[&broken]), broken);
        let second = unique.file(&[&broken]);
        assert_eq!(second.len(), 255);
        assert!(second.ends_with(b"\xff_2.bin"));
        // Without a number, both would have the same name in a ZIP.
        assert_eq!(unique.file(&[b"x\xff"]), b"x\xff");
        assert_eq!(unique.file(&[b"x%FF"]), b"x%FF_2");
        assert_eq!(unique.file(&[b"y\\z"]), b"y\\z");
        assert_eq!(unique.file(&[b"y_z"]), b"y_z_2");
    }

    #[test]
    fn thousands_of_equal_names_are_as_fast_as_different_ones() {
        let mut unique = UniqueNames::default();
        for _ in 0..5000 {
            unique.file(&[b"same"]);
        }
        assert_eq!(unique.file(&[b"same"]), b"same_5001");
    }
}
