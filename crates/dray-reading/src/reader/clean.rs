//! Removes dangerous characters from a converted text, and then cuts the requested range out of it.

use dray_documents::formats::Converted;
use dray_documents::markdown::Part;

use crate::defang::defang;
use crate::range::Range;

/// A conversion, with the requested part defanged.
pub(super) struct CleanConversion {
    pub(super) converted: Converted,
    /// The message if the part has no content.
    pub(super) miss: Option<String>,
    /// Whether the whole text has no visible character. A blank part of a text with visible characters is shown as it
    /// is.
    pub(super) is_blank: bool,
    pub(super) markdown: String,
    pub(super) parts: Vec<Part>,
}

impl CleanConversion {
    pub(super) fn of(mut converted: Converted, range: Option<&Range>) -> Self {
        // Hidden characters are removed before the cut: positions count in the text that is shown, and a caller
        // recognises the end of the text by a range that is shorter than requested.
        let parts = std::mem::take(&mut converted.parts);
        (converted.markdown, converted.parts) = defang_with_parts(&converted.markdown, parts);
        let is_blank = converted.markdown.trim().is_empty();
        let Some(range) = range else {
            return Self {
                miss: None,
                is_blank,
                markdown: std::mem::take(&mut converted.markdown),
                parts: std::mem::take(&mut converted.parts),
                converted,
            };
        };
        let requested = range.cut(&converted.markdown);
        Self {
            miss: range.miss(&converted),
            is_blank,
            markdown: requested.to_owned(),
            parts: shift_parts(&converted, requested),
            converted,
        }
    }
}

/// The parts of a conversion, counted from the start of a chunk of its text.
fn shift_parts(converted: &Converted, chunk: &str) -> Vec<Part> {
    // `chunk` is a slice of the same text, made by `Range::cut`, so the difference of addresses is its offset.
    let start = (chunk.as_ptr() as usize).saturating_sub(converted.markdown.as_ptr() as usize);
    let end = start + chunk.len();
    let overlapping = converted.parts.iter().filter(|part| part.start < end);
    let mut parts: Vec<Part> = Vec::new();
    for part in overlapping {
        if part.start <= start {
            // Only the last of the parts that begin before the chunk reaches into it.
            parts.clear();
        }
        let start = part.start.saturating_sub(start);
        parts.push(Part {
            start,
            ..part.clone()
        });
    }
    parts
}

/// Defangs a text, and moves the starts of its parts to their new offsets.
fn defang_with_parts(text: &str, mut parts: Vec<Part>) -> (String, Vec<Part>) {
    let mut out = String::with_capacity(text.len());
    let ends: Vec<usize> = parts.iter().skip(1).map(|part| part.start).collect();
    let first = parts.first().map_or(text.len(), |part| part.start);
    out.push_str(&defang(text.get(..first).unwrap_or_default()));
    let mut start = first;
    for (part, end) in parts.iter_mut().zip(ends.into_iter().chain([text.len()])) {
        part.start = out.len();
        // Each part is defanged separately, because the removal of characters would invalidate later offsets into the
        // complete text.
        out.push_str(&defang(text.get(start..end).unwrap_or_default()));
        start = end;
    }
    (out, parts)
}
