//! The state of the walk through a slide, and the handling of closing elements.

use std::rc::Rc;

use super::layout::{Bullets, Layout, Role, TEXT_LEVELS};
use crate::formats::office::blocks::{self, Block, Grid, GridCell, Sink};
use crate::formats::office::deck::Shape;
use crate::formats::office::label::{AutoNumber, list_item};
use crate::formats::office::package::Relations;
use crate::limits::Failure;
use crate::markdown::{Inline, ListMarker, Markdown, Style, visible_characters};
use crate::symbol_font::SymbolFont;

/// The role of an open element.
#[derive(Debug)]
pub(super) enum Tag {
    Plain,
    /// A shape, frame or picture.
    Shape,
    Group,
    GroupProps,
    Picture,
    Para,
    ParaProps,
    Run,
    RunProps,
    Text,
    Table,
    Row,
    /// A cell of a table; `true` when a merged cell covers it.
    Cell(bool),
}

/// The coordinate transformation of a group: maps positions of its children to positions outside of the group, in EMU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) offset: (i64, i64),
    pub(super) extent: (i64, i64),
    pub(super) child_offset: (i64, i64),
    pub(super) child_extent: (i64, i64),
    /// Whether it is switched off in the selection pane, with everything in it.
    pub(super) hidden: bool,
}

impl Group {
    /// A group that does not change positions.
    pub(super) fn new() -> Self {
        Self {
            offset: (0, 0),
            extent: (1, 1),
            child_offset: (0, 0),
            child_extent: (1, 1),
            hidden: false,
        }
    }

    /// The position outside of the group of a position inside.
    fn outer_position(&self, (y, x): (i64, i64)) -> (i64, i64) {
        let scale = |position: i64, from: i64, extent: i64, child_extent: i64, to: i64| -> i64 {
            // The product has 128 bits, because the product of two lengths in EMU exceeds 64 bits.
            let scaled = i128::from(position.saturating_sub(from)) * i128::from(extent)
                / i128::from(if child_extent == 0 { 1 } else { child_extent });
            i64::try_from(scaled).unwrap_or(i64::MAX).saturating_add(to)
        };
        (
            scale(
                y,
                self.child_offset.0,
                self.extent.0,
                self.child_extent.0,
                self.offset.0,
            ),
            scale(
                x,
                self.child_offset.1,
                self.extent.1,
                self.child_extent.1,
                self.offset.1,
            ),
        )
    }
}

/// A shape whose end was not reached yet.
#[derive(Debug, Default)]
pub(super) struct OpenShape {
    pub(super) role: Option<Role>,
    pub(super) position: Option<(i64, i64)>,
    pub(super) bullets: Bullets,
    /// The level of the shape's list style that is being read.
    pub(super) level: Option<usize>,
    pub(super) alt: String,
    pub(super) image: String,
    /// Whether it is switched off in the selection pane.
    pub(super) hidden: bool,
    /// The last list number of each level.
    pub(super) numbers: [Option<u64>; TEXT_LEVELS],
}

/// The list marker of a paragraph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    Bullet,
    /// The first number, and how numbers are shown.
    Number(u64, AutoNumber),
}

/// A paragraph whose end was not reached yet.
#[derive(Debug, Default)]
pub(super) struct Para {
    pub(super) text: Inline,
    pub(super) level: usize,
    pub(super) mark: Option<Mark>,
    /// Whether the current run is a link.
    pub(super) linked: bool,
}

/// A table whose end was not reached yet.
#[derive(Debug)]
pub(super) struct OpenTable {
    pub(super) grid: Grid,
    pub(super) cells: Vec<GridCell>,
}

/// Fonts of a run whose codes are not those of letters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SymbolFonts {
    /// Of all its text.
    pub(super) latin: Option<SymbolFont>,
    /// Of its private characters.
    pub(super) symbol: Option<SymbolFont>,
}

impl SymbolFonts {
    fn translate(self, character: char) -> char {
        let is_private = ('\u{F000}'..='\u{F0FF}').contains(&character);
        let font = self.latin.or(self.symbol.filter(|_| is_private));
        font.map_or(character, |font| font.translate(character))
    }
}

/// The walk through one slide, or through the notes of a slide.
#[derive(Debug)]
pub(super) struct Walker {
    pub(super) relations: Relations,
    pub(super) layout: Rc<Layout>,
    pub(super) tags: Vec<Tag>,
    pub(super) groups: Vec<Group>,
    pub(super) shape: Option<OpenShape>,
    pub(super) para: Option<Para>,
    pub(super) tables: Vec<OpenTable>,
    pub(super) style: Style,
    pub(super) symbol_fonts: SymbolFonts,
    /// Whether a character of a symbol font was met that is not known.
    pub(super) unknown_symbols: bool,
    pub(super) sink: Sink,
    pub(super) shapes: Vec<Shape>,
    pub(super) hidden: bool,
    /// Characters of hidden shapes that were met in this part.
    pub(super) hidden_characters: u64,
    body_only: bool,
}

impl Walker {
    pub(super) fn new(relations: Relations, layout: Rc<Layout>) -> Self {
        Self {
            relations,
            layout,
            tags: Vec::new(),
            groups: Vec::new(),
            shape: None,
            para: None,
            tables: Vec::new(),
            style: Style::default(),
            symbol_fonts: SymbolFonts::default(),
            unknown_symbols: false,
            sink: Sink::default(),
            shapes: Vec::new(),
            hidden: false,
            hidden_characters: 0,
            body_only: false,
        }
    }

    /// Keeps only the text of body placeholders. Used for notes.
    pub(super) fn only_body(&mut self) {
        self.body_only = true;
    }

    /// Adds text to the open paragraph. Ignores text outside of `a:t`.
    pub(super) fn characters(&mut self, text: &str) {
        // Text outside of `a:t` is indentation of the XML.
        if !matches!(self.tags.last(), Some(Tag::Text)) {
            return;
        }
        self.count_if_hidden(text);
        let fonts = self.symbol_fonts;
        let translated: String = text
            .chars()
            .map(|character| fonts.translate(character))
            .collect();
        let unknown = char::REPLACEMENT_CHARACTER;
        self.unknown_symbols |= translated.contains(unknown) && !text.contains(unknown);
        let style = self.style;
        if let Some(para) = &mut self.para {
            // PowerPoint writes a line break within text as a vertical tab.
            let text = translated
                .replace(['\n', '\t'], " ")
                .replace('\u{B}', "\n")
                .replace('\u{AD}', "");
            para.text.text(&text, style);
        }
    }

    /// Handles the end of the innermost element.
    pub(super) fn close(&mut self, out: &Markdown) -> Result<(), Failure> {
        match self.tags.pop() {
            Some(Tag::Shape) => self.end_shape(out),
            Some(Tag::Picture) => {
                if let Some(shape) = &self.shape {
                    let alt = shape.alt.replace(['\r', '\n'], " ");
                    let mut text = Inline::new();
                    text.image(&alt, &shape.image);
                    self.count_if_hidden(&alt);
                    self.keep(Block::Paragraph(text));
                }
                self.end_shape(out);
            }
            Some(Tag::Group) => {
                self.groups.pop();
            }
            Some(Tag::Para) => self.end_para(),
            Some(Tag::Run) => {
                // The format applies to this run only; the next run states its own format.
                self.style = Style::default();
                self.symbol_fonts = SymbolFonts::default();
                if let Some(para) = &mut self.para
                    && std::mem::take(&mut para.linked)
                {
                    para.text.end_link();
                }
            }
            Some(Tag::Cell(covered)) => {
                let lines = blocks::lines_of_blocks(self.sink.end());
                if let Some(table) = self.tables.last_mut() {
                    table.cells.push(GridCell {
                        // A covered cell keeps the text from before the merge, which PowerPoint does not show.
                        lines: if covered { Vec::new() } else { lines },
                        columns: 1,
                        rows: 1,
                    });
                }
            }
            Some(Tag::Row) => {
                if let Some(table) = self.tables.last_mut() {
                    let cells = std::mem::take(&mut table.cells);
                    table.grid.row(cells, out)?;
                }
            }
            Some(Tag::Table) => {
                if let Some(table) = self.tables.pop() {
                    self.keep(Block::Table(table.grid));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a block to the open shape or cell.
    pub(super) fn keep(&mut self, block: Block) {
        self.sink.keep(block);
    }

    /// Begins a shape. A shape inside another shape replaces it and keeps its blocks.
    pub(super) fn begin_shape(&mut self) {
        let outer = self.shape.take();
        if outer.is_none() {
            self.sink.begin();
        }
        self.shape = Some(OpenShape {
            hidden: outer.is_some_and(|outer| outer.hidden),
            ..OpenShape::default()
        });
    }

    /// Whether a person does not see the open shape, or its group.
    fn is_shape_hidden(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| shape.hidden)
            || self.groups.iter().any(|group| group.hidden)
    }

    /// Counts a text of the open shape if a person does not see it.
    pub(super) fn count_if_hidden(&mut self, text: &str) {
        if self.is_shape_hidden() {
            self.hidden_characters += visible_characters(text);
        }
    }

    fn end_shape(&mut self, out: &Markdown) {
        let is_omitted = self.is_shape_hidden() && !out.shows_hidden();
        let Some(shape) = self.shape.take() else {
            return;
        };
        let blocks = self.sink.end();
        if is_omitted {
            return;
        }
        let role = shape.role.as_ref();
        // The heading of the slide already contains its number.
        if role.is_some_and(|role| role.kind == "sldNum")
            || (self.body_only && role.is_none_or(|role| role.kind != "body"))
        {
            return;
        }
        let own = shape.position.map(|position| {
            self.groups
                // The groups are applied from the innermost outwards, because each group has its own coordinates for
                // its children.
                .iter()
                .rev()
                .fold(position, |position, group| group.outer_position(position))
        });
        self.shapes.push(Shape {
            title: role.is_some_and(Role::is_title),
            position: own.or_else(|| role.and_then(|role| self.layout.position(role))),
            blocks,
        });
    }

    fn end_para(&mut self) {
        let Some(para) = self.para.take() else {
            return;
        };
        if para.text.is_blank() {
            return;
        }
        let level = para.level.min(TEXT_LEVELS - 1);
        let mark = para.mark.unwrap_or_else(|| self.inherited(level));
        let block = match mark {
            Mark::None => Block::Paragraph(para.text),
            Mark::Bullet => Block::Item(level, ListMarker::Bullet, para.text),
            Mark::Number(start, shown) => {
                let number = self.next_number(level, start);
                list_item(
                    level,
                    ListMarker::Number(number),
                    &shown.label(number),
                    para.text,
                )
            }
        };
        // As in PowerPoint, the numbering of a level restarts after a paragraph without a number.
        if !matches!(mark, Mark::Number(..)) {
            self.restart_numbers(level);
        }
        self.keep(block);
    }

    /// The inherited marker of a paragraph that states none.
    fn inherited(&self, level: usize) -> Mark {
        // Cells of tables inherit from the table style, which has no bullets.
        if !self.tables.is_empty() {
            return Mark::None;
        }
        let Some(shape) = &self.shape else {
            return Mark::None;
        };
        let own = shape.bullets.get(level).copied().flatten();
        let bullet = own.unwrap_or_else(|| match &shape.role {
            // Layouts rarely state bullets of deeper levels, but PowerPoint draws them.
            Some(role) if !role.is_title() => self.layout.has_bullet(role, level) || level > 0,
            Some(_) => false,
            None => level > 0,
        });
        if bullet && !self.body_only {
            Mark::Bullet
        } else {
            Mark::None
        }
    }

    fn next_number(&mut self, level: usize, start: u64) -> u64 {
        let Some(shape) = &mut self.shape else {
            return start;
        };
        for deeper in shape.numbers.iter_mut().skip(level + 1) {
            *deeper = None;
        }
        match shape.numbers.get_mut(level) {
            Some(last) => {
                let number = last.map_or(start, |last| last.saturating_add(1));
                *last = Some(number);
                number
            }
            None => start,
        }
    }

    /// Restarts the numbering of this level and of all deeper levels.
    fn restart_numbers(&mut self, level: usize) {
        if let Some(shape) = &mut self.shape {
            for count in shape.numbers.iter_mut().skip(level) {
                *count = None;
            }
        }
    }
}
