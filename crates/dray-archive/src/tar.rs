//! Tar: ustar, the seventh edition, GNU, and POSIX extended headers (POSIX.1-2017 pax, tar(5)).

mod decoder;
mod encoder;
mod header;
mod pax;
#[cfg(test)]
mod tests;

pub use decoder::{
    DecodeStep, Decoder, Entry, EntryKind, ExtensionScope, MAX_EXTENSION_BYTES, TarRules,
};
pub use encoder::{NewEntry, Owner, encode};
pub use header::is_header;

/// Bytes of one block. Headers and padded content are multiples of it.
pub const BLOCK_BYTES: usize = 512;

/// A header, or 512 bytes of padded content.
pub type Block = [u8; BLOCK_BYTES];

/// The two blocks of zeros that end an archive.
pub const END_BLOCKS: [u8; 2 * BLOCK_BYTES] = [0; 2 * BLOCK_BYTES];

/// Bytes between the end of `size` bytes of content and the next block.
pub const fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK_BYTES as u64
}

/// The reason why a tar cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    /// The data is not a tar, or another reader could interpret it differently.
    #[error("{0}")]
    Malformed(&'static str),
    /// The tar ends without its end marker, or inside an entry.
    #[error("the tar ended early")]
    Truncated,
}
