//! Replaces the notes of the conversion by recognised text, or by the reason why there is none.

use dray_documents::formats::Converted;
use dray_documents::limits::Failure;
use dray_documents::markdown::Picture;

use super::UNAVAILABLE_WARNING;

/// The result for the text of one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PictureText {
    /// The recognised text, as Markdown; empty text is [`Self::Nothing`].
    Recognized(String),
    /// The program found no text.
    Nothing,
    /// The program is not installed.
    Unavailable,
    /// The language data of the program is not installed.
    LanguageMissing,
    /// The program failed, or a limit of its memory ended it.
    Failed,
    /// The time for all pictures of the document was over.
    TimedOut,
    /// The document has more pictures than the limit for recognition.
    TooMany,
}

impl PictureText {
    /// Whether another attempt may have another result, so that this one is not cached.
    pub(super) fn may_change(&self) -> bool {
        !matches!(self, Self::Recognized(_) | Self::Nothing | Self::TooMany)
    }

    /// The text that replaces the note.
    fn block(&self, page: Option<u32>) -> String {
        let what = match page {
            Some(page) => format!("page {page} is a picture"),
            None => "this file is a picture".to_owned(),
        };
        let reason = match self {
            Self::Recognized(text) => {
                return format!(
                    "_({what}; its text was recognised by OCR and may have errors)_\n\n{}",
                    text.trim_end()
                );
            }
            Self::Nothing => "OCR found no text on it",
            Self::Unavailable => "OCR is not available: install tesseract-ocr",
            Self::LanguageMissing => "OCR is not available: install the data of its languages",
            Self::Failed => "OCR failed",
            Self::TimedOut => "the time for OCR ended before it was read, ask for a range of pages",
            Self::TooMany => {
                "the limit of pictures was reached before it, ask for a range of pages"
            }
        };
        format!("_({what}; {reason})_")
    }
}

/// Replaces every note. If no text was recognised, the result equals that of a document without text.
pub(super) fn fill(
    converted: &mut Converted,
    pictures: &[Picture],
    text: impl Fn(usize) -> PictureText,
) {
    let texts: Vec<PictureText> = (0..pictures.len()).map(text).collect();
    let missing = |text: &PictureText| {
        matches!(
            text,
            PictureText::Unavailable | PictureText::LanguageMissing
        )
    };
    if texts.iter().any(missing) {
        converted.warnings.push(UNAVAILABLE_WARNING.to_owned());
    }
    if texts
        .iter()
        .any(|text| matches!(text, PictureText::Recognized(_)))
    {
        converted
            .warnings
            .push("text of pictures was recognised by OCR and may have errors".to_owned());
    }
    let is_readable = |text: &PictureText| {
        matches!(
            text,
            PictureText::Recognized(_) | PictureText::TimedOut | PictureText::TooMany
        )
    };
    // Notes are not text of the document. A result with only notes would look as if the scan had been read.
    if is_only_pictures(converted, pictures) && !texts.iter().any(is_readable) {
        converted.markdown.clear();
        converted.parts.clear();
        if converted.failure.is_none() {
            converted.failure = Some(if texts.contains(&PictureText::Failed) {
                Failure::Internal
            } else {
                Failure::NoText
            });
        }
        return;
    }
    replace(converted, pictures, &texts);
}

fn is_only_pictures(converted: &Converted, pictures: &[Picture]) -> bool {
    let mut rest = 0;
    let is_blank = |from: usize, to: usize| {
        let between = converted.markdown.get(from..to).unwrap_or_default();
        between.trim().is_empty()
    };
    let is_blank_between = pictures.iter().all(|picture| {
        let from = std::mem::replace(&mut rest, picture.end);
        is_blank(from, picture.start)
    });
    is_blank_between && is_blank(rest, converted.markdown.len())
}

fn replace(converted: &mut Converted, pictures: &[Picture], texts: &[PictureText]) {
    let old = std::mem::take(&mut converted.markdown);
    let mut parts = converted.parts.iter_mut().peekable();
    let mut copied = 0;
    for (picture, text) in pictures.iter().zip(texts) {
        while let Some(part) = parts.next_if(|part| part.start <= picture.start) {
            part.start = converted.markdown.len() + part.start.saturating_sub(copied);
        }
        converted
            .markdown
            .push_str(old.get(copied..picture.start).unwrap_or_default());
        converted.markdown.push_str(&text.block(picture.page));
        copied = picture.end;
    }
    for part in parts {
        part.start = converted.markdown.len() + part.start.saturating_sub(copied);
    }
    converted
        .markdown
        .push_str(old.get(copied..).unwrap_or_default());
    // Their line numbers count in the old text.
    converted.search_lines.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_documents::markdown::{Part, Unit};

    fn sample() -> (Converted, Vec<Picture>) {
        let markdown = "before\n\n_(page 2 is a picture)_\n\nafter\n";
        let start = markdown.find("_(").unwrap();
        let picture = Picture {
            page: Some(2),
            start,
            end: markdown.find("\n\nafter").unwrap(),
            images: Vec::new(),
        };
        let part = |number, start| Part {
            unit: Unit::Page,
            number,
            title: None,
            start,
        };
        let after = markdown.find("after").unwrap();
        let converted = Converted {
            converter: "pdf".to_owned(),
            markdown: markdown.to_owned(),
            parts: vec![part(1, 0), part(2, start - 2), part(3, after - 2)],
            parts_seen: 3,
            stopped: None,
            failure: None,
            warnings: Vec::new(),
            member: None,
            pictures: Vec::new(),
            omitted: 0,
            selected_rows: 0,
            search_lines: Vec::new(),
        };
        (converted, vec![picture])
    }

    #[test]
    fn text_replaces_its_note_and_the_starts_of_pages_move_with_it() {
        let (mut converted, pictures) = sample();
        fill(&mut converted, &pictures, |_| {
            PictureText::Recognized("words\n".to_owned())
        });
        assert_eq!(
            converted.markdown,
            "before\n\n_(page 2 is a picture; its text was recognised by OCR and may have errors)_\n\nwords\n\nafter\n"
        );
        let third = &converted.markdown[converted.parts[2].start..];
        assert_eq!(third, "\n\nafter\n");
        assert_eq!(converted.warnings.len(), 1);
        assert_eq!(converted.failure, None);
    }

    #[test]
    fn the_note_names_the_program_that_is_not_installed() {
        let (mut converted, pictures) = sample();
        fill(&mut converted, &pictures, |_| PictureText::Unavailable);
        assert!(
            converted
                .markdown
                .contains("_(page 2 is a picture; OCR is not available: install tesseract-ocr)_")
        );
        assert_eq!(converted.warnings, [UNAVAILABLE_WARNING]);
    }

    #[test]
    fn a_document_of_pictures_without_text_fails_as_one_without_text() {
        let (mut converted, mut pictures) = sample();
        converted.markdown = "_(page 2 is a picture)_\n".to_owned();
        (pictures[0].start, pictures[0].end) = (0, converted.markdown.len() - 1);
        fill(&mut converted, &pictures, |_| PictureText::Nothing);
        assert_eq!(
            (converted.markdown.as_str(), converted.failure),
            ("", Some(Failure::NoText))
        );
    }
}
