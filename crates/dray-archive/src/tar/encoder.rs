//! From entries to header blocks: names as they are.
//!
//! Names up to 100 bytes are in the header, even when they are not UTF-8. Longer names use the prefix field if they can
//! be split at a slash; otherwise GNU's long name, which `BusyBox` also reads (it ignores pax headers). Numbers that
//! are too long for octal digits are binary.

use super::{BLOCK_BYTES, Block};

/// Owner of the unpacked files, where the unpacking user may change owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// An entry to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The name; the name of a directory ends in a slash.
    pub name: &'a [u8],
    /// The type byte: `0` for a file, `5` for a directory, `2` for a symbolic link.
    pub flag: u8,
    /// Target of a link, at most 100 bytes.
    pub link: &'a [u8],
    /// Bytes of content.
    pub size: u64,
    /// The 12 low mode bits.
    pub mode: u32,
    /// Owner of the entry.
    pub owner: Owner,
    /// Seconds since the epoch.
    pub mtime: u64,
}

impl<'a> NewEntry<'a> {
    /// An empty file that its owner may write and everyone may read, of the superuser, at the epoch.
    pub const fn file(name: &'a [u8]) -> Self {
        Self {
            name,
            flag: b'0',
            link: b"",
            size: 0,
            mode: 0o644,
            owner: Owner { uid: 0, gid: 0 },
            mtime: 0,
        }
    }
}

/// Everything that is before the content of an entry. The content is followed by [`super::padding`].
pub fn encode(entry: &NewEntry<'_>) -> Vec<u8> {
    if entry.name.len() <= 100 {
        return block(entry, entry.name, b"").to_vec();
    }
    if let Some((prefix, rest)) = split_name(entry.name) {
        return block(entry, rest, prefix).to_vec();
    }
    let long = NewEntry {
        flag: b'L',
        // The name ends with a NUL, which is counted.
        size: entry.name.len() as u64 + 1,
        mode: 0,
        ..NewEntry::file(b"././@LongLink")
    };
    let mut first = block(&long, long.name, b"");
    put(&mut first, 257, b"ustar  \0");
    seal(&mut first);
    let mut blocks = first.to_vec();
    blocks.extend_from_slice(entry.name);
    blocks.push(0);
    blocks.resize(blocks.len().next_multiple_of(BLOCK_BYTES), 0);
    let short = entry.name.get(..100).unwrap_or_default();
    blocks.extend_from_slice(&block(entry, short, b""));
    blocks
}

/// Splits a name at a slash so that both sides fit into a header.
fn split_name(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let fits = |position: usize| {
        let (prefix, rest) = (name.get(..position)?, name.get(position + 1..)?);
        let fits = (1..=155).contains(&prefix.len()) && (1..=100).contains(&rest.len());
        fits.then_some((prefix, rest))
    };
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(position, _)| position).find_map(fits)
}

fn block(entry: &NewEntry<'_>, name: &[u8], prefix: &[u8]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    put(&mut block, 0, name);
    put(&mut block, 100, &number(u64::from(entry.mode & 0o7777), 8));
    put(&mut block, 108, &number(u64::from(entry.owner.uid), 8));
    put(&mut block, 116, &number(u64::from(entry.owner.gid), 8));
    put(&mut block, 124, &number(entry.size, 12));
    put(&mut block, 136, &number(entry.mtime, 12));
    put(&mut block, 156, &[entry.flag]);
    put(&mut block, 157, entry.link.get(..100).unwrap_or(entry.link));
    put(&mut block, 257, b"ustar\x0000");
    put(&mut block, 345, prefix);
    seal(&mut block);
    block
}

/// Puts the checksum in.
fn seal(block: &mut Block) {
    put(block, 148, b"        ");
    let sum: u64 = block.iter().copied().map(u64::from).sum();
    put(block, 148, format!("{sum:06o}\0 ").as_bytes());
}

fn put(block: &mut Block, position: usize, bytes: &[u8]) {
    for (to, from) in block.iter_mut().skip(position).zip(bytes) {
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
