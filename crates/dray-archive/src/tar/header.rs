//! Parses and checks one header block of a tar.

use super::{Block, TarError};

/// Fields of a header block, which describe the member after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) flag: u8,
    /// `None` when the field contains no number.
    pub(super) size: Option<u64>,
    /// The 12 low mode bits.
    pub(super) mode: u32,
    pub(super) mtime: Option<u64>,
    /// Old GNU sparse files: their size with the holes.
    pub(super) real_size: Option<u64>,
    /// Old GNU sparse files: whether more maps follow the header.
    pub(super) more_maps: bool,
}

/// Reads a block that is not all zeros.
pub(super) fn parse(block: &Block) -> Result<Header, TarError> {
    if !has_its_checksum(block) {
        return Err(TarError::Malformed("a tar header with a wrong checksum"));
    }
    let field = |at: usize, length: usize| block.get(at..at + length).unwrap_or_default();
    let mut name = text(field(0, 100)).to_vec();
    // Only POSIX has a prefix. GNU stores times in this field, and the seventh edition of Unix leaves it empty.
    let prefix = text(field(345, 155));
    if field(257, 6) == b"ustar\0" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let size = field(124, 12);
    let is_blank = size.iter().all(|byte| matches!(byte, 0 | b' '));
    let size = match number(size) {
        None if !is_blank => return Err(TarError::Malformed(NO_SIZE)),
        size => size,
    };
    let flag = field(156, 1).first().copied().unwrap_or_default();
    Ok(Header {
        name,
        link: text(field(157, 100)).to_vec(),
        flag,
        size,
        mode: u32::try_from(number(field(100, 8)).unwrap_or(0o644) & 0o7777).unwrap_or_default(),
        mtime: number(field(136, 12)),
        real_size: number(field(483, 12)).filter(|_| flag == b'S'),
        more_maps: field(482, 1) != [0],
    })
}

/// The reason for refusing a header without a valid size: the position of the next header is unknown.
pub(super) const NO_SIZE: &str = "a tar header without a size";

/// Whether a file that begins with this block is a tar: the block is a header with the right checksum.
pub fn is_header(block: &Block) -> bool {
    block.iter().any(|byte| *byte != 0) && has_its_checksum(block)
}

/// Whether a block of sparse maps is followed by another.
pub(super) fn has_more_maps(block: &Block) -> bool {
    block.get(504).is_some_and(|more| *more != 0)
}

/// Text of a field, up to the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits, with spaces before and spaces or NULs after them; or, with the high bit set, a big-endian number.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // 0xff begins a negative number.
        if *first != 0x80 {
            return None;
        }
        let first_byte = rest.len().saturating_sub(8);
        let (high, low) = rest.split_at_checked(first_byte)?;
        if high.iter().any(|byte| *byte != 0) {
            return None;
        }
        return Some(
            low.iter()
                .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
        );
    }
    let begin = field.iter().position(|byte| *byte != b' ')?;
    let digits = field.get(begin..)?;
    let end = digits
        .iter()
        .position(|byte| matches!(byte, 0 | b' '))
        .unwrap_or(digits.len());
    let (digits, after) = digits.split_at_checked(end)?;
    let padded = after.iter().all(|byte| matches!(byte, 0 | b' '));
    if digits.is_empty() || !padded || !digits.iter().all(|byte| matches!(byte, b'0'..=b'7')) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
}

/// Whether the header has its checksum. Some old programs summed signed bytes.
fn has_its_checksum(block: &Block) -> bool {
    let Some(stored_sum) = block.get(148..156).and_then(number) else {
        return false;
    };
    let summed = || {
        let blank = |(at, byte): (usize, &u8)| {
            if (148..156).contains(&at) {
                b' '
            } else {
                *byte
            }
        };
        block.iter().enumerate().map(blank)
    };
    let unsigned: u64 = summed().map(u64::from).sum();
    let signed: i64 = summed().map(|byte| i64::from(byte.cast_signed())).sum();
    stored_sum == unsigned || i64::try_from(stored_sum).is_ok_and(|stored_sum| stored_sum == signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_only_octal_or_binary() {
        for (field, value) in [
            (b"0000644\0".as_slice(), Some(0o644)),
            (b"    644 ", Some(0o644)),
            (b"644\0\0\0\0\0", Some(0o644)),
            (b"00000644", Some(0o644)),
            (b"\x80\0\0\0\0\0\0\x01\0\0\0\x02", Some(0x1_0000_0002)),
            (b"\x80\0\0\x01\0\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\0\0\0\0\0\0\0\0", None),
            (b"        ", None),
            (b"0x1f\0\0\0\0", None),
            (b"12\0 34\0\0", None),
            (b"-1\0\0\0\0\0\0", None),
            (b"0000008\0", None),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }
}
