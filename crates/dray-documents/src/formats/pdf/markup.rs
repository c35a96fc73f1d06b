//! Text that people added to a page: typed on it (`FreeText`), or attached to a place as a comment (ISO 32000-1,
//! 12.5.6).

use pdfboss_core::object::decode_text_string;
use pdfboss_core::{Dict, Rect};
use pdfboss_text::TextSpan;

use super::fields::clean_lines;
use super::metered::MeteredDocument;
use super::spans;
use crate::markdown::visible_characters;

/// Smallest size of typed letters, in points. Sizes are estimated from the height of the area: the file stores a size
/// only for its own appearance of the text.
const MIN_SIZE: f32 = 6.0;
/// Largest size of typed letters, in points.
const MAX_SIZE: f32 = 12.0;
/// Step between two typed lines, in sizes of letters.
const LINE_STEP: f32 = 1.2;

/// A text that a person typed on the page.
#[derive(Clone, Debug)]
struct TypedText {
    area: Rect,
    text: String,
}

/// The comment of a person about a place of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageComment {
    /// Name of the person; empty if the file has none.
    pub(super) author: String,
    /// The comment, its lines separated by line feeds.
    pub(super) text: String,
}

/// The texts that people added to a page.
#[derive(Clone, Debug, Default)]
pub(super) struct PageMarkup {
    typed: Vec<TypedText>,
    pub(super) comments: Vec<PageComment>,
    /// Characters of the texts that a person does not see.
    hidden_characters: u64,
}

impl PageMarkup {
    /// Adds the text of an annotation that is neither a link nor a form field.
    pub(super) fn add(
        &mut self,
        subtype: &str,
        annotation: &Dict,
        (area, is_hidden): (Rect, bool),
        (source, show_hidden): (&MeteredDocument<'_>, bool),
    ) {
        let text_of = |name: &str| {
            let value = source.fetch(annotation.get(name)?)?;
            Some(clean_lines(&decode_text_string(value.as_str_bytes()?)))
        };
        // `Popup` repeats the text of its comment, and a state, such as "accepted", is about another comment.
        if subtype == "Popup" || annotation.get("StateModel").is_some() {
            return;
        }
        let Some(text) = text_of("Contents").filter(|text| !text.is_empty()) else {
            return;
        };
        if is_hidden {
            self.hidden_characters += visible_characters(&text);
            if !show_hidden {
                return;
            }
        }
        if subtype == "FreeText" {
            self.typed.push(TypedText { area, text });
        } else {
            let author = text_of("T").unwrap_or_default().replace('\n', " ");
            self.comments.push(PageComment { author, text });
        }
    }

    /// Adds the typed texts to the text of the page, each at its position. Returns the number of characters that a
    /// person does not see.
    pub(super) fn add_typed_texts(&self, page_spans: &mut Vec<TextSpan>) -> u64 {
        for typed in &self.typed {
            let lines: Vec<&str> = typed.text.split('\n').collect();
            // The typed text follows the text above it, where a person reads it.
            let index = page_spans
                .iter()
                .rposition(|span| span.y > typed.area.y1)
                .map_or(0, |index| index + 1);
            // The size is at most that of the text around it, because larger letters would count as a heading.
            let max_size = page_spans
                .iter()
                .skip(index.saturating_sub(1))
                .take(2)
                .fold(MAX_SIZE, |size, span| size.min(span.size))
                .max(MIN_SIZE);
            #[expect(clippy::cast_precision_loss, reason = "the size is clamped")]
            let line_count = lines.len() as f32;
            let size = (typed.area.height() / line_count / LINE_STEP).clamp(MIN_SIZE, max_size);
            let line_spans = lines.iter().scan(typed.area.y1 - size, |y, line| {
                let span = spans::plain(line, typed.area.x0, *y, size);
                *y -= size * LINE_STEP;
                Some(span)
            });
            page_spans.splice(index..index, line_spans);
        }
        self.hidden_characters
    }
}
