//! Pictures: files whose only text has to be recognised, and the conversion of recognised text to Markdown.

use std::io::Read;
use std::rc::Rc;

use super::{ConversionHint, Converter};
use crate::container::Input;
use crate::limits::{Budget, Damage, Failure, Limit, Limits};
use crate::markdown::{Inline, Markdown, Selection};

/// Media types that the recognising program reads.
const OCR_MEDIA_TYPES: [&str; 6] = [
    "image/png",
    "image/jpeg",
    "image/tiff",
    "image/gif",
    "image/webp",
    "image/bmp",
];

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[("image/png", "png")];

/// The converter of this family for a media type, when the text of pictures is wanted.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let is_requested = hint.ocr.is_some() && OCR_MEDIA_TYPES.contains(&hint.mime.as_str());
    is_requested.then_some(Converter {
        name: "picture",
        convert,
    })
}

/// Returns the file unchanged: neither this project nor its libraries decode its pixels.
fn convert(input: &mut dyn Input, _: &ConversionHint, out: &mut Markdown) -> Result<(), Failure> {
    let max = out.budget().limits().max_member_bytes;
    let mut image = Vec::new();
    input
        // One byte more than allowed shows that the file continues.
        .take(max.saturating_add(1))
        .read_to_end(&mut image)
        .map_err(|_| Failure::Corrupt(Damage::Truncated))?;
    if image.len() as u64 > max {
        return Err(Failure::Stopped(Limit::Size));
    }
    Ok(out.picture(None, vec![image])?)
}

/// Whether bytes begin like a picture that the OCR program can read. It would interpret other input as a list of names
/// of files to open.
pub fn is_picture(bytes: &[u8]) -> bool {
    let signatures: [&[u8]; 9] = [
        b"\x89PNG\r\n\x1A\n",
        b"\xFF\xD8\xFF",
        b"II\x2A\0",
        b"MM\0\x2A",
        b"GIF87a",
        b"GIF89a",
        b"BM",
        b"\0\0\0\x0CjP  \r\n\x87\n",
        b"\xFF\x4F\xFF\x51",
    ];
    signatures
        .iter()
        .any(|signature| bytes.starts_with(signature))
        || (bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"))
}

/// Converts recognised text to Markdown. Blank lines separate paragraphs; the lines of a paragraph, and words that were
/// divided at the end of a line, are joined. Markup characters are escaped. Text beyond the limits is left out.
pub fn recognized_markdown(text: &str, limits: &Limits) -> String {
    let budget = Rc::new(Budget::new(limits.clone()));
    let mut out = Markdown::new(budget, Selection::All);
    // Tesseract ends every page with a form feed.
    let text = text.replace(['\u{c}', '\r'], "\n");
    let mut paragraph = String::new();
    for line in text.lines().map(str::trim).chain([""]) {
        if line.is_empty() {
            if out.paragraph(&Inline::plain(&paragraph)).is_err() {
                break;
            }
            paragraph.clear();
        } else {
            join_line(&mut paragraph, line);
        }
    }
    out.finish().markdown
}

/// Appends a line to a paragraph.
fn join_line(paragraph: &mut String, line: &str) {
    let divided = paragraph.strip_suffix('-').is_some_and(|before| {
        before.ends_with(char::is_lowercase) && line.starts_with(char::is_lowercase)
    });
    if divided {
        paragraph.pop();
    } else if !paragraph.is_empty() {
        paragraph.push(' ');
    }
    paragraph.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognised_lines_become_paragraphs_and_markup_is_escaped() {
        let text = "The quick brown fox jum-\nps over *all* dogs.\n\n# No heading\n\u{c}\n1-\nA";
        assert_eq!(
            recognized_markdown(text, &Limits::default()),
            "The quick brown fox jumps over \\*all\\* dogs.\n\n\\# No heading\n\n1- A\n"
        );
        let few = Limits {
            max_text_bytes: 10,
            ..Limits::default()
        };
        assert!(recognized_markdown(&"words ".repeat(100), &few).len() <= 11);
    }

    #[test]
    fn only_pictures_are_handed_to_the_program() {
        for list in [
            &b"/etc/hostname\n"[..],
            b"",
            b"http://127.0.0.1/x.png",
            b"RIFF0000WAVE",
        ] {
            assert!(!is_picture(list));
        }
        assert!(is_picture(b"\xFF\xD8\xFF\xE0") && is_picture(b"RIFF0000WEBP"));
    }
}
