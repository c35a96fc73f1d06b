//! Hexadecimal numbers in files.

/// Parses a number of hexadecimal digits only.
///
/// `from_str_radix` of the standard library also accepts a leading sign.
pub(crate) fn parse_hex(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Parses a byte of exactly two hexadecimal digits.
pub(crate) fn parse_hex_byte(digits: &[u8]) -> Option<u8> {
    let two = std::str::from_utf8(digits)
        .ok()
        .filter(|two| two.len() == 2)?;
    parse_hex(two).and_then(|number| u8::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_or_a_blank_is_not_a_digit() {
        assert_eq!(parse_hex("fF"), Some(255));
        for text in ["+1", "-1", " 1", "", "g", "100000000"] {
            assert_eq!(parse_hex(text), None, "{text:?}");
        }
        assert_eq!(parse_hex_byte(b"2F"), Some(b'/'));
        for text in [b"+1".as_slice(), b"1", b"001", b"\xFF1"] {
            assert_eq!(parse_hex_byte(text), None, "{text:?}");
        }
    }
}
