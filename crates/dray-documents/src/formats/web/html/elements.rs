//! Handles the start tag and the end tag of each element.

use super::attributes::{
    DeclaredTextStyle, Tag, attribute_value, cell_span, code_language, item_number,
};
use super::kinds::Kind;
use super::table;
use super::walker::{Code, Walker};
use crate::formats::collapse_white_space;
use crate::limits::Limit;
use crate::markdown::{Inline, ListMarker, Style, visible_characters};

impl Walker<'_> {
    /// Formats, breaks, rules, images and checkboxes.
    pub(super) fn begin_inline(&mut self, kind: Kind, tag: &Tag) -> Result<(), Limit> {
        match kind {
            Kind::Bold => self.formats.bold += 1,
            Kind::Italic => self.formats.italic += 1,
            Kind::Strike => self.formats.strike += 1,
            Kind::Superscript => self.formats.superscript += 1,
            Kind::Code => match &mut self.code {
                // The language is often a class of the `code` inside of `pre`.
                Some(code) if code.language.is_empty() => code.language = code_language(tag),
                Some(_) => {}
                None => self.formats.code += 1,
            },
            Kind::Anchor if self.code.is_none() => {
                self.begin_link(attribute_value(tag, b"href"), DeclaredTextStyle::of(tag));
            }
            Kind::Marks => self.text("\"")?,
            Kind::Break => self.line_break()?,
            Kind::Rule if self.code.is_none() => {
                self.end_heading()?;
                // A rule inside a cell would end the table.
                if self.cell().is_none() {
                    self.out.rule()?;
                }
            }
            Kind::Image if !self.muted && self.code.is_none() => {
                let alt = attribute_value(tag, b"alt").unwrap_or_default();
                let name = attribute_value(tag, b"src").unwrap_or_default();
                let alt = collapse_white_space(&alt);
                // An image may be all the content of a link.
                self.show_link();
                self.line.image(&alt, &name);
                self.count(alt.len() + name.len())?;
            }
            Kind::Input if !self.muted && self.code.is_none() => self.input(tag)?,
            _ => {}
        }
        Ok(())
    }

    /// The state of a field of a form: a ticked box, or the text that it holds.
    fn input(&mut self, tag: &Tag) -> Result<(), Limit> {
        let kind = attribute_value(tag, b"type").unwrap_or_default();
        let is_checked = attribute_value(tag, b"checked").is_some();
        match kind.trim().to_ascii_lowercase().as_str() {
            // The box of a task is part of its item in Markdown.
            "checkbox" if self.open.iter().any(|open| open.kind == Kind::Item) => {
                self.line.raw(if is_checked { "[x] " } else { "[ ] " });
            }
            "checkbox" | "radio" => self.text(if is_checked { "☒ " } else { "☐ " })?,
            "hidden" | "password" | "submit" | "button" | "reset" | "image" | "file" | "color"
            | "range" => {}
            _ => {
                let value = attribute_value(tag, b"value").unwrap_or_default();
                let style = self.text_style().with(DeclaredTextStyle::of(tag));
                if style.hides_text() && !self.out.shows_hidden() {
                    self.out
                        .count_hidden("character", visible_characters(&value));
                } else if !value.trim().is_empty() {
                    // Browsers draw a frame around the value.
                    self.text(" ")?;
                    self.text(&value)?;
                    self.text(" ")?;
                }
            }
        }
        Ok(())
    }

    /// Ends one element of a format; an end without a start is ignored.
    pub(super) fn end_format(&mut self, kind: Kind) {
        let count = match kind {
            Kind::Bold => &mut self.formats.bold,
            Kind::Italic => &mut self.formats.italic,
            Kind::Strike => &mut self.formats.strike,
            Kind::Superscript => &mut self.formats.superscript,
            Kind::Code if self.code.is_none() => &mut self.formats.code,
            Kind::Anchor => return self.end_link(),
            Kind::Marks => {
                if self.hidden == 0 && !self.muted {
                    self.line.text("\"", Style::default());
                }
                return;
            }
            _ => return,
        };
        // Closing tags without an opening one are common.
        *count = count.saturating_sub(1);
    }

    /// An element with content begins.
    pub(super) fn begin_element(&mut self, kind: Kind, tag: Tag) -> Result<(), Limit> {
        if kind.is_inline() {
            self.foreign += u32::from(kind == Kind::Foreign && !self.is_deep());
            self.push(tag.name.into(), kind, false);
            return Ok(());
        }
        match kind {
            Kind::List | Kind::Item | Kind::Quote | Kind::Pre | Kind::Table => {
                self.end_heading()?;
            }
            _ => self.flush()?,
        }
        let kind = self.table_part_kind(kind)?;
        let (number, first) = (item_number(&tag), attribute_value(&tag, b"start"));
        let ordered = tag.name.as_slice() == b"ol";
        let is_chosen =
            tag.name.as_slice() == b"option" && attribute_value(&tag, b"selected").is_some();
        let pre = (kind == Kind::Pre).then(|| code_language(&tag));
        let spans = (cell_span(&tag, b"colspan"), cell_span(&tag, b"rowspan"));
        let layout = attribute_value(&tag, b"role")
            .is_some_and(|role| matches!(role.trim(), "presentation" | "none"));
        if !self.push(tag.name.into(), kind, false) {
            return Ok(());
        }
        match kind {
            Kind::List => {
                let first = first
                    .and_then(|first| first.trim().parse().ok())
                    .unwrap_or(1);
                if let Some(open) = self.open.last_mut() {
                    open.number = ordered.then_some(first);
                }
            }
            Kind::Item => self.begin_item(number)?,
            Kind::Quote => self.open_container(None),
            Kind::Definition => self.open_container(Some(ListMarker::Definition)),
            // In a cell a heading is a plain line, because `#` would be text there.
            Kind::Heading(level) if self.cell().is_none() => self.heading = Some(level),
            Kind::Pre => {
                self.code = Some(Code {
                    text: String::new(),
                    language: pre.unwrap_or_default(),
                });
            }
            Kind::Table => {
                let nested = self.cell().is_some();
                let table = self.out.new_table();
                self.tables
                    .push(table::OpenTable::new(layout, nested, table));
            }
            Kind::Block if is_chosen => self.text("☒ ")?,
            Kind::Row => self.begin_row()?,
            Kind::Cell => {
                if let Some(table) = self.tables.last_mut().filter(|table| !table.layout) {
                    table.cell = Some(table::OpenCell::spanning(spans.0, spans.1));
                }
                self.count("| ".len())?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Parts of a table outside of a table are plain blocks; a cell outside of a row opens a row.
    fn table_part_kind(&mut self, kind: Kind) -> Result<Kind, Limit> {
        if !kind.is_of_table() {
            return Ok(kind);
        }
        // A cell outside of a table is laid out like a block by browsers.
        if self.beyond > 0 || self.within_table().is_none() {
            return Ok(Kind::Block);
        }
        if kind == Kind::Cell && self.top() != Some(Kind::Row) {
            if !self.push(b"tr".to_vec(), Kind::Row, false) {
                return Ok(Kind::Block);
            }
            self.begin_row()?;
        }
        Ok(kind)
    }

    fn begin_row(&mut self) -> Result<(), Limit> {
        let Some(table) = self.tables.last_mut() else {
            return Ok(());
        };
        let wanted = table.begin_row();
        if !table.layout && !table.nested {
            self.muted = !wanted;
            if wanted {
                self.out.budget().element()?;
            }
        }
        Ok(())
    }

    /// An item: its marker is the number it has, or the list's next.
    fn begin_item(&mut self, value: Option<u64>) -> Result<(), Limit> {
        let list = self
            .open
            .iter_mut()
            .rev()
            .find(|open| open.kind == Kind::List || open.kind.is_scope());
        let marker = match list.and_then(|list| list.number.as_mut()) {
            Some(next) => {
                // `<li value=…>` also sets the numbers of the items after it.
                let number = value.unwrap_or(*next);
                *next = number.saturating_add(1);
                ListMarker::Number(number)
            }
            None => ListMarker::Bullet,
        };
        self.open_container(Some(marker));
        if self.cell().is_some() && !self.muted {
            match marker {
                // A cell has no blocks, so the marker is written as text.
                ListMarker::Number(number) => self.line.raw(&format!("{number}. ")),
                ListMarker::Bullet | ListMarker::Definition => self.line.raw("- "),
            }
            self.count(2)?;
        }
        Ok(())
    }

    /// Opens an item or a quote of the writer, except inside a cell.
    fn open_container(&mut self, marker: Option<ListMarker>) {
        if self.cell().is_some() {
            return;
        }
        match marker {
            Some(marker) => self.out.open_item(marker),
            None => self.out.open_quote(),
        }
        if let Some(open) = self.open.last_mut() {
            open.container = true;
        }
    }

    /// Begins a new line for a block inside code.
    pub(super) fn code_line(&mut self, kind: Kind) {
        if let Some(code) = &mut self.code
            && !kind.is_inline()
            && !code.text.is_empty()
            && !code.text.ends_with('\n')
        {
            code.text.push('\n');
        }
    }

    /// Closes the innermost element.
    pub(super) fn pop(&mut self) -> Result<(), Limit> {
        let Some(open) = self.open.last() else {
            return Ok(());
        };
        let (kind, hidden, concealed) = (open.kind, open.hidden, open.concealed);
        // Inside a hidden element no block was begun, so none has to end.
        if self.hidden == 0 {
            match kind {
                Kind::Heading(_) => self.end_heading()?,
                Kind::Pre => self.end_code()?,
                _ if kind.is_inline() || self.code.is_some() => {}
                _ => self.flush()?,
            }
            match kind {
                Kind::Foreign => self.foreign = self.foreign.saturating_sub(1),
                Kind::Cell => self.end_cell(),
                Kind::Row => self.end_row(),
                Kind::Table => self.end_table()?,
                _ => {}
            }
        }
        if let Some(open) = self.open.pop() {
            self.beyond = open.beyond;
            self.hidden -= u32::from(hidden);
            self.concealed -= u32::from(concealed);
            if open.container {
                self.out.close();
            }
            // A format left open in a cell must not extend over the remaining page.
            if matches!(kind, Kind::Cell | Kind::Caption) {
                self.formats = open.formats;
            }
        }
        Ok(())
    }

    fn end_code(&mut self) -> Result<(), Limit> {
        let Some(code) = self.code.take() else {
            return Ok(());
        };
        // A line end directly after `<pre>` is not part of the text (HTML standard, 13.1.2.5).
        let text = code.text.strip_prefix('\n').unwrap_or(&code.text);
        if text.trim().is_empty() {
            return Ok(());
        }
        if let Some(cell) = self.cell() {
            let style = Style {
                code: true,
                ..Style::default()
            };
            for line in text.trim_end().split('\n') {
                let mut inline = Inline::new();
                inline.text(line, style);
                cell.lines.push(inline);
            }
            return Ok(());
        }
        self.clear_pending();
        self.out.code(&code.language, text)
    }

    fn end_cell(&mut self) {
        self.end_link();
        if let Some(table) = self.tables.last_mut() {
            table.end_cell();
        }
    }

    fn end_row(&mut self) {
        let line = match self.tables.last_mut() {
            Some(table) if !table.layout => table.end_row(),
            _ => None,
        };
        if let Some(line) = line
            && let Some(cell) = self.cell()
        {
            cell.lines.push(line);
        }
        if self
            .tables
            .last()
            .is_some_and(|table| !table.nested && !table.layout)
        {
            self.muted = false;
        }
    }

    fn end_table(&mut self) -> Result<(), Limit> {
        let Some(table) = self.tables.pop() else {
            return Ok(());
        };
        if table.layout || table.nested {
            return Ok(());
        }
        self.clear_pending();
        self.out.table(table.table)
    }
}
