//! Lists the entries of ZIP archives and reads one of them.

use std::rc::Rc;

use zip::{CompressionMethod, DateTime};

use super::entry::{Entry, EntryKind, MAX_ENTRY_RATIO, NameMatch, max_bytes, name_of};
use super::zip_repeats::{ReplacedEntries, replaced_entries};
use crate::container::{Input, open_zip, read_zip_entry};
use crate::limits::{Budget, Failure};

/// Calls `each` for every entry of the central directory, in its order; entries of one name are together at the
/// position of the first. Nothing is unpacked.
pub(super) fn for_each_entry(
    input: &mut dyn Input,
    budget: &Rc<Budget>,
    mut each: impl FnMut(&Entry),
) -> Result<(), Failure> {
    let mut archive = open_zip(input)?;
    let mut replaced = ReplacedEntries::new();
    if archive.has_duplicate_names() {
        let start = archive.central_directory_start();
        let input = archive.into_inner();
        replaced = replaced_entries(&mut *input, start, budget)?;
        archive = open_zip(input)?;
    }
    for index in 0..archive.len() {
        budget.element()?;
        let raw_name = archive.by_index_raw(index).ok();
        let raw_name = raw_name.map(|entry| entry.name_raw().to_vec());
        for entry in raw_name
            .and_then(|name| replaced.remove(&name))
            .iter()
            .flatten()
        {
            budget.element()?;
            each(entry);
        }
        if let Some(entry) = entry_at(&mut archive, index) {
            each(&entry);
        }
    }
    Ok(())
}

/// Returns the name and the bytes of the entry that matches `wanted` best. Of equal matches the last one counts,
/// because unpacking would keep it.
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
        // A damaged entry does not prevent access to the others.
        let Some(entry) = entry_at(&mut archive, index) else {
            continue;
        };
        if let Some(name_match) = entry.matches(wanted)
            && found.as_ref().is_none_or(|(best, ..)| name_match >= *best)
        {
            found = Some((name_match, index, entry));
        }
    }
    let (_, index, entry) = found.ok_or(Failure::NoMember)?;
    if entry.is_unsupported && !entry.encrypted {
        return Err(Failure::Unsupported);
    }
    let max = max_bytes(budget.limits());
    // The size in the directory may be wrong, so it is checked again while unpacking.
    let bytes = read_zip_entry(&mut archive, index, max, Some(MAX_ENTRY_RATIO), budget)?;
    Ok((entry.name, bytes))
}

fn entry_at(archive: &mut zip::ZipArchive<&mut dyn Input>, index: usize) -> Option<Entry> {
    let entry = archive.by_index_raw(index).ok()?;
    // Many programs write UTF-8 names without setting the UTF-8 flag.
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
        // The target of the link is its content, which a listing does not unpack.
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
            .map(format_time),
        encrypted: entry.encrypted(),
        is_unsupported: !matches!(
            entry.compression(),
            CompressionMethod::Stored | CompressionMethod::Deflated
        ),
    })
}

/// The time in the directory. It is in the creator's local time, in an unknown time zone.
pub(super) fn format_time(time: DateTime) -> String {
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
