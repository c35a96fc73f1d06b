//! Extended headers (POSIX.1-2001, pax): `length key=value\n`.

use crate::error::{Error, ErrorKind};

/// The records that matter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// Whole seconds.
    pub(super) mtime: Option<u64>,
    /// It describes a file with holes.
    pub(super) sparse: bool,
}

/// Reads all records. Ambiguous records are refused: another reader would see other members.
pub(super) fn parse(mut records: &[u8]) -> Result<Pax, Error> {
    let mut pax = Pax::default();
    while !records.is_empty() {
        let (key, value, rest) = record(records).ok_or_else(malformed)?;
        records = rest;
        match key {
            b"path" => pax.path = Some(value.to_vec()),
            b"size" => pax.size = Some(decimal(value).ok_or_else(malformed)?),
            // A time may be odd; it decides nothing.
            b"mtime" => {
                let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
                pax.mtime = decimal(whole);
            }
            key if key.starts_with(b"GNU.sparse.") => pax.sparse = true,
            _ => {}
        }
    }
    Ok(pax)
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

/// Digits and nothing else.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(text).ok()?.parse().ok()
}

fn malformed() -> Error {
    Error::new(ErrorKind::Protocol, "a malformed extended header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_the_last_of_a_key_holds() {
        let pax = parse(b"12 path=a/b\n14 size=00099\n20 mtime=12.5000000\n10 path=c\n").unwrap();
        assert_eq!(pax.path.unwrap(), b"c");
        assert_eq!(
            (pax.size, pax.mtime, pax.sparse),
            (Some(99), Some(12), false)
        );
        assert!(parse(b"22 GNU.sparse.major=1\n").unwrap().sparse);
        assert_eq!(parse(b"").unwrap(), Pax::default());
        // A value may hold newlines and equals signs.
        let pax = parse(b"14 path=a\nb=c\n").unwrap();
        assert_eq!(pax.path.unwrap(), b"a\nb=c");
    }

    #[test]
    fn malformed_records_are_refused() {
        // These count themselves rightly.
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
            assert_eq!(
                parse(record.as_bytes()).unwrap_err().kind(),
                ErrorKind::Protocol,
                "{pair}"
            );
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
            let error = parse(records).expect_err(&records.escape_ascii().to_string());
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }
}
