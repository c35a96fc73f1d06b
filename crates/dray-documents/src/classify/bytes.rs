//! Reading at an offset, and numbers in little-endian order.

use std::io::{self, Read as _, SeekFrom};

use crate::container::Input;

/// Fills `into` from an offset as far as the file goes; gives how much that was.
pub(super) fn read_at(input: &mut dyn Input, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    input.seek(SeekFrom::Start(offset))?;
    fill_buffer(input, into)
}

/// Fills `into` from where the file stands.
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

/// Reads at most `limit` bytes from an offset. Memory grows with what is there, not with the limit.
pub(super) fn read_up_to(input: &mut dyn Input, offset: u64, limit: u64) -> io::Result<Vec<u8>> {
    input.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    input.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Two bytes; zero past the end.
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    let two = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    two.copied().map_or(0, u16::from_le_bytes)
}

/// Four bytes; zero past the end.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let four = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    four.copied().map_or(0, u32::from_le_bytes)
}

/// Eight bytes; zero past the end.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let eight = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    eight.copied().map_or(0, u64::from_le_bytes)
}
