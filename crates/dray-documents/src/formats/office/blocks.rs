//! Blocks that cannot be written immediately: the content of a cell, a text box or a note.

use crate::limits::Limit;
use crate::markdown::{Cell, Inline, ListMarker, Markdown, Style, Table};

/// Most lines of one cell or note.
const MAX_LINES: usize = 50_000;

/// A block, ready to be written.
#[derive(Debug)]
pub(in crate::formats) enum Block {
    Heading(u8, Inline),
    Paragraph(Inline),
    Item(usize, ListMarker, Inline),
    Table(Grid),
}

impl Block {
    /// A bullet of plain text.
    pub(in crate::formats) fn bullet(text: &str) -> Self {
        Self::Item(0, ListMarker::Bullet, Inline::plain(text))
    }

    fn is_blank(&self) -> bool {
        match self {
            Self::Heading(_, text) | Self::Paragraph(text) | Self::Item(_, _, text) => {
                text.is_blank()
            }
            Self::Table(_) => false,
        }
    }

    fn write(self, out: &mut Markdown) -> Result<(), Limit> {
        match self {
            Self::Heading(level, text) => out.heading(level, &text),
            Self::Paragraph(text) => out.paragraph(&text),
            Self::Item(depth, marker, text) => out.item(depth, marker, &text),
            Self::Table(grid) => out.table(grid.table),
        }
    }

    /// Appends the lines of the block, for a place that can contain only lines.
    fn flatten(self, lines: &mut Vec<Inline>) {
        match self {
            Self::Heading(_, text) | Self::Paragraph(text) => lines.push(text),
            Self::Item(_, marker, text) => {
                let mut line = Inline::new();
                match marker {
                    ListMarker::Bullet => line.raw("- "),
                    ListMarker::Number(number) => line.raw(&format!("{number}. ")),
                    ListMarker::Definition => {}
                }
                line.append(text);
                lines.push(line);
            }
            Self::Table(grid) => lines.extend(grid.lines),
        }
    }
}

/// The lines of blocks for a position that can contain only lines, such as a cell.
pub(in crate::formats) fn lines_of_blocks(blocks: Vec<Block>) -> Vec<Inline> {
    let mut lines = Vec::new();
    for block in blocks {
        block.flatten(&mut lines);
    }
    lines.retain(|line| !line.is_blank());
    lines
}

/// Blocks as one line, such as a note.
pub(in crate::formats) fn one_line(blocks: Vec<Block>) -> Inline {
    let mut all = Inline::new();
    for (index, next) in lines_of_blocks(blocks).into_iter().enumerate() {
        if index > 0 {
            all.text(" ", Style::default());
        }
        all.append(next);
    }
    all
}

/// The target of blocks: the document, or the block that is open inside it.
#[derive(Debug, Default)]
pub(in crate::formats) struct Sink {
    open: Vec<Vec<Block>>,
}

impl Sink {
    /// Whether blocks are kept for a cell, a text box or a note instead of being written.
    pub(in crate::formats) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Keeps the blocks that follow until [`Sink::end`].
    pub(in crate::formats) fn begin(&mut self) {
        self.open.push(Vec::new());
    }

    /// The blocks since [`Sink::begin`].
    pub(in crate::formats) fn end(&mut self) -> Vec<Block> {
        self.open.pop().unwrap_or_default()
    }

    /// Appends a block to the innermost open collection; without one, the block is dropped.
    pub(in crate::formats) fn keep(&mut self, block: Block) {
        if let Some(innermost) = self.open.last_mut()
            && !block.is_blank()
            && innermost.len() < MAX_LINES
        {
            innermost.push(block);
        }
    }

    /// Writes or keeps a block; ignores a blank one.
    pub(in crate::formats) fn put(
        &mut self,
        block: Block,
        out: &mut Markdown,
    ) -> Result<(), Limit> {
        match self.open.last() {
            _ if block.is_blank() => Ok(()),
            Some(_) => {
                self.keep(block);
                Ok(())
            }
            None => block.write(out),
        }
    }
}

/// A cell with the columns and rows that it spans.
#[derive(Debug, Default)]
pub(in crate::formats) struct GridCell {
    pub(in crate::formats) lines: Vec<Inline>,
    pub(in crate::formats) columns: usize,
    pub(in crate::formats) rows: usize,
}

/// A table whose rows are still arriving. A table inside another table becomes lines, `a ; b` for each row.
#[derive(Debug)]
pub(in crate::formats) struct Grid {
    table: Table,
    nested: bool,
    lines: Vec<Inline>,
    row: u64,
}

impl Grid {
    /// A table without rows; `nested` tables become lines of the cell around them.
    pub(in crate::formats) fn new(out: &Markdown, nested: bool) -> Self {
        Self {
            table: out.new_table(),
            nested,
            lines: Vec::new(),
            row: 0,
        }
    }

    /// Appends a row, which counts as an element.
    pub(in crate::formats) fn row(
        &mut self,
        cells: Vec<GridCell>,
        out: &Markdown,
    ) -> Result<(), Limit> {
        out.budget().element()?;
        self.row += 1;
        if self.nested {
            if self.lines.len() < MAX_LINES {
                self.lines.push(flat_row(cells));
            }
        } else if self.table.full() {
            // The rows are counted, but not rendered: a table of a million rows shows the first thousand.
            self.table.skip(self.row);
        } else {
            let cells = cells.into_iter().map(|cell| {
                Cell::lines(&cell.lines)
                    .columns(cell.columns)
                    .rows(cell.rows)
            });
            self.table.row(self.row, cells.collect());
        }
        Ok(())
    }

    /// Writes the rows that arrived before a limit ended the conversion.
    pub(in crate::formats) fn write_so_far(self, out: &mut Markdown) -> Result<(), Limit> {
        out.table_so_far(self.table)
    }
}

/// The cells of a row as one line, `a ; b`; empty ones are left out.
fn flat_row(cells: Vec<GridCell>) -> Inline {
    let mut line = Inline::new();
    let mut first = true;
    for cell in cells {
        let mut text = Inline::new();
        for (index, part) in cell.lines.into_iter().enumerate() {
            if index > 0 {
                text.text(" ", Style::default());
            }
            text.append(part);
        }
        if text.is_blank() {
            continue;
        }
        if !std::mem::take(&mut first) {
            line.text(" ; ", Style::default());
        }
        line.append(text);
    }
    line
}
