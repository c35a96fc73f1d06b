//! The content of an attachment that carries it: `data`, or a `data:` URL (RFC 2397).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use dray_agent::message::Attachment;
use percent_encoding::percent_decode_str;

/// Standard base64, with padding or without it.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes inside an attachment, `data` before a `data:` URL; `None` if it only has a reference.
pub fn inline_bytes(attachment: &Attachment) -> Option<Vec<u8>> {
    if let Some(data) = &attachment.data {
        // The default of DIAL for attachments without a type.
        let media_type = attachment.kind.as_deref().unwrap_or("text/markdown");
        return Some(decode_data(media_type, data));
    }
    decode_data_url(attachment.url.as_deref()?)
}

/// Decodes `data`: text for text types, base64 for all others. Invalid base64 counts as text.
fn decode_data(media_type: &str, data: &str) -> Vec<u8> {
    if is_text(media_type) {
        return data.as_bytes().to_vec();
    }
    decode_base64(data.bytes()).unwrap_or_else(|| data.as_bytes().to_vec())
}

fn is_text(media_type: &str) -> bool {
    let plain = dray_media_type::essence(media_type);
    plain.starts_with("text/")
        || matches!(
            plain.as_str(),
            // No type, or a type that is text although its name does not begin so.
            "" | "application/json" | "application/xml" | "image/svg+xml" | "application/yaml"
        )
        || plain.ends_with("+json")
}

fn decode_data_url(url: &str) -> Option<Vec<u8>> {
    let url = url.trim_start();
    let is_data = url.get(..5)?.eq_ignore_ascii_case("data:");
    let rest = url.get(5..).filter(|_| is_data)?;
    let (head, body) = rest.split_once(',')?;
    let bytes = percent_decode_str(body);
    // RFC 2397: `;base64` is a flag without a value, after the media type.
    let is_base64 = |part: &str| part.trim().eq_ignore_ascii_case("base64");
    if head.split(';').skip(1).any(is_base64) {
        decode_base64(bytes)
    } else {
        Some(bytes.collect())
    }
}

fn decode_base64(text: impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    // Line breaks inside base64 are common and ignored.
    let plain: Vec<u8> = text.filter(|byte| !byte.is_ascii_whitespace()).collect();
    LENIENT_BASE64.decode(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Option<&str>, data: Option<&str>, url: Option<&str>, expected: Option<&[u8]>) {
        let attachment = Attachment {
            kind: kind.map(ToOwned::to_owned),
            data: data.map(ToOwned::to_owned),
            url: url.map(ToOwned::to_owned),
            ..Attachment::default()
        };
        assert_eq!(inline_bytes(&attachment).as_deref(), expected);
    }

    #[test]
    fn data_is_text_for_texts_and_base64_for_all_else() {
        check(None, Some("YQ=="), None, Some(b"YQ=="));
        check(
            Some("text/csv; charset=utf-8"),
            Some("YQ=="),
            None,
            Some(b"YQ=="),
        );
        check(Some("application/json"), Some("1"), None, Some(b"1"));
        check(Some("image/png"), Some("Y\nQ"), None, Some(b"a"));
        check(Some("image/png"), Some("*"), None, Some(b"*"));
    }

    #[test]
    fn data_urls_are_decoded_and_other_urls_are_not() {
        check(
            None,
            None,
            Some("data:image/png;base64,YQ%3D%3D"),
            Some(b"a"),
        );
        check(None, None, Some("DATA:,a%20b"), Some(b"a b"));
        check(None, None, Some("data:;base64,*"), None);
        check(None, None, Some("data:nothing"), None);
        check(None, None, Some("http://x/a"), None);
        check(None, None, Some("é"), None);
        check(None, None, None, None);
    }
}
