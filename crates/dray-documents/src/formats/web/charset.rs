//! The encoding that a page or an XML document declares.

use std::borrow::Cow;

use crate::encoding::{self, DetectedEncoding};

/// Number of bytes at the start of a file in which a declared encoding is searched (HTML standard, 13.2.3.2).
const CHARSET_SEARCH_BYTES: usize = 1024;

/// Decodes a page with the first encoding that is known: of its byte-order mark, of its XML declaration or `meta`
/// element, of `label`, or the detected one. A declared UTF-8 is ignored if the bytes are not valid UTF-8.
pub(crate) fn decode_page<'a>(bytes: &'a [u8], label: Option<&str>) -> Cow<'a, str> {
    let named = declared_charset(bytes.get(..CHARSET_SEARCH_BYTES).unwrap_or(bytes))
        .filter(|name| name != "UTF-8" || std::str::from_utf8(bytes).is_ok());
    encoding::decode_text(bytes, named.as_deref().or(label))
}

/// The name of the encoding in the head of a document. A document whose head is readable as ASCII is not in UTF-16,
/// even if it declares that (HTML standard, 13.2.3.3).
fn declared_charset(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let declared = head
        .strip_prefix("<?xml")
        .and_then(|rest| rest.split_once("?>"))
        .and_then(|(declaration, _)| value_after(declaration, "encoding"));
    let label = declared.or_else(|| {
        head.split("<meta")
            .skip(1)
            .find_map(|rest| value_after(rest.split('>').next().unwrap_or_default(), "charset"))
    })?;
    let name = DetectedEncoding::of_label(label)?.name();
    // The head was read as ASCII, so the document is not in UTF-16; the standard reads such a document as UTF-8.
    Some(if name.starts_with("UTF-") {
        "UTF-8".to_owned()
    } else {
        name.to_owned()
    })
}

/// The value after a name and an equals sign, with or without quotes.
fn value_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let (_, behind) = rest.split_once(name)?;
        rest = behind;
        if let Some(value) = behind.trim_start().strip_prefix('=') {
            let value = value.trim_start().trim_start_matches(['"', '\'']);
            let end = value
                .find(|character: char| {
                    character.is_whitespace()
                        || matches!(character, '"' | '\'' | ';' | '/' | '>' | '?')
                })
                .unwrap_or(value.len());
            return value.get(..end).filter(|value| !value.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::decode_page;

    #[test]
    fn a_declared_encoding_is_used() {
        for head in [
            "<meta charset=\"iso-8859-2\">",
            "<META HTTP-EQUIV='Content-Type' content='text/html; charset=iso-8859-2'>",
            "<?xml version='1.0' encoding='ISO-8859-2'?><p>",
            "<title>charset</title><meta name=x content=y><meta charset = iso-8859-2 >",
        ] {
            let page = [head.as_bytes(), b"\xB1\xE6"].concat();
            assert!(decode_page(&page, None).ends_with("ąć"), "{head}");
        }
    }

    #[test]
    fn a_false_or_unknown_declaration_is_ignored() {
        let latin = b"<meta charset=utf-8>Gr\xF6\xDFe und L\xE4nge, sch\xF6n und gr\xFCn";
        assert!(decode_page(latin, None).ends_with("Größe und Länge, schön und grün"));
        let wide = "<meta charset=utf-16>Größe".as_bytes();
        assert!(decode_page(wide, None).ends_with("Größe"));
        assert!(decode_page(b"\xEF\xBB\xBF<meta charset=koi8-r>\xC3\xA9", None).ends_with('é'));
        assert_eq!(
            decode_page(b"<meta charset=nonsense>a", None),
            "<meta charset=nonsense>a"
        );
    }

    #[test]
    fn a_declaration_after_the_first_kilobyte_is_ignored() {
        let page = format!("{}<meta charset=koi8-r>é", " ".repeat(1024));
        assert!(decode_page(page.as_bytes(), None).ends_with('é'));
    }
}
