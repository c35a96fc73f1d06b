//! Entries of a ZIP archive whose name occurs again later in its directory (APPNOTE 4.3.12).
//!
//! The library keeps the last entry of a name, which is the one that is read. Other programs unpack the first one, so a
//! listing shows all.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io::{self, BufReader, Read, SeekFrom};
use std::rc::Rc;

use zip::DateTime;

use super::entry::{Entry, EntryKind, name_of};
use super::zip::format_time;
use crate::classify::bytes::{u16_at, u32_at, u64_at};
use crate::container::Input;
use crate::limits::{Budget, Damage, Failure};

/// Bytes of a header of the directory before its name.
const HEADER_BYTES: usize = 46;
/// Headers between two checks of the clock.
const HEADERS_PER_CHECK: usize = 256;

/// Earlier entries by name, in their order.
pub(super) type ReplacedEntries = HashMap<Vec<u8>, Vec<Entry>>;

/// Reads the directory that begins at `start`, and returns the entries that are replaced by a later entry of the same
/// name.
pub(super) fn replaced_entries(
    input: &mut dyn Input,
    start: u64,
    budget: &Rc<Budget>,
) -> Result<ReplacedEntries, Failure> {
    let failed = |_| Failure::Corrupt(Damage::Structure);
    input.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut reader = BufReader::new(input);
    let mut last: HashMap<Vec<u8>, Entry> = HashMap::new();
    let mut replaced = ReplacedEntries::new();
    let mut headers = 0_usize;
    while let Some((name, entry)) = next_header(&mut reader).map_err(failed)? {
        if headers.is_multiple_of(HEADERS_PER_CHECK) {
            budget.clock()?;
        }
        headers += 1;
        match last.entry(name) {
            Slot::Vacant(free) => {
                free.insert(entry);
            }
            Slot::Occupied(mut known) => {
                let earlier = known.insert(entry);
                replaced
                    .entry(known.key().clone())
                    .or_default()
                    .push(earlier);
            }
        }
    }
    Ok(replaced)
}

/// The next header of the directory, by its name; `None` at the end.
fn next_header(reader: &mut impl Read) -> io::Result<Option<(Vec<u8>, Entry)>> {
    let mut header = [0; HEADER_BYTES];
    match reader.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    if !header.starts_with(b"PK\x01\x02") {
        return Ok(None);
    }
    let mut name = vec![0; usize::from(u16_at(&header, 28))];
    reader.read_exact(&mut name)?;
    let mut extra = vec![0; usize::from(u16_at(&header, 30))];
    reader.read_exact(&mut extra)?;
    let comment = u64::from(u16_at(&header, 32));
    io::copy(&mut reader.take(comment), &mut io::sink())?;
    let sizes = long_sizes(&extra);
    let size_at = |offset: usize, position: usize| match u32_at(&header, offset) {
        u32::MAX => u64_at(sizes, position),
        size => u64::from(size),
    };
    let bytes = size_at(24, 0);
    // The extra field holds only the sizes that the header cannot.
    let packed_position = if u32_at(&header, 24) == u32::MAX {
        8
    } else {
        0
    };
    let modified = DateTime::try_from_msdos(u16_at(&header, 14), u16_at(&header, 12)).ok();
    let entry = Entry {
        kind: if name.ends_with(b"/") {
            EntryKind::Directory
        } else {
            EntryKind::File
        },
        name: name_of(&name),
        bytes,
        packed_bytes: Some(size_at(20, packed_position)),
        modified: modified.filter(DateTime::is_valid).map(format_time),
        encrypted: u16_at(&header, 8) & 1 == 1,
        is_unsupported: !matches!(u16_at(&header, 10), 0 | 8),
    };
    Ok(Some((name, entry)))
}

/// The sizes of more than 32 bits (APPNOTE 4.5.3); empty without them.
fn long_sizes(extra: &[u8]) -> &[u8] {
    let mut rest = extra;
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 2));
        if u16_at(rest, 0) == 1 {
            return rest.get(4..4 + length).unwrap_or_default();
        }
        rest = rest.get(4 + length..).unwrap_or_default();
    }
    &[]
}
