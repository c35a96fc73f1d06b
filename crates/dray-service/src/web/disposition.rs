//! The name of a download, as `Content-Disposition` has it.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that have to be escaped in an extended value (RFC 8187 section 3.2.1, `attr-char`).
const OUTSIDE_ATTR_CHAR: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// A value that always downloads (RFC 6266), with the last component of the name: once for clients that support only
/// ASCII, and once unchanged.
pub fn download_disposition(name: &str) -> String {
    disposition("attachment", name)
}

/// A value for content that browsers show, with the name under which a person may save it.
pub fn inline_disposition(name: &str) -> String {
    disposition("inline", name)
}

fn disposition(kind: &str, name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = last.chars().filter(|letter| !letter.is_control()).collect();
    if visible.is_empty() {
        return kind.to_owned();
    }
    let plain: String = visible
        .chars()
        .map(|letter| match letter {
            // Quotes end the value, `%` is decoded by some clients and not by others (RFC 6266, appendix D).
            '"' | '%' => '_',
            letter if letter.is_ascii() => letter,
            _ => '_',
        })
        .collect();
    let encoded = utf8_percent_encode(&visible, OUTSIDE_ATTR_CHAR);
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_without_directories_quotes_and_line_ends() {
        for (name, expected) in [
            ("", "attachment"),
            (
                "../r\u{e9}sum\u{e9}.pdf",
                "attachment; filename=\"r_sum_.pdf\"; filename*=UTF-8''r%C3%A9sum%C3%A9.pdf",
            ),
            (
                "a\"\r\nX: b",
                "attachment; filename=\"a_X: b\"; filename*=UTF-8''a%22X%3A%20b",
            ),
        ] {
            assert_eq!(download_disposition(name), expected, "{name:?}");
        }
    }
}
