//! Collects paragraphs, rows and notes until they are complete.

use crate::formats::office::label::labelled;
use crate::limits::Limit;
use crate::markdown::{Cell, Inline, ListMarker, Markdown, Style, Table};

/// Most cells of one row; further cells are dropped.
const MAX_ROW_CELLS: usize = 4096;
/// Most notes and comments; further ones are dropped.
const MAX_NOTES: usize = 10_000;

/// Properties of the current paragraph; `\pard` resets them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paragraph {
    /// Heading level from 1; `None` for text.
    pub(super) heading: Option<u8>,
    /// Whether the paragraph is in a cell.
    pub(super) in_table: bool,
    /// Whether the paragraph is in a table within a cell.
    pub(super) nested: bool,
    /// List level from 0.
    pub(super) level: usize,
}

/// Collects blocks and passes them to the writer.
pub(super) struct Blocks<'o> {
    out: &'o mut Markdown,
    line: Inline,
    /// Target of the open link, and whether the link has begun in the current line.
    link: Option<(String, bool)>,
    /// The marker in the list's own text, and its label.
    pub(super) marker: Option<(ListMarker, String)>,
    /// Lines of the cell that is collected.
    cell: Vec<Inline>,
    /// Cells of the row before the one that is collected.
    row: Vec<Vec<Inline>>,
    /// Lines of the open cell of a table inside a cell.
    inner_cell: Vec<Inline>,
    /// Cells before the open one of a table inside a cell.
    inner: Vec<Vec<Inline>>,
    table: Option<Table>,
    rows: u64,
    notes: Vec<Inline>,
    /// Comments, each after the name of its author.
    comments: Vec<Inline>,
    /// The author of the next comment.
    pub(super) author: String,
    /// The line around the open note or comment; `None` outside of notes and comments.
    aside: Option<Inline>,
    /// Bytes that are collected but not yet written, and so not yet counted in the budget.
    pending: u64,
}

impl<'o> Blocks<'o> {
    pub(super) fn new(out: &'o mut Markdown) -> Self {
        Self {
            out,
            line: Inline::new(),
            link: None,
            marker: None,
            cell: Vec::new(),
            row: Vec::new(),
            inner_cell: Vec::new(),
            inner: Vec::new(),
            table: None,
            rows: 0,
            notes: Vec::new(),
            comments: Vec::new(),
            author: String::new(),
            aside: None,
            pending: 0,
        }
    }

    /// The destination of the blocks.
    pub(super) fn out(&mut self) -> &mut Markdown {
        self.out
    }

    /// Appends text; a link that is open begins with the first visible text.
    pub(super) fn text(&mut self, text: &str, style: Style) -> Result<(), Limit> {
        if let Some((url, is_begun)) = &mut self.link
            && !*is_begun
            && !text.trim().is_empty()
        {
            *is_begun = true;
            self.line.begin_link(url);
        }
        self.line.text(text, style);
        self.count(text.len())
    }

    /// Breaks the line without ending its paragraph.
    pub(super) fn line_break(&mut self) -> Result<(), Limit> {
        self.line.line_break();
        self.count("<br>".len())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Limit> {
        self.pending += bytes as u64;
        if self.pending > self.out.budget().text_left() {
            return Err(Limit::Size);
        }
        Ok(())
    }

    /// Opens a link; one inside another is ignored.
    pub(super) fn begin_link(&mut self, url: String) {
        if self.link.is_none() {
            self.link = Some((url, false));
        }
    }

    /// Closes the link. A link without visible text is dropped.
    pub(super) fn end_link(&mut self) {
        if let Some((_, true)) = self.link.take() {
            self.line.end_link();
        }
    }

    /// Removes and returns the collected line. An open link continues in the next line.
    fn take_line(&mut self) -> Inline {
        if let Some((_, is_begun)) = &mut self.link
            && *is_begun
        {
            *is_begun = false;
            self.line.end_link();
        }
        std::mem::take(&mut self.line)
    }

    /// Ends the paragraph: it becomes a block, a line of a cell, or a break in a note.
    pub(super) fn end_paragraph(&mut self, paragraph: Paragraph) -> Result<(), Limit> {
        if self.aside.is_some() {
            return self.line_break();
        }
        let line = self.take_line();
        let marker = self.marker.take();
        if paragraph.in_table {
            let lines = if paragraph.nested {
                &mut self.inner_cell
            } else {
                &mut self.cell
            };
            if !line.is_blank() {
                lines.push(line);
            }
            return self.count("<br>".len());
        }
        self.end_table()?;
        // From here on the writer counts the collected text.
        self.pending = 0;
        match (paragraph.heading, marker) {
            (Some(level), _) => self.out.heading(level, &line),
            (None, Some((marker, label))) => {
                let is_labelled = !label.is_empty() && !line.is_blank();
                let line = if is_labelled {
                    labelled(&label, line)
                } else {
                    line
                };
                self.out.item(paragraph.level, marker, &line)
            }
            (None, None) => self.out.paragraph(&line),
        }
    }

    /// Ends a cell, even without text.
    pub(super) fn end_cell(&mut self) -> Result<(), Limit> {
        let line = self.take_line();
        self.marker = None;
        let mut lines = std::mem::take(&mut self.cell);
        if !line.is_blank() {
            lines.push(line);
        }
        if self.row.len() < MAX_ROW_CELLS {
            self.row.push(lines);
        }
        self.count("| ".len())
    }

    /// Ends a row. A row without cells is ignored.
    pub(super) fn end_row(&mut self) -> Result<(), Limit> {
        let row = std::mem::take(&mut self.row);
        if row.is_empty() {
            return Ok(());
        }
        self.rows += 1;
        let mut table = self.table.take().unwrap_or_else(|| self.out.new_table());
        let mut charged = Ok(());
        if table.wants(self.rows) {
            charged = self.out.budget().element();
            if charged.is_ok() {
                table.row(self.rows, row.iter().map(Cell::lines).collect());
            }
        } else {
            table.skip(self.rows);
        }
        self.table = Some(table);
        charged
    }

    /// Ends a cell of a table within a cell.
    pub(super) fn end_inner_cell(&mut self) -> Result<(), Limit> {
        let mut lines = std::mem::take(&mut self.inner_cell);
        lines.push(self.take_line());
        if self.inner.len() < MAX_ROW_CELLS {
            self.inner.push(lines);
        }
        self.count("; ".len())
    }

    /// Ends a row of a table within a cell: it is one line of that cell.
    pub(super) fn end_inner_row(&mut self) {
        let mut line = Inline::new();
        for (index, cell) in std::mem::take(&mut self.inner).into_iter().enumerate() {
            if index > 0 {
                line.raw(" ; ");
            }
            for (index, paragraph) in cell.into_iter().enumerate() {
                if index > 0 {
                    line.text(" ", Style::default());
                }
                line.append(paragraph);
            }
        }
        if !line.is_blank() {
            self.cell.push(line);
        }
    }

    /// Writes the table that is collected.
    fn end_table(&mut self) -> Result<(), Limit> {
        if !self.inner_cell.is_empty() || !self.inner.is_empty() {
            // The last row of the inner table has no end.
            self.end_inner_row();
            self.cell.append(&mut self.inner_cell);
        }
        // A row without an end counts as a row.
        if !self.cell.is_empty() || !self.row.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.end_cell()?;
            self.end_row()?;
            self.line = line;
        }
        self.rows = 0;
        match self.table.take() {
            Some(table) => self.out.table(table),
            None => Ok(()),
        }
    }

    /// Begins a note. Returns false inside a note, and when there are too many notes.
    pub(super) fn begin_note(&mut self) -> bool {
        if self.aside.is_some() || self.notes.len() + self.comments.len() >= MAX_NOTES {
            return false;
        }
        self.aside = Some(std::mem::take(&mut self.line));
        true
    }

    /// Ends the note. The text keeps the number of the note.
    pub(super) fn end_note(&mut self) {
        let note = std::mem::take(&mut self.line);
        self.line = self.aside.take().unwrap_or_default();
        if !note.is_blank() {
            self.notes.push(note);
            let number = self.notes.len();
            self.line.raw(&format!("[^{number}]"));
        }
    }

    /// Ends the comment. The text keeps no mark of the comment.
    pub(super) fn end_comment(&mut self) {
        let comment = std::mem::take(&mut self.line);
        self.line = self.aside.take().unwrap_or_default();
        let author = std::mem::take(&mut self.author);
        if !comment.is_blank() {
            let mut line = Inline::new();
            if !author.trim().is_empty() {
                line.text(&format!("{}:", author.trim()), Style::default());
                if !comment.to_plain().starts_with(char::is_whitespace) {
                    line.text(" ", Style::default());
                }
            }
            line.append(comment);
            self.comments.push(line);
        }
    }

    /// Ends the document: closes all open parts, then writes the notes.
    pub(super) fn end(&mut self, paragraph: Paragraph) -> Result<(), Limit> {
        if self.aside.is_some() {
            self.end_note();
        }
        self.end_link();
        if paragraph.in_table {
            self.end_paragraph(paragraph)?;
        }
        self.end_paragraph(Paragraph {
            in_table: false,
            ..paragraph
        })?;
        let notes = std::mem::take(&mut self.notes);
        if !notes.is_empty() {
            self.out.heading(3, &Inline::plain("Footnotes"))?;
        }
        for (index, note) in notes.into_iter().enumerate() {
            let mut line = Inline::new();
            line.raw(&format!("[^{}]:", index + 1));
            if !note.to_plain().starts_with(char::is_whitespace) {
                line.text(" ", Style::default());
            }
            line.append(note);
            self.out.paragraph(&line)?;
        }
        let comments = std::mem::take(&mut self.comments);
        if !comments.is_empty() {
            self.out.heading(3, &Inline::plain("Comments"))?;
        }
        for comment in comments {
            self.out.item(0, ListMarker::Bullet, &comment)?;
        }
        Ok(())
    }

    /// Writes the collected content after a limit was reached.
    pub(super) fn write_collected(&mut self) {
        if let Some(mut table) = self.table.take() {
            let row = std::mem::take(&mut self.row);
            if !row.is_empty() {
                table.row(self.rows + 1, row.iter().map(Cell::lines).collect());
            }
            // The limit that was reached first is reported.
            let _limit = self.out.table_so_far(table);
        } else {
            for line in std::mem::take(&mut self.cell) {
                let _limit = self.out.paragraph(&line);
            }
            let line = self.take_line();
            let _limit = self.out.paragraph(&line);
        }
    }
}
