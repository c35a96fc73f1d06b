//! Scans the records of an XLS stream before a library reads it: the size of its sheets, encryption, and the formats
//! of its cells.

use std::collections::{HashMap, HashSet};

use super::biff_notes::SheetNotes;
use super::biff_style::StyleRecords;
use super::distant_cells::{MAX_RECTANGLE, MovedCells};
use super::style::Style;
use crate::compound::u16_at;
use crate::limits::{Damage, Failure, Limit};

/// Most cells of all rectangles together that may be set aside, at about 32 bytes each.
const MAX_CELLS: u64 = 4 << 20;
/// Most cells that a sheet may claim to have.
const MAX_CLAIMED_CELLS: u64 = 1 << 20;
/// Most records with excessive claims that are disabled.
const MAX_CLAIMS: usize = 64;
/// A record type without a meaning.
const UNKNOWN_RECORD: [u8; 2] = [0xEF, 0x0F];
/// Properties of a row (MS-XLS 2.4.221).
const ROW_RECORD: u16 = 0x208;
/// Several numbers beside each other in one row.
const MULRK_RECORD: u16 = 0xBD;
/// Properties of a range of columns (MS-XLS 2.4.53).
const COLINFO_RECORD: u16 = 0x7D;
/// Most ranges of hidden columns that are stored.
const MAX_HIDDEN_RANGES: usize = 1000;
/// Most cells whose formats are stored.
const MAX_STYLED_CELLS: usize = 1 << 20;

/// Height of a row in twentieths of a point below which no text is seen in it.
pub(super) const MIN_ROW_TWIPS: u16 = 10;
/// Width of a column, in 256ths of a digit, below which no text is seen in it.
pub(super) const MIN_COLUMN_WIDTH: u16 = 26;

/// Sizes, positions and formats from the records.
#[derive(Debug, Default)]
pub(super) struct RecordFormats {
    styles: Vec<Style>,
    /// Style numbers by index of the sheet, row and column.
    cells: HashMap<(usize, u32, u32), u16>,
    pub(super) moved: MovedCells,
    hidden_rows: HashSet<(usize, u32)>,
    /// Sheet, first and last column.
    hidden_columns: Vec<(usize, u32, u32)>,
    /// Comments by index of the sheet.
    pub(super) notes: HashMap<usize, SheetNotes>,
    /// Records that claim a large sheet, for which the library would allocate memory.
    claims: Vec<Vec<u8>>,
    /// Bytes of all sheets that were scanned.
    scanned: usize,
}

impl RecordFormats {
    /// The style of a cell.
    pub(super) fn style(&self, sheet: usize, row: u32, column: u32) -> Style {
        let number = self.cells.get(&(sheet, row, column));
        let style = number.and_then(|number| self.styles.get(usize::from(*number)));
        style.cloned().unwrap_or_default()
    }

    /// Whether a row is hidden.
    pub(super) fn is_hidden_row(&self, sheet: usize, row: u32) -> bool {
        self.hidden_rows.contains(&(sheet, row))
    }

    /// The hidden columns of a sheet, inclusive.
    pub(super) fn hidden_columns(&self, sheet: usize) -> impl Iterator<Item = (u32, u32)> {
        self.hidden_columns
            .iter()
            .filter(move |(owner, ..)| *owner == sheet)
            .map(|(_, first, last)| (*first, *last))
    }

    /// Notes a record about a row or about columns (MS-XLS 2.4.221, 2.4.53).
    fn note_hidden(&mut self, sheet: usize, kind: u16, data: &[u8]) {
        match (kind, u16_at(data, 0), u16_at(data, 2)) {
            (ROW_RECORD, Some(row), _) if is_hidden_row(data) => {
                self.hidden_rows.insert((sheet, u32::from(row)));
            }
            (COLINFO_RECORD, Some(first), Some(last))
                if are_hidden_columns(data) && self.hidden_columns.len() < MAX_HIDDEN_RANGES =>
            {
                self.hidden_columns
                    .push((sheet, u32::from(first), u32::from(last)));
            }
            _ => {}
        }
    }

    /// Changes the type of records with excessive claims to one that the library ignores, in the bytes of the complete
    /// file.
    ///
    /// # Errors
    ///
    /// The memory limit if a record is not found as one sequence of bytes.
    pub(super) fn disable_claims(&self, file: &mut [u8]) -> Result<(), Limit> {
        if self.claims.len() > MAX_CLAIMS {
            return Err(Limit::Memory);
        }
        for claim in &self.claims {
            // The stream is spread over sectors of the file, so a record is searched by its bytes. One that is divided
            // between two sectors is not found, and then the file is refused.
            let start = file.windows(claim.len()).position(|window| window == claim);
            let kind = start.and_then(|start| file.get_mut(start..start + 2));
            kind.ok_or(Limit::Memory)?.copy_from_slice(&UNKNOWN_RECORD);
        }
        Ok(())
    }
}

/// The type and the data of the record at an offset, and the offset after it.
pub(super) fn record_at(stream: &[u8], offset: usize) -> Option<(u16, &[u8], usize)> {
    let head = stream.get(offset..offset.checked_add(4)?)?;
    let (kind, length) = (u16_at(head, 0)?, usize::from(u16_at(head, 2)?));
    let data = stream.get(offset + 4..offset + 4 + length)?;
    Some((kind, data, offset + 4 + length))
}

/// Row, first and last column of a record of cells; nothing for other records.
pub(super) fn cell_columns(kind: u16, data: &[u8]) -> Option<(u16, u16, u16)> {
    // Cells with a value or a formula; the library makes its rectangle from these.
    if !matches!(
        kind,
        0x06 | 0x203..=0x205 | 0x27E | 0xFD | MULRK_RECORD | 0xD6
    ) {
        return None;
    }
    let (row, first, _style) = (u16_at(data, 0)?, u16_at(data, 2)?, u16_at(data, 4)?);
    let end = data.len().checked_sub(2).filter(|_| kind == MULRK_RECORD);
    let last = end.and_then(|offset| u16_at(data, offset)).unwrap_or(first);
    Some((row, first, last.max(first)))
}

/// Checks a stream, and moves cells of its sheets together if they are too far apart.
///
/// # Errors
///
/// [`Failure::Encrypted`]; the memory limit if the rectangles around the cells of all sheets would be too large; damage
/// if a sheet is outside of the stream.
pub(super) fn scan_stream(stream: &mut [u8]) -> Result<RecordFormats, Failure> {
    let mut offset = 0;
    let mut records = StyleRecords::default();
    let mut sheets: Vec<usize> = Vec::new();
    while let Some((kind, data, next)) = record_at(stream, offset) {
        offset = next;
        match kind {
            0x2F if u16_at(data, 0) != Some(0) => return Err(Failure::Encrypted),
            0x85 => {
                let sheet_offset = data
                    .get(..4)
                    .and_then(|bytes| bytes.try_into().ok())
                    .map(u32::from_le_bytes)
                    .and_then(|sheet_offset| usize::try_from(sheet_offset).ok())
                    .filter(|sheet_offset| *sheet_offset < stream.len());
                sheets.push(sheet_offset.ok_or(Failure::Corrupt(Damage::Truncated))?);
            }
            0x0A => break,
            _ => records.note(kind, data),
        }
    }
    let mut formats = RecordFormats {
        styles: records.into_styles(),
        ..RecordFormats::default()
    };
    let mut total_cells = 0_u64;
    let distinct_offsets: HashSet<usize> = sheets.iter().copied().collect();
    if distinct_offsets.len() != sheets.len() {
        // Two sheets at one offset: a file could name one sheet any number of times, and each would be scanned.
        return Err(Failure::Corrupt(Damage::Structure));
    }
    for (index, sheet_offset) in sheets.into_iter().enumerate() {
        let mut size = scan_sheet(stream, sheet_offset, index, &mut formats);
        if size > MAX_RECTANGLE {
            size = formats.moved.move_together(stream, index, sheet_offset);
        }
        total_cells += size;
        if total_cells > MAX_CELLS {
            return Err(Failure::Stopped(Limit::Memory));
        }
        if formats.scanned > stream.len().saturating_mul(2) {
            // The sheets overlap.
            return Err(Failure::Corrupt(Damage::Structure));
        }
    }
    Ok(formats)
}

/// Scans the records of one sheet. Returns the number of cells of the rectangle around its used cells.
fn scan_sheet(
    stream: &[u8],
    sheet_offset: usize,
    index: usize,
    formats: &mut RecordFormats,
) -> u64 {
    let mut position = sheet_offset;
    let mut depth = 0_u32;
    let mut rows: Option<(u16, u16)> = None;
    let mut columns: Option<(u16, u16)> = None;
    while let Some((kind, data, next)) = record_at(stream, position) {
        position = next;
        match kind {
            // Embedded charts have their own begin and end records.
            0x809 => depth += 1,
            0x0A if depth <= 1 => break,
            0x0A => depth -= 1,
            0x200 if claimed_cells(data) > MAX_CLAIMED_CELLS => {
                let start = next - data.len() - 4;
                formats
                    .claims
                    .extend(stream.get(start..next).map(<[u8]>::to_vec));
            }
            ROW_RECORD | COLINFO_RECORD if depth <= 1 => formats.note_hidden(index, kind, data),
            _ if depth <= 1 && SheetNotes::wants(kind) => {
                formats.notes.entry(index).or_default().record(kind, data);
            }
            _ if depth <= 1 => {
                let Some((row, column, last)) = cell_columns(kind, data) else {
                    continue;
                };
                widen_range(&mut rows, row, row);
                widen_range(&mut columns, column, last);
                for (offset, column) in (column..=last).enumerate() {
                    if let Some(style) = u16_at(data, 4 + offset * 6) {
                        note_cell(formats, (index, u32::from(row), u32::from(column)), style);
                    }
                }
            }
            _ => {}
        }
    }
    // Includes the last record that was read, so that the caller detects overlapping sheets.
    formats.scanned += position - sheet_offset;
    let size = |range: Option<(u16, u16)>| {
        range.map_or(0, |(first, last)| u64::from(last) - u64::from(first) + 1)
    };
    size(rows) * size(columns)
}

/// The number of cells that a record of dimensions claims. Row numbers have four bytes, in old files two.
fn claimed_cells(data: &[u8]) -> u64 {
    let long = |offset: usize| {
        let bytes = data
            .get(offset..offset + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let (rows, columns) = if data.len() >= 14 {
        (long(4).abs_diff(long(0)), 8)
    } else {
        let first = u16_at(data, 0).unwrap_or(0);
        let last = u16_at(data, 2).unwrap_or(0);
        (u32::from(last.abs_diff(first)), 4)
    };
    let first = u16_at(data, columns).unwrap_or(0);
    let last = u16_at(data, columns + 2).unwrap_or(0);
    (u64::from(rows) + 1) * (u64::from(last.abs_diff(first)) + 1)
}

/// Stores the format of a cell, unless it is the default.
fn note_cell(formats: &mut RecordFormats, cell: (usize, u32, u32), number: u16) {
    let style = formats.styles.get(usize::from(number));
    let is_default = style.is_none_or(|style| style.code.is_none() && !style.is_invisible);
    if !is_default && formats.cells.len() < MAX_STYLED_CELLS {
        formats.cells.insert(cell, number);
    }
}

fn widen_range(range: &mut Option<(u16, u16)>, first: u16, last: u16) {
    *range = Some(match *range {
        Some((low, high)) => (low.min(first), high.max(last)),
        None => (first, last),
    });
}

/// Whether a row is hidden, or has no height that a person chose.
fn is_hidden_row(data: &[u8]) -> bool {
    let flags = u16_at(data, 12).unwrap_or(0);
    let is_flat = u16_at(data, 6).is_some_and(|twips| twips < MIN_ROW_TWIPS);
    flags & 0x20 != 0 || (flags & 0x40 != 0 && is_flat)
}

/// Whether columns are hidden, or have no width that a person chose.
fn are_hidden_columns(data: &[u8]) -> bool {
    let flags = u16_at(data, 8).unwrap_or(0);
    let is_narrow = u16_at(data, 4).is_some_and(|width| width < MIN_COLUMN_WIDTH);
    flags & 1 != 0 || (flags & 2 != 0 && is_narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_without_a_size_are_hidden() {
        let row = |twips: u16, flags: u16| {
            let words = [7, 0, 1, twips, 0, 0, flags, 0];
            words.map(u16::to_le_bytes).concat()
        };
        for (twips, flags, is_hidden) in [
            (0, 0x40, true),
            (0, 0, false),
            (300, 0x20, true),
            (300, 0x40, false),
        ] {
            assert_eq!(
                is_hidden_row(&row(twips, flags)),
                is_hidden,
                "{twips} {flags}"
            );
        }
        let columns =
            |width: u16, flags: u16| [1, 1, width, 0, flags].map(u16::to_le_bytes).concat();
        for (width, flags, is_hidden) in [
            (0, 2, true),
            (0, 0, false),
            (2048, 3, true),
            (2048, 2, false),
        ] {
            assert_eq!(
                are_hidden_columns(&columns(width, flags)),
                is_hidden,
                "{width} {flags}"
            );
        }
    }

    fn put(stream: &mut Vec<u8>, kind: u16, data: &[u8]) {
        stream.extend(kind.to_le_bytes());
        stream.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
        stream.extend(data);
    }

    /// A stream with one sheet that has two numbers.
    fn stream(far: (u16, u16)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, 0x809, &[0; 16]);
        put(&mut out, 0xE0, &[0, 0, 9, 0]);
        let sheet_offset = out.len() + 4 + 8 + 4;
        let mut sheet = u32::try_from(sheet_offset).unwrap().to_le_bytes().to_vec();
        sheet.extend([0; 4]);
        put(&mut out, 0x85, &sheet);
        put(&mut out, 0x0A, &[]);
        put(&mut out, 0x809, &[0; 16]);
        for (row, column) in [(0_u16, 0_u16), far] {
            let mut cell = row.to_le_bytes().to_vec();
            cell.extend(column.to_le_bytes());
            cell.extend([0; 10]);
            put(&mut out, 0x203, &cell);
        }
        put(&mut out, 0x0A, &[]);
        out
    }

    #[test]
    fn a_far_cell_is_moved_to_the_others_and_keeps_its_look() {
        let mut near = stream((3, 2));
        let before = near.clone();
        let seen = scan_stream(&mut near).unwrap();
        assert_eq!(seen.style(0, 3, 2), Style::built_in(9));
        assert_eq!(seen.style(0, 1, 1), Style::default());
        assert_eq!((near, seen.moved.place(0, 3, 2)), (before, (3, 2)));
        let mut far = stream((65_535, 255));
        let seen = scan_stream(&mut far).unwrap();
        assert_eq!(seen.style(0, 65_535, 255), Style::built_in(9));
        assert_eq!(seen.moved.place(0, 1, 1), (65_535, 255));
        let (_, data, _) = record_at(&far, far.len() - 4 - 18).unwrap();
        assert_eq!(data.get(..4), Some([1, 0, 1, 0].as_slice()));
    }

    #[test]
    fn a_record_that_claims_a_huge_sheet_gets_an_unknown_type() {
        let mut bytes = stream((1, 1));
        let at = bytes.len() - 4;
        let mut claim = Vec::new();
        put(
            &mut claim,
            0x200,
            &[0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 255, 0, 0, 0],
        );
        bytes.splice(at..at, claim.iter().copied());
        let seen = scan_stream(&mut bytes.clone()).unwrap();
        let mut file = [b"head".as_slice(), &bytes].concat();
        seen.disable_claims(&mut file).unwrap();
        assert_eq!(&file[at + 4..at + 6], UNKNOWN_RECORD);
        assert_eq!(seen.disable_claims(&mut [0; 8]), Err(Limit::Memory));
    }

    #[test]
    fn an_encrypted_stream_is_refused() {
        let mut encrypted = Vec::new();
        put(&mut encrypted, 0x809, &[0; 16]);
        put(&mut encrypted, 0x2F, &[1, 0]);
        assert_eq!(scan_stream(&mut encrypted).unwrap_err(), Failure::Encrypted);
    }

    #[test]
    fn a_sheet_outside_of_the_stream_is_damage() {
        let mut out = Vec::new();
        put(&mut out, 0x85, &[0xFF, 0xFF, 0xFF, 0x7F, 0, 0]);
        assert_eq!(
            scan_stream(&mut out).unwrap_err(),
            Failure::Corrupt(Damage::Truncated)
        );
    }
}
