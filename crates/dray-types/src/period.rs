//! Lengths of time as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A length of time in whole milliseconds. Reads and prints as `30s`, `250ms`, `5m`, `1h30m` or `14d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(Duration);

/// The text is not a length of time, or its milliseconds exceed `u64`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a length of time; write whole numbers with units, such as 250ms, 30s, 5m or 1h30m"
)]
pub struct InvalidPeriod(String);

/// Milliseconds in a unit; largest first, which is also the order in which units may follow each other.
const UNIT_MS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl Period {
    /// A length of `count` milliseconds.
    pub const fn millis(count: u64) -> Self {
        Self(Duration::from_millis(count))
    }

    /// A length of `count` seconds.
    pub const fn secs(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }

    /// The same length as the standard library's type.
    pub const fn as_duration(self) -> Duration {
        self.0
    }

    /// The length in whole milliseconds; fractions are cut.
    pub fn as_millis(self) -> u64 {
        whole_millis(self.0)
    }
}

/// A duration as wire forms and records carry it: whole milliseconds. Fractions are cut; a duration of more than
/// 584 million years counts as `u64::MAX`, so that "no limit" never wraps to a short time.
pub fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<Duration> for Period {
    /// Cuts fractions of a millisecond.
    fn from(duration: Duration) -> Self {
        Self::millis(whole_millis(duration))
    }
}

impl From<Period> for Duration {
    fn from(period: Period) -> Self {
        period.0
    }
}

impl FromStr for Period {
    type Err = InvalidPeriod;

    fn from_str(text: &str) -> Result<Self, InvalidPeriod> {
        let invalid = || InvalidPeriod(text.to_owned());
        let mut rest = text.trim();
        // Zero is the same in every unit, so it needs none.
        if rest == "0" {
            return Ok(Self::default());
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut units = UNIT_MS.iter();
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let (digits, after) = split_prefix(rest, |byte| byte.is_ascii_digit());
            let (name, after) = split_prefix(after, |byte| byte.is_ascii_alphabetic());
            // Empty digits fail here too: a unit without a number is a typo.
            let count: u64 = digits.parse().map_err(|_| invalid())?;
            // The same iterator continues, so every unit is smaller than the last and no unit repeats.
            let (_, factor) = units.find(|(unit, _)| *unit == name).ok_or_else(invalid)?;
            let part = count.checked_mul(*factor).ok_or_else(invalid)?;
            total = total.checked_add(part).ok_or_else(invalid)?;
            rest = after;
        }
        Ok(Self::millis(total))
    }
}

/// The longest head of `text` whose bytes all pass, and the rest. Only ASCII may pass.
fn split_prefix(text: &str, passes: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|byte| !passes(byte))
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in UNIT_MS {
            let count = rest / factor;
            rest %= factor;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Period {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn periods_are_numbers_with_units_from_large_to_small() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            (" 5m ", 300_000),
            ("1h30m", 5_400_000),
            ("14d", 1_209_600_000),
            ("1m5ms", 60_005),
        ] {
            assert_eq!(text.parse(), Ok(Period::millis(millis)), "{text}");
        }
        for wrong in [
            "",
            "5",
            "-1s",
            "1.5s",
            "s",
            "1s1h",
            "1s2s",
            "1 s",
            "99999999999999999d",
            "1w",
        ] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn printed_periods_read_back(millis: u64) {
            let period = Period::millis(millis);
            prop_assert_eq!(period.to_string().parse(), Ok(period));
        }
    }
}
