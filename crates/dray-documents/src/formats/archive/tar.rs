//! Tar archives, read as a stream. `dray-archive` decodes them, in tolerant mode, so that damaged archives are listed
//! as far as possible.

use dray_archive::tar::{
    BLOCK_BYTES, Block, DecodeStep, Decoder, Entry as TarEntry, EntryKind as TarEntryKind,
    TarError, TarRules, is_header, padding,
};

use super::entry::{Entry, EntryKind, name_of, utc_text};
use super::packed::Stream;
use crate::limits::{Damage, Failure};

/// Largest declared size of an entry that is accepted; with larger ones sums of sizes could overflow.
const MAX_ENTRY_BYTES: u64 = 1 << 60;

/// An archive that is being read.
pub(super) struct Tar<'a> {
    stream: Stream<'a>,
    decoder: Decoder,
    /// Bytes of the current entry that were not read, padding excluded.
    unread: u64,
    /// Bytes of padding after the current entry, up to a full block.
    padding: u64,
}

/// Whether a file with this start is a tar archive: its first header has a valid checksum.
pub(super) fn is_tar(start: &[u8]) -> bool {
    start.first_chunk().is_some_and(is_header)
}

impl<'a> Tar<'a> {
    pub(super) fn new(stream: Stream<'a>) -> Self {
        Self {
            stream,
            decoder: Decoder::new(TarRules::Tolerant),
            unread: 0,
            padding: 0,
        }
    }

    /// The next entry; `None` at the end of the archive.
    ///
    /// # Errors
    ///
    /// [`Damage::Truncated`] when the archive ends within an entry, [`Damage::Structure`] when a header is
    /// malformed, and the failures of the stream.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        loop {
            self.skip_rest()?;
            let block = self.next_block()?;
            match self.decoder.block(block.as_ref()).map_err(damage)? {
                DecodeStep::Next | DecodeStep::Map => {}
                DecodeStep::Extension(bytes) => {
                    self.begin_entry(bytes);
                    let content = self.content(bytes)?;
                    self.decoder.extension(&content).map_err(damage)?;
                }
                DecodeStep::Entry(found) => {
                    self.begin_entry(found.size);
                    return entry(&found).map(Some);
                }
                DecodeStep::End => return Ok(None),
            }
        }
    }

    /// Reads at most `max_bytes` of the content of the current entry.
    pub(super) fn content(&mut self, max_bytes: u64) -> Result<Vec<u8>, Failure> {
        let content_bytes = self.unread.min(max_bytes);
        let content = self.stream.take(content_bytes)?;
        self.unread -= content.len() as u64;
        if (content.len() as u64) < content_bytes {
            return Err(Failure::Corrupt(Damage::Truncated));
        }
        Ok(content)
    }

    fn begin_entry(&mut self, bytes: u64) {
        (self.unread, self.padding) = (bytes, padding(bytes));
    }

    /// Skips the remainder of an entry. Some programs omit the padding after the last one.
    fn skip_rest(&mut self) -> Result<(), Failure> {
        if self.stream.skip(self.unread)? < self.unread {
            return Err(Failure::Corrupt(Damage::Truncated));
        }
        self.stream.skip(self.padding)?;
        (self.unread, self.padding) = (0, 0);
        Ok(())
    }

    /// The next block; `None` at the end of the file.
    fn next_block(&mut self) -> Result<Option<Block>, Failure> {
        let mut block = [0; BLOCK_BYTES];
        match self.stream.fill(&mut block)? {
            0 => Ok(None),
            BLOCK_BYTES => Ok(Some(block)),
            _ => Err(Failure::Corrupt(Damage::Truncated)),
        }
    }
}

const fn damage(error: TarError) -> Failure {
    Failure::Corrupt(match error {
        TarError::Malformed(_) => Damage::Structure,
        TarError::Truncated => Damage::Truncated,
    })
}

fn entry(found: &TarEntry) -> Result<Entry, Failure> {
    if found.size > MAX_ENTRY_BYTES {
        return Err(Failure::Corrupt(Damage::Structure));
    }
    let link = || name_of(until_nul(&found.link));
    let kind = match found.kind {
        TarEntryKind::HardLink => EntryKind::HardLink(link()),
        TarEntryKind::Symlink => EntryKind::SymbolicLink(link()),
        TarEntryKind::Directory => EntryKind::Directory,
        TarEntryKind::File if found.name.ends_with(b"/") => EntryKind::Directory,
        TarEntryKind::File | TarEntryKind::Contiguous => EntryKind::File,
        TarEntryKind::CharDevice
        | TarEntryKind::BlockDevice
        | TarEntryKind::Fifo
        | TarEntryKind::Sparse
        | TarEntryKind::Other(_) => EntryKind::Other,
    };
    Ok(Entry {
        name: name_of(until_nul(&found.name)),
        kind,
        bytes: found.real_size.unwrap_or(found.size),
        packed_bytes: None,
        modified: found.mtime.and_then(utc_text),
        encrypted: false,
        is_unsupported: false,
    })
}

/// The name before its first NUL. Only a name of an extended header can contain one.
fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
