//! Pipe tables, built row by row with bounded memory (read-attachment 7, «Tables»).

use super::inline::{Inline, InlinePosition};
use super::part::Span;

/// Most body rows that one table shows.
pub const MAX_TABLE_ROWS: usize = 1000;
/// Most empty cells that one span may add.
const MAX_SPAN_CELLS: usize = 64;
/// Most cells of one row that are kept; longer rows are not readable for people.
const MAX_ROW_CELLS: usize = 4096;
/// Most cells of one table that are kept, empty ones included: more than any text within the default limits has, and a
/// bound for the memory of a sparse table.
const MAX_TABLE_CELLS: usize = 1 << 22;

/// The body rows that a table keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum KeptRows {
    /// Those that readers are shown.
    #[default]
    First,
    /// All, for a search.
    All,
}

/// A table that is not complete yet.
///
/// The first row is the header unless [`Table::headless`]. Rows beyond [`MAX_TABLE_ROWS`] are counted, and kept only for
/// a search.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    window: Option<Span>,
    headless: bool,
    headed: bool,
    body: usize,
    beyond: u64,
    /// For each column, the number of further rows that a cell above covers.
    carried: Vec<usize>,
    drop_empty_columns: bool,
    limit: Option<usize>,
    kept: KeptRows,
    /// Source numbers of the kept rows, without the header.
    numbers: Vec<u64>,
    /// Number of kept cells.
    cells: usize,
    /// Number of rows in the window, the header included.
    selected: u64,
}

impl Table {
    /// An empty table, whose first row will be its header.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows only rows whose source number lies in the span, in addition to the header.
    #[must_use]
    pub fn window(mut self, window: Option<Span>) -> Self {
        self.window = window;
        self
    }

    /// The source declares that its first row is data, so the header is empty.
    #[must_use]
    pub fn headless(mut self) -> Self {
        self.headless = true;
        self
    }

    /// Drops every column without a value, not only those at the end, as for worksheets (read-attachment 7.7).
    #[must_use]
    pub fn drop_empty_columns(mut self) -> Self {
        self.drop_empty_columns = true;
        self
    }

    /// Shows this many body rows instead of [`MAX_TABLE_ROWS`].
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Keeps all rows, for a search, if `all` is true.
    #[must_use]
    pub fn keep_all(mut self, all: bool) -> Self {
        self.kept = if all { KeptRows::All } else { KeptRows::First };
        self
    }

    /// Body rows that readers are shown.
    fn shown_rows(&self) -> usize {
        self.limit.unwrap_or(MAX_TABLE_ROWS)
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.beyond == 0
    }

    /// Whether another row would be counted but not shown, so that its cells need not be rendered.
    pub fn full(&self) -> bool {
        let is_long = self.kept == KeptRows::First && self.body >= self.shown_rows();
        is_long || self.cells >= MAX_TABLE_CELLS
    }

    /// Whether a row of that source number would be shown.
    pub fn wants(&self, number: u64) -> bool {
        let is_header = !self.headless && !self.headed;
        is_header || (!self.full() && self.window.is_none_or(|window| window.holds(number)))
    }

    /// Appends a row; `number` is its position in the source, from 1.
    pub fn row(&mut self, number: u64, cells: Vec<Cell>) {
        self.count_selected(number);
        let is_header = !self.headless && !self.headed;
        if !is_header {
            if self.window.is_some_and(|window| !window.holds(number)) {
                return;
            }
            if self.full() {
                self.beyond += 1;
                return;
            }
            self.body += 1;
            self.numbers.push(number);
        }
        self.headed = true;
        let row = self.place(cells);
        self.cells += row.len();
        self.rows.push(row);
    }

    /// Counts a row that is not shown because the table is [`Table::full`].
    pub fn skip(&mut self, number: u64) {
        self.count_selected(number);
        if self.window.is_none_or(|window| window.holds(number)) {
            self.beyond += 1;
        }
    }

    fn count_selected(&mut self, number: u64) {
        self.selected += u64::from(self.window.is_some_and(|window| window.holds(number)));
    }

    /// Assigns cells to columns: after spans of earlier rows into this row, and as wide as their own spans.
    fn place(&mut self, cells: Vec<Cell>) -> Vec<String> {
        let mut row = Vec::new();
        let mut new_spans = Vec::new();
        for cell in cells {
            self.pass_carried(&mut row);
            if row.len() >= MAX_ROW_CELLS {
                break;
            }
            let start = row.len();
            // Spans are numbers in a file: they must not decide how much is allocated (read-attachment 7).
            let end = start + cell.columns.clamp(1, MAX_SPAN_CELLS);
            row.push(cell.text);
            row.resize(end, String::new());
            new_spans.push((start..end, cell.rows.clamp(1, MAX_TABLE_ROWS) - 1));
        }
        // Earlier rows may also span into columns after the last cell.
        self.pass_carried(&mut row);
        for (columns, rows_below) in new_spans
            .into_iter()
            .filter(|(_, rows_below)| *rows_below > 0)
        {
            if self.carried.len() < columns.end {
                self.carried.resize(columns.end, 0);
            }
            for remaining_rows in self
                .carried
                .iter_mut()
                .take(columns.end)
                .skip(columns.start)
            {
                *remaining_rows = rows_below;
            }
        }
        row
    }

    /// Leaves the columns empty that a cell above covers.
    fn pass_carried(&mut self, row: &mut Vec<String>) {
        while let Some(remaining_rows) = self
            .carried
            .get_mut(row.len())
            .filter(|remaining_rows| **remaining_rows > 0)
        {
            *remaining_rows -= 1;
            row.push(String::new());
        }
    }

    /// The table as text; `None` without content.
    pub(super) fn render(mut self) -> Option<RenderedTable> {
        if self.headless {
            self.rows.insert(0, Vec::new());
        }
        // An empty header is kept, because it makes the lines a table; empty rows at the end are removed.
        while self.rows.len() > 1
            && self
                .rows
                .last()
                .is_some_and(|row| row.iter().all(String::is_empty))
        {
            self.rows.pop();
        }
        self.numbers.truncate(self.rows.len().saturating_sub(1));
        let shown_rows = self.shown_rows().min(self.numbers.len());
        let search_rows = self.numbers.split_off(shown_rows);
        let width = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let used: Vec<bool> = (0..width)
            .map(|at| {
                self.rows
                    .iter()
                    .any(|row| row.get(at).is_some_and(|cell| !cell.is_empty()))
            })
            .collect();
        let last = used.iter().rposition(|used| *used)?;
        let kept_columns: Vec<usize> = (0..=last)
            .filter(|at| !self.drop_empty_columns || used.get(*at) == Some(&true))
            .collect();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            out.push('|');
            for at in &kept_columns {
                out.push(' ');
                out.push_str(row.get(*at).map_or("", String::as_str));
                out.push_str(" |");
            }
            if index == 0 {
                out.push_str("\n|");
                out.push_str(&"---|".repeat(kept_columns.len()));
            }
        }
        Some(RenderedTable {
            text: out,
            beyond: self.beyond,
            search_rows,
            selected: self.selected,
        })
    }
}

/// A table as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RenderedTable {
    /// The lines of the table, without the last line end.
    pub(super) text: String,
    /// Number of rows that are not in it.
    pub(super) beyond: u64,
    /// Source numbers of its last lines, which only a search reads.
    pub(super) search_rows: Vec<u64>,
    /// Number of rows that a selection of rows contains.
    pub(super) selected: u64,
}

/// One rendered cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    columns: usize,
    rows: usize,
}

impl Cell {
    /// A cell of inline text.
    pub fn new(inline: &Inline) -> Self {
        Self {
            text: inline.render(InlinePosition::Cell),
            columns: 1,
            rows: 1,
        }
    }

    /// A cell of plain text; line breaks become `<br>`.
    pub fn plain(text: &str) -> Self {
        let text = text.trim();
        let text = if text.contains('\r') {
            text.replace("\r\n", "\n").replace('\r', "\n")
        } else {
            text.to_owned()
        };
        Self::new(&Inline::plain(&text))
    }

    /// A cell of several lines, such as those of a nested table, joined by `<br>`.
    pub fn lines<'a>(lines: impl IntoIterator<Item = &'a Inline>) -> Self {
        let lines: Vec<String> = lines
            .into_iter()
            .map(|line| line.render(InlinePosition::Cell))
            .filter(|line| !line.is_empty())
            .collect();
        Self {
            text: lines.join("<br>"),
            columns: 1,
            rows: 1,
        }
    }

    /// Spans this many columns; at most 64 count.
    #[must_use]
    pub fn columns(mut self, columns: usize) -> Self {
        self.columns = columns;
        self
    }

    /// Spans this many rows.
    #[must_use]
    pub fn rows(mut self, rows: usize) -> Self {
        self.rows = rows;
        self
    }
}
