//! `data:` URLs (RFC 2397), decoded within a limit.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use percent_encoding::percent_decode_str;

/// Standard base64, with padding or without.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The content of a `data:` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineData {
    /// The content's type without parameters; `text/plain` by default.
    pub media_type: String,
    /// The decoded content.
    pub bytes: Bytes,
}

/// The reason why a `data:` URL is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDataUrl {
    /// The text is not a `data:` URL, or its content is not encoded as it declares.
    #[error("the data: URL is malformed")]
    Malformed,
    /// The content is larger than the limit.
    #[error("the content of the data: URL has {size} bytes, which is over the limit")]
    TooLarge {
        /// Number of bytes of its content.
        size: u64,
    },
}

/// Reads a `data:` URL of at most `limit` bytes.
///
/// # Errors
///
/// See [`InvalidDataUrl`].
pub fn decode_data_url(url: &str, limit: u64) -> Result<InlineData, InvalidDataUrl> {
    let url = url.trim_start();
    let is_data = url
        .get(..5)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    let rest = url
        .get(5..)
        .filter(|_| is_data)
        .ok_or(InvalidDataUrl::Malformed)?;
    let (head, body) = rest.split_once(',').ok_or(InvalidDataUrl::Malformed)?;
    let mut parts = head.split(';').map(str::trim);
    let media_type = parts
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or("text/plain");
    let is_base64 = parts.any(|part| part.eq_ignore_ascii_case("base64"));
    // Characters of base64 that have a meaning in URLs are percent-encoded as well.
    let decoded = percent_decode_str(body);
    let bytes = if is_base64 {
        let plain = without_white_space(decoded);
        // The size is checked before decoding, so that an excessive size uses no memory.
        let least = u64::try_from(plain.len() / 4 * 3).unwrap_or(u64::MAX);
        if least.saturating_sub(3) > limit {
            return Err(InvalidDataUrl::TooLarge { size: least });
        }
        LENIENT_BASE64
            .decode(plain)
            .map_err(|_| InvalidDataUrl::Malformed)?
    } else {
        decoded.collect()
    };
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > limit {
        return Err(InvalidDataUrl::TooLarge { size });
    }
    Ok(InlineData {
        media_type: media_type.to_ascii_lowercase(),
        bytes: bytes.into(),
    })
}

/// Decodes base64 with or without padding; white space in it is ignored. `None` for other characters.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    LENIENT_BASE64
        .decode(without_white_space(text.bytes()))
        .ok()
}

fn without_white_space(text: impl Iterator<Item = u8>) -> Vec<u8> {
    // Encoders for mail break lines (RFC 2045 section 6.8).
    text.filter(|byte| !byte.is_ascii_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, media_type: &str, bytes: &[u8]) {
        let inline = decode_data_url(url, 100).unwrap();
        assert_eq!(
            (inline.media_type.as_str(), &*inline.bytes),
            (media_type, bytes)
        );
    }

    #[test]
    fn text_and_base64_are_read_with_and_without_padding() {
        check("data:text/csv;base64,YSxi", "text/csv", b"a,b");
        check("data:text/csv;charset=utf-8;base64,YQ==", "text/csv", b"a");
        check("DATA:;base64,YQ", "text/plain", b"a");
        check("data:,a%20b", "text/plain", b"a b");
        check("data:image/PNG;BASE64,YQ%3D%3D", "image/png", b"a");
        check("data:text/plain;base64,", "text/plain", b"");
    }

    #[test]
    fn white_space_in_base64_does_not_count_as_size() {
        // One character on each line, as a mail program with very short lines writes it.
        let body = "YWJj".replace("", "\r\n ").repeat(10);
        let inline = decode_data_url(&format!("data:;base64,{body}"), 30).unwrap();
        assert_eq!(&*inline.bytes, "abc".repeat(10).as_bytes());
        let over = decode_data_url(&format!("data:;base64,{body}"), 29);
        assert_eq!(over, Err(InvalidDataUrl::TooLarge { size: 30 }));
    }

    #[test]
    fn a_url_with_invalid_encoding_is_malformed() {
        for url in [
            "data:",
            "data:text/plain;base64",
            "data:;base64,a!b",
            "http://x/,",
            "dat",
            "data:;base64,A",
        ] {
            assert_eq!(
                decode_data_url(url, 100),
                Err(InvalidDataUrl::Malformed),
                "{url}"
            );
        }
    }

    #[test]
    fn the_limit_itself_is_allowed_and_one_byte_more_is_not() {
        assert!(decode_data_url("data:,abc", 3).is_ok());
        assert_eq!(
            decode_data_url("data:,abcd", 3),
            Err(InvalidDataUrl::TooLarge { size: 4 })
        );
        assert_eq!(
            decode_data_url("data:;base64,YWJjZA==", 3),
            Err(InvalidDataUrl::TooLarge { size: 4 })
        );
    }
}
