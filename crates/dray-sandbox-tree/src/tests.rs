//! Tests with hostile tars, and with other programs that read what this crate writes.

mod archives;
mod hostile;
mod limits;
mod properties;
mod walks;
mod zips;

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::stream;

use super::{Kind, Limits, Member, Members, Reader, Report, SkipReason};

/// A tar with any header that a test needs.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedTar(pub(super) Vec<u8>);

impl ScriptedTar {
    /// A header with these fields and content, padded.
    pub(super) fn member(self, flag: u8, name: &[u8], content: &[u8]) -> Self {
        self.sized(flag, name, content.len() as u64)
            .content(content)
    }

    pub(super) fn file(self, name: &str, content: &[u8]) -> Self {
        self.member(b'0', name.as_bytes(), content)
    }

    /// A header alone.
    pub(super) fn sized(mut self, flag: u8, name: &[u8], size: u64) -> Self {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name);
        block[100..108].copy_from_slice(b"0000640\0");
        if size < 1 << 33 {
            block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        } else {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&size.to_be_bytes());
        }
        block[136..148].copy_from_slice(b"07346545000\0");
        block[156] = flag;
        block[257..265].copy_from_slice(b"ustar\x0000");
        self.0.append(&mut block);
        self.sealed()
    }

    /// Changes bytes of the last header and corrects its checksum.
    pub(super) fn changed(mut self, at: usize, bytes: &[u8]) -> Self {
        let begin = self.0.len() - 512 + at;
        self.0[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.sealed()
    }

    fn sealed(mut self) -> Self {
        let begin = self.0.len() - 512;
        let block = &mut self.0[begin..];
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().copied().map(u32::from).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self
    }

    pub(super) fn content(mut self, content: &[u8]) -> Self {
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// An extended header.
    pub(super) fn pax(self, flag: u8, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length += 1;
            }
            text.extend([&length.to_string(), " ", key, "=", value, "\n"]);
        }
        self.member(flag, b"PaxHeaders/x", text.as_bytes())
    }

    /// Appends the end blocks.
    pub(super) fn ended(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

/// A body in chunks of this size.
pub(super) fn body(bytes: &[u8], chunk: usize) -> Body {
    let pieces: Vec<_> = bytes
        .chunks(chunk)
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    Body::new(stream::iter(pieces))
}

/// Members that were read: names with content, directories with a slash at their end.
pub(super) type Found = Vec<(String, Vec<u8>)>;

pub(super) async fn all(members: &mut dyn Members) -> Result<Found, Error> {
    let mut found = Vec::new();
    while let Some(member) = members.next().await? {
        let mut content = Vec::new();
        while let Some(chunk) = members.next_chunk().await? {
            content.extend_from_slice(&chunk);
        }
        assert_eq!(content.len() as u64, member.size);
        let mut name = member.name.escape_ascii().to_string();
        if member.kind == Kind::Directory {
            name.push('/');
        }
        found.push((name, content));
    }
    Ok(found)
}

/// Reads a tar with default limits, in chunks of several sizes.
pub(super) async fn read(tar: &[u8]) -> Result<(Found, Report), Error> {
    let mut last = None;
    for chunk in [7, 512, 100_000] {
        let mut reader = Reader::new(body(tar, chunk), Limits::default());
        let found = all(&mut reader)
            .await
            .map_err(|error| (error.kind(), error));
        let report = reader.report();
        if let Some((before, skipped)) = &last {
            let kinds = |found: &Result<Found, (ErrorKind, Error)>| match found {
                Ok(found) => Ok(found.clone()),
                Err((kind, _)) => Err(*kind),
            };
            assert_eq!(kinds(before), kinds(&found), "chunks of {chunk}");
            assert_eq!(*skipped, report.skipped(), "chunks of {chunk}");
        }
        last = Some((found, report.skipped()));
        if chunk == 100_000 {
            let (found, _) = last.unwrap();
            return found
                .map(|found| (found, report))
                .map_err(|(_, error)| error);
        }
    }
    unreachable!("the last size returns")
}

pub(super) async fn names(tar: &[u8]) -> Vec<String> {
    let (found, _) = read(tar).await.unwrap();
    found.into_iter().map(|(name, _)| name).collect()
}

pub(super) async fn skipped(tar: &[u8]) -> Vec<(String, SkipReason)> {
    let (_, report) = read(tar).await.unwrap();
    let skipped = report.skipped().into_iter();
    skipped
        .map(|skipped| (skipped.name, skipped.reason))
        .collect()
}

pub(super) async fn refusal(tar: &[u8]) -> ErrorKind {
    read(tar).await.unwrap_err().kind()
}

/// A list of members that serves as a source.
pub(super) struct GivenMembers {
    waiting: std::collections::VecDeque<(Member, Vec<u8>)>,
    content: Vec<u8>,
    pub(super) report: Report,
}

impl GivenMembers {
    pub(super) fn new(members: impl IntoIterator<Item = (Member, Vec<u8>)>) -> Self {
        Self {
            waiting: members.into_iter().collect(),
            content: Vec::new(),
            report: Report::default(),
        }
    }
}

#[async_trait::async_trait]
impl Members for GivenMembers {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        let next = self.waiting.pop_front();
        Ok(next.map(|(member, content)| {
            self.content = content;
            member
        }))
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let rest = self.content.split_off(self.content.len().min(50_000));
        let chunk = std::mem::replace(&mut self.content, rest);
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }

    fn report(&self) -> Report {
        self.report.clone()
    }
}

pub(super) fn file(name: impl AsRef<[u8]>, content: &[u8]) -> (Member, Vec<u8>) {
    let member = Member {
        name: name.as_ref().to_vec(),
        kind: Kind::File,
        size: content.len() as u64,
        mode: 0o640,
        mtime: Some(1_000_000_000),
    };
    (member, content.to_vec())
}

pub(super) fn directory(name: impl AsRef<[u8]>) -> (Member, Vec<u8>) {
    let member = Member {
        name: name.as_ref().to_vec(),
        kind: Kind::Directory,
        size: 0,
        mode: 0o755,
        mtime: Some(1_000_000_000),
    };
    (member, Vec::new())
}
