//! Bytes as hexadecimal digits, and back.

/// The bytes as lower-case hexadecimal digits, two for each byte; empty for no bytes.
pub fn hex_digits(bytes: &[u8]) -> String {
    const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0x0f])
        // The lookup is never `None`: a nibble is below 16.
        .filter_map(|nibble| HEX_DIGITS.get(usize::from(nibble)))
        .map(|digit| char::from(*digit))
        .collect()
}

/// Decodes exactly `N` bytes from `2 * N` hexadecimal digits in either case. `None` for any other text.
pub fn parse_hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    // The digits are checked first, because `from_str_radix` also accepts a plus sign.
    if digits.len() != 2 * N || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        let pair = digits.get(index * 2..index * 2 + 2)?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_as_lower_case_digits() {
        assert_eq!(hex_digits(&[]), "");
        assert_eq!(hex_digits(&[0, 9, 0xaf, 0xff]), "0009afff");
        assert_eq!(parse_hex("0009afff"), Some([0, 9, 0xaf, 0xff]));
        assert_eq!(parse_hex("0009AFFF"), Some([0, 9, 0xaf, 0xff]));
        assert_eq!(parse_hex(""), Some([]));
    }

    #[test]
    fn other_characters_and_other_lengths_are_refused() {
        for wrong in [
            "", "0", "000", "00000", "+1ff", "0x1f", "00 1", "é00", "gggg",
        ] {
            assert_eq!(parse_hex::<2>(wrong), None, "{wrong:?}");
        }
    }
}
