//! Tables whose cells are still being read; tables within cells become lines of the outer cell.

use crate::markdown::{Cell, Inline, Style, Table};

/// Most cells of one row that are kept.
const MAX_ROW_CELLS: usize = 4096;

/// A table whose end tag has not been read.
pub(super) struct OpenTable {
    /// Whether the table only arranges blocks (`role=presentation`), so that its cells are ordinary blocks.
    pub(super) layout: bool,
    /// Whether the table is inside a cell.
    pub(super) nested: bool,
    /// The rows so far, of a table that is not nested.
    pub(super) table: Table,
    /// The cell that is open.
    pub(super) cell: Option<OpenCell>,
    /// Rows that began so far, shown or not.
    pub(super) rows: u64,
    row: Vec<OpenCell>,
}

/// A cell while it is filled.
#[derive(Default)]
pub(super) struct OpenCell {
    /// The cell's blocks, one line each.
    pub(super) lines: Vec<Inline>,
    columns: usize,
    rows: usize,
}

impl OpenCell {
    /// An empty cell with these spans.
    pub(super) fn spanning(columns: usize, rows: usize) -> Self {
        Self {
            lines: Vec::new(),
            columns,
            rows,
        }
    }

    fn into_cell(self) -> Cell {
        Cell::lines(&self.lines)
            .columns(self.columns)
            .rows(self.rows)
    }
}

impl OpenTable {
    /// A table without rows; `layout` and `nested` do not change later.
    pub(super) fn new(layout: bool, nested: bool, table: Table) -> Self {
        Self {
            layout,
            nested,
            table,
            cell: None,
            rows: 0,
            row: Vec::new(),
        }
    }

    /// Begins a row. Returns whether its text is used.
    pub(super) fn begin_row(&mut self) -> bool {
        self.rows += 1;
        self.layout || self.nested || self.table.wants(self.rows)
    }

    /// Closes the cell that is open.
    pub(super) fn end_cell(&mut self) {
        if let Some(cell) = self.cell.take()
            && self.row.len() < MAX_ROW_CELLS
        {
            self.row.push(cell);
        }
    }

    /// Closes the row. Returns it as one line when the table is nested.
    pub(super) fn end_row(&mut self) -> Option<Inline> {
        let row = std::mem::take(&mut self.row);
        if self.nested {
            return flatten_row(row);
        }
        if self.table.wants(self.rows) {
            let cells = row.into_iter().map(OpenCell::into_cell).collect();
            self.table.row(self.rows, cells);
        } else {
            self.table.skip(self.rows);
        }
        None
    }

    /// Whether the row that is open has cells.
    pub(super) fn has_row(&self) -> bool {
        !self.row.is_empty()
    }
}

/// A row of a nested table: its cells with semicolons between them.
fn flatten_row(mut row: Vec<OpenCell>) -> Option<Inline> {
    let used = |cell: &OpenCell| cell.lines.iter().any(|line| !line.is_blank());
    let last = row.iter().rposition(used)?;
    row.truncate(last + 1);
    let mut out = Inline::new();
    for (index, cell) in row.into_iter().enumerate() {
        if index > 0 {
            out.raw(" ; ");
        }
        for (index, line) in cell.lines.into_iter().enumerate() {
            if index > 0 {
                out.text(" ", Style::default());
            }
            out.append(line);
        }
    }
    Some(out)
}
