//! Converters of text, web pages, mail and RTF on arbitrary input: they end without a panic, and their output follows
//! the rules of read-attachment 7.

use std::io::Cursor;

use dray_documents::formats::{ConversionHint, Converted, convert};
use dray_documents::limits::Limits;
use dray_documents::markdown::Selection;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Every type of these families, with an extension.
const TYPE_NAMES: &[(&str, &str)] = &[
    ("text/plain", "txt"),
    ("text/plain", "py"),
    ("text/markdown", "md"),
    ("text/csv", "csv"),
    ("text/tab-separated-values", "tsv"),
    ("application/json", "json"),
    ("application/x-ndjson", "jsonl"),
    ("application/x-ipynb+json", "ipynb"),
    ("text/html", "html"),
    ("application/xhtml+xml", "xhtml"),
    ("application/xml", "xml"),
    ("image/svg+xml", "svg"),
    ("application/rss+xml", "rss"),
    ("application/atom+xml", "atom"),
    ("message/rfc822", "eml"),
    ("application/vnd.ms-outlook", "msg"),
    ("application/rtf", "rtf"),
];

/// Fragments from which the tests build documents of these formats.
const TEXT_FRAGMENTS: &[&str] = &[
    "<",
    ">",
    "</",
    "/>",
    "<p>",
    "<table>",
    "<tr>",
    "<td colspan=3 rowspan=2>",
    "</table>",
    "<ul>",
    "<li>",
    "<ol start=7>",
    "</ul>",
    "<pre>",
    "</pre>",
    "<a href='x y'>",
    "</a>",
    "<b>",
    "</b>",
    "<div hidden>",
    "</div>",
    "<script>",
    "</script>",
    "<br>",
    "<img src=data:x alt=y>",
    "<svg>",
    "<title>",
    "<blockquote>",
    "<dl><dt>",
    "<dd>",
    "<h2>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?xml version='1.0'?>",
    "<!DOCTYPE a [",
    "<entry>",
    "<link href='x'/>",
    "&amp;",
    "&#13;",
    "&#x2028;",
    "&x;",
    "{\\rtf1 ",
    "{",
    "}",
    "\\par ",
    "\\cell ",
    "\\row ",
    "\\intbl ",
    "\\itap2 ",
    "\\nestcell ",
    "\\nestrow ",
    "{\\*\\x ",
    "\\'e9",
    "\\u-4 ",
    "\\uc9 ",
    "\\bin3 ",
    "{\\field{\\*\\fldinst HYPERLINK \"u\"}{\\fldrslt ",
    "{\\footnote ",
    "{\\listtext 1.}",
    "{\\stylesheet{\\s1 heading 1;}}",
    "\\s1 ",
    "{\\fonttbl{\\f1\\fcharset128 ;}}",
    "\\f1 ",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "1e5",
    "null",
    "{\"cells\":[",
    "{\"cell_type\":\"code\",\"source\":\"x\",\"outputs\":[",
    "{\"text\":\"y\"}",
    ";",
    "\t",
    "|",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    " ",
    "a",
    "é",
    "From: a <b@c>\n",
    "Content-Type: multipart/mixed; boundary=x\n",
    "\n--x\n",
    "\n--x--\n",
    "Content-Type: text/html\n",
    "Content-Transfer-Encoding: base64\n",
    "=?utf-8?Q?=C3?=",
    "\u{1b}[1m",
    "\u{1b}]0;",
    "\u{7}",
    "```",
    "# ",
    "> ",
    "- ",
    "\0",
];

fn convert_text(kind: (&str, &str), bytes: &[u8], max_text_bytes: u64) -> Converted {
    let hint = ConversionHint {
        mime: kind.0.to_owned(),
        extension: kind.1.to_owned(),
        ..ConversionHint::default()
    };
    let limits = Limits {
        max_text_bytes,
        max_depth: 8,
        ..Limits::default()
    };
    convert(&mut Cursor::new(bytes), &hint, limits, Selection::All)
}

fn check(kind: (&str, &str), bytes: &[u8], max_text_bytes: u64) {
    let conversion = convert_text(kind, bytes, max_text_bytes);
    let text = &conversion.markdown;
    assert!(
        text.is_empty() || text.ends_with('\n') && !text.ends_with("\n\n"),
        "{text:?}"
    );
    assert!(!text.contains('\r'), "{text:?}");
    assert!(
        text.len() as u64 <= max_text_bytes.saturating_mul(2) + 4096,
        "{}",
        text.len()
    );
    assert!(!conversion.converter.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes_convert(kind in select(TYPE_NAMES), bytes in vec(any::<u8>(), 0..2000), max_text_bytes in 0_u64..5000) {
        check(kind, &bytes, max_text_bytes);
    }

    #[test]
    fn arbitrary_documents_convert(kind in select(TYPE_NAMES), fragments in vec(select(TEXT_FRAGMENTS), 0..200), max_text_bytes in 0_u64..5000) {
        check(kind, fragments.concat().as_bytes(), max_text_bytes);
        check(kind, fragments.concat().as_bytes(), 5_000_000);
    }

    #[test]
    fn arbitrary_rtf_and_mail_convert(fragments in vec(select(TEXT_FRAGMENTS), 0..200), headers in vec(select(TEXT_FRAGMENTS), 0..9)) {
        check(("application/rtf", "rtf"), format!("{{\\rtf1 {}", fragments.concat()).as_bytes(), 5_000_000);
        let mail = format!("Subject: {}\n{}", headers.concat(), fragments.concat());
        check(("message/rfc822", "eml"), mail.as_bytes(), 5_000_000);
    }
}
