//! Reading a tar that a sandbox made (sandbox-transfer 13).
//!
//! Where two readers could understand two things, this one stops: a service that checks an archive with one reader and
//! unpacks it with another would otherwise get unchecked members (CVE-2025-62518).

use async_trait::async_trait;
use bytes::Bytes;

use super::header::{self, Header};
use super::input::{Input, TAR_BLOCK_BYTES, padding, short};
use super::names::{self, Unique};
use super::pax::{self, Pax};
use super::{Filter, Kind, Limits, Member, Members, Report, Why};
use crate::body::Body;
use crate::error::{Error, ErrorKind};

/// Bytes of the longest extended header.
const LONGEST_EXTENSION: u64 = 128 << 10;
/// Bytes read after the end of the archive, so that its producer can end too.
const LONGEST_END: u64 = 1 << 20;

/// Members of a hostile tar.
pub struct Reader {
    input: Input,
    limits: Limits,
    filter: Filter,
    unique: Unique,
    report: Report,
    /// Content of the current member that is left, and the padding after it.
    left: u64,
    padding: u64,
    /// Members, bytes and bytes of names seen so far.
    entries: usize,
    total: u64,
    names: usize,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
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

/// Extended headers before a member.
#[derive(Debug, Default)]
struct Extra {
    pax: Option<Pax>,
    name: Option<Vec<u8>>,
    link: bool,
}

impl Reader {
    /// Of a tar whose names are relative to the directory, with or without `./` before them.
    pub fn new(tar: Body, limits: Limits) -> Self {
        Self {
            input: Input::new(tar),
            limits,
            filter: Box::new(|_| true),
            unique: Unique::default(),
            report: Report::default(),
            left: 0,
            padding: 0,
            entries: 0,
            total: 0,
            names: 0,
            state: State::Reading,
        }
    }

    /// Takes only members whose name the filter allows; the others are [`Why::Denied`].
    #[must_use]
    pub fn filtered(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// What is skipped, also when the reader is gone.
    pub fn report(&self) -> Report {
        self.report.clone()
    }

    async fn read_next(&mut self) -> Result<Option<Member>, Error> {
        loop {
            let rest = std::mem::take(&mut self.left) + std::mem::take(&mut self.padding);
            self.input.pass(rest).await?;
            let Some((header, extra)) = self.header().await? else {
                self.end().await?;
                return Ok(None);
            };
            if let Some(member) = self.member(header, extra).await? {
                return Ok(Some(member));
            }
        }
    }

    /// The next header of a member with what extends it; `None` at the end of the archive.
    async fn header(&mut self) -> Result<Option<(Header, Extra)>, Error> {
        let mut extra = Extra::default();
        loop {
            let block = self.input.block().await?.ok_or_else(short)?;
            if block == [0; TAR_BLOCK_BYTES] {
                return self.end_block(&extra).await;
            }
            let header = header::parse(&block)?;
            match header.flag {
                b'x' if extra.pax.is_none() => {
                    let records = self.extension(header.size).await?;
                    extra.pax = Some(pax::parse(&records)?);
                }
                b'L' if extra.name.is_none() => {
                    let name = self.extension(header.size).await?;
                    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                    extra.name = Some(name.to_vec());
                }
                b'K' if !extra.link => {
                    self.extension(header.size).await?;
                    extra.link = true;
                }
                b'g' if extra.pax.is_none() && extra.name.is_none() && !extra.link => {
                    let records = self.extension(header.size).await?;
                    self.global(&pax::parse(&records)?)?;
                }
                b'x' | b'L' | b'K' | b'g' => {
                    let why = "two extended headers of a kind before one member";
                    return Err(Error::new(ErrorKind::Protocol, why));
                }
                _ => return Ok(Some((header, extra))),
            }
        }
    }

    /// A block of zeros was read: a second one, or the end of the stream, must follow.
    async fn end_block<T>(&mut self, extra: &Extra) -> Result<Option<T>, Error> {
        let extended = extra.pax.is_some() || extra.name.is_some() || extra.link;
        let more = self.input.block().await?;
        if extended || more.is_some_and(|block| block != [0; TAR_BLOCK_BYTES]) {
            let why = "a block of zeros where a header belongs";
            return Err(Error::new(ErrorKind::Protocol, why));
        }
        Ok(None)
    }

    async fn extension(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        if size > LONGEST_EXTENSION {
            let why = "an extended header of more than 128 KiB";
            return Err(Error::new(ErrorKind::Protocol, why));
        }
        self.count_bytes(size)?;
        self.input.padded(size).await
    }

    /// A header for all members after it. Most say nothing that matters (`git archive` keeps a commit there).
    fn global(&mut self, pax: &Pax) -> Result<(), Error> {
        self.count_entry()?;
        if pax.size.is_some() || pax.sparse {
            let why = "a global header with sizes";
            return Err(Error::new(ErrorKind::Protocol, why));
        }
        if let Some(path) = &pax.path {
            self.report.skip(path, Why::GlobalHeader);
        }
        Ok(())
    }

    /// Judges one header; `None` when its member is passed over.
    async fn member(&mut self, header: Header, extra: Extra) -> Result<Option<Member>, Error> {
        self.count_entry()?;
        if header.flag == b'S' {
            self.sparse_maps(header.more_maps).await?;
        }
        let pax = extra.pax.unwrap_or_default();
        let size = pax.size.unwrap_or(header.size);
        if matches!(header.flag, b'1'..=b'6') && size != 0 {
            // Some skip as many bytes, some none.
            let why = "content where none can be";
            return Err(Error::new(ErrorKind::Protocol, why));
        }
        let name = pax.path.or(extra.name).unwrap_or(header.name);
        if size > self.limits.file && self.total.saturating_add(size) > self.limits.total {
            // A caller that can read files one by one skips this one without its bytes.
            self.report.skip(&name, Why::TooLarge);
        }
        self.count_bytes(size)?;
        (self.left, self.padding) = (size, padding(size));
        let kind = match (header.flag, pax.sparse) {
            (b'0' | 0, false) if !name.ends_with(b"/") => Kind::File,
            // How the seventh edition writes a directory.
            (b'0' | 0, false) if size == 0 => Kind::Directory,
            (b'5', false) => Kind::Directory,
            (b'0' | 0 | b'5', true) | (b'S', _) => return Ok(self.skip(&name, Why::Sparse)),
            (b'1' | b'2', _) => return Ok(self.skip(&name, Why::Link)),
            (b'0' | 0, false) => return Ok(self.skip(&name, Why::Name)),
            _ => return Ok(self.skip(&name, Why::Special)),
        };
        match self.accept(&name, kind, size) {
            Ok(given) => {
                let Some(given) = given else {
                    return Ok(None);
                };
                self.count_name(given.len())?;
                Ok(Some(Member {
                    name: given,
                    kind,
                    size,
                    mode: header.mode,
                    mtime: pax.mtime.or(header.mtime),
                }))
            }
            Err(why) => Ok(self.skip(&name, why)),
        }
    }

    fn skip(&self, name: &[u8], why: Why) -> Option<Member> {
        self.report.skip(name, why);
        None
    }

    /// The name to give a member; none for a directory that needs no mention.
    fn accept(&mut self, name: &[u8], kind: Kind, size: u64) -> Result<Option<Vec<u8>>, Why> {
        let parts = names::parts(name)?;
        if parts.is_empty() {
            return match kind {
                Kind::Directory => Ok(None),
                Kind::File => Err(Why::Name),
            };
        }
        if parts.len() > self.limits.depth {
            return Err(Why::TooDeep);
        }
        if size > self.limits.file {
            return Err(Why::TooLarge);
        }
        if !(self.filter)(&parts.join(&b'/')) {
            return Err(Why::Denied);
        }
        Ok(match kind {
            Kind::File => Some(self.unique.file(&parts)),
            Kind::Directory => self.unique.directory(&parts),
        })
    }

    /// Maps of an old GNU sparse file lie between header and content.
    async fn sparse_maps(&mut self, mut more: bool) -> Result<(), Error> {
        while more {
            self.count_bytes(TAR_BLOCK_BYTES as u64)?;
            let block = self.input.block().await?.ok_or_else(short)?;
            more = header::has_more_maps(&block);
        }
        Ok(())
    }

    fn count_entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        // The directory itself may be a member.
        if self.entries > self.limits.entries.saturating_add(1) {
            let allowed = self.limits.entries as u64;
            return Err(Error::too_large(self.entries as u64, allowed));
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
        if self.unique.len() > self.limits.entries {
            let (found, allowed) = (self.unique.len(), self.limits.entries);
            return Err(Error::too_large(found as u64, allowed as u64));
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
        while let Some(piece) = self.input.some(u64::MAX).await? {
            zeros &= piece.iter().all(|byte| *byte == 0);
            seen += piece.len() as u64;
            if seen > LONGEST_END {
                zeros = false;
                break;
            }
        }
        if !zeros {
            self.report.skip(b"(unnamed)", Why::AfterEnd);
        }
        Ok(())
    }

    async fn read_piece(&mut self) -> Result<Option<Bytes>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let piece = self.input.some(self.left).await?.ok_or_else(short)?;
        self.left -= piece.len() as u64;
        Ok(Some(piece))
    }

    fn check(&self) -> Result<(), Error> {
        match self.state {
            State::Failed => Err(Error::new(ErrorKind::Protocol, "the tar failed before")),
            State::Reading | State::Ended => Ok(()),
        }
    }
}

#[async_trait]
impl Members for Reader {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        self.check()?;
        if self.state == State::Ended {
            return Ok(None);
        }
        // Stays so when the future is dropped half-way: the position in the stream is unknown then.
        self.state = State::Failed;
        let next = self.read_next().await?;
        self.state = match next {
            Some(_) => State::Reading,
            None => State::Ended,
        };
        Ok(next)
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        self.check()?;
        let piece = self.read_piece().await;
        if piece.is_err() {
            self.state = State::Failed;
        }
        piece
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}
