//! Bytes that mail writes as a mark and two hexadecimal digits.

use dray_types::hex::parse_hex;

/// Decodes `=C3` of quoted-printable (RFC 2045, section 6.7) with the mark `=`, and `%C3` of parameters (RFC 2231,
/// section 4) with the mark `%`. A mark without two digits after it is not valid, and stays as it is.
pub(crate) fn decode_hex_escapes(mark: u8, mut encoded: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(encoded.len());
    while let Some((first, after)) = encoded.split_first() {
        let escaped = after
            .split_at_checked(2)
            .filter(|_| *first == mark)
            .and_then(|(digits, rest)| Some((parse_hex(str::from_utf8(digits).ok()?)?, rest)));
        encoded = if let Some(([byte], rest)) = escaped {
            decoded.push(byte);
            rest
        } else {
            decoded.push(*first);
            after
        };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_with_two_digits_is_a_byte_and_any_other_stays() {
        let decode = |text: &str| String::from_utf8(decode_hex_escapes(b'%', text.as_bytes()));
        assert_eq!(decode("%D0%be.csv"), Ok("о.csv".to_owned()));
        for unchanged in ["", "%", "%4", "%+1", "%g1", "%é", "=41"] {
            assert_eq!(decode(unchanged), Ok(unchanged.to_owned()));
        }
        assert_eq!(decode("%%41"), Ok("%A".to_owned()));
        assert_eq!(decode_hex_escapes(b'=', b"=41%41"), b"A%41");
    }
}
