//! Decoders for the transfer encodings of MIME (RFC 2045, 6). They accept malformed input.

/// Decodes base64. Bytes outside of its alphabet are skipped.
pub(super) fn decode_base64(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut pending_bits: u32 = 0;
    let mut bits = 0;
    for byte in text {
        let Some(six) = sextet_of(*byte) else {
            if *byte == b'=' {
                // Padding ends an encoded text; another encoded text may follow.
                bits = 0;
                pending_bits = 0;
            }
            continue;
        };
        // The mask keeps the shift from overflowing; at most 14 bits are still needed.
        pending_bits = (pending_bits << 6 | u32::from(six)) & 0x00FF_FFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push(u8::try_from(pending_bits >> bits & 0xFF).unwrap_or_default());
        }
    }
    out
}

/// The number of bytes that a base64 text decodes to, if it has no padding in the middle.
pub(super) fn base64_size(text: &[u8]) -> u64 {
    let digits = text
        .iter()
        .filter(|byte| sextet_of(**byte).is_some())
        .count() as u64;
    digits * 6 / 8
}

fn sextet_of(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// Decodes quoted-printable. A malformed escape is kept as text.
pub(super) fn quoted_printable(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'=') {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before);
        let length = match escape {
            [_, b'\r', b'\n', ..] => 3,
            [_, b'\n', ..] => 2,
            [_, high, low, ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    3
                }
                _ => 0,
            },
            _ => 0,
        };
        if length == 0 {
            out.push(b'=');
        }
        rest = escape.get(length.max(1)..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// Decodes UTF-7 (RFC 2152), which the WHATWG encoding standard lacks. Malformed parts are kept or become U+FFFD.
pub(super) fn decode_utf7(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'+') {
        let (before, shifted) = rest.split_at(at);
        out.push_str(&String::from_utf8_lossy(before));
        let shifted = shifted.get(1..).unwrap_or_default();
        let length = shifted
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
            .count();
        let (encoded, remaining) = shifted.split_at(length);
        let units = decode_base64(encoded);
        let (pairs, _) = units.as_chunks::<2>();
        if pairs.is_empty() {
            out.push('+');
            out.push_str(&String::from_utf8_lossy(encoded));
        }
        let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
        out.extend(
            char::decode_utf16(units)
                .map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)),
        );
        // A hyphen after the encoded part is not text.
        rest = remaining.strip_prefix(b"-").unwrap_or(remaining);
    }
    out.push_str(&String::from_utf8_lossy(rest));
    out
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::{base64_size, decode_base64, decode_utf7, quoted_printable};

    #[test]
    fn base64_is_decoded_across_line_ends_and_other_characters() {
        for (text, bytes) in [
            ("SGVsbG8=", "Hello"),
            ("SGVs\r\nbG8 h", "Hello!"),
            ("SGk=SGk=", "HiHi"),
            ("", ""),
            ("S", ""),
        ] {
            assert_eq!(decode_base64(text.as_bytes()), bytes.as_bytes());
        }
        assert_eq!(base64_size(b"SGVs\r\nbG8="), 5);
    }

    #[test]
    fn quoted_printable_joins_lines_and_keeps_broken_escapes() {
        assert_eq!(
            quoted_printable(b"a=C3=A9b=\r\nc=\nd=zz=4"),
            "aébcd=zz=4".as_bytes()
        );
        assert_eq!(quoted_printable(b"="), b"=");
    }

    #[test]
    fn utf_7_is_decoded_and_a_plus_without_code_is_kept() {
        for (text, read) in [
            ("Fr+APY-sche +ACI-x+ACI +2D3eAA-", "Frösche \"x\" 😀"),
            ("1 +- 1, a+b, +", "1 + 1, a+b, +"),
            ("+2D0-", "\u{FFFD}"),
        ] {
            assert_eq!(decode_utf7(text.as_bytes()), read);
        }
    }
}
