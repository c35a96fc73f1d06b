//! The directory of an OLE2 file, read within bounds (read-attachment 5.2, MS-CFB).
//!
//! It reads only the sectors of the directory, and those of the allocation table that chain them. The library that
//! converts such files first reads the complete table, which a small file can make very long, so the library runs only
//! in the worker.

use std::io;

use super::bytes::{read_at, u16_at, u32_at};
use super::mime;
use crate::container::Input;

/// Most directory entries that are read.
const MAX_ENTRIES: usize = 10_000;
/// Most sectors of the second-level allocation table that are followed.
const MAX_DIFAT_SECTORS: usize = 1024;
/// Sectors of the allocation table that the header lists.
const HEADER_TABLE_SECTORS: u32 = 109;
/// Mark of a missing sibling or child (`NOSTREAM`, MS-CFB 2.6.1).
const NO_ENTRY: u32 = u32::MAX;
/// Sector numbers above this one have special meanings.
const MAX_SECTOR: u32 = 0xFFFF_FFFA;

/// The type that the streams of the root identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OleContent {
    /// An office package with a password.
    Encrypted,
    /// A document of this type.
    Document(&'static str),
    /// Any other file, or one that cannot be read.
    Other,
}

struct Entry {
    name: String,
    left: u32,
    right: u32,
    child: u32,
}

struct Sectors<'a> {
    input: &'a mut dyn Input,
    header: [u8; 512],
    shift: u32,
    /// The second-level sector that was followed last: its index in the chain, and its number.
    last_difat_sector: Option<(usize, u32)>,
}

/// Classifies the file by the names in the root.
pub(super) fn classify_root(input: &mut dyn Input) -> io::Result<OleContent> {
    let mut header = [0; 512];
    if read_at(input, 0, &mut header)? < header.len() {
        return Ok(OleContent::Other);
    }
    let shift = u32::from(u16_at(&header, 30));
    // Other sizes do not exist (MS-CFB 2.2), and a large shift would overflow below.
    if shift != 9 && shift != 12 {
        return Ok(OleContent::Other);
    }
    let mut sectors = Sectors {
        input,
        header,
        shift,
        last_difat_sector: None,
    };
    let entries = sectors.directory()?;
    Ok(content_of_names(&names_in_root(&entries)))
}

/// The first matching row of the table in read-attachment 5.2.
fn content_of_names(names: &[&str]) -> OleContent {
    let has = |stream: &str| names.iter().any(|name| name.eq_ignore_ascii_case(stream));
    if has("EncryptedPackage") {
        OleContent::Encrypted
    } else if has("WordDocument") {
        OleContent::Document(mime::DOC)
    } else if has("Workbook") || has("Book") {
        OleContent::Document(mime::XLS)
    } else if has("PowerPoint Document") {
        OleContent::Document(mime::PPT)
    } else if has("__properties_version1.0") {
        OleContent::Document(mime::MSG)
    } else {
        OleContent::Other
    }
}

/// Names of the direct entries of the root: a workbook with an embedded mail is still a workbook.
fn names_in_root(entries: &[Entry]) -> Vec<&str> {
    let mut names = Vec::new();
    let mut pending: Vec<u32> = entries.first().map(|root| root.child).into_iter().collect();
    let mut visited = 0;
    while let Some(index) = pending.pop() {
        visited += 1;
        // The tree may have cycles; a valid one pushes no entry twice.
        if visited > entries.len() * 2 {
            break;
        }
        let Some(entry) = usize::try_from(index)
            .ok()
            .and_then(|position| entries.get(position))
        else {
            continue;
        };
        names.push(entry.name.as_str());
        pending.extend(
            [entry.left, entry.right]
                .into_iter()
                .filter(|next| *next != NO_ENTRY),
        );
    }
    names
}

impl Sectors<'_> {
    fn size(&self) -> usize {
        1 << self.shift
    }

    /// Reads one sector; fewer bytes when the file ends in it.
    fn read(&mut self, sector: u32, into: &mut [u8]) -> io::Result<usize> {
        let offset = (u64::from(sector) + 1) << self.shift;
        read_at(self.input, offset, into)
    }

    fn word_of(&mut self, sector: u32, index: u32) -> io::Result<Option<u32>> {
        let offset = ((u64::from(sector) + 1) << self.shift) + u64::from(index) * 4;
        let mut word = [0; 4];
        let read = read_at(self.input, offset, &mut word)?;
        Ok((read == 4).then(|| u32::from_le_bytes(word)))
    }

    /// The sector of the allocation table with this number.
    fn table(&mut self, number: u32) -> io::Result<Option<u32>> {
        if number < HEADER_TABLE_SECTORS {
            let offset = 76 + usize::try_from(number).unwrap_or(0) * 4;
            return Ok(Some(u32_at(&self.header, offset)).filter(|sector| *sector < MAX_SECTOR));
        }
        // The last word of such a sector is the number of the next one (MS-CFB 2.5).
        let per_sector = u32::try_from(self.size() / 4 - 1).unwrap_or(127);
        let rest = number - HEADER_TABLE_SECTORS;
        let index_in_chain = usize::try_from(rest / per_sector).unwrap_or(usize::MAX);
        if index_in_chain >= MAX_DIFAT_SECTORS {
            return Ok(None);
        }
        let first = u32_at(&self.header, 68);
        // Table sectors are requested in ascending order. A walk from the first one each time would be quadratic.
        let (mut index, mut sector) = match self.last_difat_sector {
            Some((index, sector)) if index <= index_in_chain => (index, sector),
            _ => (0, first),
        };
        while index < index_in_chain {
            let Some(next) = self
                .word_of(sector, per_sector)?
                .filter(|next| *next < MAX_SECTOR)
            else {
                return Ok(None);
            };
            (index, sector) = (index + 1, next);
        }
        self.last_difat_sector = Some((index, sector));
        let found = self.word_of(sector, rest % per_sector)?;
        Ok(found.filter(|sector| *sector < MAX_SECTOR))
    }

    /// The sector that follows in a chain.
    fn next(&mut self, sector: u32) -> io::Result<Option<u32>> {
        let per_sector = u32::try_from(self.size() / 4).unwrap_or(128);
        let Some(table) = self.table(sector / per_sector)? else {
            return Ok(None);
        };
        let next = self.word_of(table, sector % per_sector)?;
        Ok(next.filter(|sector| *sector < MAX_SECTOR))
    }

    fn directory(&mut self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut buffer = vec![0; self.size()];
        let mut sector = Some(u32_at(&self.header, 48)).filter(|sector| *sector < MAX_SECTOR);
        while let Some(number) = sector {
            let read = self.read(number, &mut buffer)?;
            let sector_bytes = buffer.get(..read).unwrap_or_default();
            entries.extend(sector_bytes.chunks_exact(128).map(parse_entry));
            // A cyclic chain ends here, too, because every sector adds entries.
            if read < buffer.len() || entries.len() >= MAX_ENTRIES {
                break;
            }
            sector = self.next(number)?;
        }
        Ok(entries)
    }
}

fn parse_entry(bytes: &[u8]) -> Entry {
    // The length is in bytes and counts the terminator; the field has 64 (MS-CFB 2.6.1).
    let length = usize::from(u16_at(bytes, 64)).saturating_sub(2).min(62);
    let units: Vec<u16> = bytes
        .get(..length)
        .unwrap_or_default()
        .chunks_exact(2)
        .map(|pair| u16_at(pair, 0))
        .collect();
    Entry {
        name: String::from_utf16_lossy(&units),
        left: u32_at(bytes, 68),
        right: u32_at(bytes, 72),
        child: u32_at(bytes, 76),
    }
}
