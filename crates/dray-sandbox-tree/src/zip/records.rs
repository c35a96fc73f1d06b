//! The records of a ZIP.

const SIZES_FOLLOW: u16 = 1 << 3;
const NAME_IS_UTF8: u16 = 1 << 11;
const DEFLATED_METHOD: u16 = 8;
/// The host system is Unix, so that readers use the mode.
const MADE_BY_UNIX: u16 = 3 << 8;
/// Version that a reader must support for deflate.
const VERSION_NEEDED: u16 = 0x14;
/// Version that a reader must support for sizes of 64 bits.
const VERSION_LARGE: u16 = 0x2d;
/// Value of a size of 32 bits that says that the size is in the field of 64 bits.
const NO_SIZE: u32 = u32::MAX;

/// A time in the two forms that ZIPs store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DosTime {
    /// Hours, minutes and two-second steps in 16 bits; years since 1980, month and day in 16 more.
    dos: (u16, u16),
    /// Seconds since the epoch, for readers that know this extra field.
    unix: Option<u32>,
}

impl From<Option<u64>> for DosTime {
    fn from(seconds: Option<u64>) -> Self {
        // The first and the last time that the format can express.
        let dos = dos_time(seconds.unwrap_or(0).clamp(315_532_800, 4_354_819_198));
        let unix = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        // Most readers take the field as signed.
        let unix = unix.filter(|unix| *unix <= i32::MAX.cast_unsigned());
        Self { dos, unix }
    }
}

/// Converts a time to the fields of MS-DOS, in UTC.
fn dos_time(seconds: u64) -> (u16, u16) {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let low = |value: u64| u16::try_from(value).unwrap_or_default();
    let time = (low(second / 3600) << 11) | (low(second / 60 % 60) << 5) | low(second % 60 / 2);
    let date = (low(year.saturating_sub(1980)) << 9) | (low(month) << 5) | low(day);
    (time, date)
}

/// Year, month and day for a number of days since the epoch (Gregorian calendar). The calculation uses years that begin
/// in March.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// The header before a member's content.
#[derive(Debug)]
pub(super) struct LocalHeader {
    pub(super) name: Vec<u8>,
    pub(super) directory: bool,
    pub(super) mode: u32,
    pub(super) time: DosTime,
    pub(super) offset: u64,
    /// Whether content follows, with its sizes in a descriptor after it.
    pub(super) streamed: bool,
    /// Whether its sizes need 64 bits.
    pub(super) large: bool,
}

/// A member's record in the central directory.
#[derive(Debug)]
pub(super) struct CentralHeader<'a> {
    local: &'a LocalHeader,
    crc: u32,
    packed: u64,
    size: u64,
    large: u64,
}

impl LocalHeader {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut extra = Vec::new();
        if self.large {
            // The real sizes follow in the data descriptor.
            put_all(&mut extra, &[&le16(1), &le16(16), &[0; 16]]);
        }
        self.extended_time(&mut extra);
        let size = if self.large { NO_SIZE } else { 0 };
        put_all(out, &[b"PK\x03\x04", &le16(self.version())]);
        self.common(0, size, size, out);
        put_all(
            out,
            &[&short(&self.name), &short(&extra), &self.name, &extra],
        );
    }

    /// Flags, method, time, checksum and sizes, which both kinds of record contain.
    fn common(&self, crc: u32, packed: u32, size: u32, out: &mut Vec<u8>) {
        let (flags, method) = if self.streamed {
            (SIZES_FOLLOW | NAME_IS_UTF8, DEFLATED_METHOD)
        } else {
            (NAME_IS_UTF8, 0)
        };
        put_all(
            out,
            &[
                &le16(flags),
                &le16(method),
                &le16(self.time.dos.0),
                &le16(self.time.dos.1),
                &crc.to_le_bytes(),
                &packed.to_le_bytes(),
                &size.to_le_bytes(),
            ],
        );
    }

    /// The data descriptor after the content.
    pub(super) fn descriptor(&self, crc: u32, packed: u64, size: u64, out: &mut Vec<u8>) {
        put_all(out, &[b"PK\x07\x08", &crc.to_le_bytes()]);
        for size in [packed, size] {
            if self.large {
                out.extend_from_slice(&size.to_le_bytes());
            } else {
                out.extend_from_slice(&low(size).to_le_bytes());
            }
        }
    }

    pub(super) const fn central(
        &self,
        crc: u32,
        packed: u64,
        size: u64,
        large: u64,
    ) -> CentralHeader<'_> {
        CentralHeader {
            local: self,
            crc,
            packed,
            size,
            large,
        }
    }

    const fn version(&self) -> u16 {
        if self.large {
            VERSION_LARGE
        } else {
            VERSION_NEEDED
        }
    }

    fn extended_time(&self, extra: &mut Vec<u8>) {
        if let Some(unix) = self.time.unix {
            put_all(extra, &[b"UT", &le16(5), &[1], &unix.to_le_bytes()]);
        }
    }
}

impl CentralHeader<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let local = self.local;
        let far = local.offset >= self.large;
        let mut wide = Vec::new();
        if local.large {
            put_all(
                &mut wide,
                &[&self.size.to_le_bytes(), &self.packed.to_le_bytes()],
            );
        }
        if far {
            wide.extend_from_slice(&local.offset.to_le_bytes());
        }
        let mut extra = Vec::new();
        if !wide.is_empty() {
            put_all(&mut extra, &[&le16(1), &short(&wide), &wide]);
        }
        local.extended_time(&mut extra);
        let (packed, size) = if local.large {
            (NO_SIZE, NO_SIZE)
        } else {
            (low(self.packed), low(self.size))
        };
        let version = if far { VERSION_LARGE } else { local.version() };
        put_all(
            out,
            &[b"PK\x01\x02", &le16(MADE_BY_UNIX | version), &le16(version)],
        );
        local.common(self.crc, packed, size, out);
        let kind = if local.directory {
            0o040_000
        } else {
            0o100_000
        };
        let attributes = ((kind | local.mode) << 16) | if local.directory { 0x10 } else { 0 };
        let offset = if far { NO_SIZE } else { low(local.offset) };
        put_all(
            out,
            &[
                &short(&local.name),
                &short(&extra),
                // The fields say: no comment, first disk, no text flag.
                &[0; 6],
                &attributes.to_le_bytes(),
                &offset.to_le_bytes(),
                &local.name,
                &extra,
            ],
        );
    }
}

/// The end records: start, length and number of members of the central directory.
pub(super) fn end(count: u64, begin: u64, length: u64, large: u64, out: &mut Vec<u8>) {
    let wide = count >= 0xffff || begin >= large || length >= large;
    if wide {
        let version = le16(VERSION_LARGE);
        let numbers = [count, count, length, begin].map(u64::to_le_bytes).concat();
        put_all(out, &[b"PK\x06\x06", &44_u64.to_le_bytes()]);
        put_all(
            out,
            &[
                &le16(MADE_BY_UNIX | VERSION_LARGE),
                &version,
                &[0; 8],
                &numbers,
            ],
        );
        let end_position = begin + length;
        put_all(
            out,
            &[
                b"PK\x06\x07",
                &[0; 4],
                &end_position.to_le_bytes(),
                &1_u32.to_le_bytes(),
            ],
        );
    }
    let (count, begin, length) = if wide {
        (u16::MAX, NO_SIZE, NO_SIZE)
    } else {
        (
            u16::try_from(count).unwrap_or(u16::MAX),
            low(begin),
            low(length),
        )
    };
    put_all(out, &[b"PK\x05\x06", &[0; 4], &le16(count), &le16(count)]);
    put_all(out, &[&length.to_le_bytes(), &begin.to_le_bytes(), &[0; 2]]);
}

fn put_all(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

const fn le16(value: u16) -> [u8; 2] {
    value.to_le_bytes()
}

/// The length of a text that is known to be short.
fn short(bytes: &[u8]) -> [u8; 2] {
    le16(u16::try_from(bytes.len()).unwrap_or(u16::MAX))
}

/// The value in 32 bits, or the mark for a value that is in the extra field.
fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(NO_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_exactly_as_possible() {
        let dos = |seconds| DosTime::from(Some(seconds)).dos;
        let time = |hour: u16, minute: u16, second: u16| hour * 2048 + minute * 32 + second / 2;
        let date = |year: u16, month: u16, day: u16| (year - 1980) * 512 + month * 32 + day;
        let first = (0, date(1980, 1, 1));
        for (seconds, moment) in [
            (1_000_000_000, (time(1, 46, 40), date(2001, 9, 9))),
            (1_709_251_199, (time(23, 59, 59), date(2024, 2, 29))),
            (1_709_251_200, (0, date(2024, 3, 1))),
            (4_107_542_400, (0, date(2100, 3, 1))),
            (0, first),
            (u64::MAX, (time(23, 59, 58), date(2107, 12, 31))),
        ] {
            assert_eq!(dos(seconds), moment, "{seconds}");
        }
        assert_eq!(DosTime::from(None).dos, first);
        assert_eq!(DosTime::from(Some(1 << 31)).unix, None);
        assert_eq!(DosTime::from(Some(1)).unix, Some(1));
    }
}
