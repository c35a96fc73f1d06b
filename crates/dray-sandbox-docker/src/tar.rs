//! As much of tar as the archive calls need: read entry by entry, make one entry.
//!
//! What comes out of a container is not trusted: every number is checked, every length is bounded, and a stream that
//! ends before its end blocks is short, however the connection ended (sandbox-transfer R-5).

mod header;
mod reader;

pub(crate) use header::{Header, Kind, file};
pub(crate) use reader::Reader;

/// Everything in a tar comes in blocks of this many bytes.
pub(crate) const BLOCK: usize = 512;

/// The two blocks of zeros that end an archive.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Bytes that fill the last block of `size` bytes of data.
pub(crate) const fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

#[cfg(test)]
mod tests;
