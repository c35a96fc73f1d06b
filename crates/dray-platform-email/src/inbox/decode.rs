//! Decodes transfer encodings chunk by chunk (RFC 2045, 6).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::hex_escape::decode_hex_escapes;

/// Base64 without padding, and with bits left over at the end: mail programs write both.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Longest line that is buffered in quoted-printable, in bytes; the standard allows 76.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Decodes the transfer encoding of one MIME part (RFC 2045, section 6), chunk by chunk.
#[derive(Debug)]
pub(super) enum PartDecoder {
    /// `7bit`, `8bit`, `binary` and unknown encodings.
    Plain,
    /// Characters of an incomplete group, and whether the end was reached.
    Base64(Vec<u8>, bool),
    /// A line that is not complete yet.
    Quoted(Vec<u8>),
}

impl PartDecoder {
    /// A decoder for this encoding, in lower case. Content with an unknown encoding is not changed.
    pub(super) fn new(encoding: &str) -> Self {
        match encoding {
            "base64" => Self::Base64(Vec::new(), false),
            "quoted-printable" => Self::Quoted(Vec::new()),
            _ => Self::Plain,
        }
    }

    /// Adds encoded bytes, and returns the bytes that can already be decoded.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => bytes.to_vec(),
            Self::Base64(rest, is_over) => {
                for byte in bytes {
                    match byte {
                        // Data after the padding is not part of the content (RFC 2045, 6.8).
                        b'=' => *is_over = true,
                        // RFC 2045, section 6.8: characters outside of the alphabet are ignored.
                        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if !*is_over => {
                            rest.push(*byte);
                        }
                        _ => {}
                    }
                }
                let whole = rest.len() / 4 * 4;
                let incomplete = rest.split_off(whole);
                let groups = std::mem::replace(rest, incomplete);
                LENIENT_BASE64.decode(groups).unwrap_or_default()
            }
            Self::Quoted(rest) => {
                rest.extend_from_slice(bytes);
                let end = rest
                    .iter()
                    .rposition(|byte| *byte == b'\n')
                    .map(|at| at + 1);
                // A line without an end is decoded as far as it goes, because otherwise the buffer would grow without a
                // limit.
                let end = end.or((rest.len() > MAX_LINE_BYTES).then_some(rest.len()));
                let incomplete = rest.split_off(end.unwrap_or_default());
                let lines = std::mem::replace(rest, incomplete);
                decode_quoted_printable(&lines)
            }
        }
    }

    /// Returns the rest.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        match self {
            Self::Plain => Vec::new(),
            Self::Base64(rest, _) => {
                let rest = std::mem::take(rest);
                // A single character does not encode a byte.
                if rest.len() < 2 {
                    return Vec::new();
                }
                LENIENT_BASE64.decode(rest).unwrap_or_default()
            }
            Self::Quoted(rest) => decode_quoted_printable(&std::mem::take(rest)),
        }
    }
}

fn decode_quoted_printable(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let (content, end): (&[u8], &[u8]) = match line {
            [content @ .., b'\r', b'\n'] => (content, b"\r\n"),
            [content @ .., b'\n'] => (content, b"\n"),
            content => (content, b""),
        };
        // RFC 2045, section 6.7, rule 3: white space at the end of a line was added in transit.
        let trimmed = match end {
            b"" => content,
            _ => content.trim_ascii_end(),
        };
        let (text, is_soft) = match trimmed.strip_suffix(b"=") {
            Some(rest) => (rest, true),
            None => (trimmed, false),
        };
        decoded.extend(decode_hex_escapes(b'=', text));
        if !is_soft {
            decoded.extend_from_slice(end);
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn decode_body(encoding: &str, text: &[u8], size: usize) -> Vec<u8> {
        let mut decoder = PartDecoder::new(encoding);
        let mut all: Vec<u8> = text
            .chunks(size)
            .flat_map(|chunk| decoder.push(chunk))
            .collect();
        all.extend(decoder.finish());
        all
    }

    #[test]
    fn bytes_are_the_same_for_every_chunk_size() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for length in [0, 1, 2, 3, 999, 1000] {
            let bytes = &bytes[..length];
            let mut lines = String::new();
            for line in STANDARD.encode(bytes).as_bytes().chunks(76) {
                lines.push_str(std::str::from_utf8(line).unwrap());
                lines.push_str("\r\n");
            }
            for size in [1, 3, 77, 10_000] {
                assert_eq!(
                    decode_body("base64", lines.as_bytes(), size),
                    bytes,
                    "{length} {size}"
                );
            }
        }
    }

    #[test]
    fn broken_base64_gives_the_bytes_before_the_break() {
        for (text, expected) in [
            ("aGVs bG8=", "hello"),
            ("aGVsbG8", "hello"),
            ("aGVs\0\u{fe}bG8=\r\nignored", "hello"),
            ("aGVsb", "hel"),
            ("====", ""),
        ] {
            assert_eq!(
                decode_body("base64", text.as_bytes(), 2),
                expected.as_bytes(),
                "{text}"
            );
        }
    }

    #[test]
    fn quoted_printable_lines_are_decoded() {
        for (text, expected) in [
            ("a=3Db=\r\nc\r\n", "a=bc\r\n"),
            ("trailing \t \r\nx", "trailing\r\nx"),
            ("soft =  \r\nend", "soft end"),
            ("wrong =ZZ =", "wrong =ZZ "),
            ("a=+F", "a=+F"),
            ("=d0=be\n", "о\n"),
        ] {
            for size in [1, 2, 5, 100] {
                assert_eq!(
                    decode_body("quoted-printable", text.as_bytes(), size),
                    expected.as_bytes(),
                    "{text}"
                );
            }
        }
        let long = "x".repeat(MAX_LINE_BYTES * 3);
        assert_eq!(
            decode_body("quoted-printable", long.as_bytes(), 1000).len(),
            long.len()
        );
    }

    #[test]
    fn bytes_of_other_encodings_pass_unchanged() {
        for encoding in ["7bit", "8bit", "binary", "", "x-uuencode"] {
            assert_eq!(
                decode_body(encoding, b"a=3D\r\n", 2),
                b"a=3D\r\n",
                "{encoding}"
            );
        }
    }
}
