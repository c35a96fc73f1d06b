//! Tar archives: ustar, GNU and POSIX extended headers (POSIX.1-2017 pax, tar(5)), read as a stream.

use super::entry::{Entry, EntryKind, name_of, utc_text};
use super::packed::Stream;
use crate::limits::{Damage, Failure};

/// Everything in a tar archive is a multiple of this long.
pub(super) const BLOCK_BYTES: usize = 512;
/// Longest extended header, or long name, that is read.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// An archive while it is read.
pub(super) struct Tar<'a> {
    stream: Stream<'a>,
    /// Bytes of the current entry that were not read, padding excluded.
    left: u64,
    /// Padding after them.
    padding: u64,
}

/// What headers before an entry say of it, in place of its own short fields.
#[derive(Default)]
struct Extension {
    name: Option<String>,
    link: Option<String>,
    bytes: Option<u64>,
    modified: Option<i64>,
    is_sparse: bool,
    /// Size of a sparse file when it is whole.
    real_bytes: Option<u64>,
}

/// One header block.
struct Header([u8; BLOCK_BYTES]);

impl<'a> Tar<'a> {
    pub(super) fn new(stream: Stream<'a>) -> Self {
        Self {
            stream,
            left: 0,
            padding: 0,
        }
    }

    /// The next entry; nothing at the end of the archive.
    ///
    /// # Errors
    ///
    /// [`Damage::Truncated`] when the archive ends within an entry, [`Damage::Structure`] when a header is none, and
    /// what the stream ran into.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        let mut extension = Extension::default();
        loop {
            self.pass()?;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let bytes = header.number(124..136).ok_or(DAMAGED_STRUCTURE)?;
            match header.kind() {
                b'L' => extension.name = Some(name_of(until_nul(&self.extension(bytes)?))),
                b'K' => extension.link = Some(name_of(until_nul(&self.extension(bytes)?))),
                b'x' => extension.read(&self.extension(bytes)?),
                // Global headers may hold comments of any kind; none of them names an entry.
                b'g' => self.opened(bytes),
                _ => return self.entry(&header, bytes, extension).map(Some),
            }
        }
    }

    /// The content of the entry that was just given, at most `max_bytes`.
    pub(super) fn content(&mut self, max_bytes: u64) -> Result<Vec<u8>, Failure> {
        let wanted = self.left.min(max_bytes);
        let content = self.stream.take(wanted)?;
        self.left -= content.len() as u64;
        if (content.len() as u64) < wanted {
            return Err(Failure::Corrupt(Damage::Truncated));
        }
        Ok(content)
    }

    fn entry(
        &mut self,
        header: &Header,
        bytes: u64,
        extension: Extension,
    ) -> Result<Entry, Failure> {
        let name = extension.name.unwrap_or_else(|| header.name());
        let link = || extension.link.unwrap_or_else(|| header.link());
        let bytes = extension.bytes.unwrap_or(bytes);
        let kind = match header.kind() {
            b'1' => EntryKind::HardLink(link()),
            b'2' => EntryKind::SymbolicLink(link()),
            b'5' => EntryKind::Directory,
            b'0' | 0 if name.ends_with('/') => EntryKind::Directory,
            b'0' | 0 | b'7' if !extension.is_sparse => EntryKind::File,
            _ => EntryKind::Other,
        };
        // Links, devices, pipes and directories have no content, regardless of their size field.
        let has_content = !matches!(header.kind(), b'1'..=b'6');
        self.opened(if has_content { bytes } else { 0 });
        let modified = extension.modified.or_else(|| {
            let seconds = header.number(136..148)?;
            i64::try_from(seconds).ok()
        });
        if bytes > MAX_ENTRY_BYTES {
            return Err(DAMAGED_STRUCTURE);
        }
        Ok(Entry {
            name,
            kind,
            bytes: extension.real_bytes.unwrap_or(bytes),
            packed_bytes: None,
            modified: modified.and_then(utc_text),
            encrypted: false,
            is_unsupported: false,
        })
    }

    /// The content of a header that extends the next one.
    fn extension(&mut self, bytes: u64) -> Result<Vec<u8>, Failure> {
        if bytes > MAX_EXTENSION_BYTES {
            return Err(DAMAGED_STRUCTURE);
        }
        self.opened(bytes);
        self.content(bytes)
    }

    fn opened(&mut self, bytes: u64) {
        let block = BLOCK_BYTES as u64;
        self.left = bytes;
        self.padding = (block - bytes % block) % block;
    }

    /// Passes over what is left of an entry. Programs leave out the padding after the last one.
    fn pass(&mut self) -> Result<(), Failure> {
        if self.stream.skip(self.left)? < self.left {
            return Err(Failure::Corrupt(Damage::Truncated));
        }
        self.stream.skip(self.padding)?;
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// The next header; nothing where the archive ends: a block of zeros, or no block any more.
    fn header(&mut self) -> Result<Option<Header>, Failure> {
        let mut block = [0; BLOCK_BYTES];
        match self.stream.fill(&mut block)? {
            0 => return Ok(None),
            BLOCK_BYTES => {}
            _ => return Err(Failure::Corrupt(Damage::Truncated)),
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header(block);
        if !header.is_valid() {
            return Err(DAMAGED_STRUCTURE);
        }
        Ok(Some(header))
    }
}

const DAMAGED_STRUCTURE: Failure = Failure::Corrupt(Damage::Structure);
/// Largest entry that is believed; beyond it sums of sizes could overflow.
const MAX_ENTRY_BYTES: u64 = 1 << 60;

/// Whether a file that begins so is a tar archive: its first header has the right checksum.
pub(super) fn is_tar(start: &[u8]) -> bool {
    let block = start.get(..BLOCK_BYTES);
    block
        .and_then(|block| block.try_into().ok())
        .is_some_and(|block| Header(block).is_valid())
}

impl Header {
    fn field(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.0.get(range).unwrap_or_default()
    }

    fn kind(&self) -> u8 {
        self.0.get(156).copied().unwrap_or_default()
    }

    /// The sum of all bytes, those of the sum itself taken as spaces. Old programs summed signed bytes.
    fn is_valid(&self) -> bool {
        let Some(wanted) = self.number(148..156) else {
            return false;
        };
        let blank = |at: usize| (148..156).contains(&at);
        let byte = |(at, byte): (usize, &u8)| if blank(at) { b' ' } else { *byte };
        let unsigned: u64 = self
            .0
            .iter()
            .enumerate()
            .map(|it| u64::from(byte(it)))
            .sum();
        let signed: i64 = self
            .0
            .iter()
            .enumerate()
            .map(|it| i64::from(byte(it).cast_signed()))
            .sum();
        // Zeros sum to eight spaces; that is the end of an archive, not a header.
        wanted > 256 && (wanted == unsigned || i64::try_from(wanted) == Ok(signed))
    }

    /// An octal number, or a binary one where the first bit is set (GNU).
    fn number(&self, range: std::ops::Range<usize>) -> Option<u64> {
        let field = self.field(range);
        let (first, rest) = field.split_first()?;
        if first & 0x80 != 0 {
            // Negative, or more than a file can be.
            if first & 0x7F != 0 {
                return None;
            }
            return rest.iter().try_fold(0u64, |number, byte| {
                number.checked_mul(256)?.checked_add(u64::from(*byte))
            });
        }
        let digits = until_nul(field);
        let digits = std::str::from_utf8(digits).ok()?.trim();
        if digits.is_empty() {
            return Some(0);
        }
        u64::from_str_radix(digits, 8).ok()
    }

    fn name(&self) -> String {
        let name = name_of(until_nul(self.field(0..100)));
        let prefix = until_nul(self.field(345..500));
        if self.field(257..263) == b"ustar\0" && !prefix.is_empty() {
            format!("{}/{name}", name_of(prefix))
        } else {
            name
        }
    }

    fn link(&self) -> String {
        name_of(until_nul(self.field(157..257)))
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

impl Extension {
    /// Reads the records `length key=value` of a POSIX extended header. What is malformed ends it.
    fn read(&mut self, mut records: &[u8]) {
        while let Some(space) = records.iter().position(|byte| *byte == b' ') {
            let (digits, _) = records.split_at(space);
            let length = std::str::from_utf8(digits)
                .ok()
                .and_then(|it| it.parse().ok());
            let Some((record, rest)) = length.and_then(|length| records.split_at_checked(length))
            else {
                return;
            };
            let record = record.get(space + 1..).unwrap_or_default();
            let record = record.strip_suffix(b"\n").unwrap_or(record);
            if let Some(equals) = record.iter().position(|byte| *byte == b'=') {
                let (key, value) = record.split_at(equals);
                self.set(key, value.get(1..).unwrap_or_default());
            }
            if rest.len() == records.len() {
                return;
            }
            records = rest;
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        let text = || std::str::from_utf8(value).ok();
        match key {
            b"path" if !self.is_sparse => self.name = Some(name_of(until_nul(value))),
            b"GNU.sparse.name" => self.name = Some(name_of(until_nul(value))),
            b"linkpath" => self.link = Some(name_of(until_nul(value))),
            b"size" => self.bytes = text().and_then(|text| text.parse().ok()),
            b"mtime" => {
                let whole = text().and_then(|text| text.split('.').next());
                self.modified = whole.and_then(|whole| whole.parse().ok());
            }
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                self.real_bytes = text().and_then(|text| text.parse().ok());
            }
            _ => {}
        }
        self.is_sparse |= key.starts_with(b"GNU.sparse.");
    }
}
