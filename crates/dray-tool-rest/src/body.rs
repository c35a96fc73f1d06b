//! Separates text from other content of responses, whose bytes are kept as they are.

use dray_media_type::{essence, parameter, usual_extension};
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Bytes at the beginning that decide whether content is text.
const SAMPLE_BYTES: usize = 64 << 10;

/// The text in the bytes; `None` for binary content, which is not changed.
pub(crate) fn decode_text(bytes: &[u8], content_type: &str) -> Option<String> {
    let kind = essence(content_type);
    let is_declared_text = is_text(&kind);
    if !is_declared_text && !is_unspecific(&kind) {
        return None;
    }
    // A byte order mark wins over the header (WHATWG Encoding, section 6).
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return decode_with(encoding, bytes.get(mark..).unwrap_or_default());
    }
    if let Some(label) = parameter(content_type, "charset") {
        // With an unknown label a guess would damage the content.
        let encoding = Encoding::for_label(label.as_bytes())?;
        return decode_with(encoding, bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (is_declared_text || is_clean(bytes)).then(|| text.to_owned());
    }
    // JSON is always UTF-8 (RFC 8259 section 8.1), so other bytes in it are damage.
    let is_json = kind == "application/json" || kind.ends_with("+json");
    if is_declared_text && !is_json && is_clean(bytes) {
        return decode_with(WINDOWS_1252, bytes);
    }
    None
}

/// The text, if every byte has a meaning in the encoding.
fn decode_with(encoding: &'static Encoding, bytes: &[u8]) -> Option<String> {
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes)?;
    // In another encoding a NUL shows that the label was wrong.
    let is_ours = encoding == UTF_8 || !text.contains('\0');
    is_ours.then(|| text.into_owned())
}

/// Types whose content is text.
fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || kind.ends_with("+yaml")
        || matches!(
            kind,
            "application/json"
                | "application/ndjson"
                | "application/x-ndjson"
                | "application/jsonl"
                | "application/xml"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/javascript"
                | "application/graphql"
                | "application/sql"
                | "application/x-www-form-urlencoded"
        )
}

/// Types that do not identify the content.
fn is_unspecific(kind: &str) -> bool {
    matches!(
        kind,
        "" | "application/octet-stream" | "*/*" | "application/unknown"
    )
}

/// Whether the bytes contain only control characters that are common in text.
fn is_clean(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .take(SAMPLE_BYTES)
        .all(|byte| *byte >= b' ' || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c))
}

/// The extension of a type, without its dot; `bin` for an unknown one.
pub(crate) fn type_extension(kind: &str) -> &'static str {
    usual_extension(kind).unwrap_or(match kind {
        // A structured syntax suffix identifies a format that any reader of that format accepts (RFC 6839).
        _ if kind.ends_with("+json") => "json",
        _ if kind.ends_with("+xml") => "xml",
        _ if kind.starts_with("text/") => "txt",
        _ => "bin",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_by_its_charset() {
        let check = |bytes: &[u8], kind: &str, expected: Option<&str>| {
            assert_eq!(decode_text(bytes, kind).as_deref(), expected, "{kind}");
        };
        check("é".as_bytes(), "text/plain", Some("é"));
        check(b"\xe9", "text/plain; charset=\"ISO-8859-1\"", Some("é"));
        check(b"\xe9", "text/html", Some("é"));
        check(b"\xff\xfea\0", "text/csv", Some("a"));
        check(b"\xcf\xf0", "text/plain;charset=windows-1251", Some("Пр"));
        check(
            "\u{feff}{}".as_bytes(),
            "application/problem+json",
            Some("{}"),
        );
    }

    #[test]
    fn bytes_that_are_not_text_are_not_decoded() {
        assert_eq!(decode_text(b"\x89PNG\r\n\x1a\n", "image/png"), None);
        assert_eq!(decode_text(b"abc", "image/png"), None);
        assert_eq!(decode_text(b"\xe9", "text/plain; charset=utf-8"), None);
        assert_eq!(decode_text(b"\xe9", "application/json"), None);
        assert_eq!(decode_text(b"\xe9\0\x01", "text/plain"), None);
        assert_eq!(decode_text(b"a", "text/plain; charset=klingon"), None);
        assert_eq!(decode_text(b"\0\x01", ""), None);
    }

    #[test]
    fn an_unspecific_type_leaves_the_decision_to_the_bytes() {
        assert_eq!(decode_text(b"plain\n", "").as_deref(), Some("plain\n"));
        assert_eq!(
            decode_text(b"plain", "application/octet-stream").as_deref(),
            Some("plain")
        );
        assert_eq!(decode_text(b"a\0b", "application/octet-stream"), None);
    }

    #[test]
    fn extensions_follow_the_type() {
        assert_eq!(type_extension(&essence("Application/PDF; x=y")), "pdf");
        assert_eq!(type_extension("application/hal+json"), "json");
        assert_eq!(type_extension("application/x-strange"), "bin");
    }
}
