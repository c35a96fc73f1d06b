//! Sheets of XLS whose used cells are far apart: they are moved together before the library reads them.
//!
//! The library allocates memory for the rectangle around all cells of a sheet. If that would be too large, the used
//! rows and columns get new numbers in the stream, and the cells that the library returns are moved back to their true
//! positions.

use std::collections::{BTreeSet, HashMap};

use super::biff::{cell_columns, record_at, u16_at};

/// Cells of the rectangle around all that a sheet uses, from which on it is moved together.
pub(super) const MAX_RECTANGLE: u64 = 1 << 18;

/// The true rows and columns of the sheets that were moved together.
#[derive(Debug, Default)]
pub(super) struct MovedCells(HashMap<usize, (Vec<u16>, Vec<u16>)>);

impl MovedCells {
    /// The true place of a cell.
    pub(super) fn place(&self, sheet: usize, row: u32, column: u32) -> (u32, u32) {
        let Some((rows, columns)) = self.0.get(&sheet) else {
            return (row, column);
        };
        let of = |all: &[u16], at: u32| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            // A place that no cell had is beyond any sheet, where the cell is dropped.
            all.get(at).map_or(u32::MAX, |its| u32::from(*its))
        };
        (of(rows, row), of(columns, column))
    }

    /// Moves the cells of the sheet that begins at `start` together; the cells of its rectangle afterwards.
    pub(super) fn move_together(&mut self, stream: &mut [u8], sheet: usize, start: usize) -> u64 {
        let (mut rows, mut columns) = (BTreeSet::new(), BTreeSet::new());
        let cells = cells(stream, start);
        for (_, row, first, last) in &cells {
            rows.insert(*row);
            columns.extend(*first..=*last);
        }
        let rows: Vec<u16> = rows.into_iter().collect();
        let columns: Vec<u16> = columns.into_iter().collect();
        let rank = |all: &[u16], its: u16| {
            // Always found: the list was made from the same records.
            let at = all.binary_search(&its).unwrap_or_default();
            u16::try_from(at).unwrap_or(u16::MAX).to_le_bytes()
        };
        for (at, row, first, last) in cells {
            let mut put = |at: usize, bytes: [u8; 2]| {
                if let Some(field) = stream.get_mut(at..at + 2) {
                    field.copy_from_slice(&bytes);
                }
            };
            put(at + 4, rank(&rows, row));
            put(at + 6, rank(&columns, first));
            if last > first {
                let length = usize::from(u16_at(stream, at + 2).unwrap_or(0));
                if let Some(field) = stream.get_mut(at + 4 + length - 2..at + 4 + length) {
                    field.copy_from_slice(&rank(&columns, last));
                }
            }
        }
        let size = rows.len() as u64 * columns.len() as u64;
        self.0.insert(sheet, (rows, columns));
        size
    }
}

/// The records of cells of a sheet: where each begins, its row, its first and last column.
fn cells(stream: &[u8], start: usize) -> Vec<(usize, u16, u16, u16)> {
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
