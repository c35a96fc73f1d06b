//! Replacement texts of marked content (`ActualText`, ISO 32000-1, 14.9.4), which a person does not see.

use std::ops::Range;

use pdfboss_core::content::{Op, TextItem};
use pdfboss_core::object::decode_text_string;
use pdfboss_core::{Name, Object, Span};

use super::{Frame, Walker};
use crate::markdown::visible_characters;

/// Most characters that stand for one glyph, as those of a ligature do.
const MAX_CHARACTERS_PER_GLYPH: usize = 4;

/// Operators of a stream while they are copied with marks.
pub(super) struct MarkedOperators<'c> {
    content: &'c [u8],
    marked: Vec<u8>,
    copied: usize,
}

impl<'c> MarkedOperators<'c> {
    pub(super) fn new(content: &'c [u8]) -> Self {
        Self {
            content,
            marked: Vec::with_capacity(content.len() + content.len() / 2),
            copied: 0,
        }
    }

    /// Copies the operators up to an offset, and then writes a mark.
    pub(super) fn insert(&mut self, offset: u64, mark: &str) {
        let end = usize::try_from(offset).unwrap_or(usize::MAX);
        let copied = self.content.get(self.copied..end).unwrap_or_default();
        self.marked.extend_from_slice(copied);
        self.marked.extend_from_slice(mark.as_bytes());
        self.copied = self.copied.max(end);
    }

    /// All operators with their marks.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        self.insert(self.content.len() as u64, "");
        std::mem::take(&mut self.marked)
    }

    /// Writes another operator in place of a longer one.
    fn overwrite(&mut self, place: Range<usize>, operator: &str) -> bool {
        let bytes = self.marked.get_mut(place).unwrap_or_default();
        let Some((start, rest)) = bytes.split_at_mut_checked(operator.len()) else {
            return false;
        };
        start.copy_from_slice(operator.as_bytes());
        rest.fill(b' ');
        true
    }
}

/// A marked sequence that is open and has a replacement text.
pub(super) struct Replacement {
    text: String,
    /// Number of open sequences, with this one.
    depth: usize,
    /// Place of the operator that begins it, among the marked operators.
    operator: Range<usize>,
    /// That operator without the text.
    plain_operators: [String; 2],
    /// Number of glyphs that the stream had shown before.
    glyphs_before: usize,
}

/// Number of bytes of the strings that an operator shows; `None` for all other operators.
pub(super) fn shown_bytes(op: &Op) -> Option<usize> {
    match op {
        Op::ShowText(text)
        | Op::NextLineShowText(text)
        | Op::NextLineShowTextSpaced(_, _, text) => Some(text.len()),
        Op::ShowTextAdjusted(items) => {
            let lengths = items.iter().map(|item| match item {
                TextItem::Str(text) => text.len(),
                TextItem::Offset(_) => 0,
            });
            Some(lengths.sum())
        }
        _ => None,
    }
}

impl Walker<'_> {
    /// Notes the replacement text of a sequence that has just begun.
    pub(super) fn begin_replacement(
        &self,
        (tag, properties): (&Name, &Object),
        place: Span,
        frame: &mut Frame<'_>,
        operators: &mut MarkedOperators<'_>,
    ) {
        // Text of a layer that is switched off is not read.
        if frame.is_off() {
            return;
        }
        let Some((text, content_id)) = self.replacement_text(properties, frame) else {
            return;
        };
        operators.insert(place.start, "");
        let start = operators.marked.len();
        let length = usize::try_from(place.end.saturating_sub(place.start)).unwrap_or(0);
        let is_plain = tag.0 != "OC" && tag.0.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let tag = if is_plain { tag.0.as_str() } else { "Span" };
        // The number of the content leads to its place in the order of a tagged page.
        let with_id = content_id.map_or_else(
            || format!("/{tag} BMC"),
            |content_id| format!("/{tag}<</MCID {content_id}>>BDC"),
        );
        frame.replacements.push(Replacement {
            text,
            depth: frame.sequences.len(),
            operator: start..start + length,
            plain_operators: [with_id, format!("/{tag} BMC")],
            glyphs_before: frame.glyphs,
        });
    }

    fn replacement_text(
        &self,
        properties: &Object,
        frame: &Frame<'_>,
    ) -> Option<(String, Option<i64>)> {
        let named;
        let dict = match properties {
            Object::Dict(dict) => dict,
            Object::Name(name) => {
                named = self.find(frame, "Properties", name)?;
                named.as_dict()?
            }
            _ => return None,
        };
        let text = self.source.fetch(dict.get("ActualText")?)?;
        let text = decode_text_string(text.as_str_bytes()?);
        Some((text, dict.get_int("MCID")))
    }

    /// Settles the replacement of a sequence that has just ended, if it has one.
    pub(super) fn end_replacement(
        &mut self,
        place: Span,
        frame: &mut Frame<'_>,
        operators: &mut MarkedOperators<'_>,
    ) {
        let depth = frame.sequences.len();
        if let Some(replacement) = frame.replacements.pop_if(|last| last.depth > depth) {
            operators.insert(place.start, "");
            self.settle(&replacement, frame.glyphs, operators);
        }
    }

    /// Removes a replacement that is too long for its glyphs, so that the engine reads the glyphs.
    pub(super) fn settle(
        &mut self,
        replacement: &Replacement,
        glyphs: usize,
        operators: &mut MarkedOperators<'_>,
    ) {
        let glyphs = glyphs.saturating_sub(replacement.glyphs_before);
        let limit = glyphs.saturating_mul(MAX_CHARACTERS_PER_GLYPH);
        // Without glyphs the engine does not read the text.
        if glyphs == 0 || replacement.text.chars().count() <= limit {
            return;
        }
        let mut plain_operators = replacement.plain_operators.iter();
        let is_counted = self.shows_hidden
            || plain_operators
                .any(|operator| operators.overwrite(replacement.operator.clone(), operator));
        if is_counted {
            self.painted.replaced_characters += visible_characters(&replacement.text);
        }
    }
}
