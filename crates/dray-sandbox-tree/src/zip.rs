//! Writes a ZIP as a stream, member by member (APPNOTE 6.3.10).
//!
//! Sizes and checksums follow the content, in data descriptors. All content is a deflate stream. Where compression does
//! not help, the deflate stream consists of stored blocks. A reader of a stream finds the end of these blocks, but not
//! the end of a stored member.

mod deflate;
mod records;

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::stream;

use super::{Kind, Member, Members, names};
use deflate::DeflateStream;
use records::{CentralHeader, DosTime, LocalHeader};

/// Bytes of content that are examined to decide whether to compress it (sandbox-transfer R-3).
const SAMPLE_BYTES: usize = 64 * 1024;
/// Approximate bytes per chunk.
const CHUNK_BYTES: usize = 64 * 1024;
/// Sizes and offsets from here on need 64 bits. It is below 4 GiB, because content that does not compress grows.
const ZIP64_THRESHOLD_BYTES: u64 = 0xff00_0000;

/// Writes members as a ZIP. `_skipped.txt` at its end lists the skipped members. When the members fail, the body fails
/// too, without a central directory, so that no reader takes it for a whole ZIP.
pub fn zip(members: impl Members + 'static) -> Body {
    zip_with(members, ZIP64_THRESHOLD_BYTES)
}

/// A ZIP that uses 64-bit sizes from `large` bytes on.
pub(super) fn zip_with(members: impl Members + 'static, large: u64) -> Body {
    let writing = ZipWrite {
        members,
        large,
        out: Vec::new(),
        written: 0,
        central: Vec::new(),
        count: 0,
        texts: Vec::new(),
        current: None,
    };
    Body::new(stream::try_unfold(Some(writing), |state| async move {
        let Some(mut writing) = state else {
            return Ok(None);
        };
        let more = writing.fill().await?;
        let chunk = Bytes::from(writing.take());
        Ok(Some((chunk, more.then_some(writing))))
    }))
}

struct ZipWrite<M> {
    members: M,
    large: u64,
    /// Output that was made and not returned yet.
    out: Vec<u8>,
    /// Number of bytes that were returned.
    written: u64,
    /// The central directory so far.
    central: Vec<u8>,
    /// Number of entries of the central directory so far.
    count: u64,
    /// Names in the top directory that the list of skipped members must not use.
    texts: Vec<String>,
    current: Option<OpenMember>,
}

/// The file being written.
struct OpenMember {
    local: LocalHeader,
    left: u64,
    content: MemberContent,
}

enum MemberContent {
    /// Content so far, while it is undecided whether to compress it.
    Sample(Vec<u8>),
    Deflate(Box<DeflateStream>),
}

impl<M: Members> ZipWrite<M> {
    fn take(&mut self) -> Vec<u8> {
        self.written += self.out.len() as u64;
        std::mem::take(&mut self.out)
    }

    fn offset(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    /// Produces some output; `false` once there is no more.
    async fn fill(&mut self) -> Result<bool, Error> {
        while self.out.len() < CHUNK_BYTES {
            if let Some(mut current) = self.current.take() {
                match self.members.next_chunk().await? {
                    Some(chunk) => {
                        current.feed(&chunk, &mut self.out)?;
                        self.current = Some(current);
                    }
                    None => self.close(current)?,
                }
                continue;
            }
            let Some(member) = self.members.next().await? else {
                self.finish()?;
                return Ok(false);
            };
            self.open(&member);
        }
        Ok(true)
    }

    fn open(&mut self, member: &Member) {
        let name = zip_name(member);
        // The name is compared in lower case, because some file systems ignore case.
        if !name.contains('/') && name.to_ascii_lowercase().starts_with("_skipped") {
            self.texts.push(name.to_lowercase());
        }
        let local = LocalHeader {
            name: name.into_bytes(),
            directory: member.kind == Kind::Directory,
            mode: member.mode,
            time: DosTime::from(member.mtime),
            offset: self.offset(),
            streamed: member.size > 0,
            large: member.size >= self.large,
        };
        local.write(&mut self.out);
        if local.streamed {
            self.current = Some(OpenMember {
                local,
                left: member.size,
                content: MemberContent::Sample(Vec::new()),
            });
        } else {
            self.count += 1;
            local.central(0, 0, 0, self.large).write(&mut self.central);
        }
    }

    fn close(&mut self, current: OpenMember) -> Result<(), Error> {
        if current.left > 0 {
            return Err(Error::new(ErrorKind::Truncated, "less than announced"));
        }
        let local = current.local;
        let mut deflate = current.content.into_deflate(&mut self.out);
        deflate.finish(&mut self.out);
        let (crc, packed, size) = (deflate.crc(), deflate.packed(), deflate.size());
        local.descriptor(crc, packed, size, &mut self.out);
        self.count += 1;
        let central: CentralHeader<'_> = local.central(crc, packed, size, self.large);
        central.write(&mut self.central);
        Ok(())
    }

    /// Writes the list of skipped members, the central directory, and the end record.
    fn finish(&mut self) -> Result<(), Error> {
        let text = self.members.report().text();
        if !text.is_empty() {
            let mut name = "_skipped.txt".to_owned();
            let mut number = 2;
            while self.texts.contains(&name) {
                name = format!("_skipped_{number}.txt");
                number += 1;
            }
            self.open(&Member {
                name: name.into_bytes(),
                kind: Kind::File,
                size: text.len() as u64,
                mode: 0o644,
                mtime: None,
            });
            if let Some(mut current) = self.current.take() {
                current.feed(text.as_bytes(), &mut self.out)?;
                self.close(current)?;
            }
        }
        let begin = self.offset();
        let central = std::mem::take(&mut self.central);
        self.out.extend_from_slice(&central);
        records::end(
            self.count,
            begin,
            central.len() as u64,
            self.large,
            &mut self.out,
        );
        Ok(())
    }
}

impl OpenMember {
    fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.left = self
            .left
            .checked_sub(chunk.len() as u64)
            .ok_or_else(|| Error::new(ErrorKind::ChangedDuringTransfer, "more than announced"))?;
        match &mut self.content {
            MemberContent::Sample(sample) => {
                sample.extend_from_slice(chunk);
                if sample.len() >= SAMPLE_BYTES {
                    let sample = MemberContent::Sample(std::mem::take(sample));
                    self.content = MemberContent::Deflate(Box::new(sample.into_deflate(out)));
                }
            }
            MemberContent::Deflate(deflate) => deflate.feed(chunk, out),
        }
        Ok(())
    }
}

impl MemberContent {
    /// Decides by the sample whether to compress, if that is not decided yet.
    fn into_deflate(self, out: &mut Vec<u8>) -> DeflateStream {
        match self {
            Self::Deflate(deflate) => *deflate,
            Self::Sample(sample) => {
                let first = sample.get(..SAMPLE_BYTES).unwrap_or(&sample);
                let mut deflate = DeflateStream::new(deflate::helps(first));
                deflate.feed(&sample, out);
                deflate
            }
        }
    }
}

/// The name in UTF-8, with a slash at the end of directories.
fn zip_name(member: &Member) -> String {
    let parts: Vec<_> = member
        .name
        .split(|byte| *byte == b'/')
        .map(names::text)
        .collect();
    let mut name = parts.join("/");
    if member.kind == Kind::Directory {
        name.push('/');
    }
    name
}
