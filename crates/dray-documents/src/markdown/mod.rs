//! The Markdown writer that all formats share.
//!
//! A format passes blocks in the order of the document; the writer separates, escapes and counts them. Every method
//! that writes counts in the budget and returns the limit that it reached. Earlier output is kept, so a converter
//! simply passes the limit on with `?`.

pub mod escape;
mod inline;
mod list;
mod part;
mod picture;
mod rows;
mod superscript;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::rc::Rc;

pub use inline::{Inline, InlinePosition, Style};
pub use list::ListMarker;
pub use part::{Part, Selection, Span, Unit};
pub use picture::Picture;
pub use rows::SearchLines;
pub(crate) use superscript::superscript;
pub use table::{Cell, MAX_TABLE_ROWS, Table};

use crate::limits::{Budget, Limit};

/// Most warnings that are kept.
const MAX_WARNINGS: usize = 20;

/// The containers around the following blocks.
#[derive(Debug)]
enum Container {
    Quote,
    Item { marker: String, fresh: bool },
}

impl Container {
    /// Bytes that it adds before each line.
    fn width(&self) -> usize {
        match self {
            Self::Quote => 2,
            Self::Item { marker, .. } => marker.len(),
        }
    }
}

/// The last written block, which determines whether a blank line follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastWritten {
    Nothing,
    Block,
    /// Text of a list item that is still open at this depth of containers, or an item that was closed.
    Item,
}

/// A document that is being written.
#[derive(Debug)]
pub struct Markdown {
    out: String,
    budget: Rc<Budget>,
    selection: Selection,
    containers: Vec<Container>,
    last: LastWritten,
    parts: Vec<Part>,
    seen: u32,
    warnings: Vec<String>,
    show_hidden: bool,
    /// The amount of hidden content, by unit.
    hidden: BTreeMap<&'static str, u64>,
    pictures: picture::Pictures,
    long: rows::LongContent,
    open_items: list::OpenItems,
}

impl Markdown {
    /// An empty document that counts into this budget.
    pub fn new(budget: Rc<Budget>, selection: Selection) -> Self {
        Self {
            out: String::new(),
            budget,
            selection,
            containers: Vec::new(),
            last: LastWritten::Nothing,
            parts: Vec::new(),
            seen: 0,
            warnings: Vec::new(),
            show_hidden: false,
            hidden: BTreeMap::new(),
            pictures: picture::Pictures::default(),
            long: rows::LongContent::default(),
            open_items: list::OpenItems::default(),
        }
    }

    /// Whether formats include hidden text, which a person who opens the document does not see; by default they leave
    /// it out.
    #[must_use]
    pub fn with_hidden_content(mut self, show: bool) -> Self {
        self.show_hidden = show;
        self
    }

    /// Whether hidden content is to be written.
    pub fn shows_hidden(&self) -> bool {
        self.show_hidden
    }

    /// Counts hidden content, whether it is written or left out. `description` is the unit: `character`, `row`.
    pub fn count_hidden(&mut self, description: &'static str, count: u64) {
        if count > 0 {
            let counted = self.hidden.entry(description).or_default();
            *counted = counted.saturating_add(count);
        }
    }

    /// The budget that counts the work.
    pub fn budget(&self) -> &Rc<Budget> {
        &self.budget
    }

    /// The selected parts of the document.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Announces a page, slide, sheet or chapter. Returns whether it is selected; if not, the format skips it.
    pub fn part(&mut self, unit: Unit, number: u32, title: Option<&str>) -> Result<bool, Limit> {
        self.seen = self.seen.saturating_add(1);
        if !self.selection.wants(unit, number, title) {
            return Ok(false);
        }
        self.budget.element()?;
        self.parts.push(Part {
            unit,
            number,
            title: title
                .map(str::trim)
                .filter(|title| !title.is_empty())
                .map(str::to_owned),
            start: self.out.len(),
        });
        Ok(true)
    }

    /// A heading; levels above 6 count as 6. Blank headings are not written.
    pub fn heading(&mut self, level: u8, text: &Inline) -> Result<(), Limit> {
        let text = text.render(InlinePosition::Heading);
        if text.is_empty() {
            return Ok(());
        }
        let marks = "#".repeat(usize::from(level.clamp(1, 6)));
        // Hashes at the end would be parsed as a closing sequence.
        let text = match text.strip_suffix('#') {
            Some(rest) => format!("{rest}\\#"),
            None => text,
        };
        self.block(&format!("{marks} {text}"), LastWritten::Block)
    }

    /// A paragraph. Blank paragraphs are not written.
    pub fn paragraph(&mut self, text: &Inline) -> Result<(), Limit> {
        let text = text.render(InlinePosition::Block);
        if text.is_empty() {
            return Ok(());
        }
        let lines: Vec<_> = text.split('\n').map(escape::line_start).collect();
        let last = if matches!(self.containers.last(), Some(Container::Item { .. })) {
            LastWritten::Item
        } else {
            LastWritten::Block
        };
        self.block(&lines.join("\n"), last)
    }

    /// Opens a list item: the blocks until [`Markdown::close`] are its content.
    pub fn open_item(&mut self, marker: ListMarker) {
        self.open_items.clear();
        self.containers.push(Container::Item {
            marker: marker.text(),
            fresh: true,
        });
    }

    /// Opens a block quote, until [`Markdown::close`].
    pub fn open_quote(&mut self) {
        self.open_items.clear();
        self.containers.push(Container::Quote);
    }

    /// Closes the innermost item or quote.
    pub fn close(&mut self) {
        self.open_items.clear();
        if let Some(Container::Item { .. }) = self.containers.pop()
            && self.last != LastWritten::Nothing
        {
            self.last = LastWritten::Item;
        } else if self.last == LastWritten::Item {
            self.last = LastWritten::Block;
        }
    }

    /// A fenced block with a language, which may be empty.
    pub fn code(&mut self, language: &str, text: &str) -> Result<(), Limit> {
        let fence = escape::fence_for(text);
        let text = text.strip_suffix('\n').unwrap_or(text);
        self.block(
            &format!("{fence}{language}\n{text}\n{fence}"),
            LastWritten::Block,
        )
    }

    /// A thematic break, written as `---`.
    pub fn rule(&mut self) -> Result<(), Limit> {
        self.block("---", LastWritten::Block)
    }

    /// A sentence of the converter itself, written as `_(…)_`.
    pub fn note(&mut self, words: &str) -> Result<(), Limit> {
        self.block(&format!("_({words})_"), LastWritten::Block)
    }

    /// Text without escapes, with its own blank lines and spaces at line ends, such as a plain text file.
    pub fn as_is(&mut self, text: &str) -> Result<(), Limit> {
        self.budget.element()?;
        self.place(text, LastWritten::Block, true)
    }

    /// Adds a remark that the text does not show. It is a text of this crate, never of the file.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Whether the output is empty.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Writes a block, separated from the preceding block.
    fn block(&mut self, text: &str, last: LastWritten) -> Result<(), Limit> {
        self.budget.element()?;
        self.place(text, last, text.starts_with("```"))
    }

    /// Writes lines with their prefixes. If a text exceeds the budget, its beginning is written: complete rows of a
    /// table, a closed fence.
    fn place(&mut self, text: &str, last: LastWritten, as_is: bool) -> Result<(), Limit> {
        // A lone CR or U+2028 would begin a line without the prefix of its quote or item.
        let text = &*escape::line_feeds(text);
        let indent: usize = self.containers.iter().map(Container::width).sum();
        let lines = if indent == 0 {
            0
        } else {
            text.bytes().filter(|byte| *byte == b'\n').count() + 1
        };
        let mut room = usize::try_from(self.budget.text_left()).unwrap_or(usize::MAX);
        let budget_result = self.budget.text(text.len() + indent * lines);
        if budget_result.is_err() && room == 0 {
            return budget_result;
        }
        self.separate(last);
        let fence = text.len() - text.trim_start_matches('`').len();
        for (index, full_line) in text.split('\n').enumerate() {
            let mut line = full_line;
            let mut is_cut = false;
            if budget_result.is_err() {
                let cost = indent + full_line.len() + 1;
                if cost > room {
                    if index > 0 && text.starts_with('|') {
                        break;
                    }
                    is_cut = true;
                    line = full_line
                        .get(..full_line.floor_char_boundary(room.saturating_sub(indent)))
                        .unwrap_or_default();
                }
                room = room.saturating_sub(cost);
            }
            if index > 0 {
                self.out.push('\n');
            }
            self.line(if as_is { line } else { line.trim_end() });
            if is_cut {
                break;
            }
        }
        if budget_result.is_err() && fence >= 3 {
            // An open fence would include the following text, such as the note on the limit.
            self.out.push('\n');
            self.line(&"`".repeat(fence));
        }
        self.last = last;
        budget_result
    }

    /// One line with its prefix, without trailing white space for an empty line.
    fn line(&mut self, line: &str) {
        let prefix = self.prefix();
        if line.is_empty() {
            self.out.push_str(prefix.trim_end());
        } else {
            self.out.push_str(&prefix);
            self.out.push_str(line);
        }
    }

    /// Writes a line end. Also writes a blank line, unless two items of one list meet, or an item and its sub-list.
    fn separate(&mut self, next: LastWritten) {
        if self.last == LastWritten::Nothing {
            return;
        }
        self.out.push('\n');
        let fresh = matches!(
            self.containers.last(),
            Some(Container::Item { fresh: true, .. })
        );
        let is_tight = self.last == LastWritten::Item
            && (fresh || (next == LastWritten::Item && self.containers.is_empty()));
        if is_tight {
            return;
        }
        let quoted: String = self
            .containers
            .iter()
            .take_while(|container| matches!(container, Container::Quote))
            .map(|_| "> ")
            .collect();
        // Between two blocks of one quote the line is quoted too; where a quote begins it is not.
        if !quoted.is_empty() && self.continues_quote() {
            self.out.push_str(quoted.trim_end());
        }
        self.out.push('\n');
    }

    /// Whether the line before belongs to the quote that is open.
    fn continues_quote(&self) -> bool {
        self.out
            .trim_end_matches('\n')
            .rsplit('\n')
            .next()
            .is_some_and(|line| line.starts_with('>'))
    }

    /// The prefix of the next line; the marker of an item is used only once.
    fn prefix(&mut self) -> String {
        let mut prefix = String::new();
        for container in &mut self.containers {
            match container {
                Container::Quote => prefix.push_str("> "),
                Container::Item { marker, fresh } => {
                    if *fresh {
                        *fresh = false;
                        prefix.push_str(marker);
                    } else {
                        prefix.push_str(&" ".repeat(marker.len()));
                    }
                }
            }
        }
        prefix
    }

    /// Ends the document: trims it and adds the warnings on content that is left out.
    pub fn finish(mut self) -> FinishedMarkdown {
        // These warnings are added even beyond the limit on warnings, because they must not be lost.
        if let Some(amounts) = amounts_text(&self.long.omitted) {
            self.warnings.push(format!("not shown: {amounts}"));
        }
        if let Some(amounts) = amounts_text(&self.hidden) {
            let action = if self.show_hidden { "shown" } else { "dropped" };
            self.warnings
                .push(format!("hidden content {action}: {amounts}"));
        }
        let end = self.out.trim_end().len();
        self.out.truncate(end);
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        FinishedMarkdown {
            markdown: self.out,
            parts: self.parts,
            parts_seen: self.seen,
            warnings: self.warnings,
            pictures: self.pictures.into_found(),
            omitted: self.long.omitted.values().sum(),
            selected_rows: self.long.selected_rows,
            search_lines: self.long.search_lines,
        }
    }
}

/// Amounts with their units, such as `2 cells, 1 character`; `None` without any.
fn amounts_text(counts: &BTreeMap<&'static str, u64>) -> Option<String> {
    let counts: Vec<String> = counts
        .iter()
        .map(|(unit, count)| match count {
            1 => format!("1 {unit}"),
            _ => format!("{count} {unit}s"),
        })
        .collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// Characters of a text that are not white space: the unit in which hidden text is counted.
pub fn visible_characters(text: &str) -> u64 {
    text.chars()
        .filter(|character| !character.is_whitespace())
        .count() as u64
}

/// A finished document, and the numbers of its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedMarkdown {
    /// The Markdown: `\n` line ends, one at the end, empty without output.
    pub markdown: String,
    /// The selected parts, in order.
    pub parts: Vec<Part>,
    /// Number of parts that the document announced, requested or not.
    pub parts_seen: u32,
    /// Remarks for the reader.
    pub warnings: Vec<String>,
    /// Pictures whose text is to be recognised, in order.
    pub pictures: Vec<Picture>,
    /// Rows of tables and lines of outputs that are counted but not in the Markdown.
    pub omitted: u64,
    /// Number of rows that the selection of rows contains, in all tables; 0 without one.
    pub selected_rows: u64,
    /// Lines that only a search reads, in order.
    pub search_lines: Vec<SearchLines>,
}
