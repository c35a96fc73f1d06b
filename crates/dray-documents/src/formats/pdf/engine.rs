//! The interface to the PDF engine, so that the engine can be replaced.

use std::rc::Rc;

use crate::limits::{Damage, Limit};
use crate::markdown::Style;

/// An open document that returns its pages one after the other.
pub(super) trait Engine {
    /// The number of its pages.
    fn pages(&mut self) -> u32;

    /// One page, counted from 1, in reading order.
    fn page(&mut self, number: u32) -> Result<Page, PageError>;

    /// Image files of the pictures on a page, from top to bottom; pictures without a possible image file are left out.
    fn images(&mut self, number: u32) -> Vec<Vec<u8>>;

    /// The problem of the file if its pages cannot be read.
    fn damage(&self) -> Damage;

    /// The filled form fields that are on none of the pages that were read, in order.
    fn fields(&mut self) -> Vec<Field>;
}

/// The problem of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageError {
    /// It ran into a limit.
    Limit(Limit),
    /// It cannot be read.
    Damaged,
}

/// A page as a person reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    /// Its blocks, in reading order.
    pub(super) blocks: Vec<Block>,
    /// Width of the visible part, in points.
    pub(super) width: f32,
    /// Content that may have contained text could not be read.
    pub(super) incomplete: bool,
    /// It was cut off at a limit.
    pub(super) cut: Option<Limit>,
    /// Much of its text consists of unknown characters.
    pub(super) unreadable: bool,
    /// Characters that a person does not see on it.
    pub(super) hidden_characters: u64,
    /// Whether it is a picture, and hardly any text.
    pub(super) is_picture: bool,
    /// Watermarks that no page before it has.
    pub(super) watermarks: Vec<String>,
}

/// A block of a page, before lines are joined.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    /// A heading; levels from 1.
    Heading {
        /// Rank over the whole document, from 1.
        level: u8,
        /// As they are on the page.
        lines: Vec<Line>,
    },
    /// A sequence of lines: a paragraph, or several close ones.
    Paragraph {
        /// As they are on the page.
        lines: Vec<Line>,
        /// Whether it is a block quotation.
        quote: bool,
    },
    /// A list with at least one item.
    List {
        /// Its items, in reading order.
        items: Vec<Item>,
    },
    /// A table, with lines or without.
    Table {
        /// Its cells, without those that others cover.
        rows: Vec<Vec<Cell>>,
    },
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// Its text, joined to one line.
    pub(super) runs: Vec<Run>,
    /// Columns that it covers.
    pub(super) columns: usize,
    /// Rows that it covers.
    pub(super) rows: usize,
}

/// A list item without its marker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    /// Its number; `None` for a bullet.
    pub(super) number: Option<u64>,
    /// The depth of its nesting.
    pub(super) depth: usize,
    /// Its lines, the first without the marker.
    pub(super) lines: Vec<Line>,
}

/// A line as it is on the page. Lengths are in points, x to the right, y upwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Its text, in reading order.
    pub(super) runs: Vec<Run>,
    /// Left edge of its first letter.
    pub(super) x: f32,
    /// Right edge of its last letter.
    pub(super) end: f32,
    /// Height of its baseline above the bottom.
    pub(super) y: f32,
    /// Size of its largest letters.
    pub(super) size: f32,
    /// Whether it is an entry of a form and becomes a separate paragraph.
    pub(super) is_entry: bool,
}

/// A span of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Its text, spaces between words included.
    pub(super) text: String,
    /// Its format in comparison with other text of the document.
    pub(super) style: Style,
    /// Its target.
    pub(super) link: Option<Rc<str>>,
}

impl Run {
    /// Text in the common format.
    pub(super) fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }
}

/// A form field that is filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The label in the form.
    pub(super) label: String,
    /// The value that was filled in.
    pub(super) value: String,
}
