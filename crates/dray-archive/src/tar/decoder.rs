//! From blocks to entries.
//!
//! Where two readers could read an archive differently, a strict one stops: a service that checks an archive with one
//! reader and unpacks it with another would otherwise get unchecked entries (CVE-2025-62518).

use super::header::{self, Header, has_more_maps, text};
use super::pax::{self, PaxRecords};
use super::{BLOCK_BYTES, Block, TarError};

/// Most bytes of one extended header or long name.
pub const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// The strictness of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarRules {
    /// For a stream that may be cut without an error: both blocks of zeros must end it (sandbox-transfer R-5).
    Exact,
    /// For unpacking: one block of zeros may end it, as some programs write it.
    Strict,
    /// For listings: an archive may end between any two entries, and malformed records, sizes of entries without
    /// content, and repeated extended headers are skipped.
    Tolerant,
}

/// Kind of an entry, by the type flag of its header and its pax records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file. An entry with content and a slash at the end of its name is malformed; its reader decides about
    /// it.
    File,
    /// A directory.
    Directory,
    /// Another name of an earlier file.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A regular file that requests contiguous disk space.
    Contiguous,
    /// A file with holes. Its archived content omits the holes.
    Sparse,
    /// A type flag that this crate does not support.
    Other(u8),
}

/// One entry, before its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written; see [`crate::name::safe_parts`].
    pub name: Vec<u8>,
    /// Target of a link.
    pub link: Vec<u8>,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// Bytes of content that follow, without their padding.
    pub size: u64,
    /// Size of a sparse file with its holes, if known.
    pub real_size: Option<u64>,
    /// The 12 low mode bits.
    pub mode: u32,
    /// Seconds since the epoch.
    pub mtime: Option<i64>,
}

/// The next step of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeStep {
    /// Read the next block.
    Next,
    /// Read the next block, which is a map of a sparse file.
    Map,
    /// Read this many bytes, pass over their padding, and call [`Decoder::extension`].
    Extension(u64),
    /// Read the content, pass over its padding, and continue with the next block.
    Entry(Entry),
    /// The archive has ended.
    End,
}

/// The entries to which an extended header applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtensionScope {
    /// For the next entry.
    Entry,
    /// Applies to all later entries. Its name is not applied to them; it is only reported here.
    Global(Option<Vec<u8>>),
}

/// Extended headers before an entry.
#[derive(Debug, Default)]
struct ExtendedHeaders {
    pax: Option<PaxRecords>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl ExtendedHeaders {
    const fn is_empty(&self) -> bool {
        self.pax.is_none() && self.name.is_none() && self.link.is_none()
    }
}

/// The kind of the next block.
#[derive(Debug, Default)]
enum ExpectedBlock {
    #[default]
    Header,
    /// The second block of zeros.
    SecondEnd,
    /// A map of this sparse file.
    Map(Box<Entry>),
    /// No block: the content of an extended header with this flag comes first.
    Extension(u8),
}

/// Takes a tar block by block.
#[derive(Debug)]
pub struct Decoder {
    rules: TarRules,
    extra: ExtendedHeaders,
    expected: ExpectedBlock,
}

const TWO_HEADERS: TarError =
    TarError::Malformed("two extended headers of a kind before one member");
const LONE_ZEROS: TarError = TarError::Malformed("a block of zeros where a header belongs");

impl Decoder {
    /// Creates a decoder for the beginning of an archive.
    pub fn new(rules: TarRules) -> Self {
        Self {
            rules,
            extra: ExtendedHeaders::default(),
            expected: ExpectedBlock::Header,
        }
    }

    /// Takes the next block, or the end of the input where a block would begin.
    ///
    /// # Errors
    /// The archive is malformed or ends early. No entry can be read after an error.
    pub fn block(&mut self, block: Option<&Block>) -> Result<DecodeStep, TarError> {
        match std::mem::take(&mut self.expected) {
            ExpectedBlock::Header => match block {
                Some(block) if *block == [0; BLOCK_BYTES] => self.first_end(),
                Some(block) => self.header(header::parse(block)?),
                None if self.is_tolerant() => Ok(DecodeStep::End),
                None => Err(TarError::Truncated),
            },
            ExpectedBlock::SecondEnd => match block {
                Some(block) if *block == [0; BLOCK_BYTES] => Ok(DecodeStep::End),
                Some(_) => Err(LONE_ZEROS),
                None if self.rules == TarRules::Exact => Err(TarError::Truncated),
                None => Ok(DecodeStep::End),
            },
            ExpectedBlock::Map(entry) => match block {
                Some(block) if has_more_maps(block) => Ok(self.expect_map(entry)),
                Some(_) => Ok(DecodeStep::Entry(*entry)),
                None => Err(TarError::Truncated),
            },
            ExpectedBlock::Extension(_) => {
                Err(TarError::Malformed("an extended header left unread"))
            }
        }
    }

    /// Takes the content of an extended header.
    ///
    /// # Errors
    /// The header is malformed, or gives a size to all entries.
    pub fn extension(&mut self, content: &[u8]) -> Result<ExtensionScope, TarError> {
        let ExpectedBlock::Extension(flag) = std::mem::take(&mut self.expected) else {
            return Err(TarError::Malformed("content of no extended header"));
        };
        let tolerant = self.is_tolerant();
        match flag {
            b'L' => self.extra.name = Some(text(content).to_vec()),
            b'K' => self.extra.link = Some(text(content).to_vec()),
            b'x' => self.extra.pax = Some(pax::parse(content, tolerant)?),
            _ => {
                let pax = pax::parse(content, tolerant)?;
                if !tolerant && (pax.size.is_some() || pax.sparse) {
                    return Err(TarError::Malformed("a global header with sizes"));
                }
                return Ok(ExtensionScope::Global(pax.path));
            }
        }
        Ok(ExtensionScope::Entry)
    }

    fn is_tolerant(&self) -> bool {
        self.rules == TarRules::Tolerant
    }

    fn first_end(&mut self) -> Result<DecodeStep, TarError> {
        if self.is_tolerant() {
            return Ok(DecodeStep::End);
        }
        if !self.extra.is_empty() {
            return Err(LONE_ZEROS);
        }
        self.expected = ExpectedBlock::SecondEnd;
        Ok(DecodeStep::Next)
    }

    fn header(&mut self, header: Header) -> Result<DecodeStep, TarError> {
        let size = match header.size {
            Some(size) => size,
            None if self.is_tolerant() => 0,
            None => return Err(TarError::Malformed(header::NO_SIZE)),
        };
        let repeated = match header.flag {
            b'x' => self.extra.pax.is_some(),
            b'L' => self.extra.name.is_some(),
            b'K' => self.extra.link.is_some(),
            b'g' => !self.extra.is_empty(),
            _ => return self.entry(header, size),
        };
        if repeated && !self.is_tolerant() {
            return Err(TWO_HEADERS);
        }
        if size > MAX_EXTENSION_BYTES {
            return Err(TarError::Malformed("an extended header of more than 1 MiB"));
        }
        self.expected = ExpectedBlock::Extension(header.flag);
        Ok(DecodeStep::Extension(size))
    }

    fn entry(&mut self, header: Header, size: u64) -> Result<DecodeStep, TarError> {
        let ExtendedHeaders { pax, name, link } = std::mem::take(&mut self.extra);
        let pax = pax.unwrap_or_default();
        // The size of an extended header always has priority. Otherwise entries could be hidden from a reader.
        let mut size = pax.size.unwrap_or(size);
        if matches!(header.flag, b'1'..=b'6') && size != 0 {
            // Some readers skip that many bytes, others skip none.
            if !self.is_tolerant() {
                return Err(TarError::Malformed("content where none can be"));
            }
            size = 0;
        }
        let name = pax.sparse_name.or(pax.path).or(name);
        let name = name.unwrap_or(header.name);
        let kind = match header.flag {
            b'0' | 0 | b'5' if pax.sparse => EntryKind::Sparse,
            // How the seventh edition writes a directory.
            b'0' | 0 if size == 0 && name.ends_with(b"/") => EntryKind::Directory,
            b'0' | 0 => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' => EntryKind::CharDevice,
            b'4' => EntryKind::BlockDevice,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            b'7' => EntryKind::Contiguous,
            b'S' => EntryKind::Sparse,
            other => EntryKind::Other(other),
        };
        let entry = Entry {
            name,
            link: pax.link.or(link).unwrap_or(header.link),
            kind,
            size,
            real_size: pax.real_size.or(header.real_size),
            mode: header.mode,
            mtime: pax.mtime.or_else(|| i64::try_from(header.mtime?).ok()),
        };
        // The further maps of an old GNU sparse file are between header and content.
        if header.flag == b'S' && header.more_maps {
            return Ok(self.expect_map(Box::new(entry)));
        }
        Ok(DecodeStep::Entry(entry))
    }

    fn expect_map(&mut self, entry: Box<Entry>) -> DecodeStep {
        self.expected = ExpectedBlock::Map(entry);
        DecodeStep::Map
    }
}
