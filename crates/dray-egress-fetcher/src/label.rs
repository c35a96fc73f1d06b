//! Reads and sanitises the labels of a file: the statements of its server about it (egress-security R-7).
//!
//! Labels are shown and passed on, but never trusted and never used as a path.

use http::HeaderMap;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED};
use percent_encoding::percent_decode;

/// Longest media type, entity tag and date, in characters.
const MAX_LABEL_CHARACTERS: usize = 128;
/// Longest file name, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Longest file extension that survives shortening, in bytes.
const MAX_EXTENSION_BYTES: usize = 16;

/// The labels of one response. Absent ones are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseLabels {
    /// Essence and charset of `Content-Type`, lower-case, at most 128 ASCII characters.
    pub media_type: String,
    /// File name of `Content-Disposition`, at most 255 bytes.
    pub name: String,
    /// `Last-Modified`, at most 128 printable ASCII characters.
    pub last_modified: String,
    /// `ETag`, at most 128 printable ASCII characters.
    pub etag: String,
}

impl ResponseLabels {
    /// Reads the labels of a response head; the first field of a name counts.
    pub fn of(headers: &HeaderMap) -> Self {
        Self {
            media_type: first_value(headers, &CONTENT_TYPE)
                .map(media_type)
                .unwrap_or_default(),
            name: first_value(headers, &CONTENT_DISPOSITION)
                .and_then(disposition_name)
                .map(|name| sanitise_name(&name))
                .unwrap_or_default(),
            last_modified: first_value(headers, &LAST_MODIFIED)
                .map(printable_field)
                .unwrap_or_default(),
            etag: first_value(headers, &ETAG)
                .map(printable_field)
                .unwrap_or_default(),
        }
    }
}

fn first_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    headers.get(name).map(http::HeaderValue::as_bytes)
}

fn printable_field(value: &[u8]) -> String {
    value
        .iter()
        .filter(|byte| matches!(byte, b' '..=b'~'))
        .take(MAX_LABEL_CHARACTERS)
        .map(|byte| char::from(*byte))
        .collect()
}

/// `type/subtype` and the charset; empty when the value is not a media type.
fn media_type(value: &[u8]) -> String {
    let text = latin1_or_utf8(value);
    let mut parts = split_parameters(&text).into_iter();
    let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_valid = essence
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    if !is_valid || essence.len() > MAX_LABEL_CHARACTERS {
        return String::new();
    }
    let charset = parts
        .filter_map(parse_parameter)
        .find(|(name, _)| name == "charset")
        .map(|(_, value)| value.to_ascii_lowercase())
        .filter(|value| is_token(value));
    match charset {
        // 10 is the length of `; charset=`.
        Some(charset) if essence.len() + charset.len() + 10 <= MAX_LABEL_CHARACTERS => {
            format!("{essence}; charset={charset}")
        }
        _ => essence,
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// The file name of RFC 6266: `filename*` before `filename`.
fn disposition_name(value: &[u8]) -> Option<String> {
    let text = latin1_or_utf8(value);
    let parameters: Vec<_> = split_parameters(&text)
        .into_iter()
        // The first part is the disposition type.
        .skip(1)
        .filter_map(parse_parameter)
        .collect();
    let find = |wanted: &str| {
        parameters
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| value.as_str())
    };
    find("filename*")
        // With an unknown charset the plain `filename` counts (RFC 6266, section 4.3).
        .and_then(decode_extended)
        .or_else(|| find("filename").map(str::to_owned))
}

/// Decodes `charset'language'percent-encoded` (RFC 8187).
fn decode_extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, encoded) = rest.split_once('\'')?;
    let bytes: Vec<u8> = percent_decode(encoded.as_bytes()).collect();
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" => String::from_utf8(bytes).ok(),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    }
}

/// Splits at semicolons outside quoted strings.
fn split_parameters(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut is_quoted, mut is_escaped) = (0, false, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ';' if !is_quoted => {
                parts.push(text.get(start..index).unwrap_or_default());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

/// Reads `name=value`, with the name in lower case and a quoted value unquoted.
fn parse_parameter(part: &str) -> Option<(String, String)> {
    let (name, value) = part.split_once('=')?;
    let value = value.trim();
    let value = match value.strip_prefix('"') {
        Some(quoted) => unquote_value(quoted),
        None => value.to_owned(),
    };
    Some((name.trim().to_ascii_lowercase(), value))
}

/// Returns the text up to the closing quote, with escapes undone.
fn unquote_value(quoted: &str) -> String {
    let mut text = String::new();
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

fn latin1_or_utf8(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        // Field values were Latin-1 historically (RFC 9110, section 5.5).
        Err(_) => value.iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Removes what could make a name a path or change how the text around it reads.
fn sanitise_name(name: &str) -> String {
    // Characters are filtered before the trimming: a removed character may precede a dot.
    let cleaned: String = name
        .chars()
        .filter(|character| !is_harmful(*character))
        .collect();
    let cleaned = cleaned.trim().trim_start_matches(['.', ' ']).trim_end();
    shorten_name(cleaned)
}

fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            // Path separators, then marks and controls that reorder or hide text, and U+FFFD.
            character,
            '/' | '\\'
                | '\u{61c}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
                | '\u{fffd}'
        )
}

/// Shortens the stem of a long name, so that a short extension is kept.
fn shorten_name(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let extension = name
        .rfind('.')
        .and_then(|dot| name.get(dot..))
        .filter(|extension| extension.len() <= MAX_EXTENSION_BYTES)
        .unwrap_or_default();
    let mut end = MAX_NAME_BYTES - extension.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{extension}", name.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check_name(disposition: &[u8], expected: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_DISPOSITION,
            HeaderValue::from_bytes(disposition).unwrap(),
        );
        assert_eq!(
            ResponseLabels::of(&headers).name,
            expected,
            "{}",
            disposition.escape_ascii()
        );
    }

    fn check_type(content_type: &[u8], expected: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(content_type).unwrap());
        assert_eq!(ResponseLabels::of(&headers).media_type, expected);
    }

    #[test]
    fn r_7_media_types_are_reduced_to_essence_and_charset() {
        check_type(
            b"Text/HTML; Charset=\"UTF-8\"; boundary=x",
            "text/html; charset=utf-8",
        );
        check_type(b"application/pdf", "application/pdf");
        check_type(b"application/pdf;charset=\"a b\"", "application/pdf");
        check_type(b"not a type", "");
        check_type(b"text/", "");
        check_type("text/plain\u{e9}".as_bytes(), "");
        check_type(format!("text/{}", "x".repeat(200)).as_bytes(), "");
        check_type(
            format!("text/plain; charset={}", "x".repeat(200)).as_bytes(),
            "text/plain",
        );
    }

    #[test]
    fn r_7_names_are_read_as_rfc_6266_says() {
        check_name(b"attachment; filename=report.pdf", "report.pdf");
        check_name(
            b"attachment; filename=\"a \\\"b\\\"; c.txt\"",
            "a \"b\"; c.txt",
        );
        check_name(
            b"attachment; filename=\"plain.txt\"; filename*=UTF-8''na%C3%AFve.txt",
            "na\u{ef}ve.txt",
        );
        check_name(
            b"inline; FileName*=iso-8859-1'de'gr%FC%DFe.txt",
            "gr\u{fc}\u{df}e.txt",
        );
        check_name(
            b"attachment; filename*=utf-16''x; filename=fallback",
            "fallback",
        );
        check_name(
            b"attachment; filename*=UTF-8''%ff; filename=fallback",
            "fallback",
        );
        check_name(b"attachment", "");
        check_name(b"filename=x", "");
    }

    #[test]
    fn r_7_names_cannot_be_paths_or_reorder_text() {
        check_name(b"attachment; filename=\"../../etc/passwd\"", "etcpasswd");
        check_name(b"attachment; filename=\"..\\\\..\\\\boot.ini\"", "boot.ini");
        check_name(b"attachment; filename=.bashrc", "bashrc");
        check_name(b"attachment; filename*=UTF-8''a%00b%0d%0ac.txt", "abc.txt");
        check_name(
            b"attachment; filename*=UTF-8''x%E2%80%AEgpj.exe",
            "xgpj.exe",
        );
        check_name(b"attachment; filename=\" ... \"", "");
    }

    #[test]
    fn r_7_long_names_keep_their_extension() {
        let long = "\u{e9}".repeat(300);
        check_name(
            format!("attachment; filename=\"{long}.tar\"").as_bytes(),
            &format!("{}.tar", "\u{e9}".repeat(125)),
        );
        check_name(
            format!("attachment; filename={}", "x".repeat(300)).as_bytes(),
            &"x".repeat(255),
        );
    }

    #[test]
    fn r_7_tags_and_dates_are_printable_and_short() {
        let mut headers = HeaderMap::new();
        headers.insert(
            ETAG,
            HeaderValue::from_bytes(b"\"\xe2\x80\xaex\ty\"").unwrap(),
        );
        headers.insert(
            LAST_MODIFIED,
            HeaderValue::from_str(&"d".repeat(500)).unwrap(),
        );
        let labels = ResponseLabels::of(&headers);
        assert_eq!(labels.etag, "\"xy\"");
        assert_eq!(labels.last_modified, "d".repeat(128));
    }
}
