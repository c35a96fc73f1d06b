//! The central directory of a ZIP, read within bounds (read-attachment 5.2, APPNOTE 4.3).
//!
//! It keeps only data that decides the type: a few entries by name, and whether some directories exist. So memory does
//! not grow with the directory, and no number in the file is trusted. Conversion opens the file again with a full
//! reader.

use std::io::{self, BufReader, Read, SeekFrom};

use super::bytes::{fill_buffer, read_at, read_up_to, u16_at, u32_at, u64_at};
use crate::container::Input;

/// Most entries that are read.
const MAX_ENTRIES: usize = 10_000;
/// Most bytes of the directory that are read.
const MAX_DIRECTORY_BYTES: u64 = 8 << 20;
/// The end record and the longest comment after it.
const TAIL_BYTES: u64 = 22 + 65_535;
/// Most bytes that are read of one compressed part.
const MAX_COMPRESSED_BYTES: u64 = 512 << 10;
/// Most bytes that are inflated of one part.
const MAX_INFLATED_BYTES: u64 = 4 << 20;

/// An entry, as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The entry's name, as the file spells it.
    pub(super) name: String,
    /// 0 is stored, 8 is deflated.
    pub(super) method: u16,
    /// Whether a password is needed.
    pub(super) encrypted: bool,
    /// Compressed size; `None` if it is unknown.
    compressed: Option<u64>,
    /// Offset of its local header.
    offset: u64,
}

/// The relevant content of the directory.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The first entry of the directory, where ODF and EPUB name their type.
    pub(super) first: Option<Entry>,
    /// Entries that decide, at most one for each of [`DECIDING_PARTS`].
    deciding: Vec<Entry>,
    /// Marks of the other parts that exist.
    seen: Vec<EntryMark>,
    /// Whether the directory could not be read; the data is from the start of the file.
    pub(super) damaged: bool,
}

/// An entry whose presence matters, whatever its content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryMark {
    /// A name that ends in `.opf`.
    Package,
    /// A `content.xml` at the top.
    Content,
    /// Any entry in the directory `word/`.
    Word,
    /// Any entry in the directory `xl/`.
    Excel,
    /// The main part of a binary workbook.
    BinaryWorkbook,
    /// Any entry in the directory `ppt/`.
    Slides,
}

impl EntryMark {
    fn of(lower: &str) -> Option<Self> {
        Some(match lower {
            "content.xml" => Self::Content,
            "xl/workbook.bin" => Self::BinaryWorkbook,
            _ if lower.starts_with("word/") => Self::Word,
            _ if lower.starts_with("xl/") => Self::Excel,
            _ if lower.starts_with("ppt/") => Self::Slides,
            _ if super::file_extension(lower) == "opf" => Self::Package,
            _ => return None,
        })
    }
}

/// Names of the parts that decide.
const DECIDING_PARTS: [&str; 5] = [
    "mimetype",
    "[Content_Types].xml",
    "_rels/.rels",
    "META-INF/container.xml",
    "META-INF/manifest.xml",
];

impl Contents {
    /// Reads the directory; without one, the headers within `sample`, the start of the file.
    pub(super) fn read(input: &mut dyn Input, sample: &[u8]) -> io::Result<Self> {
        if let Some((start, shift, end)) = find_directory(input)? {
            let mut contents = Self::default();
            if contents.read_entries(input, start, shift, end)? {
                return Ok(contents);
            }
        }
        let mut contents = Self {
            damaged: true,
            ..Self::default()
        };
        contents.scan(sample);
        Ok(contents)
    }

    /// Whether the file has such an entry.
    pub(super) fn has(&self, mark: EntryMark) -> bool {
        self.seen.contains(&mark)
    }

    /// The entry of one of [`DECIDING_PARTS`], compared without case.
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        let is_same_name = |entry: &&Entry| entry.name.eq_ignore_ascii_case(name);
        self.deciding.iter().find(is_same_name)
    }

    /// Reads the directory. Returns whether it has an entry, or declares that it has none.
    fn read_entries(
        &mut self,
        input: &mut dyn Input,
        start: u64,
        shift: u64,
        end: u64,
    ) -> io::Result<bool> {
        input.seek(SeekFrom::Start(start))?;
        let length = end.saturating_sub(start).min(MAX_DIRECTORY_BYTES);
        let mut reader = BufReader::with_capacity(16 << 10, Read::take(&mut *input, length));
        let mut header = [0; 46];
        let mut entry_count = 0;
        while entry_count < MAX_ENTRIES
            && fill_exactly(&mut reader, &mut header)?
            && header.starts_with(b"PK\x01\x02")
        {
            let mut name = vec![0; usize::from(u16_at(&header, 28))];
            let mut extra = vec![0; usize::from(u16_at(&header, 30))];
            let comment = u64::from(u16_at(&header, 32));
            if !fill_exactly(&mut reader, &mut name)? || !fill_exactly(&mut reader, &mut extra)? {
                break;
            }
            // The comment is read and not skipped by a seek, so that the limit of the directory counts its bytes too.
            io::copy(&mut Read::take(&mut reader, comment), &mut io::sink())?;
            let mut entry = Entry {
                name: String::from_utf8_lossy(&name).into_owned(),
                method: u16_at(&header, 10),
                encrypted: u16_at(&header, 8) & 1 == 1,
                compressed: Some(u64::from(u32_at(&header, 20))),
                offset: u64::from(u32_at(&header, 42)),
            };
            apply_zip64(&mut entry, &extra, u32_at(&header, 24) == u32::MAX);
            entry.offset = entry.offset.saturating_add(shift);
            self.add(entry);
            entry_count += 1;
        }
        // An empty archive has only an end record.
        Ok(entry_count > 0 || start == end)
    }

    /// Reads the headers of entries within the start of the file.
    fn scan(&mut self, sample: &[u8]) {
        let starts = (0..sample.len()).filter(|start| {
            let rest = sample.get(*start..).unwrap_or_default();
            rest.starts_with(b"PK\x03\x04")
        });
        for start in starts.take(MAX_ENTRIES) {
            let header = sample.get(start..).unwrap_or_default();
            let length = usize::from(u16_at(header, 26));
            let Some(name) = header.get(30..30 + length) else {
                continue;
            };
            let flags = u16_at(header, 6);
            let compressed = u64::from(u32_at(header, 18));
            self.add(Entry {
                name: String::from_utf8_lossy(name).into_owned(),
                method: u16_at(header, 8),
                encrypted: flags & 1 == 1,
                // A streaming writer stores the sizes after the data (bit 3), so a zero here is not the size.
                compressed: (flags & 8 == 0 && compressed != u64::from(u32::MAX))
                    .then_some(compressed),
                offset: start as u64,
            });
        }
    }

    fn add(&mut self, entry: Entry) {
        let lower = entry.name.to_ascii_lowercase();
        if let Some(mark) = EntryMark::of(&lower).filter(|mark| !self.has(*mark)) {
            self.seen.push(mark);
        }
        if let Some(part) = DECIDING_PARTS
            .iter()
            .find(|name| name.eq_ignore_ascii_case(&lower))
        {
            self.add_deciding(part, &entry);
        }
        if self.first.is_none() {
            self.first = Some(entry);
        }
    }
}

impl Contents {
    /// Keeps the entry that a conversion would read: the last of several equal names, and a name with the right case
    /// before any other. The type must not come from another entry than the content.
    fn add_deciding(&mut self, part: &str, entry: &Entry) {
        let known = self.deciding.iter_mut();
        let known = known
            .into_iter()
            .find(|known| known.name.eq_ignore_ascii_case(part));
        match known {
            None => self.deciding.push(entry.clone()),
            Some(known) if known.name == entry.name || entry.name == part => *known = entry.clone(),
            Some(_) => {}
        }
    }
}

/// Reads the start of a part. A damaged part ends at the damage; an encrypted part is empty.
pub(super) fn read_part(input: &mut dyn Input, entry: &Entry) -> io::Result<Vec<u8>> {
    let mut header = [0; 30];
    let read = read_at(input, entry.offset, &mut header)?;
    if read < header.len() || !header.starts_with(b"PK\x03\x04") || entry.encrypted {
        return Ok(Vec::new());
    }
    let names = u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28));
    let start = entry.offset.saturating_add(30 + names);
    let length = entry
        .compressed
        .unwrap_or(MAX_COMPRESSED_BYTES)
        .min(MAX_COMPRESSED_BYTES);
    let raw = read_up_to(input, start, length)?;
    match entry.method {
        0 => Ok(raw),
        8 => {
            let mut bytes = Vec::new();
            let inflater = flate2::read::DeflateDecoder::new(raw.as_slice());
            // Data before the damage is used.
            let _ = inflater.take(MAX_INFLATED_BYTES).read_to_end(&mut bytes);
            Ok(bytes)
        }
        _ => Ok(Vec::new()),
    }
}

/// Takes sizes and offset from the 64-bit extra field where the 32-bit fields have their maximum.
fn apply_zip64(entry: &mut Entry, extra: &[u8], long_size: bool) {
    let full = u64::from(u32::MAX);
    let mut rest = extra;
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 2));
        let field = rest.get(4..4 + length).unwrap_or_default();
        if u16_at(rest, 0) == 1 {
            let mut offset = if long_size { 8 } else { 0 };
            if entry.compressed == Some(full) {
                entry.compressed = Some(u64_at(field, offset));
                offset += 8;
            }
            if entry.offset == full {
                entry.offset = u64_at(field, offset);
            }
            return;
        }
        rest = rest.get(4 + length..).unwrap_or_default();
    }
}

/// The start of the directory, the shift of all written offsets, and the end of the directory.
fn find_directory(input: &mut dyn Input) -> io::Result<Option<(u64, u64, u64)>> {
    let size = input.seek(SeekFrom::End(0))?;
    let tail_start = size.saturating_sub(TAIL_BYTES);
    let tail = read_up_to(input, tail_start, TAIL_BYTES)?;
    let is_end_record = |at: usize| {
        let record = tail.get(at..).unwrap_or_default();
        record.starts_with(b"PK\x05\x06")
            && record.len() >= 22
            && record.len() >= 22 + usize::from(u16_at(record, 20))
    };
    // The search begins at the end. A comment may contain the signature, but then the length does not match.
    let Some(at) = (0..tail.len()).rev().find(|at| is_end_record(*at)) else {
        return Ok(None);
    };
    let record = tail.get(at..).unwrap_or_default();
    let mut end = tail_start + at as u64;
    let mut length = u64::from(u32_at(record, 12));
    let mut offset = u64::from(u32_at(record, 16));
    let full = u64::from(u32::MAX);
    if (length == full || offset == full || u16_at(record, 10) == u16::MAX)
        && let Some((wide_end, wide_length, wide_offset)) = wide_record(input, end)?
    {
        (end, length, offset) = (wide_end, wide_length, wide_offset);
    }
    // Data may precede the archive, and then every offset is too small by its length.
    let start_by_length = end.checked_sub(length);
    for start in start_by_length.into_iter().chain([offset]) {
        let mut magic = [0; 4];
        let read = read_at(input, start, &mut magic)?;
        if start == end || (read == 4 && magic == *b"PK\x01\x02") {
            return Ok(Some((start, start.saturating_sub(offset), end)));
        }
    }
    Ok(None)
}

/// The 64-bit end record, if there is one: its position, and length and offset of the directory.
fn wide_record(input: &mut dyn Input, end: u64) -> io::Result<Option<(u64, u64, u64)>> {
    let mut locator = [0; 20];
    let Some(at) = end.checked_sub(20) else {
        return Ok(None);
    };
    if read_at(input, at, &mut locator)? < 20 || !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    let mut record = [0; 56];
    let at = u64_at(&locator, 8);
    if read_at(input, at, &mut record)? < 56 || !record.starts_with(b"PK\x06\x06") {
        return Ok(None);
    }
    Ok(Some((at, u64_at(&record, 40), u64_at(&record, 48))))
}

/// Returns whether the file had enough bytes to fill the buffer.
fn fill_exactly(reader: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The first bytes of the file.
pub(super) fn read_sample(input: &mut dyn Input, length: usize) -> io::Result<Vec<u8>> {
    input.seek(SeekFrom::Start(0))?;
    let mut bytes = vec![0; length];
    let read = fill_buffer(input, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}
