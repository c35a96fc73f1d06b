//! Archives: the listing, and the conversion of one file in them (read-attachment 13.9).
//!
//! It reads ZIP and tar, also tar inside gzip, xz and Zstandard. No file is written: names are only displayed and
//! compared, and a file of an archive is unpacked into memory and converted like any other document. A compressed file
//! that is not a tar archive counts as the one file in it.

mod entry;
mod listing;
mod packed;
mod tar;
#[cfg(test)]
mod tests;
mod zip;
mod zip_repeats;

use std::io::Cursor;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use self::entry::{Entry, MAX_ARCHIVE_RATIO, MAX_ENTRY_RATIO, NameMatch, max_bytes};
use self::listing::Listing;
use self::packed::{CompressionFormat, Stream};
use self::tar::Tar;
use super::{ConversionHint, Converter};
use crate::classify::{self, Kind, mime};
use crate::container::Input;
use crate::limits::{Budget, Damage, Failure, Limit};
use crate::markdown::Markdown;

/// A file of an archive that was read in place of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The member's media type, from its content.
    pub mime: String,
    /// The member's kind, which the policy has to allow as well.
    pub kind: Kind,
    /// The member's unpacked size in bytes.
    pub bytes: u64,
}

/// A file of an archive that is to be converted.
pub(super) struct UnpackedMember {
    pub(super) member: Member,
    /// Hint for the converter of the member.
    pub(super) hint: ConversionHint,
    pub(super) input: Cursor<Vec<u8>>,
}

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    ("application/zip", "zip"),
    ("application/x-tar", "tar"),
    ("application/gzip", "gz"),
    ("application/x-xz", "xz"),
    ("application/zstd", "zst"),
];

/// The converter of this family for a media type; it writes the listing.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let name = match hint.mime.as_str() {
        mime::ZIP => "zip",
        mime::TAR => "tar",
        other => CompressionFormat::of(other)?.name(),
    };
    Some(Converter {
        name,
        convert: write_listing,
    })
}

/// Whether files in a file of this type can be read by their names.
pub fn is_archive(hint: &ConversionHint) -> bool {
    converter(hint).is_some()
}

/// Writes the listing. Sizes are claims of the archive.
fn write_listing(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut listing = Listing::new(out);
    let result = if hint.mime == mime::ZIP {
        zip::for_each_entry(input, &budget, |entry| listing.add(entry))
    } else {
        list_stream(input, hint, &budget, &mut listing)
    };
    listing.finish(result, hint.member.is_some(), out)
}

fn list_stream(
    input: &mut dyn Input,
    hint: &ConversionHint,
    budget: &Rc<Budget>,
    listing: &mut Listing,
) -> Result<(), Failure> {
    let mut stream = open_stream(input, hint, MAX_ARCHIVE_RATIO, budget);
    if !tar::is_tar(stream.peek(dray_archive::tar::BLOCK_BYTES)?) {
        if hint.mime == mime::TAR {
            return Err(DAMAGED_STRUCTURE);
        }
        // The formats do not reliably state the unpacked size, so the content is unpacked and counted within the
        // budget.
        let bytes = stream.skip(u64::MAX)?;
        listing.add(&Entry::compressed_file(bytes));
        return Ok(());
    }
    let mut archive = Tar::new(stream);
    while let Some(entry) = archive.next()? {
        budget.element()?;
        listing.add(&entry);
    }
    Ok(())
}

const DAMAGED_STRUCTURE: Failure = Failure::Corrupt(Damage::Structure);

fn open_stream<'a>(
    input: &'a mut dyn Input,
    hint: &ConversionHint,
    max_ratio: u64,
    budget: &Rc<Budget>,
) -> Stream<'a> {
    match CompressionFormat::of(&hint.mime) {
        Some(format) => Stream::unpacked(input, format, max_ratio, budget),
        None => Stream::plain(input, budget),
    }
}

/// Unpacks the file to read instead of the archive: the requested one, or the only one of a compressed file. `None` if
/// the document itself is to be converted.
///
/// # Errors
///
/// [`Failure::NoMember`] if the archive does not contain the file; a limit of the conversion, of the size of a file or
/// of the ratio of unpacked to packed bytes; encryption; damage.
pub(super) fn unpack_single(
    input: &mut dyn Input,
    hint: &ConversionHint,
    budget: &Rc<Budget>,
) -> Result<Option<UnpackedMember>, Failure> {
    let Some(wanted) = &hint.member else {
        return only_file(input, hint, budget);
    };
    let (name, bytes) = match hint.mime.as_str() {
        mime::ZIP => zip::read_member(input, wanted, budget)?,
        _ if is_archive(hint) => tar_member(input, hint, wanted, budget)?,
        _ => return Err(Failure::NoMember),
    };
    classify_unpacked(&name, bytes, hint).map(Some)
}

/// The file inside a compressed file; `None` for an archive.
fn only_file(
    input: &mut dyn Input,
    hint: &ConversionHint,
    budget: &Rc<Budget>,
) -> Result<Option<UnpackedMember>, Failure> {
    let Some(format) = CompressionFormat::of(&hint.mime) else {
        return Ok(None);
    };
    let mut stream = Stream::unpacked(input, format, MAX_ENTRY_RATIO, budget);
    if tar::is_tar(stream.peek(dray_archive::tar::BLOCK_BYTES)?) {
        drop(stream);
        input.rewind().map_err(|_| DAMAGED_STRUCTURE)?;
        return Ok(None);
    }
    let max = max_bytes(budget.limits());
    // One byte more than allowed shows that the file continues.
    let bytes = stream.take(max.saturating_add(1))?;
    if bytes.len() as u64 > max {
        return Err(Failure::Stopped(Limit::Size));
    }
    classify_unpacked(&format!("file.{}", hint.extension), bytes, hint).map(Some)
}

/// Returns the name and the bytes of the file that matches `wanted` best. Of equal matches the last one counts,
/// because unpacking would keep it.
fn tar_member(
    input: &mut dyn Input,
    hint: &ConversionHint,
    wanted: &str,
    budget: &Rc<Budget>,
) -> Result<(String, Vec<u8>), Failure> {
    let mut stream = open_stream(input, hint, MAX_ARCHIVE_RATIO, budget);
    if !tar::is_tar(stream.peek(dray_archive::tar::BLOCK_BYTES)?) {
        return Err(Failure::NoMember);
    }
    let max = max_bytes(budget.limits());
    let mut archive = Tar::new(stream);
    let mut found: Option<(NameMatch, String, Option<Vec<u8>>)> = None;
    while let Some(entry) = archive.next()? {
        budget.element()?;
        if let Some(name_match) = entry.matches(wanted)
            && found.as_ref().is_none_or(|(best, ..)| name_match >= *best)
        {
            // A stream cannot go back, so each better match is read as it passes.
            let bytes = (entry.bytes <= max)
                .then(|| archive.content(max))
                .transpose()?;
            found = Some((name_match, entry.name, bytes));
        }
    }
    let (_, name, bytes) = found.ok_or(Failure::NoMember)?;
    Ok((name, bytes.ok_or(Failure::Stopped(Limit::Size))?))
}

/// Classifies an unpacked file.
fn classify_unpacked(
    name: &str,
    bytes: Vec<u8>,
    outer: &ConversionHint,
) -> Result<UnpackedMember, Failure> {
    let size = bytes.len() as u64;
    let mut input = Cursor::new(bytes);
    let class = classify::classify(&mut input, name).map_err(|_| Failure::Internal)?;
    if class.encrypted {
        return Err(Failure::Encrypted);
    }
    Ok(UnpackedMember {
        member: Member {
            mime: class.mime.to_owned(),
            kind: class.kind,
            bytes: size,
        },
        hint: ConversionHint {
            show_hidden: outer.show_hidden,
            all_rows: outer.all_rows,
            ocr: outer.ocr.clone(),
            // An archive within an archive is only listed.
            member: Some(outer.member.clone().unwrap_or_default()),
            ..class.hint()
        },
        input,
    })
}
