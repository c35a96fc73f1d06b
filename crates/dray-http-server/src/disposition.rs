//! The name of a file in `Content-Disposition` (RFC 6266), escaped so that it cannot end the parameter or the header.

use dray_presentation::name::download_name;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Bytes that are escaped in an extended value: all but `attr-char` (RFC 8187 section 3.2.1).
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

/// A value that always downloads, with the last component of the name: once for clients that support only ASCII, and
/// once unchanged. Without a name it is `attachment`.
pub fn attachment_disposition(name: &str) -> String {
    full_disposition("attachment", name)
}

/// Like [`attachment_disposition`], for content that browsers show, with the name under which a person may save it.
pub fn inline_disposition(name: &str) -> String {
    full_disposition("inline", name)
}

/// Like [`attachment_disposition`], but only in the extended form, which all browsers support (RFC 6266 section 5).
pub fn extended_attachment(name: &str) -> String {
    let visible = download_name(name);
    if visible.is_empty() {
        return "attachment".to_owned();
    }
    format!("attachment; {}", extended_parameter(&visible))
}

fn full_disposition(kind: &str, name: &str) -> String {
    let visible = download_name(name);
    if visible.is_empty() {
        return kind.to_owned();
    }
    let plain: String = visible
        .chars()
        .map(|letter| match letter {
            // Quotes and backslashes end or escape the value; `%` is decoded by some clients and not by others (RFC
            // 6266, appendix D).
            '"' | '\\' | '%' => '_',
            letter if letter.is_ascii() => letter,
            _ => '_',
        })
        .collect();
    let extended = extended_parameter(&visible);
    format!("{kind}; filename=\"{plain}\"; {extended}")
}

fn extended_parameter(visible: &str) -> String {
    let encoded = utf8_percent_encode(visible, OUTSIDE_ATTR_CHAR);
    format!("filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r_15_a_name_cannot_break_out_of_a_header() {
        for (name, expected) in [
            ("", "attachment"),
            ("folder/", "attachment"),
            // Names of directories (RFC 6266, section 4.3).
            (".", "attachment"),
            ("..", "attachment"),
            ("a/..", "attachment"),
            (
                ".env",
                "attachment; filename=\".env\"; filename*=UTF-8''.env",
            ),
            // With this character, `exe.pdf` would be shown where the extension is `exe`.
            (
                "report\u{202e}fdp.exe",
                "attachment; filename=\"reportfdp.exe\"; filename*=UTF-8''reportfdp.exe",
            ),
            (
                "report.pdf",
                "attachment; filename=\"report.pdf\"; filename*=UTF-8''report.pdf",
            ),
            (
                "../r\u{e9}sum\u{e9}.pdf",
                "attachment; filename=\"r_sum_.pdf\"; filename*=UTF-8''r%C3%A9sum%C3%A9.pdf",
            ),
            (
                "c:\\temp\\x.exe",
                "attachment; filename=\"x.exe\"; filename*=UTF-8''x.exe",
            ),
            (
                "a\"\r\nX: b",
                "attachment; filename=\"a_X: b\"; filename*=UTF-8''a%22X%3A%20b",
            ),
            (
                "it's (1)%",
                "attachment; filename=\"it's (1)_\"; filename*=UTF-8''it%27s%20%281%29%25",
            ),
        ] {
            assert_eq!(attachment_disposition(name), expected, "{name:?}");
        }
        assert_eq!(
            inline_disposition("a; filename=b"),
            "inline; filename=\"a; filename=b\"; filename*=UTF-8''a%3B%20filename%3Db"
        );
    }

    #[test]
    fn the_extended_form_alone_has_the_same_name() {
        for (name, expected) in [
            ("", "attachment"),
            ("../../etc/passwd", "attachment; filename*=UTF-8''passwd"),
            (
                "a\"; filename=b",
                "attachment; filename*=UTF-8''a%22%3B%20filename%3Db",
            ),
            (
                "a\r\nSet-Cookie: x",
                "attachment; filename*=UTF-8''aSet-Cookie%3A%20x",
            ),
        ] {
            assert_eq!(extended_attachment(name), expected, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_contains_a_line_end_or_an_open_quote(name in "(\\PC|\\p{Cf}|\r|\n|\"|\\\\|\0){0,40}") {
            for header in [
                attachment_disposition(&name),
                inline_disposition(&name),
                extended_attachment(&name),
            ] {
                prop_assert!(header.is_ascii(), "{header:?}");
                // UTF-8 of the overrides and the isolates.
                for bidi in ["%E2%80%AE", "%E2%81%A6"] {
                    prop_assert!(!header.contains(bidi), "{header:?}");
                }
                prop_assert!(!header.contains(char::is_control), "{header:?}");
                prop_assert!(!header.contains('\\'), "{header:?}");
                prop_assert!(matches!(header.matches('"').count(), 0 | 2), "{header:?}");
            }
        }
    }
}
