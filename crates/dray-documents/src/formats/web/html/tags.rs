//! Tags: the elements that they open, and those that they close.

use super::attributes::{DeclaredTextStyle, Tag, is_hidden};
use super::kinds::Kind;
use super::walker::{OpenElement, Walker};
use crate::limits::Limit;

impl Walker<'_> {
    /// A start tag: closes the elements that it implicitly ends, then opens its element.
    pub(super) fn start(&mut self, tag: Tag) -> Result<(), Limit> {
        let mut kind = Kind::of(&tag.name);
        if kind == Kind::Root {
            return Ok(());
        }
        // The title of a drawing is text of it, not the title of the page.
        if self.foreign > 0 && kind == Kind::Title {
            kind = Kind::Inline;
        }
        if !kind.is_of_head() && self.top() == Some(Kind::Head) {
            self.pop()?;
        }
        let is_closed = self.xml() && tag.self_closing;
        let is_metadata = matches!(kind, Kind::Dropped | Kind::Head | Kind::Title);
        let text_style = DeclaredTextStyle::of(&tag);
        let concealed = !is_metadata && is_hidden(&tag);
        // If it is left out, its characters are counted instead, as they arrive.
        if (concealed || text_style.hides_text()) && self.out.shows_hidden() {
            self.out.count_hidden("element", 1);
        }
        let hidden = is_metadata || (concealed && !self.out.shows_hidden());
        self.close_implied(kind)?;
        if self.hidden > 0 || hidden {
            if !kind.is_inline() && self.hidden == 0 && self.code.is_none() && !is_metadata {
                self.flush()?;
            }
            if !kind.is_void() && !is_closed {
                self.push(tag.name.into(), kind, hidden);
            }
            return Ok(());
        }
        // A format is counted and not opened. An inline element that hides text is opened. Elements of the same name
        // inside it are opened, too, because their end tags would otherwise end it.
        let is_opened = text_style.hides_text() || self.has_open_inline(&tag.name);
        if kind.is_format() && kind != Kind::Anchor && is_opened && !is_closed && !self.is_deep() {
            kind = Kind::Inline;
        }
        if kind.is_format() || kind.is_void() {
            self.begin_inline(kind, &tag)?;
            if is_closed && kind.is_format() {
                self.end_format(kind);
            }
            return Ok(());
        }
        if self.code.is_some() && kind != Kind::Pre {
            self.code_line(kind);
            kind = Kind::Inline;
        }
        if is_closed {
            return if kind.is_inline() {
                Ok(())
            } else {
                self.flush()
            };
        }
        let depth = self.open.len();
        self.begin_element(kind, tag)?;
        if self.open.len() > depth
            && let Some(open) = self.open.last_mut()
        {
            open.text_style = open.text_style.with(text_style);
        }
        Ok(())
    }

    /// An end tag: closes its element with all that is open inside.
    pub(super) fn stop(&mut self, name: &[u8]) -> Result<(), Limit> {
        let kind = Kind::of(name);
        match kind {
            Kind::Root | Kind::Void | Kind::Rule | Kind::Image | Kind::Input => return Ok(()),
            // `</br>` is a line break (HTML standard, 13.2.6.4.7).
            Kind::Break => return self.line_break(),
            _ => {}
        }
        if self.top() == Some(Kind::Head) && kind != Kind::Head {
            return Ok(());
        }
        if kind.is_format() && self.hidden == 0 && !self.has_open_inline(name) {
            self.end_format(kind);
            return Ok(());
        }
        // An element below the greatest depth was not opened; its end closes only itself.
        if self.beyond > 0
            && self
                .open
                .last()
                .is_none_or(|open| !open.hidden || open.name != name)
        {
            self.beyond -= 1;
            if kind.is_inline() || self.code.is_some() {
                return Ok(());
            }
            return self.flush();
        }
        let Some(at) = self.find(name, kind) else {
            // The end of a block that is not open still ends the line.
            let ends_line = !kind.is_inline() && self.code.is_none() && self.hidden == 0;
            return if ends_line { self.flush() } else { Ok(()) };
        };
        while self.open.len() > at {
            self.pop()?;
        }
        if self.code.is_some() {
            self.code_line(kind);
        }
        Ok(())
    }

    /// The element that an end tag closes.
    fn find(&self, name: &[u8], kind: Kind) -> Option<usize> {
        for (at, open) in self.open.iter().enumerate().rev() {
            // Any end of a heading ends the heading that is open.
            let ends_heading = matches!((kind, open.kind), (Kind::Heading(_), Kind::Heading(_)));
            if open.name == name || ends_heading {
                return Some(at);
            }
            let is_barrier = if open.kind == Kind::Dropped {
                true
            } else if kind == Kind::Table {
                false
            } else if kind.is_of_table() {
                open.kind == Kind::Table
            } else if kind.is_inline() && kind != Kind::Object {
                !open.kind.is_inline()
            } else {
                open.kind.is_scope() || (kind == Kind::Item && open.kind == Kind::List)
            };
            if is_barrier {
                return None;
            }
        }
        None
    }

    /// Whether an element of this name is open within the innermost block.
    fn has_open_inline(&self, name: &[u8]) -> bool {
        let mut inline = self
            .open
            .iter()
            .rev()
            .take_while(|open| open.kind.is_inline());
        inline.any(|open| open.name == name)
    }

    /// The innermost open element.
    pub(super) fn top(&self) -> Option<Kind> {
        self.open.last().map(|open| open.kind)
    }

    /// Opens an element, unless it is nested too deep; a hidden one is always opened, so that its content stays hidden.
    pub(super) fn push(&mut self, name: Vec<u8>, kind: Kind, hidden: bool) -> bool {
        if self.is_deep() && (self.hidden > 0 || !hidden) {
            // Elements whose end tag may be missing would never be counted down.
            if !matches!(
                kind,
                Kind::Paragraph
                    | Kind::Item
                    | Kind::Row
                    | Kind::Cell
                    | Kind::Section
                    | Kind::Term
                    | Kind::Definition
            ) {
                self.beyond = self.beyond.saturating_add(1);
            }
            self.out.warn("elements nested too deeply are shown flat");
            return false;
        }
        let concealed = hidden && !matches!(kind, Kind::Dropped | Kind::Head | Kind::Title);
        self.hidden += u32::from(hidden);
        self.concealed += u32::from(concealed);
        self.open.push(OpenElement {
            name,
            kind,
            hidden,
            concealed,
            text_style: self.text_style(),
            container: false,
            number: None,
            beyond: std::mem::take(&mut self.beyond),
            formats: self.formats,
        });
        true
    }

    /// Closes the elements that the start of such an element implicitly ends.
    fn close_implied(&mut self, kind: Kind) -> Result<(), Limit> {
        if self.beyond > 0 || kind.is_inline() || self.code.is_some() {
            return Ok(());
        }
        if let Some(at) = self.implied(kind) {
            while self.open.len() > at {
                self.pop()?;
            }
        }
        Ok(())
    }

    /// The number of open elements that stay open when such an element starts; `None` if all do.
    fn implied(&self, kind: Kind) -> Option<usize> {
        use Kind::{
            Caption, Cell, Definition, Item, List, Quote, Row, Section, Table, Term, Terms,
        };
        let paragraph = || self.last(&[Kind::Paragraph], &[Table, Cell, Caption]);
        match kind {
            Item => self.last(&[Item], &[List, Quote, Table, Cell, Caption]),
            Term | Definition => {
                self.last(&[Term, Definition], &[Terms, Quote, Table, Cell, Caption])
            }
            Kind::Heading(_) => match self.top() {
                Some(Kind::Heading(_)) => Some(self.open.len() - 1),
                _ => paragraph(),
            },
            Cell => match self.last(&[Row], &[Table]) {
                Some(row) => Some(row + 1),
                None => self.within_table(),
            },
            Row => match self.last(&[Section], &[Table]) {
                Some(section) => Some(section + 1),
                None => self.within_table(),
            },
            Section | Caption => self.within_table(),
            // A table directly inside another table, and not in a cell of it, ends the outer one.
            Table => self
                .last(&[Table, Section, Row], &[Cell, Caption])
                .and_then(|_| self.within_table())
                .map(|within| within - 1)
                .or_else(paragraph),
            Kind::Dropped | Kind::Title | Kind::Head => None,
            _ => paragraph(),
        }
    }

    /// The innermost element of some kinds, unless one of the barriers is before it.
    fn last(&self, wanted: &[Kind], barriers: &[Kind]) -> Option<usize> {
        let is_one_of = |kinds: &[Kind], open: &OpenElement| kinds.contains(&open.kind);
        let at = self.open.iter().rposition(|open| {
            is_one_of(wanted, open) || is_one_of(barriers, open) || open.kind == Kind::Dropped
        })?;
        self.open
            .get(at)
            .is_some_and(|open| is_one_of(wanted, open))
            .then_some(at)
    }

    /// The place right inside the innermost table.
    pub(super) fn within_table(&self) -> Option<usize> {
        self.open
            .iter()
            .rposition(|open| open.kind == Kind::Table)
            .map(|at| at + 1)
    }
}
