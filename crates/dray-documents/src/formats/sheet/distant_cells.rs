//! Sheets of XLS whose used cells are far apart: they are moved together before the library reads them.
//!
//! The library allocates memory for the rectangle around all cells of a sheet. If that would be too large, the used
//! rows and columns get new numbers in the stream, and the cells that the library returns are moved back to their true
//! positions.

use std::collections::{BTreeSet, HashMap};

use super::biff::{cell_columns, record_at};
use crate::compound::u16_at;

/// Most cells of the rectangle around the used cells of a sheet; the cells of a larger one are moved together.
pub(super) const MAX_RECTANGLE: u64 = 1 << 18;

/// The true rows and columns of the sheets that were moved together.
#[derive(Debug, Default)]
pub(super) struct MovedCells(HashMap<usize, (Vec<u16>, Vec<u16>)>);

impl MovedCells {
    /// The row and column of a cell before it was moved.
    pub(super) fn place(&self, sheet: usize, row: u32, column: u32) -> (u32, u32) {
        let Some((rows, columns)) = self.0.get(&sheet) else {
            return (row, column);
        };
        let original = |numbers: &[u16], moved: u32| {
            let index = usize::try_from(moved).unwrap_or(usize::MAX);
            // A position that no cell had becomes one beyond any sheet, where the cell is dropped.
            numbers
                .get(index)
                .map_or(u32::MAX, |number| u32::from(*number))
        };
        (original(rows, row), original(columns, column))
    }

    /// Moves the cells of the sheet that begins at `start` together. Returns the number of cells of its new rectangle.
    pub(super) fn move_together(&mut self, stream: &mut [u8], sheet: usize, start: usize) -> u64 {
        let (mut rows, mut columns) = (BTreeSet::new(), BTreeSet::new());
        let cells = cell_records(stream, start);
        for (_, row, first, last) in &cells {
            rows.insert(*row);
            columns.extend(*first..=*last);
        }
        let rows: Vec<u16> = rows.into_iter().collect();
        let columns: Vec<u16> = columns.into_iter().collect();
        let rank = |numbers: &[u16], number: u16| {
            // The number is always found, because the list was made from the same records.
            let index = numbers.binary_search(&number).unwrap_or_default();
            u16::try_from(index).unwrap_or(u16::MAX).to_le_bytes()
        };
        for (record, row, first, last) in cells {
            let mut put = |offset: usize, bytes: [u8; 2]| {
                if let Some(field) = stream.get_mut(offset..offset + 2) {
                    field.copy_from_slice(&bytes);
                }
            };
            put(record + 4, rank(&rows, row));
            put(record + 6, rank(&columns, first));
            if last > first {
                let length = usize::from(u16_at(stream, record + 2).unwrap_or(0));
                if let Some(field) = stream.get_mut(record + 4 + length - 2..record + 4 + length) {
                    field.copy_from_slice(&rank(&columns, last));
                }
            }
        }
        let size = rows.len() as u64 * columns.len() as u64;
        self.0.insert(sheet, (rows, columns));
        size
    }
}

/// The records of cells of a sheet: offset, row, first and last column.
fn cell_records(stream: &[u8], start: usize) -> Vec<(usize, u16, u16, u16)> {
    let mut cells = Vec::new();
    let mut at = start;
    let mut depth = 0_u32;
    while let Some((kind, data, next)) = record_at(stream, at) {
        match kind {
            0x809 => depth += 1,
            0x0A if depth <= 1 => break,
            0x0A => depth -= 1,
            _ if depth <= 1 => {
                if let Some((row, first, last)) = cell_columns(kind, data) {
                    cells.push((at, row, first, last));
                }
            }
            _ => {}
        }
        at = next;
    }
    cells
}
