//! Reads bytes at an offset of the input, and little-endian numbers in a buffer.

use std::io::{self, Read as _, SeekFrom};

use crate::container::Input;

/// Reads into `into` from an offset until `into` is full or the input ends. Returns the number of bytes read.
pub(crate) fn read_at(input: &mut dyn Input, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    input.seek(SeekFrom::Start(offset))?;
    fill_buffer(input, into)
}

/// Like [`read_at`], from the current position of the input.
pub(super) fn fill_buffer(input: &mut dyn Input, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads at most `limit` bytes from an offset. Memory grows with the bytes that exist, not with the limit.
pub(super) fn read_up_to(input: &mut dyn Input, offset: u64, limit: u64) -> io::Result<Vec<u8>> {
    input.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    input.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a `u16` at an offset; 0 when it is not completely inside `bytes`.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let two = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    two.copied().map_or(0, u16::from_le_bytes)
}

/// Reads a `u32` at an offset; 0 when it is not completely inside `bytes`.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let four = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    four.copied().map_or(0, u32::from_le_bytes)
}

/// Reads a `u64` at an offset; 0 when it is not completely inside `bytes`.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let eight = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    eight.copied().map_or(0, u64::from_le_bytes)
}
