//! ZIP archives: their directory, and one entry of them.

use std::rc::Rc;

use zip::{CompressionMethod, DateTime};

use super::entry::{Entry, EntryKind, MAX_ENTRY_RATIO, NameMatch, max_bytes, name_of};
use crate::container::{Input, open_zip, read_zip_entry};
use crate::limits::{Budget, Failure};

/// Gives every entry of the directory, in its order. Nothing is unpacked.
pub(super) fn for_each_entry(
    input: &mut dyn Input,
    budget: &Rc<Budget>,
    mut each: impl FnMut(&Entry),
) -> Result<(), Failure> {
    let mut archive = open_zip(input)?;
    for index in 0..archive.len() {
        budget.element()?;
        if let Some(entry) = entry_at(&mut archive, index) {
            each(&entry);
        }
    }
    Ok(())
}

/// The name and the bytes of the file that `wanted` means; of several, the last, as unpacking would leave it.
pub(super) fn read_member(
    input: &mut dyn Input,
    wanted: &str,
    budget: &Rc<Budget>,
) -> Result<(String, Vec<u8>), Failure> {
    let mut archive = open_zip(input)?;
    let mut found: Option<(NameMatch, usize, Entry)> = None;
    for index in 0..archive.len() {
        if index.is_multiple_of(256) {
            budget.clock()?;
        }
        // An entry that cannot be read does not hide the others.
        let Some(entry) = entry_at(&mut archive, index) else {
            continue;
        };
        if let Some(fits) = entry.matches(wanted)
            && found.as_ref().is_none_or(|(best, ..)| fits >= *best)
        {
            found = Some((fits, index, entry));
        }
    }
    let (_, index, entry) = found.ok_or(Failure::NoMember)?;
    if entry.is_unsupported && !entry.encrypted {
        return Err(Failure::Unsupported);
    }
    let max = max_bytes(budget.limits());
    // The size is checked again while unpacking: what the directory says is only a claim.
    let bytes = read_zip_entry(&mut archive, index, max, Some(MAX_ENTRY_RATIO), budget)?;
    Ok((entry.name, bytes))
}

fn entry_at(archive: &mut zip::ZipArchive<&mut dyn Input>, index: usize) -> Option<Entry> {
    let entry = archive.by_index_raw(index).ok()?;
    // Many programs write UTF-8 and do not say so.
    let raw = entry.name_raw();
    let name = match std::str::from_utf8(raw) {
        Ok(name) => name.to_owned(),
        Err(_) => entry
            .name()
            .map_or_else(|_| name_of(raw), std::borrow::Cow::into_owned),
    };
    let kind = if entry.is_dir() {
        EntryKind::Directory
    } else if entry.is_symlink() {
        // Where it points is its content, which a listing does not unpack.
        EntryKind::SymbolicLink(String::new())
    } else {
        EntryKind::File
    };
    Some(Entry {
        name,
        kind,
        bytes: entry.size(),
        packed_bytes: Some(entry.compressed_size()),
        modified: entry
            .last_modified()
            .filter(DateTime::is_valid)
            .map(shown_time),
        encrypted: entry.encrypted(),
        is_unsupported: !matches!(
            entry.compression(),
            CompressionMethod::Stored | CompressionMethod::Deflated
        ),
    })
}

/// As the directory says; in the time zone of its creator, which it does not say.
fn shown_time(time: DateTime) -> String {
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}
