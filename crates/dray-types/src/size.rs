//! Byte counts as people write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. Reads and prints as `25MiB`, `64KiB`, `10MB` or a plain number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// The text is not a size, or the size exceeds `u64`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a size; write a number of bytes or one with a unit, such as 64KiB, 25MiB or 10MB"
)]
pub struct InvalidSize(String);

/// Longest unit first, so that `MiB` is not read as `B`.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

impl ByteSize {
    /// A size of `count` bytes.
    pub const fn bytes(count: u64) -> Self {
        Self(count)
    }

    /// `count` × 1024 bytes, at most `u64::MAX`.
    pub const fn kib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 10))
    }

    /// `count` × 1024² bytes, at most `u64::MAX`.
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// The size as a number of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The number of bytes as `usize`; a larger one becomes `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, InvalidSize> {
        let invalid = || InvalidSize(text.to_owned());
        let trimmed = text.trim();
        let (digits, factor) = SIZE_UNITS
            .iter()
            .find_map(|(unit, factor)| {
                trimmed
                    .strip_suffix(unit)
                    .map(|digits| (digits.trim_end(), *factor))
            })
            .unwrap_or((trimmed, 1));
        // `u64::parse` would also accept a plus sign.
        if digits.starts_with('+') {
            return Err(invalid());
        }
        let count: u64 = digits.parse().map_err(|_| invalid())?;
        count.checked_mul(factor).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            // Only exact multiples of a unit are printed in it, so that the printed text parses to the same size.
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum SizeValue {
            Count(u64),
            Text(String),
        }
        match SizeValue::deserialize(deserializer)? {
            SizeValue::Count(count) => Ok(Self(count)),
            SizeValue::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_numbers_with_or_without_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("64KiB", 65_536),
            ("25 MiB", 26_214_400),
            ("10MB", 10_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize::bytes(bytes)), "{text}");
        }
        for wrong in [
            "",
            "-1",
            "+5MiB",
            "+5",
            "1.5MiB",
            "5 apples",
            "99999999999GiB",
            "MiB",
        ] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
        assert_eq!(
            serde_json::from_str::<ByteSize>("1024").unwrap(),
            ByteSize::kib(1)
        );
        assert_eq!(
            serde_json::from_str::<ByteSize>("\"1KiB\"").unwrap(),
            ByteSize::kib(1)
        );
    }

    #[test]
    fn sizes_above_the_maximum_become_the_maximum() {
        assert_eq!(ByteSize::kib(u64::MAX >> 9), ByteSize::bytes(u64::MAX));
        assert_eq!(ByteSize::mib(1 << 44), ByteSize::bytes(u64::MAX));
        assert_eq!(ByteSize::mib(1 << 43), ByteSize::bytes(1 << 63));
    }

    proptest! {
        #[test]
        fn printed_sizes_read_back(count: u64) {
            let size = ByteSize::bytes(count);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }
    }
}
