//! Reads a tar that a sandbox made (sandbox-transfer 13).
//!
//! [`dray_archive`] decodes the tar strictly; this module adds limits, safe names and the report.

use async_trait::async_trait;
use bytes::Bytes;
use dray_archive::tar::{Entry, EntryKind, TarRules};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};

use super::entries::{TarEntries, TarItem};
use super::names::{self, UniqueNames};
use super::{Filter, Kind, Limits, Member, Members, Report, SkipReason};

/// Bytes read after the end of the archive, so that its producer can finish.
const MAX_END_BYTES: u64 = 1 << 20;

/// Members of an untrusted tar.
pub struct Reader {
    tar: TarEntries,
    limits: Limits,
    filter: Filter,
    unique: UniqueNames,
    report: Report,
    /// Number of members so far.
    entries: usize,
    /// Bytes of the members so far.
    total: u64,
    /// Bytes of the names so far.
    names: usize,
    state: ReaderState,
}

#[derive(Debug, PartialEq, Eq)]
enum ReaderState {
    Reading,
    Ended,
    Failed,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("entries", &self.entries)
            .field("total", &self.total)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Reads a tar whose names are relative to the directory, with or without `./` before them.
    pub fn new(tar: Body, limits: Limits) -> Self {
        Self {
            tar: TarEntries::new(tar, TarRules::Strict),
            limits,
            filter: Box::new(|_| true),
            unique: UniqueNames::default(),
            report: Report::default(),
            entries: 0,
            total: 0,
            names: 0,
            state: ReaderState::Reading,
        }
    }

    /// Takes only members whose name the filter allows; the others are [`SkipReason::Denied`].
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// The report of skipped members, which outlives the reader.
    pub fn report(&self) -> Report {
        self.report.clone()
    }

    async fn read_next(&mut self) -> Result<Option<Member>, Error> {
        while let Some(item) = self.tar.item().await? {
            match item {
                TarItem::Entry(entry) => {
                    if let Some(member) = self.member(&entry)? {
                        return Ok(Some(member));
                    }
                }
                TarItem::Overhead(size) => self.count_bytes(size)?,
                // Most of these headers have no effect here (`git archive` keeps a commit id there).
                TarItem::Global(name) => {
                    self.count_entry()?;
                    if let Some(name) = name {
                        self.report.skip(&name, SkipReason::GlobalHeader);
                    }
                }
            }
        }
        self.end().await?;
        Ok(None)
    }

    /// Checks one entry; `None` when it is skipped.
    fn member(&mut self, entry: &Entry) -> Result<Option<Member>, Error> {
        self.count_entry()?;
        let (name, size) = (&entry.name, entry.size);
        if size > self.limits.file && self.total.saturating_add(size) > self.limits.total {
            // A caller that can read files one by one does not read the bytes of a skipped file.
            self.report.skip(name, SkipReason::TooLarge);
        }
        // Content that is skipped counts as well: its bytes are read and dropped, and that work must be bounded too.
        self.count_bytes(size)?;
        let kind = match entry.kind {
            // Old tars mark directories with a slash at the end of the name. A file whose name ends with a slash cannot
            // be created.
            EntryKind::File if name.ends_with(b"/") => return Ok(self.skip(name, SkipReason::Name)),
            EntryKind::File => Kind::File,
            EntryKind::Directory => Kind::Directory,
            EntryKind::Sparse => return Ok(self.skip(name, SkipReason::Sparse)),
            // A link could point out of the tree, and a later member could be written through it.
            EntryKind::HardLink | EntryKind::Symlink => {
                return Ok(self.skip(name, SkipReason::Link));
            }
            EntryKind::CharDevice
            | EntryKind::BlockDevice
            | EntryKind::Fifo
            | EntryKind::Contiguous
            | EntryKind::Other(_) => return Ok(self.skip(name, SkipReason::Special)),
        };
        match self.accept(name, kind, size) {
            Ok(unique_name) => {
                let Some(unique_name) = unique_name else {
                    return Ok(None);
                };
                self.count_name(unique_name.len())?;
                Ok(Some(Member {
                    name: unique_name,
                    kind,
                    size,
                    // Without set-uid, set-gid and sticky bits: the archive comes from an untrusted sandbox.
                    mode: entry.mode & 0o777,
                    mtime: entry.mtime.and_then(|time| u64::try_from(time).ok()),
                }))
            }
            Err(reason) => Ok(self.skip(name, reason)),
        }
    }

    fn skip(&self, name: &[u8], reason: SkipReason) -> Option<Member> {
        self.report.skip(name, reason);
        None
    }

    /// The name for a member; `None` for a directory that was already listed.
    fn accept(
        &mut self,
        name: &[u8],
        kind: Kind,
        size: u64,
    ) -> Result<Option<Vec<u8>>, SkipReason> {
        let parts = names::parts(name)?;
        if parts.is_empty() {
            return match kind {
                Kind::Directory => Ok(None),
                Kind::File => Err(SkipReason::Name),
            };
        }
        if parts.len() > self.limits.depth {
            return Err(SkipReason::TooDeep);
        }
        if size > self.limits.file {
            return Err(SkipReason::TooLarge);
        }
        // The filter gets the normalised name, so that `./x` is judged as `x`.
        if !(self.filter)(&parts.join(&b'/')) {
            return Err(SkipReason::Denied);
        }
        Ok(match kind {
            Kind::File => Some(self.unique.file(&parts)),
            Kind::Directory => self.unique.directory(&parts),
        })
    }

    fn count_entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        // The directory itself may be a member.
        if self.entries > self.limits.entries.saturating_add(1) {
            let allowed = self.limits.entries as u64;
            return Err(Error::too_many_entries(self.entries as u64, allowed));
        }
        Ok(())
    }

    fn count_bytes(&mut self, size: u64) -> Result<(), Error> {
        self.total = self.total.saturating_add(size);
        if self.total > self.limits.total {
            return Err(Error::too_large(self.total, self.limits.total));
        }
        Ok(())
    }

    fn count_name(&mut self, length: usize) -> Result<(), Error> {
        self.names += length;
        // Components of names create directories that no member announced, and each of them is kept in memory.
        if self.unique.len() > self.limits.entries {
            let (found, allowed) = (self.unique.len(), self.limits.entries);
            return Err(Error::too_many_entries(found as u64, allowed as u64));
        }
        if self.names > self.limits.names {
            return Err(Error::too_large(
                self.names as u64,
                self.limits.names as u64,
            ));
        }
        Ok(())
    }

    /// Reads what follows the archive, so that a failure of its producer is seen.
    async fn end(&mut self) -> Result<(), Error> {
        let mut zeros = true;
        let mut seen = 0;
        while let Some(chunk) = self.tar.after_end().await? {
            // GNU tar pads its last record of 10 KiB with zeros; any other bytes were hidden after the end.
            zeros &= chunk.iter().all(|byte| *byte == 0);
            seen += chunk.len() as u64;
            if seen > MAX_END_BYTES {
                zeros = false;
                break;
            }
        }
        if !zeros {
            self.report.skip(b"(unnamed)", SkipReason::AfterEnd);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        match self.state {
            ReaderState::Failed => Err(Error::new(ErrorKind::Protocol, "an earlier read failed")),
            ReaderState::Reading | ReaderState::Ended => Ok(()),
        }
    }
}

#[async_trait]
impl Members for Reader {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        self.check()?;
        if self.state == ReaderState::Ended {
            return Ok(None);
        }
        // The state stays `Failed` when the future is dropped in the middle: the position in the stream is unknown
        // then.
        self.state = ReaderState::Failed;
        let next = self.read_next().await?;
        self.state = match next {
            Some(_) => ReaderState::Reading,
            None => ReaderState::Ended,
        };
        Ok(next)
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.check()?;
        let chunk = self.tar.next_chunk().await;
        if chunk.is_err() {
            self.state = ReaderState::Failed;
        }
        chunk
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}
