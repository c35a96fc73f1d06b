//! The state of the walk through a DOCX part.

use std::collections::HashMap;

use super::field::Field;
use super::form_field::FormField;
use super::math::MathGroup;
use super::numbering::Numbering;
use super::styles::{ListMembership, Styles};
use crate::formats::office::blocks::{Block, Grid, GridCell, Sink};
use crate::formats::office::package::Relations;
use crate::formats::office::xml::Element;
use crate::hex::parse_hex;
use crate::limits::Limit;
use crate::markdown::{Inline, Markdown, Style, visible_characters};
use crate::symbol_font::SymbolFont;

/// The role of an open element.
#[derive(Debug)]
pub(super) enum Tag {
    /// An element without its own role, whose children are read.
    Plain,
    /// Properties of a paragraph.
    ParaProps,
    /// Properties of a paragraph's mark.
    MarkProps,
    Para,
    /// A run, and the format of the one around it.
    Run(Run),
    RunProps,
    /// Characters that are shown.
    Text,
    /// Characters of a field's instruction.
    Instruction,
    /// A part of an equation that is shown with signs around it.
    Math(MathGroup),
    /// Characters of an equation.
    MathText,
    /// Data of a form field.
    FormField,
    /// A link, when it opened one.
    Link(bool),
    Table,
    Row,
    RowProps,
    Cell,
    /// A text box, with the fields around it.
    Box(Vec<Field>),
    /// An embedded object, whose preview picture is not shown.
    Object,
    /// A drawing or a shape of one, with the value of [`Walker::hidden_drawing`] around it.
    Drawing(bool),
    /// A footnote, endnote or comment.
    Note {
        id: String,
        author: String,
    },
}

/// Format of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) style: Style,
    pub(super) hidden: bool,
    /// The font of its text, if its codes are not those of letters.
    pub(super) symbols: Option<SymbolFont>,
}

/// A paragraph whose end was not reached yet.
#[derive(Debug, Default)]
pub(super) struct Para {
    pub(super) text: Inline,
    pub(super) style: Option<String>,
    pub(super) listed: ListMembership,
    pub(super) outline: Option<u8>,
    /// Whether its style hides its text.
    pub(super) hidden: bool,
    /// Whether its mark is deleted, so the next paragraph continues this one.
    pub(super) merges: bool,
    /// Blocks that are anchored in it and follow it.
    pub(super) after: Vec<Block>,
}

/// A table whose end was not reached yet.
#[derive(Debug)]
pub(super) struct OpenTable {
    pub(super) grid: Grid,
    pub(super) cells: Vec<GridCell>,
    /// Columns that the open cell spans.
    pub(super) span: usize,
    /// Whether the open cell continues the one above.
    pub(super) continues: bool,
    pub(super) row_deleted: bool,
    pub(super) after_row: usize,
}

/// A footnote, endnote or comment.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) id: String,
    pub(super) author: String,
    pub(super) text: Inline,
}

/// Notes in the order in which the text refers to them.
#[derive(Debug, Default)]
pub(super) struct Notes {
    numbers: HashMap<String, usize>,
    order: Vec<String>,
}

impl Notes {
    /// The number of a note, from 1.
    pub(super) fn number(&mut self, id: &str) -> usize {
        if let Some(number) = self.numbers.get(id) {
            return *number;
        }
        self.order.push(id.to_owned());
        self.numbers.insert(id.to_owned(), self.order.len());
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn in_order(&self) -> impl Iterator<Item = (usize, &str)> {
        self.order
            .iter()
            .enumerate()
            .map(|(index, id)| (index + 1, id.as_str()))
    }
}

/// The order of notes, for both kinds.
#[derive(Debug, Default)]
pub(super) struct References {
    pub(super) footnotes: Notes,
    pub(super) endnotes: Notes,
}

/// The walk through the parts, and the state that they share.
#[derive(Debug)]
pub(super) struct Walker {
    pub(super) styles: Styles,
    pub(super) numbering: Numbering,
    pub(super) relations: Relations,
    pub(super) sink: Sink,
    pub(super) tags: Vec<Tag>,
    pub(super) paras: Vec<Para>,
    pub(super) tables: Vec<OpenTable>,
    pub(super) fields: Vec<Field>,
    /// Number of open fields beyond the limit, which are not tracked.
    pub(super) untracked_fields: usize,
    /// Data of the field that began last, if it is a form field.
    pub(super) form_field: Option<FormField>,
    pub(super) run: Run,
    /// Whether the open drawing is hidden.
    pub(super) hidden_drawing: bool,
    /// Alternative text of the drawing that is open.
    pub(super) alt: String,
    /// Text of a paragraph whose mark is deleted.
    pub(super) carried: Option<Inline>,
    pub(super) notes: References,
    pub(super) collected: Vec<Note>,
    /// Characters of hidden text that were met in this paragraph.
    pub(super) hidden_characters: u64,
    /// Whether a character of a symbol font was met that is not known.
    pub(super) unknown_symbols: bool,
    /// Whether hidden text is shown.
    pub(super) show_hidden: bool,
}

impl Walker {
    pub(super) fn new(styles: Styles, numbering: Numbering, relations: Relations) -> Self {
        Self {
            styles,
            numbering,
            relations,
            sink: Sink::default(),
            tags: Vec::new(),
            paras: Vec::new(),
            tables: Vec::new(),
            fields: Vec::new(),
            untracked_fields: 0,
            form_field: None,
            run: Run::default(),
            hidden_drawing: false,
            alt: String::new(),
            carried: None,
            notes: References::default(),
            collected: Vec::new(),
            hidden_characters: 0,
            unknown_symbols: false,
            show_hidden: false,
        }
    }

    /// Resets the state for another part; keeps styles, numbering and the order of notes.
    pub(super) fn begin_story(&mut self, relations: Relations) {
        self.relations = relations;
        self.tags.clear();
        self.paras.clear();
        self.tables.clear();
        self.fields.clear();
        self.untracked_fields = 0;
        self.form_field = None;
        self.run = Run::default();
        self.hidden_drawing = false;
        self.carried = None;
    }

    /// Whether a note is open.
    pub(super) fn in_note(&self) -> bool {
        self.tags.iter().any(|tag| matches!(tag, Tag::Note { .. }))
    }

    /// Adds text to the open paragraph, if the innermost element holds visible text.
    pub(super) fn characters(&mut self, text: &str) {
        match self.tags.last() {
            Some(Tag::Text) => {
                let plain: String;
                let text = if text.contains(['\n', '\t', '\u{AD}']) {
                    // A soft hyphen shows only where a line breaks, and lines are not kept.
                    plain = text.replace(['\n', '\t'], " ").replace('\u{AD}', "");
                    &plain
                } else {
                    text
                };
                match self.run.symbols {
                    Some(font) => {
                        for character in text.chars() {
                            self.show_symbol(font.translate(character));
                        }
                    }
                    None => self.show(text),
                }
            }
            Some(Tag::MathText) => self.show_math(text),
            Some(Tag::Instruction) => {
                if let Some(field) = self.fields.last_mut() {
                    field.append_instruction(text);
                }
            }
            _ => {}
        }
    }

    /// Whether a person does not see text here.
    pub(super) fn is_hidden(&self) -> bool {
        self.run.hidden || self.hidden_drawing
    }

    /// Whether the style of the open paragraph hides its text.
    pub(super) fn is_paragraph_hidden(&self) -> bool {
        self.paras.last().is_some_and(|para| para.hidden)
    }

    /// Whether text is left out here: hidden, or in the instruction of a field.
    pub(super) fn omits_text(&mut self) -> bool {
        if self.is_hidden() && !self.show_hidden {
            return true;
        }
        self.fields
            .iter()
            // Fields may nest: text counts only when no instruction is open around it.
            .any(|field| matches!(field, Field::Instruction(_)))
    }

    /// Appends text to the open paragraph.
    pub(super) fn show(&mut self, text: &str) {
        if self.is_hidden() {
            self.hidden_characters += visible_characters(text);
        }
        if self.omits_text() {
            return;
        }
        self.note_form_result(text);
        let style = self.run.style;
        if let Some(para) = self.paras.last_mut() {
            para.text.text(text, style);
        }
    }

    /// Appends a character of a symbol font, which is U+FFFD if it is not known.
    pub(super) fn show_symbol(&mut self, symbol: char) {
        self.unknown_symbols |= symbol == char::REPLACEMENT_CHARACTER && !self.omits_text();
        self.show(symbol.encode_utf8(&mut [0; 4]));
    }

    /// Handles `w:sym`: a code and its font.
    pub(super) fn symbol(&mut self, element: &Element<'_>) {
        let code = element
            .attr("char")
            .and_then(|digits| parse_hex(digits.trim()));
        let Some(character) = code.and_then(char::from_u32) else {
            return;
        };
        let is_private = ('\u{F000}'..='\u{F0FF}').contains(&character);
        let symbol = match SymbolFont::of_name(&element.attr("font").unwrap_or_default()) {
            Some(font) => font.translate(character),
            // A bullet in nearly all fonts of symbols.
            None if character == '\u{F0B7}' => '•',
            None if is_private => char::REPLACEMENT_CHARACTER,
            None => character,
        };
        if !symbol.is_control() {
            self.show_symbol(symbol);
        }
    }

    /// Appends a line break.
    pub(super) fn line_break(&mut self) {
        if !self.omits_text()
            && let Some(para) = self.paras.last_mut()
        {
            para.text.line_break();
        }
    }

    /// Writes blocks after the open paragraph, or immediately when none is open.
    pub(super) fn anchor(&mut self, blocks: Vec<Block>, out: &mut Markdown) -> Result<(), Limit> {
        if let Some(para) = self.paras.last_mut() {
            para.after.extend(blocks);
            return Ok(());
        }
        for block in blocks {
            self.sink.put(block, out)?;
        }
        Ok(())
    }
}
