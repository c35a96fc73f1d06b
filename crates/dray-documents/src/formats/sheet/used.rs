//! The used part of a worksheet while its cells arrive: only cells that will be shown are kept.

use std::collections::{HashMap, HashSet};

use super::comments::CellComment;
use super::style::CellText;
use crate::limits::{Failure, Limit};
use crate::markdown::{Cell, Inline, ListMarker, MAX_TABLE_ROWS, Markdown, Span, Style};

/// Most empty rows between two used ones that are shown; more are replaced by one.
const MAX_GAP_ROWS: u64 = 50;
/// Columns that a worksheet has.
const SHEET_COLUMNS: u32 = 16_384;
/// Rows that a worksheet can have. More than any program writes, and small enough that sums of rows cannot overflow.
const SHEET_ROWS: u64 = 1 << 24;
/// Most columns that one table shows.
const MAX_COLUMNS: usize = 4096;
/// Most merged areas that are read.
const MAX_MERGED_AREAS: usize = 10_000;
/// Most merged areas with which one row is compared.
const MAX_AREAS_OF_ROW: usize = 256;
/// Most hidden rows that are stored; further ones count as visible.
const MAX_HIDDEN_ROWS: usize = 1 << 20;
/// Most ranges of hidden columns that are stored; further ones count as visible.
const MAX_HIDDEN_RANGES: usize = 1000;
/// Most links that are stored.
const MAX_LINKS: usize = 10_000;
/// Most bytes of the URL of a stored link.
const MAX_URL_BYTES: usize = 2048;

/// Cells that are merged, from zero, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergedArea {
    pub(super) first: (u64, u32),
    pub(super) last: (u64, u32),
}

impl MergedArea {
    /// Whether a cell is inside it.
    pub(super) fn holds(&self, (row, column): (u64, u32)) -> bool {
        (self.first.0..=self.last.0).contains(&row)
            && (self.first.1..=self.last.1).contains(&column)
    }
}

/// A worksheet while it is read. Rows and columns count from zero.
#[derive(Debug)]
pub(super) struct SheetReader {
    rows: Vec<(u64, Vec<(u32, String)>)>,
    /// Most rows that are kept, besides the first one.
    max_rows: usize,
    window: Option<Span>,
    current_row: Option<u64>,
    /// Whether cells of the current row are stored.
    keeps_row: bool,
    /// Rows that are counted but not stored.
    rows_beyond_limit: u64,
    /// Bytes of the stored text.
    bytes: u64,
    areas: Vec<MergedArea>,
    comments: Vec<CellComment>,
    /// Whether something that is not in a cell follows the table.
    has_drawing: bool,
    links: HashMap<(u64, u32), String>,
    /// Hidden columns: first and last, inclusive.
    hidden_columns: Vec<(u32, u32)>,
    hidden_rows: HashSet<u64>,
    /// Number of cells with text that a person does not see.
    hidden_cells: u64,
}

impl SheetReader {
    /// An empty sheet, which will keep only the selected rows.
    pub(super) fn new(out: &Markdown) -> Self {
        Self {
            rows: Vec::new(),
            max_rows: if out.keeps_all_rows() {
                usize::MAX
            } else {
                MAX_TABLE_ROWS
            },
            window: out.selection().rows(),
            current_row: None,
            keeps_row: false,
            rows_beyond_limit: 0,
            bytes: 0,
            areas: Vec::new(),
            comments: Vec::new(),
            has_drawing: false,
            links: HashMap::new(),
            hidden_columns: Vec::new(),
            hidden_rows: HashSet::new(),
            hidden_cells: 0,
        }
    }

    /// Records hidden columns, `last` included.
    pub(super) fn hide_columns(&mut self, first: u32, last: u32) {
        if self.hidden_columns.len() < MAX_HIDDEN_RANGES {
            self.hidden_columns.push((first, last));
        }
    }

    /// Records a hidden row. Must be called before its cells are added.
    pub(super) fn hide_row(&mut self, row: u64) {
        if self.hidden_rows.len() < MAX_HIDDEN_ROWS {
            self.hidden_rows.insert(row);
        }
    }

    fn is_hidden(&self, row: u64, column: u32) -> bool {
        self.hidden_rows.contains(&row)
            || self
                .hidden_columns
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&column))
    }

    /// Adds a cell with visible or hidden content.
    ///
    /// # Errors
    ///
    /// Those of [`SheetReader::cell`].
    pub(super) fn shown_cell(
        &mut self,
        (row, column): (u64, u32),
        shown: CellText,
        out: &Markdown,
    ) -> Result<(), Limit> {
        let is_new = shown.is_hidden && !shown.text.trim().is_empty();
        // A cell in a hidden row or column is counted in `cell`; here it would count twice.
        if is_new && !self.is_hidden(row, column) {
            self.hidden_cells += 1;
            if !out.shows_hidden() {
                return Ok(());
            }
        }
        self.cell(row, column, shown.text, out)
    }

    /// Adds a cell with visible content. Cells of one row arrive consecutively.
    ///
    /// # Errors
    ///
    /// The element limit by rows, the size limit by text.
    pub(super) fn cell(
        &mut self,
        row: u64,
        column: u32,
        text: String,
        out: &Markdown,
    ) -> Result<(), Limit> {
        if text.trim().is_empty() || column >= SHEET_COLUMNS {
            return Ok(());
        }
        if self.is_hidden(row, column) {
            self.hidden_cells += 1;
            if !out.shows_hidden() {
                return Ok(());
            }
        }
        if self.current_row != Some(row) {
            self.begin_row(row, out)?;
        }
        if self.keeps_row {
            self.bytes += text.len() as u64;
            // The bytes are compared with the remaining budget, but not counted: the table counts its text when it is
            // written.
            if self.bytes > out.budget().text_left() {
                return Err(Limit::Size);
            }
            if let Some((_, cells)) = self.rows.last_mut() {
                cells.push((column, text));
            }
        }
        Ok(())
    }

    fn begin_row(&mut self, row: u64, out: &Markdown) -> Result<(), Limit> {
        self.current_row = Some(row);
        let header = self.rows.is_empty();
        let is_selected = header || self.window.is_none_or(|window| window.holds(row + 1));
        // The first row is the header, so one more than the rows of a body is kept.
        self.keeps_row = is_selected && self.rows.len() <= self.max_rows;
        if is_selected {
            out.budget().element()?;
            if self.keeps_row {
                self.rows.push((row, Vec::new()));
            } else {
                self.rows_beyond_limit += 1;
            }
        }
        Ok(())
    }

    /// Repeats the row that was added last this many times.
    pub(super) fn repeat(&mut self, times: u64, out: &Markdown) -> Result<(), Limit> {
        let Some(row) = self.current_row else {
            return Ok(());
        };
        let cells = match self.rows.last() {
            Some((last, cells)) if *last == row => cells.clone(),
            _ => Vec::new(),
        };
        for copy in 1..=times {
            if self.rows.len() > self.max_rows {
                self.rows_beyond_limit += times - copy + 1;
                break;
            }
            self.begin_row(row + copy, out)?;
            if self.keeps_row {
                for (column, text) in &cells {
                    self.cell(row + copy, *column, text.clone(), out)?;
                }
            }
        }
        self.current_row = Some(row + times);
        Ok(())
    }

    /// Records merged cells, of which only the first is shown.
    pub(super) fn merge(&mut self, area: MergedArea) {
        if self.areas.len() < MAX_MERGED_AREAS && area.first != area.last {
            self.areas.push(area);
        }
    }

    /// Records the link target of a cell. Empty and overlong targets are ignored.
    pub(super) fn link(&mut self, cell_ref: (u64, u32), url: &str) {
        let url = url.trim();
        if !url.is_empty() && url.len() <= MAX_URL_BYTES && self.links.len() < MAX_LINKS {
            self.links.insert(cell_ref, url.to_owned());
        }
    }

    /// Records a comment on a cell, unless it is empty.
    pub(super) fn comment(&mut self, comment: CellComment) {
        if !comment.text.trim().is_empty() {
            self.comments.push(comment);
        }
    }

    /// Records that shapes follow the table, so that the sheet is not empty.
    pub(super) fn mark_drawn(&mut self) {
        self.has_drawing = true;
    }

    /// Writes the table and the comments, or a note that the sheet is empty.
    pub(super) fn finish(mut self, out: &mut Markdown) -> Result<(), Failure> {
        let comments = std::mem::take(&mut self.comments);
        out.count_hidden("cell", self.hidden_cells);
        if self.rows.is_empty() && comments.is_empty() && !self.has_drawing {
            out.note("empty sheet")?;
            return Ok(());
        }
        let table = self.table(out)?;
        out.table(table)?;
        for comment in comments {
            let line = format!("{}: {}", comment.cell, comment.line());
            out.item(0, ListMarker::Bullet, &Inline::plain(&line))?;
        }
        Ok(())
    }

    /// Writes the cells that arrived before a limit was reached.
    pub(super) fn finish_so_far(self, out: &mut Markdown) -> Result<(), Failure> {
        out.count_hidden("cell", self.hidden_cells);
        let table = self.table(out)?;
        out.table_so_far(table)?;
        Ok(())
    }

    fn table(mut self, out: &mut Markdown) -> Result<crate::markdown::Table, Failure> {
        self.drop_merged(out)?;
        let mut columns: Vec<u32> = Vec::new();
        for (_, cells) in &mut self.rows {
            // Stable, so the first of two cells with one position is kept; damaged files have such pairs.
            cells.sort_by_key(|(column, _)| *column);
            cells.dedup_by_key(|(column, _)| *column);
            columns.extend(cells.iter().map(|(column, _)| *column));
            // Keeps the list of columns small in a sheet in which every row uses other columns.
            if columns.len() > 16 * MAX_COLUMNS {
                columns.sort_unstable();
                columns.dedup();
            }
        }
        columns.sort_unstable();
        columns.dedup();
        if columns.len() > MAX_COLUMNS {
            columns.truncate(MAX_COLUMNS);
            out.warn("columns beyond the 4096th dropped");
        }
        let mut table = out.new_table();
        let mut last = None;
        for (number, cells) in self.rows {
            if let Some(last) = last {
                let gap = number.saturating_sub(last + 1);
                let first = if gap > MAX_GAP_ROWS {
                    number - 1
                } else {
                    last + 1
                };
                for empty in first..number {
                    if !self.hidden_rows.contains(&empty) || out.shows_hidden() {
                        table.row(empty + 1, Vec::new());
                    }
                }
            }
            last = Some(number);
            table.row(number + 1, dense_row(&columns, number, cells, &self.links));
        }
        // Every counted row is in the window, so any number inside is valid.
        let counted = self.window.map_or(1, |window| window.first);
        for _ in 0..self.rows_beyond_limit {
            table.skip(counted);
        }
        Ok(table)
    }

    /// Removes the values that a merged area covers.
    fn drop_merged(&mut self, out: &Markdown) -> Result<(), Limit> {
        if self.areas.is_empty() {
            return Ok(());
        }
        self.areas.sort_by_key(|area| area.first);
        for (row, cells) in &mut self.rows {
            // Rows times areas is quadratic, and counts no elements.
            out.budget().clock()?;
            let areas_of_row: Vec<MergedArea> = self
                .areas
                .iter()
                .take_while(|area| area.first.0 <= *row)
                .filter(|area| area.last.0 >= *row)
                .take(MAX_AREAS_OF_ROW)
                .copied()
                .collect();
            cells.retain(|(column, _)| {
                !areas_of_row.iter().any(|area| {
                    (area.first.1..=area.last.1).contains(column) && (*row, *column) != area.first
                })
            });
        }
        Ok(())
    }
}

/// The cells of a row, one for each used column up to its last cell.
fn dense_row(
    columns: &[u32],
    number: u64,
    cells: Vec<(u32, String)>,
    links: &HashMap<(u64, u32), String>,
) -> Vec<Cell> {
    let mut row = Vec::new();
    for (column, text) in cells {
        let Ok(index) = columns.binary_search(&column) else {
            continue;
        };
        row.resize(index, Cell::default());
        row.push(match links.get(&(number, column)) {
            Some(url) if !contains_target(&text, url) => linked_cell(&text, url),
            _ => Cell::plain(&text),
        });
    }
    row
}

/// Whether a text is already the target of its link.
fn contains_target(text: &str, url: &str) -> bool {
    let bare = url.strip_prefix("mailto:").unwrap_or(url);
    text.contains(bare.trim_end_matches('/'))
}

fn linked_cell(text: &str, url: &str) -> Cell {
    let mut inline = Inline::new();
    inline.begin_link(url);
    inline.text(text.trim(), Style::default());
    inline.end_link();
    Cell::new(&inline)
}

/// The name of a cell, by its row and column from zero: `B7`.
pub(super) fn cell_name((row, column): (u64, u32)) -> String {
    format!("{}{}", column_name(column), row + 1)
}

/// The name of a column, from zero: `A`, `Z`, `AA`.
fn column_name(column: u32) -> String {
    let mut letters = Vec::new();
    let mut rest = u64::from(column) + 1;
    while rest > 0 {
        let digit = (rest - 1) % 26;
        letters.push(char::from(b'A' + u8::try_from(digit).unwrap_or(0)));
        rest = (rest - 1) / 26;
    }
    letters.iter().rev().collect()
}

/// Row and column, from zero, of a reference such as `$B$7`.
pub(super) fn parse_reference(reference: &str) -> Option<(u64, u32)> {
    let mut column = 0_u32;
    let mut row = 0_u64;
    for c in reference.trim().chars() {
        match c.to_ascii_uppercase() {
            '$' => {}
            letter @ 'A'..='Z' if row == 0 => {
                column = column
                    .checked_mul(26)?
                    .checked_add(u32::from(letter) - u32::from('A') + 1)?;
            }
            digit @ '0'..='9' => {
                row = row
                    .checked_mul(10)?
                    .checked_add(u64::from(u32::from(digit) - u32::from('0')))?;
            }
            _ => return None,
        }
    }
    let (row, column) = (row_index(row)?, column.checked_sub(1)?);
    (column < SHEET_COLUMNS).then_some((row, column))
}

/// The index of a row, from zero, by its number, from one. `None` for a number that no worksheet has.
pub(super) fn row_index(number: u64) -> Option<u64> {
    number.checked_sub(1).filter(|row| *row < SHEET_ROWS)
}
