//! The content of an attachment that carries it: `data`, or a `data:` URL (RFC 2397).

use bytes::Bytes;
use dray_agent::message::Attachment;

use crate::data_url::{decode_base64, decode_data_url};

/// The bytes inside an attachment, `data` before a `data:` URL; `None` if it only has a reference.
pub fn inline_bytes(attachment: &Attachment) -> Option<Bytes> {
    if let Some(data) = &attachment.data {
        // The default of DIAL for attachments without a type.
        let media_type = attachment.kind.as_deref().unwrap_or("text/markdown");
        return Some(decode_attachment_data(media_type, data));
    }
    let inline = decode_data_url(attachment.url.as_deref()?, u64::MAX);
    inline.ok().map(|inline| inline.bytes)
}

/// Decodes the `data` of an attachment: text for text types, base64 for all others. Invalid base64 counts as text.
pub fn decode_attachment_data(media_type: &str, data: &str) -> Bytes {
    // Texts are never decoded: `abcd` is valid base64 as well (quickapps 23.2).
    let decoded = (!is_text(media_type)).then(|| decode_base64(data));
    match decoded.flatten() {
        Some(bytes) => bytes.into(),
        None => Bytes::copy_from_slice(data.as_bytes()),
    }
}

fn is_text(media_type: &str) -> bool {
    let plain = dray_media_type::essence(media_type);
    plain.starts_with("text/")
        || matches!(
            plain.as_str(),
            // No type, or a type that is text although its name does not begin so.
            "" | "application/yaml"
        )
        // This includes types such as `application/x-ndjson` and `image/svg+xml`.
        || plain.ends_with("json")
        || plain.ends_with("xml")
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
        check(Some("image/svg+xml"), Some("YQ=="), None, Some(b"YQ=="));
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
