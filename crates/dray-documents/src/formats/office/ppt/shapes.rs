//! Shapes of a slide and their texts (MS-PPT 2.9, MS-ODRAW 2.2).

use super::records::{Record, Records, kind};
use crate::compound::{offset_at, u8_at, u16_at, u32_at};
use crate::formats::office::blocks::Block;
use crate::formats::office::deck::Shape;
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::{Inline, ListMarker, Style};

/// Largest depth of nested groups.
const MAX_DEPTH: u32 = 32;
/// Placeholders for the number, date or running text of each slide (MS-PPT 2.13.21).
const RUNNING_PLACEHOLDERS: [u8; 4] = [7, 8, 9, 10];

/// The kind of a text (MS-PPT 2.13.33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    Title,
    Body,
    Notes,
    Other,
}

impl TextKind {
    fn of(number: u32) -> Self {
        match number {
            0 | 6 => Self::Title,
            1 | 7 | 8 => Self::Body,
            2 => Self::Notes,
            _ => Self::Other,
        }
    }
}

/// A text whose paragraphs end with CR.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) kind: TextKind,
    pub(super) text: String,
}

/// The texts of a container, in order. A header gives the kind of the text that follows.
pub(super) fn container_texts(records: Records<'_>) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut kind = TextKind::Other;
    for record in records {
        if record.kind == kind::TEXT_HEADER {
            kind = TextKind::of(u32_at(record.data, 0).unwrap_or(4));
        } else if let Some(text) = text_of(record) {
            texts.push(Text { kind, text });
        }
    }
    texts
}

/// The characters of a text atom; `None` for another atom.
fn text_of(record: Record<'_>) -> Option<String> {
    match record.kind {
        kind::TEXT_CHARS => {
            let text = encoding_rs::UTF_16LE
                .decode_without_bom_handling(record.data)
                .0;
            Some(text.into_owned())
        }
        // The record has only the lower bytes of UTF-16 units; their upper bytes are zero.
        kind::TEXT_BYTES => Some(record.data.iter().copied().map(char::from).collect()),
        _ => None,
    }
}

/// The paragraphs of a text as blocks.
pub(super) fn text_blocks(text: &Text) -> Vec<Block> {
    text.text
        .split('\r')
        .filter(|paragraph| !paragraph.trim().is_empty())
        .map(|paragraph| {
            let mut line = Inline::new();
            // A vertical tab is a line break inside a paragraph.
            for (index, part) in paragraph.split('\u{b}').enumerate() {
                if index > 0 {
                    line.line_break();
                }
                let visible_text: String = part
                    .chars()
                    .map(|character| if character == '\t' { ' ' } else { character })
                    .filter(|character| !character.is_control())
                    .collect();
                line.text(&visible_text, Style::default());
            }
            if text.kind == TextKind::Body {
                Block::Item(0, ListMarker::Bullet, line)
            } else {
                Block::Paragraph(line)
            }
        })
        .collect()
}

/// Collects the shapes of a drawing.
pub(super) struct ShapeReader<'a> {
    /// Texts of the slide that are in the list of slides.
    pub(super) outline: &'a [Text],
    pub(super) budget: &'a Budget,
    pub(super) shapes: Vec<Shape>,
    /// The texts of notes.
    pub(super) notes: Vec<Block>,
    used: Vec<bool>,
    bytes: u64,
}

impl<'a> ShapeReader<'a> {
    pub(super) fn new(outline: &'a [Text], budget: &'a Budget) -> Self {
        Self {
            outline,
            budget,
            shapes: Vec::new(),
            notes: Vec::new(),
            used: vec![false; outline.len()],
            bytes: 0,
        }
    }

    /// Adds the shapes of a slide or of its notes.
    pub(super) fn add(&mut self, slide: &Records<'_>) -> Result<(), Failure> {
        let drawing = slide.of(kind::DRAWING).map(|drawing| Records(drawing.data));
        if let Some(container) = drawing.and_then(|drawing| drawing.of(kind::DG_CONTAINER)) {
            self.group(Records(container.data), None, 0)?;
        }
        Ok(())
    }

    /// Adds the texts of the list that no shape shows.
    pub(super) fn add_rest(&mut self) {
        let rest: Vec<&Text> = self
            .outline
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used)
            .map(|(text, _)| text)
            .collect();
        for text in rest {
            self.shapes.push(text_shape(text, None));
        }
    }

    /// Walks a group; its shapes have the position of the group, in their order.
    fn group(
        &mut self,
        records: Records<'_>,
        position: Option<(i64, i64)>,
        depth: u32,
    ) -> Result<(), Failure> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        let mut position = position;
        for record in records {
            self.budget.clock()?;
            match record.kind {
                kind::GROUP => self.group(Records(record.data), position, depth + 1)?,
                kind::SHAPE => {
                    let own = self.shape(&Records(record.data), position)?;
                    // The first shape of a group is the group itself.
                    if depth > 1 {
                        position = position.or(own);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads one shape and its position.
    fn shape(
        &mut self,
        records: &Records<'_>,
        position: Option<(i64, i64)>,
    ) -> Result<Option<(i64, i64)>, Failure> {
        let own = records.of(kind::CLIENT_ANCHOR).and_then(shape_anchor);
        let placeholder = records
            .of(kind::CLIENT_DATA)
            .and_then(|data| Records(data.data).of(kind::PLACEHOLDER))
            .and_then(|placeholder| u8_at(placeholder.data, 4));
        // Running placeholders are equal on every slide and say nothing about this one.
        if placeholder.is_some_and(|number| RUNNING_PLACEHOLDERS.contains(&number)) {
            return Ok(own);
        }
        let Some(client) = records.of(kind::CLIENT_TEXT) else {
            return Ok(own);
        };
        let client = Records(client.data);
        let mut found = container_texts(client.clone());
        if let Some(index) = client
            .of(kind::OUTLINE_TEXT)
            .and_then(|reference| offset_at(reference.data, 0))
            && let Some(text) = self.outline.get(index)
        {
            found.push(text.clone());
            if let Some(used) = self.used.get_mut(index) {
                *used = true;
            }
        }
        for text in found {
            // A record can be referred to any number of times, so text is counted before it is copied.
            self.bytes += text.text.len() as u64;
            if self.bytes > self.budget.text_left() {
                return Err(Limit::Size.into());
            }
            if text.kind == TextKind::Notes {
                self.notes.extend(text_blocks(&text));
            } else {
                self.shapes.push(text_shape(&text, position.or(own)));
            }
        }
        Ok(own)
    }
}

fn text_shape(text: &Text, position: Option<(i64, i64)>) -> Shape {
    Shape {
        title: text.kind == TextKind::Title,
        position,
        blocks: text_blocks(text),
    }
}

/// Top and left of a shape (MS-PPT 2.7.1).
fn shape_anchor(record: Record<'_>) -> Option<(i64, i64)> {
    let data = record.data;
    if data.len() >= 16 {
        let part = |offset| Some(i64::from(u32_at(data, offset)?.cast_signed()));
        return Some((part(0)?, part(4)?));
    }
    let part = |offset| Some(i64::from(u16_at(data, offset)?.cast_signed()));
    Some((part(0)?, part(2)?))
}
