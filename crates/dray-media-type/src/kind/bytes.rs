//! Reads numbers out of a head that may end anywhere.

/// `N` bytes from `at`.
pub(super) fn array_at<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..)?.first_chunk::<N>().copied()
}

/// A big-endian 16-bit number.
pub(super) fn be16(head: &[u8], at: usize) -> Option<u16> {
    array_at(head, at).map(u16::from_be_bytes)
}

/// A big-endian 32-bit number.
pub(super) fn be32(head: &[u8], at: usize) -> Option<u32> {
    array_at(head, at).map(u32::from_be_bytes)
}

/// A little-endian 16-bit number.
pub(super) fn le16(head: &[u8], at: usize) -> Option<u16> {
    array_at(head, at).map(u16::from_le_bytes)
}

/// A little-endian 32-bit number.
pub(super) fn le32(head: &[u8], at: usize) -> Option<u32> {
    array_at(head, at).map(u32::from_le_bytes)
}

/// A little-endian 24-bit number.
pub(super) fn le24(head: &[u8], at: usize) -> Option<u32> {
    array_at(head, at).map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]))
}

/// Whether `magic` is at `at`.
pub(super) fn is_at(head: &[u8], at: usize, magic: &[u8]) -> bool {
    head.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

/// Where `needle` (not empty) first is at or after `from`.
pub(super) fn find_from(head: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    let rest = head.get(from..)?;
    rest.windows(needle.len())
        .position(|window| window == needle)
        .map(|at| from + at)
}

/// A length or offset read from a file, as an index.
pub(super) fn to_index(number: u32) -> usize {
    // On a 16-bit target the index is beyond every head, so the following read returns `None`.
    usize::try_from(number).unwrap_or(usize::MAX)
}
