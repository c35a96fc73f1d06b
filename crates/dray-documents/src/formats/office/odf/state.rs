//! The state of the walk through an ODF document.

use std::collections::HashMap;

use super::styles::Styles;
use crate::formats::office::blocks::{Block, Grid, GridCell, Sink};
use crate::formats::office::deck::Slide;
use crate::limits::Failure;
use crate::markdown::{Inline, Markdown, Style, visible_characters};
use crate::symbol_font::SymbolFont;

/// The role of an open element.
#[derive(Debug)]
pub(super) enum Tag {
    Plain,
    /// A paragraph, or a heading of a level.
    Para,
    /// A span, with format, hiding and font of the text around it.
    Span(Style, bool, Option<SymbolFont>),
    /// A section, with the value of [`Walker::hidden_section`] around it.
    Section(bool),
    Link,
    List,
    Item,
    Note(bool),
    Annotation,
    Creator,
    Table,
    Row(u64),
    Cell(usize),
    /// A frame of a text; on a slide also any other shape.
    Frame,
    TextBox,
    Page,
    /// Speaker's notes of a slide.
    Speaker,
    /// Title or description of a frame.
    Alt,
}

/// A paragraph or heading while its runs arrive.
#[derive(Debug, Default)]
pub(super) struct Para {
    pub(super) text: Inline,
    pub(super) style: Option<String>,
    /// Level of a heading element.
    pub(super) level: Option<u8>,
    pub(super) after: Vec<Block>,
    /// Whether the last character was white space, so further white space is ignored.
    pub(super) blank: bool,
    /// Whether text around the paragraph is hidden.
    pub(super) outer_hide: bool,
    /// The font of the text around it.
    pub(super) outer_symbols: Option<SymbolFont>,
    /// Whether a field in the paragraph hides all of it.
    pub(super) hidden: bool,
}

/// A list and how far its items are counted.
#[derive(Debug)]
pub(super) struct List {
    pub(super) style: Option<String>,
    /// The number of the item before.
    pub(super) last: Option<u64>,
    /// Whether the open item has shown its marker.
    pub(super) marked: bool,
    /// Whether items of this list have no marker, such as its header.
    pub(super) header: bool,
    pub(super) start: Option<u64>,
}

/// A table whose end was not reached yet.
#[derive(Debug)]
pub(super) struct OpenTable {
    pub(super) grid: Grid,
    pub(super) cells: Vec<GridCell>,
    /// The lists around the table, which do not continue in its cells.
    pub(super) lists: Vec<List>,
}

/// A frame, of which only one of its contents is shown.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) title: bool,
    pub(super) position: Option<(i64, i64)>,
    pub(super) image: Option<String>,
    pub(super) object: Option<String>,
    pub(super) alt: String,
    /// Whether the frame is a shape of a slide, with separate blocks.
    pub(super) shape: bool,
    /// The value of [`Walker::hidden_section`] around the frame.
    pub(super) outer_hidden: bool,
}

/// Bodies of notes, in order.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) footnotes: Vec<Vec<Block>>,
    pub(super) endnotes: Vec<Vec<Block>>,
}

/// The lists and format around content that is separate from the text.
#[derive(Debug)]
pub(super) struct OuterState {
    lists: Vec<List>,
    look: Style,
    hide: bool,
}

/// The walk through the content, with the styles that it refers to.
#[derive(Debug)]
pub(super) struct Walker {
    pub(super) styles: Styles,
    pub(super) sink: Sink,
    pub(super) tags: Vec<Tag>,
    pub(super) paras: Vec<Para>,
    pub(super) lists: Vec<List>,
    /// The state around a note, comment or text box, which does not apply inside it.
    pub(super) outer_states: Vec<OuterState>,
    /// The last number of each style of lists and level, for lists that continue.
    pub(super) counts: HashMap<(String, usize), u64>,
    pub(super) tables: Vec<OpenTable>,
    pub(super) frames: Vec<Frame>,
    pub(super) look: Style,
    /// The font of the text, if its codes are not those of letters.
    pub(super) symbols: Option<SymbolFont>,
    /// Characters of symbol fonts that are not known.
    pub(super) unknown_symbols: usize,
    pub(super) hide: bool,
    /// Whether the open section, group or frame, with everything in it, is hidden.
    pub(super) hidden_section: bool,
    /// Characters of hidden text that were met in this paragraph.
    pub(super) hidden_characters: u64,
    /// Whether hidden text is shown.
    pub(super) show_hidden: bool,
    pub(super) notes: Notes,
    pub(super) comments: Vec<(String, String)>,
    pub(super) author: String,
    pub(super) slide: Option<Slide>,
    pub(super) slides: u32,
}

impl Walker {
    pub(super) fn new(styles: Styles) -> Self {
        Self {
            styles,
            sink: Sink::default(),
            tags: Vec::new(),
            paras: Vec::new(),
            lists: Vec::new(),
            outer_states: Vec::new(),
            counts: HashMap::new(),
            tables: Vec::new(),
            frames: Vec::new(),
            look: Style::default(),
            symbols: None,
            unknown_symbols: 0,
            hide: false,
            hidden_section: false,
            hidden_characters: 0,
            show_hidden: false,
            notes: Notes::default(),
            comments: Vec::new(),
            author: String::new(),
            slide: None,
            slides: 0,
        }
    }

    /// Begins content that is separate from the text; its blocks are kept.
    pub(super) fn begin_aside(&mut self) {
        self.outer_states.push(OuterState {
            lists: std::mem::take(&mut self.lists),
            look: std::mem::take(&mut self.look),
            hide: std::mem::take(&mut self.hide),
        });
        self.sink.begin();
    }

    /// Ends the separate content that [`Self::begin_aside`] began, and returns its blocks.
    pub(super) fn end_aside(&mut self) -> Vec<Block> {
        if let Some(outer) = self.outer_states.pop() {
            self.lists = outer.lists;
            self.look = outer.look;
            self.hide = outer.hide;
        }
        self.sink.end()
    }

    /// Text between tags: of a paragraph, or of a creator, title or description.
    pub(super) fn characters(&mut self, text: &str) {
        match self.tags.last() {
            Some(Tag::Creator) => self.author.push_str(text),
            Some(Tag::Alt) => {
                if let Some(frame) = self.frames.last_mut() {
                    frame.alt.push_str(text);
                }
            }
            Some(Tag::Plain | Tag::Para | Tag::Span(..) | Tag::Link) => self.show(text),
            _ => {}
        }
    }

    /// Whether a person does not see text here.
    pub(super) fn is_hidden(&self) -> bool {
        self.hide || self.hidden_section
    }

    /// Whether text is left out here.
    pub(super) fn omits_text(&self) -> bool {
        self.is_hidden() && !self.show_hidden
    }

    /// Appends text to the open paragraph, each run of white space as one space.
    fn show(&mut self, text: &str) {
        if self.is_hidden() {
            self.hidden_characters += visible_characters(text);
        }
        if self.omits_text() {
            return;
        }
        let look = self.look;
        let Some(para) = self.paras.last_mut() else {
            return;
        };
        let mut out = String::new();
        let symbols = self.symbols;
        let shown = |character| symbols.map_or(character, |font| font.translate(character));
        for character in text.chars().map(shown) {
            if matches!(character, ' ' | '\t' | '\n' | '\r') {
                if !para.blank {
                    out.push(' ');
                }
                para.blank = true;
            } else if character != '\u{AD}' {
                // A soft hyphen shows only where a line breaks.
                out.push(character);
                para.blank = false;
            }
        }
        if symbols.is_some() {
            self.unknown_symbols += out.matches(char::REPLACEMENT_CHARACTER).count();
        }
        para.text.text(&out, look);
    }

    /// Appends explicit spaces, or a break.
    pub(super) fn space(&mut self, text: &str) {
        let look = self.look;
        if self.omits_text() {
            return;
        }
        if let Some(para) = self.paras.last_mut() {
            para.text.text(text, look);
            para.blank = text.ends_with('\n');
        }
    }

    /// Whether a note is open, whose tables are lines.
    pub(super) fn in_note(&self) -> bool {
        self.tags
            .iter()
            .any(|tag| matches!(tag, Tag::Note(_) | Tag::Annotation | Tag::Speaker))
    }

    /// Writes the collected part of an open table after a limit.
    pub(super) fn write_collected(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        if !self.in_note() && self.slide.is_none() && !self.tables.is_empty() {
            let outer = self.tables.swap_remove(0);
            outer.grid.write_so_far(out)?;
        }
        Ok(())
    }
}
