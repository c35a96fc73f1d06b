//! Extended headers (POSIX.1-2001, pax): `length key=value\n`.

use super::TarError;

/// The records that this crate uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// Whole seconds.
    pub(super) mtime: Option<i64>,
    /// Whether the header describes a file with holes.
    pub(super) sparse: bool,
    /// The name of the sparse file; its path is a placeholder.
    pub(super) sparse_name: Option<Vec<u8>>,
    /// Size of the sparse file with its holes.
    pub(super) real_size: Option<u64>,
}

/// Reads all records. Ambiguous records are refused, because another reader would see other entries; a tolerant reader
/// stops at them.
pub(super) fn parse(mut records: &[u8], tolerant: bool) -> Result<PaxRecords, TarError> {
    let mut pax = PaxRecords::default();
    while !records.is_empty() {
        let set = record(records).filter(|(key, value, _)| pax.set(key, value));
        let Some((_, _, rest)) = set else {
            if tolerant {
                break;
            }
            return Err(TarError::Malformed("a malformed extended header"));
        };
        records = rest;
    }
    Ok(pax)
}

impl PaxRecords {
    /// Whether the value is one that the key can have.
    fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.sparse |= key.starts_with(b"GNU.sparse.");
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => {
                let size = decimal(value);
                self.size = size.or(self.size);
                return size.is_some();
            }
            // An invalid time is ignored, because no decision depends on it.
            b"mtime" => self.mtime = seconds(value),
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.real_size = decimal(value),
            _ => {}
        }
        true
    }
}

/// Key, value and the records after this one.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(records.get(..space)?)?).ok()?;
    let whole = records.get(..length)?;
    let pair = whole.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (pair.get(..equals)?, pair.get(equals + 1..)?);
    (!key.is_empty() && !key.contains(&0)).then_some((key, value, records.get(length..)?))
}

/// Parses a number that consists only of digits.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds since the epoch, without their fraction.
fn seconds(text: &[u8]) -> Option<i64> {
    let whole = text.split(|byte| *byte == b'.').next().unwrap_or_default();
    match whole.split_first() {
        Some((b'-', digits)) => i64::try_from(decimal(digits)?).ok().map(|past| -past),
        _ => i64::try_from(decimal(whole)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict(records: &[u8]) -> Result<PaxRecords, TarError> {
        parse(records, false)
    }

    #[test]
    fn records_are_read_and_the_last_of_a_key_holds() {
        let pax = strict(b"12 path=a/b\n14 size=00099\n20 mtime=12.5000000\n10 path=c\n").unwrap();
        assert_eq!(pax.path.unwrap(), b"c");
        assert_eq!(
            (pax.size, pax.mtime, pax.sparse),
            (Some(99), Some(12), false)
        );
        let sparse = strict(b"22 GNU.sparse.major=1\n21 GNU.sparse.name=s\n").unwrap();
        assert!(sparse.sparse);
        assert_eq!(sparse.sparse_name.unwrap(), b"s");
        assert_eq!(strict(b"").unwrap(), PaxRecords::default());
        assert_eq!(strict(b"12 mtime=-3\n").unwrap().mtime, Some(-3));
        // A value may contain newlines and equals signs.
        let pax = strict(b"14 path=a\nb=c\n").unwrap();
        assert_eq!(pax.path.unwrap(), b"a\nb=c");
    }

    #[test]
    fn malformed_records_are_refused_or_end_the_reading() {
        // The lengths of these records are correct, but their contents are malformed.
        for pair in [
            "size=-",
            "size=",
            "size=+1",
            "size= 1",
            "size=1 ",
            "size=0x1",
            "size=99999999999999999999",
            "nokey",
            "=ab",
            "a\0=b",
        ] {
            let length = pair.len() + if pair.len() < 7 { 3 } else { 4 };
            let record = format!("{length} {pair}\n");
            assert_eq!(record.len(), length);
            assert!(strict(record.as_bytes()).is_err(), "{pair}");
            let before = format!("10 path=c\n{record}");
            let pax = parse(before.as_bytes(), true).unwrap();
            assert_eq!(pax.path.unwrap(), b"c", "{pair}");
        }
        for records in [
            b"8 size=1\n".as_slice(),
            b"11 size=1\n",
            b"99999999999999999999999 a=b\n",
            b"x path=a\n",
            b"-9 path=a\n",
            b"+9 path=a\n",
            b" 9 path=a\n",
            b"0 \n",
            b"9 path=a\n\0",
        ] {
            strict(records).expect_err(&records.escape_ascii().to_string());
            parse(records, true).unwrap();
        }
    }
}
