//! Header and trailer of a gzip member (RFC 1952 2.3), read byte by byte without keeping any of it.

use flate2::Crc;

use super::DecodeError;

const FLAG_CHECKSUM: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;
const FLAGS_RESERVED: u8 = 0xe0;

/// Reads over a member's header, which may be split at any byte.
#[derive(Debug, Default)]
pub(super) struct GzipHeader {
    flags: u8,
    field: HeaderField,
}

#[derive(Clone, Copy, Debug)]
enum HeaderField {
    /// The ten fixed bytes; the next one has this index.
    Fixed(u8),
    /// The low byte of the extra length comes next.
    ExtraLow,
    /// The high byte of the extra length comes next.
    ExtraHigh(u8),
    /// Number of extra bytes that are left.
    Extra(u16),
    /// The original file name, up to a zero byte.
    Name,
    /// The comment, up to a zero byte.
    Comment,
    /// Number of bytes of the header checksum that are left.
    Checksum(u8),
    /// The header is complete; deflate data follows.
    End,
}

impl Default for HeaderField {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl GzipHeader {
    /// Reads from `input`; returns the bytes used and whether the header is complete.
    pub(super) fn read(&mut self, input: &[u8]) -> Result<(usize, bool), DecodeError> {
        let mut read = 0;
        for byte in input {
            if matches!(self.field, HeaderField::End) {
                break;
            }
            self.field = self.push(*byte)?;
            read += 1;
        }
        Ok((read, matches!(self.field, HeaderField::End)))
    }

    fn push(&mut self, byte: u8) -> Result<HeaderField, DecodeError> {
        Ok(match self.field {
            // Magic bytes, method (8 is deflate), flags, time, extra flags, system: ten bytes (section 2.3.1).
            HeaderField::Fixed(index) => {
                self.fixed(index, byte)?;
                if index == 9 {
                    self.after(0)
                } else {
                    HeaderField::Fixed(index + 1)
                }
            }
            HeaderField::ExtraLow => HeaderField::ExtraHigh(byte),
            HeaderField::ExtraHigh(low) => match u16::from_le_bytes([low, byte]) {
                0 => self.after(FLAG_EXTRA),
                length => HeaderField::Extra(length),
            },
            HeaderField::Extra(1) => self.after(FLAG_EXTRA),
            HeaderField::Extra(left) => HeaderField::Extra(left - 1),
            HeaderField::Name if byte == 0 => self.after(FLAG_NAME),
            HeaderField::Name => HeaderField::Name,
            HeaderField::Comment if byte == 0 => self.after(FLAG_COMMENT),
            HeaderField::Comment => HeaderField::Comment,
            // The header's own checksum is skipped; that of the trailer covers the content.
            HeaderField::Checksum(2) => HeaderField::Checksum(1),
            HeaderField::Checksum(_) | HeaderField::End => HeaderField::End,
        })
    }

    fn fixed(&mut self, index: u8, byte: u8) -> Result<(), DecodeError> {
        let valid = match index {
            0 => byte == 0x1f,
            1 => byte == 0x8b,
            2 => byte == 8,
            3 => {
                self.flags = byte;
                // An unknown flag could mean a field that is not skipped below (section 2.3.1.2).
                byte & FLAGS_RESERVED == 0
            }
            _ => true,
        };
        if valid {
            Ok(())
        } else {
            Err(DecodeError::Corrupt)
        }
    }

    /// The field after that of `flag` (0: after the fixed bytes), in the order of the RFC.
    fn after(&self, flag: u8) -> HeaderField {
        let order = [
            (FLAG_EXTRA, HeaderField::ExtraLow),
            (FLAG_NAME, HeaderField::Name),
            (FLAG_COMMENT, HeaderField::Comment),
            (FLAG_CHECKSUM, HeaderField::Checksum(2)),
        ];
        let passed = order
            .iter()
            .position(|(candidate, _)| *candidate == flag)
            .map_or(0, |index| index + 1);
        order
            .iter()
            .skip(passed)
            .find(|(candidate, _)| self.flags & candidate != 0)
            .map_or(HeaderField::End, |(_, field)| *field)
    }
}

/// Reads a member's trailer: CRC-32 and length, both little endian.
#[derive(Debug, Default)]
pub(super) struct GzipTrailer {
    bytes: [u8; 8],
    filled: usize,
}

impl GzipTrailer {
    /// Reads from `input`; returns the bytes used and whether the trailer is complete.
    pub(super) fn read(&mut self, input: &[u8]) -> (usize, bool) {
        let mut read = 0;
        for (slot, byte) in self.bytes.iter_mut().skip(self.filled).zip(input) {
            *slot = *byte;
            read += 1;
        }
        self.filled += read;
        (read, self.filled == self.bytes.len())
    }

    /// Compares the trailer with the checksum and length of the decoded bytes; the length counts modulo 2^32.
    pub(super) fn check(&self, crc: &Crc) -> Result<(), DecodeError> {
        // The low half is the CRC, the high half the length, since both are little endian.
        let expected = u64::from(crc.amount()) << 32 | u64::from(crc.sum());
        if u64::from_le_bytes(self.bytes) == expected {
            Ok(())
        } else {
            Err(DecodeError::Mismatch)
        }
    }
}
