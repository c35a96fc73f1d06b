//! Comments of a sheet of an XLS stream. One record has the cell and the author, and a shape has the text (MS-XLS
//! 2.4.179, 2.4.329).

use std::collections::HashMap;

use super::comments::CellComment;
use super::used::cell_name;
use crate::compound::{u8_at, u16_at};

const NOTE_RECORD: u16 = 0x1C;
/// The rest of the record before it.
const CONTINUE_RECORD: u16 = 0x3C;
/// A shape.
const OBJECT_RECORD: u16 = 0x5D;
/// The text of the last shape.
const TEXT_RECORD: u16 = 0x1B6;
/// The type of the shape that shows a comment.
const NOTE_OBJECT: u16 = 0x19;

/// The comments of a sheet while its records are read.
#[derive(Debug, Default)]
pub(super) struct SheetNotes {
    /// Comments without their text, each with the id of its shape.
    notes: Vec<(u16, CellComment)>,
    /// Texts by the id of their shape.
    texts: HashMap<u16, String>,
    /// The id of the last shape.
    object: u16,
    is_note: bool,
    /// Characters of the last text that are still to come.
    missing: usize,
    /// Whether a shape that is not a comment has a text.
    pub(super) has_other_text: bool,
}

impl SheetNotes {
    /// Whether records of a type belong to comments.
    pub(super) fn wants(kind: u16) -> bool {
        matches!(
            kind,
            NOTE_RECORD | CONTINUE_RECORD | OBJECT_RECORD | TEXT_RECORD
        )
    }

    pub(super) fn record(&mut self, kind: u16, data: &[u8]) {
        match kind {
            OBJECT_RECORD => {
                self.is_note = u16_at(data, 4) == Some(NOTE_OBJECT);
                self.object = u16_at(data, 6).unwrap_or(0);
            }
            TEXT_RECORD => {
                self.missing = usize::from(u16_at(data, 10).unwrap_or(0));
                self.has_other_text |= self.missing > 0 && !self.is_note;
            }
            CONTINUE_RECORD if self.missing > 0 => {
                let part = characters(data, self.missing);
                self.missing -= part.len();
                if self.is_note {
                    let text = self.texts.entry(self.object).or_default();
                    text.push_str(&String::from_utf16_lossy(&part));
                }
            }
            NOTE_RECORD => self.notes.extend(note(data)),
            _ => {}
        }
    }

    /// The comments with their texts.
    pub(super) fn comments(&self) -> impl Iterator<Item = CellComment> {
        self.notes.iter().map(|(object, note)| CellComment {
            text: self.texts.get(object).cloned().unwrap_or_default(),
            ..note.clone()
        })
    }
}

/// The id of its shape, and a comment without its text.
fn note(data: &[u8]) -> Option<(u16, CellComment)> {
    let cell = (u64::from(u16_at(data, 0)?), u32::from(u16_at(data, 2)?));
    let length = usize::from(u16_at(data, 8)?);
    let author = characters(data.get(10..)?, length);
    let comment = CellComment {
        cell: cell_name(cell),
        author: String::from_utf16_lossy(&author),
        text: String::new(),
    };
    Some((u16_at(data, 6)?, comment))
}

/// The first characters of a text, which begins with a byte of flags: one or two bytes for each.
fn characters(data: &[u8], length: usize) -> Vec<u16> {
    let is_wide = u8_at(data, 0).is_some_and(|flags| flags & 1 != 0);
    let text = data.get(1..).unwrap_or_default();
    if is_wide {
        let (units, _) = text.as_chunks::<2>();
        let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
        units.take(length).collect()
    } else {
        let units = text.iter().map(|byte| u16::from(*byte));
        units.take(length).collect()
    }
}
