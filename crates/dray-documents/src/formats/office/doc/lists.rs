//! Lists and their numbers (MS-DOC 2.4.6.3).

use std::collections::HashMap;

use super::file::{File, Table};
use crate::compound::{u8_at, u16_at, u32_at};
use crate::formats::office::docx::numbering::{Kind, Level, Numbering};
use crate::formats::office::label::NumberSpelling;

/// Bytes of one entry of the table of lists (`LSTF`), and of one reference to a list (`LFO`).
const LIST_BYTES: usize = 28;
const REFERENCE_BYTES: usize = 16;
/// Bytes of a level before its properties (`LVLF`).
const LEVEL_BYTES: usize = 28;
/// Levels of a list, unless it is simple and has one.
const LIST_LEVELS: usize = 9;
/// Most code units of a level's pattern that are kept.
const MAX_PATTERN_UNITS: usize = 256;

/// First numbers and levels that a reference replaces, by level.
type Overrides = (HashMap<usize, u64>, HashMap<usize, Level>);

/// Reads the lists of a document, up to a damaged one. The id of a list is the number of its reference, from 1.
pub(super) fn read_lists(file: &File) -> Numbering {
    let mut numbering = Numbering::default();
    // A list without a definition is still shown as a list, so what follows damage is only less exact.
    let _ = add_abstracts(file, &mut numbering);
    let _ = add_references(file, &mut numbering);
    numbering
}

fn add_abstracts(file: &File, numbering: &mut Numbering) -> Option<()> {
    let table = file.table_and_rest(Table::Lists);
    let count = usize::from(u16_at(table, 0)?);
    // The levels of all lists follow the table.
    let mut level_offset = 2 + count * LIST_BYTES;
    for index in 0..count {
        let entry = 2 + index * LIST_BYTES;
        let id = u32_at(table, entry)?;
        let is_simple = u8_at(table, entry + 26)? & 1 != 0;
        let level_count = if is_simple { 1 } else { LIST_LEVELS };
        let mut levels = Vec::with_capacity(level_count);
        for _ in 0..level_count {
            let (level, end) = read_level(table, level_offset)?;
            levels.push(level);
            level_offset = end;
        }
        numbering.add_abstract(id.to_string(), levels);
    }
    Some(())
}

/// Reads a level, and returns the offset after it (`LVL`).
fn read_level(data: &[u8], offset: usize) -> Option<(Level, usize)> {
    let start = u32_at(data, offset)?;
    let format = u8_at(data, offset + 4)?;
    let flags = u8_at(data, offset + 5)?;
    let properties =
        usize::from(u8_at(data, offset + 24)?) + usize::from(u8_at(data, offset + 25)?);
    let restart_limit = usize::from(u8_at(data, offset + 26)?);
    let text_offset = offset + LEVEL_BYTES + properties;
    let end = text_offset + 2 + usize::from(u16_at(data, text_offset)?) * 2;
    let (units, _) = data.get(text_offset + 2..end)?.as_chunks::<2>();
    let mut pattern = String::new();
    for unit in units.iter().take(MAX_PATTERN_UNITS) {
        match u32::from(u16::from_le_bytes(*unit)) {
            // The number of a level, counted from zero.
            level @ 0..=8 => pattern.extend(['%', char::from_digit(level + 1, 10).unwrap_or('1')]),
            unit => pattern.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)),
        }
    }
    let level = Level {
        kind: match format {
            23 => Kind::Bullet,
            0xFF => Kind::None,
            _ => Kind::Number,
        },
        start: u64::from(start),
        pattern,
        spelling: match format {
            1 => NumberSpelling::Roman { upper: true },
            2 => NumberSpelling::Roman { upper: false },
            3 => NumberSpelling::Letters { upper: true },
            4 => NumberSpelling::Letters { upper: false },
            _ => NumberSpelling::Digits,
        },
        legal: flags & 4 != 0,
        restart: (flags & 8 != 0).then_some(restart_limit),
        style: None,
    };
    Some((level, end))
}

fn add_references(file: &File, numbering: &mut Numbering) -> Option<()> {
    let table = file.table(Table::ListReferences);
    let count = usize::try_from(u32_at(table, 0)?).ok()?;
    let count = count.min(table.len() / REFERENCE_BYTES);
    // The overrides of all references follow the table.
    let mut offset = 4 + count * REFERENCE_BYTES;
    for index in 0..count {
        let entry = 4 + index * REFERENCE_BYTES;
        let id = u32_at(table, entry)?;
        let overrides = u8_at(table, entry + 12)?;
        let (starts, levels) = read_overrides(table, &mut offset, overrides)?;
        let reference = (index + 1).to_string();
        numbering.add_definition(reference, id.to_string(), starts, levels);
    }
    Some(())
}

/// Reads the overrides of one reference (`LFOData`).
fn read_overrides(table: &[u8], offset: &mut usize, count: u8) -> Option<Overrides> {
    let (mut starts, mut levels) = Overrides::default();
    *offset += 4;
    for _ in 0..count {
        let start = u32_at(table, *offset)?;
        let flags = u8_at(table, *offset + 4)?;
        let level_index = usize::from(flags & 0x0F);
        let (has_start, has_level) = (flags & 0x10 != 0, flags & 0x20 != 0);
        *offset += 8;
        let mut start = u64::from(start);
        if has_level {
            let (level, end) = read_level(table, *offset)?;
            *offset = end;
            start = level.start;
            levels.insert(level_index, level);
        }
        if has_start {
            starts.insert(level_index, start);
        }
    }
    Some((starts, levels))
}
