//! The state of the conversion of a page: the open elements, and the collected content.

use super::attributes::{DeclaredTextStyle, TextStyle};
use super::kinds::Kind;
use super::table;
use crate::limits::Limit;
use crate::markdown::{Inline, Markdown, Style, visible_characters};

/// Most bytes of a title that are kept.
const MAX_TITLE_BYTES: usize = 1000;

/// An element whose end tag has not been read.
pub(super) struct OpenElement {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    /// Whether the element and its content are hidden.
    pub(super) hidden: bool,
    /// Whether its author hid it; elements such as scripts are never shown.
    pub(super) concealed: bool,
    /// The style that decides whether its text can be read.
    pub(super) text_style: TextStyle,
    /// Whether the element opened a container of the writer.
    pub(super) container: bool,
    /// For a list: the number of the next item; `None` for bullets.
    pub(super) number: Option<u64>,
    /// Elements beyond the depth that were open when this one opened.
    pub(super) beyond: u32,
    /// Formats that were open when this one, a cell, opened.
    pub(super) formats: Formats,
}

/// The number of open elements of each format.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Formats {
    pub(super) bold: u32,
    pub(super) italic: u32,
    pub(super) strike: u32,
    pub(super) code: u32,
    pub(super) superscript: u32,
}

impl Formats {
    fn style(self) -> Style {
        Style {
            bold: self.bold > 0,
            italic: self.italic > 0,
            strike: self.strike > 0,
            code: self.code > 0,
            superscript: self.superscript > 0,
        }
    }
}

/// A `pre` that is open.
#[derive(Default)]
pub(super) struct Code {
    pub(super) text: String,
    pub(super) language: String,
}

/// A link that is open.
pub(super) struct Link {
    url: String,
    /// Whether the link was begun in the line that is being collected.
    begun: bool,
    /// Whether the link had text in this line or in an earlier one.
    shown: bool,
    /// The number of elements that were open when it began.
    depth: usize,
    /// The text properties that its style declares.
    text_style: DeclaredTextStyle,
}

/// Converts a page: a stack of open elements and the content that is collected in them.
pub(super) struct Walker<'o> {
    pub(super) out: &'o mut Markdown,
    xml: bool,
    depth: usize,
    pub(super) open: Vec<OpenElement>,
    /// Elements that were not opened because they are nested too deep.
    pub(super) beyond: u32,
    /// Open elements that are hidden.
    pub(super) hidden: u32,
    /// The number of these that their author hid.
    pub(super) concealed: u32,
    /// Open `svg` and `math`.
    pub(super) foreign: u32,
    pub(super) formats: Formats,
    pub(super) link: Option<Link>,
    pub(super) line: Inline,
    pub(super) heading: Option<u8>,
    pub(super) code: Option<Code>,
    pub(super) tables: Vec<table::OpenTable>,
    /// Whether the open row is counted and not shown.
    pub(super) muted: bool,
    /// Text that is collected and not yet written, in bytes.
    pending: u64,
    title: String,
}

impl<'o> Walker<'o> {
    pub(super) fn new(out: &'o mut Markdown, xml: bool) -> Self {
        let depth = usize::try_from(out.budget().limits().max_depth).unwrap_or(usize::MAX);
        Self {
            out,
            xml,
            depth,
            open: Vec::new(),
            beyond: 0,
            hidden: 0,
            concealed: 0,
            foreign: 0,
            formats: Formats::default(),
            link: None,
            line: Inline::new(),
            heading: None,
            code: None,
            tables: Vec::new(),
            muted: false,
            pending: 0,
            title: String::new(),
        }
    }

    /// Whether the source is XHTML.
    pub(super) fn xml(&self) -> bool {
        self.xml
    }

    /// Checks the time limit.
    pub(super) fn clock(&self) -> Result<(), Limit> {
        self.out.budget().clock()
    }

    /// Whether one more element may be opened.
    pub(super) fn is_deep(&self) -> bool {
        self.open.len() >= self.depth
    }

    /// Counts text that is collected, so that it never grows far beyond the limit of output.
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Limit> {
        self.pending += bytes as u64;
        if self.pending > self.out.budget().text_left() {
            return Err(Limit::Size);
        }
        Ok(())
    }

    /// Adds text between tags to the innermost open element.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Limit> {
        match self.open.last().map(|open| open.kind) {
            // Text in the head means that the body has begun without its tag.
            Some(Kind::Head) if !text.trim().is_empty() => self.pop()?,
            Some(Kind::Title) if self.hidden == 1 && self.title.len() < MAX_TITLE_BYTES => {
                let end = text.floor_char_boundary(MAX_TITLE_BYTES);
                self.title.push_str(text.get(..end).unwrap_or_default());
            }
            _ => {}
        }
        if self.concealed > 0 && self.concealed == self.hidden {
            self.out.count_hidden("character", visible_characters(text));
        }
        if self.hidden > 0 || self.muted {
            return Ok(());
        }
        // White space separates words of the readable text around it.
        if self.text_style().hides_text() && !self.out.shows_hidden() && !text.trim().is_empty() {
            self.out.count_hidden("character", visible_characters(text));
            return Ok(());
        }
        if let Some(code) = &mut self.code {
            code.text.push_str(text);
            return self.count(text.len());
        }
        let text = collapse_white_space(text, self.line.ends_blank());
        if text.is_empty() {
            return Ok(());
        }
        // A space between two links must not begin the second one.
        if text != " " {
            self.show_link();
        }
        self.line.text(&text, self.formats.style());
        self.count(text.len())
    }

    /// The style that decides whether text here can be read.
    pub(super) fn text_style(&self) -> TextStyle {
        let of_element = self.open.last().map(|open| open.text_style);
        let of_element = of_element.unwrap_or_default();
        // A link is not an open element, so that blocks may be inside it; elements inside it inherit from it.
        match &self.link {
            Some(link) if link.depth == self.open.len() => of_element.with(link.text_style),
            _ => of_element,
        }
    }

    /// Begins the open link in this line, now that it has something to show.
    pub(super) fn show_link(&mut self) {
        if let Some(link) = &mut self.link
            && !link.begun
        {
            link.begun = true;
            link.shown = true;
            self.line.begin_link(&link.url);
        }
    }

    /// Opens a link; one that is open ends.
    pub(super) fn begin_link(&mut self, url: Option<String>, text_style: DeclaredTextStyle) {
        self.end_link();
        self.link = url.map(|url| Link {
            url,
            begun: false,
            shown: false,
            depth: self.open.len(),
            text_style,
        });
    }

    /// Closes the open link. A link without text shows its target, unless the target is on the same page.
    pub(super) fn end_link(&mut self) {
        let Some(link) = self.link.take() else {
            return;
        };
        if link.begun {
            self.line.end_link();
        } else if !link.shown && !link.url.trim_start().starts_with('#') && !self.muted {
            self.line.begin_link(&link.url);
            self.line.end_link();
        }
    }

    /// A break within the line.
    pub(super) fn line_break(&mut self) -> Result<(), Limit> {
        if self.hidden > 0 || self.muted {
            return Ok(());
        }
        if let Some(code) = &mut self.code {
            code.text.push('\n');
        } else {
            self.line.line_break();
        }
        self.count("<br>".len())
    }

    /// Ends the line: it becomes a paragraph, or a line of the cell that is open.
    pub(super) fn flush(&mut self) -> Result<(), Limit> {
        if let Some(link) = &mut self.link
            && link.begun
        {
            link.begun = false;
            self.line.end_link();
        }
        if self.heading.is_some() {
            if !self.line.is_blank() {
                self.line.line_break();
            }
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        if line.is_blank() {
            return Ok(());
        }
        if let Some(cell) = self.cell() {
            cell.lines.push(line);
            return Ok(());
        }
        self.clear_pending();
        self.out.paragraph(&line)
    }

    /// Resets the count of collected text after it was written, unless a table is still open.
    pub(super) fn clear_pending(&mut self) {
        if self.tables.iter().all(|table| table.layout) {
            self.pending = 0;
        }
    }

    /// The open cell of the innermost table that has one.
    pub(super) fn cell(&mut self) -> Option<&mut table::OpenCell> {
        self.tables
            .iter_mut()
            .rev()
            .find_map(|table| table.cell.as_mut())
    }

    /// Ends a heading and writes it; in a cell the heading becomes a line of the cell.
    pub(super) fn end_heading(&mut self) -> Result<(), Limit> {
        self.flush()?;
        let Some(level) = self.heading.take() else {
            return Ok(());
        };
        if self.cell().is_some() {
            return self.flush();
        }
        let line = std::mem::take(&mut self.line);
        self.clear_pending();
        self.out.heading(level, &line)
    }

    /// The end of the page: everything closes. A page of only a title shows that.
    pub(super) fn end(&mut self) -> Result<(), Limit> {
        while !self.open.is_empty() {
            self.pop()?;
        }
        self.end_link();
        self.flush()?;
        if self.out.is_empty() {
            let title = collapse_white_space(&self.title, true);
            self.out.heading(1, &Inline::plain(&title))?;
        }
        Ok(())
    }

    /// Writes the collected content after a limit was reached.
    pub(super) fn write_collected(&mut self) {
        if self.tables.iter().any(|table| !table.layout) {
            self.write_collected_table();
        } else if let Some(code) = self.code.take() {
            // The limit that was reached first is the one that is reported.
            let _limit = self.out.code(&code.language, &code.text);
        } else {
            self.heading = None;
            let _limit = self.flush();
        }
        while let Some(open) = self.open.pop() {
            if open.container {
                self.out.close();
            }
        }
    }

    /// Moves lines and rows of inner tables into outer ones, and writes the outermost.
    fn write_collected_table(&mut self) {
        let mut line = Some(std::mem::take(&mut self.line));
        while let Some(mut table) = self.tables.pop() {
            if table.layout {
                continue;
            }
            if let (Some(cell), Some(line)) = (&mut table.cell, line.take()) {
                cell.lines.push(line);
            }
            table.end_cell();
            if table.has_row() {
                line = table.end_row();
            }
            if !table.nested {
                let _limit = self.out.table_so_far(table.table);
            }
        }
    }
}

/// Runs of white space as one space; no space after another space.
fn collapse_white_space(text: &str, mut blank: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{C}') {
            if !blank {
                out.push(' ');
            }
            blank = true;
        } else {
            out.push(character);
            blank = false;
        }
    }
    out
}
