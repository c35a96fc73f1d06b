//! Writing a plain tar: files and directories, names as they are.
//!
//! Names up to 100 bytes stand in the header, also when they are not text. Longer ones use the prefix where they can
//! be parted at a slash, else GNU's long name, which `BusyBox` can read too (it passes over pax headers). Sizes from
//! 8 GiB on are binary numbers.

use bytes::Bytes;
use futures_util::stream;

use super::input::{TAR_BLOCK_BYTES, padding};
use super::{Kind, Member, Members};
use crate::body::Body;
use crate::error::{Error, ErrorKind};

/// Whose files are unpacked, where the one who unpacks may give files away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Members as a tar. It fails where the members fail, and then has no end blocks.
pub fn tar(members: impl Members + 'static, owner: Owner) -> Body {
    let state = Some(Writing {
        members,
        owner,
        left: None,
    });
    Body::new(stream::try_unfold(state, |state| async move {
        let Some(mut writing) = state else {
            return Ok(None);
        };
        Ok(Some(match writing.next().await? {
            Some(bytes) => (bytes, Some(writing)),
            None => (Bytes::from_static(&[0; 2 * TAR_BLOCK_BYTES]), None),
        }))
    }))
}

struct Writing<M> {
    members: M,
    owner: Owner,
    /// Content of the current member that has not come yet, and the padding after it.
    left: Option<(u64, u64)>,
}

impl<M: Members> Writing<M> {
    /// Some bytes; `None` after the last member.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some((left, padding)) = &mut self.left {
            if let Some(piece) = self.members.piece().await? {
                *left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
                    Error::new(ErrorKind::ChangedDuringTransfer, "more than announced")
                })?;
                return Ok(Some(piece));
            }
            if *left > 0 {
                return Err(Error::new(ErrorKind::Truncated, "less than announced"));
            }
            let zeros = usize::try_from(*padding).unwrap_or_default();
            self.left = None;
            if zeros > 0 {
                return Ok(Some(Bytes::from(vec![0; zeros])));
            }
        }
        let Some(member) = self.members.next().await? else {
            return Ok(None);
        };
        self.left = Some((member.size, padding(member.size)));
        Ok(Some(Bytes::from(header(&member, self.owner))))
    }
}

/// The header blocks of a member.
pub(super) fn header(member: &Member, owner: Owner) -> Vec<u8> {
    let mut name = member.name.clone();
    if member.kind == Kind::Directory {
        name.push(b'/');
    }
    if name.len() <= 100 {
        return block(&name, b"", member, owner).to_vec();
    }
    if let Some((prefix, rest)) = parted(&name) {
        return block(rest, prefix, member, owner).to_vec();
    }
    let long = Member {
        name: b"././@LongLink".to_vec(),
        kind: Kind::File,
        size: name.len() as u64 + 1,
        mode: 0,
        mtime: None,
    };
    let mut first = block(&long.name, b"", &long, Owner::default());
    put(&mut first, 156, b"L");
    put(&mut first, 257, b"ustar  \0");
    seal(&mut first);
    let mut blocks = first.to_vec();
    blocks.extend_from_slice(&name);
    blocks.resize(blocks.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
    if name.len().is_multiple_of(TAR_BLOCK_BYTES) {
        // The name ends with a NUL, which is counted.
        blocks.resize(blocks.len() + TAR_BLOCK_BYTES, 0);
    }
    let short = name.get(..100).unwrap_or_default();
    blocks.extend_from_slice(&block(short, b"", member, owner));
    blocks
}

/// Parts a name at a slash so that both sides fit into a header.
fn parted(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let fits = |at: usize| {
        let (prefix, rest) = (name.get(..at)?, name.get(at + 1..)?);
        let fits = (1..=155).contains(&prefix.len()) && (1..=100).contains(&rest.len());
        fits.then_some((prefix, rest))
    };
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| at).find_map(fits)
}

fn block(name: &[u8], prefix: &[u8], member: &Member, owner: Owner) -> [u8; TAR_BLOCK_BYTES] {
    let mut block = [0; TAR_BLOCK_BYTES];
    put(&mut block, 0, name);
    put(&mut block, 100, &number(u64::from(member.mode & 0o777), 8));
    put(&mut block, 108, &number(u64::from(owner.uid), 8));
    put(&mut block, 116, &number(u64::from(owner.gid), 8));
    put(&mut block, 124, &number(member.size, 12));
    put(
        &mut block,
        136,
        &number(member.mtime.unwrap_or_default(), 12),
    );
    let flag = match member.kind {
        Kind::File => b"0",
        Kind::Directory => b"5",
    };
    put(&mut block, 156, flag);
    put(&mut block, 257, b"ustar\x0000");
    put(&mut block, 345, prefix);
    seal(&mut block);
    block
}

/// Puts the checksum in.
fn seal(block: &mut [u8; TAR_BLOCK_BYTES]) {
    put(block, 148, b"        ");
    let sum: u64 = block.iter().copied().map(u64::from).sum();
    put(block, 148, format!("{sum:06o}\0 ").as_bytes());
}

fn put(block: &mut [u8; TAR_BLOCK_BYTES], at: usize, bytes: &[u8]) {
    for (to, from) in block.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// Octal with a NUL at the end, or binary when that is too long.
fn number(value: u64, length: usize) -> Vec<u8> {
    let octal = format!("{value:0width$o}\0", width = length - 1);
    if octal.len() == length {
        return octal.into_bytes();
    }
    let mut binary = vec![0; length];
    for (to, from) in binary.iter_mut().rev().zip(value.to_le_bytes()) {
        *to = from;
    }
    if let Some(first) = binary.first_mut() {
        *first |= 0x80;
    }
    binary
}
