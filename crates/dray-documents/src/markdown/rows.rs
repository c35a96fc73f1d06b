//! Tables and long outputs of a document: their first rows and lines for a reader, all of them for a search.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::RenderedTable;
use super::{LastWritten, Markdown, Table};
use crate::limits::Limit;

/// Lines that only a search reads: a conversion for readers counts them and writes a note of two lines in their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchLines {
    /// The first of them in the Markdown, from 1.
    pub first: usize,
    /// Their number.
    pub count: usize,
    /// The number of the row in the source for each line of a table; empty for other lines.
    pub rows: Vec<u64>,
}

/// What a document has more of than readers are shown.
#[derive(Debug, Default)]
pub(super) struct LongContent {
    is_for_search: bool,
    /// Rows and lines that are counted but not written, by unit.
    pub(super) omitted: BTreeMap<&'static str, u64>,
    pub(super) search_lines: Vec<SearchLines>,
    /// Number of rows that the selection of rows contains, in all tables.
    pub(super) selected_rows: u64,
}

impl Markdown {
    /// Whether all rows of tables and all lines of outputs are written, for a search; by default the first ones are.
    #[must_use]
    pub fn with_all_rows(mut self, all: bool) -> Self {
        self.long.is_for_search = all;
        self
    }

    /// Whether all rows are to be written.
    pub fn keeps_all_rows(&self) -> bool {
        self.long.is_for_search
    }

    /// A table with the selected rows, and the number of further ones.
    pub fn new_table(&self) -> Table {
        Table::new()
            .window(self.selection.rows())
            .keep_all(self.long.is_for_search)
    }

    /// Writes a table; an empty one is not written.
    pub fn table(&mut self, table: Table) -> Result<(), Limit> {
        let Some(rendered) = table.render() else {
            return Ok(());
        };
        self.count_omitted("row", rendered.beyond);
        self.budget.element()?;
        self.place_table(&rendered)?;
        if rendered.beyond > 0 {
            self.note(&format!("{} more rows truncated", rendered.beyond))?;
        }
        Ok(())
    }

    /// Writes a table whose last row ran into a limit. The text of the table counts, but the table does not count as a
    /// further element, since its rows are counted already. So it can be written when no other block can.
    pub fn table_so_far(&mut self, table: Table) -> Result<(), Limit> {
        let Some(rendered) = table.render() else {
            return Ok(());
        };
        self.count_omitted("row", rendered.beyond);
        self.place_table(&rendered)?;
        if rendered.beyond > 0 {
            let note = format!("_({} more rows truncated)_", rendered.beyond);
            self.place(&note, LastWritten::Block, false)?;
        }
        Ok(())
    }

    /// A fenced block with the first lines of a text, and the number of further ones. `max_lines` is at least 1.
    pub fn code_lines(&mut self, text: &str, max_lines: usize) -> Result<(), Limit> {
        let end = text
            .match_indices('\n')
            .nth(max_lines.saturating_sub(1))
            .map_or(text.len(), |(at, _)| at);
        let (shown, rest) = text.split_at(end);
        let more = rest.matches('\n').count();
        if self.long.is_for_search {
            let start = self.out.len();
            let result = self.code("", text);
            self.add_search_lines(start, "```", 1 + max_lines, more, Vec::new());
            return result;
        }
        self.code("", shown)?;
        if more > 0 {
            self.count_omitted("line", more as u64);
            self.note(&format!("{more} more lines truncated"))?;
        }
        Ok(())
    }

    fn count_omitted(&mut self, unit: &'static str, count: u64) {
        if count > 0 {
            let counted = self.long.omitted.entry(unit).or_default();
            *counted = counted.saturating_add(count);
        }
    }

    fn place_table(&mut self, rendered: &RenderedTable) -> Result<(), Limit> {
        self.long.selected_rows += rendered.selected;
        let start = self.out.len();
        let result = self.place(&rendered.text, LastWritten::Block, false);
        let count = rendered.search_rows.len();
        let lines = rendered.text.matches('\n').count() + 1;
        let rows = rendered.search_rows.clone();
        self.add_search_lines(start, "|", lines - count, count, rows);
        result
    }

    /// Records lines of the block that was written after this length of the output. `mark` is a text in the first line
    /// of the block, `before` the number of its lines before the recorded ones.
    fn add_search_lines(
        &mut self,
        start: usize,
        mark: &str,
        before: usize,
        count: usize,
        rows: Vec<u64>,
    ) {
        let (Some(earlier), Some(written)) = (self.out.get(..start), self.out.get(start..)) else {
            return;
        };
        // Before the block, the end of the line before it and a blank line are written.
        let block = written.split('\n').position(|line| line.contains(mark));
        if let Some(block) = block.filter(|_| count > 0) {
            self.long.search_lines.push(SearchLines {
                first: earlier.matches('\n').count() + 1 + block + before,
                count,
                rows,
            });
        }
    }
}
