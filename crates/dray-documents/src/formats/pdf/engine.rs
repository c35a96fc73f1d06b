//! The interface to the PDF engine, so that the engine can be replaced.

use std::rc::Rc;

use super::markup::PageComment;
use crate::attachment::AttachedFile;
use crate::limits::{Damage, Limit};
use crate::markdown::Style;

/// An open document that returns its pages one after the other.
pub(super) trait Engine {
    /// The number of pages.
    fn pages(&mut self) -> u32;

    /// One page, counted from 1, in reading order.
    fn page(&mut self, number: u32) -> Result<Page, PageError>;

    /// Image files of the pictures on a page, from top to bottom; pictures without a possible image file are left out.
    fn images(&mut self, number: u32) -> Vec<Vec<u8>>;

    /// The problem of the file if its pages cannot be read.
    fn damage(&self) -> Damage;

    /// The filled form fields that are on none of the pages that were read, in order.
    fn fields(&mut self) -> Vec<Field>;

    /// The files that the document carries.
    fn attachments(&mut self) -> Vec<AttachedFile>;
}

/// The problem of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageError {
    /// The page exceeds a limit.
    Limit(Limit),
    /// The page cannot be read.
    Damaged,
}

/// A page as a person reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    /// Blocks in reading order.
    pub(super) blocks: Vec<Block>,
    /// Width of the visible part, in points.
    pub(super) width: f32,
    /// Whether content that may contain text could not be read.
    pub(super) incomplete: bool,
    /// The limit at which the page was cut off.
    pub(super) cut: Option<Limit>,
    /// Whether much of the text consists of unknown characters.
    pub(super) unreadable: bool,
    /// Number of characters that a person does not see.
    pub(super) hidden_characters: u64,
    /// Whether the page is a picture with hardly any text.
    pub(super) is_picture: bool,
    /// Watermarks that no earlier page has.
    pub(super) watermarks: Vec<String>,
    /// Comments of people about places of the page.
    pub(super) comments: Vec<PageComment>,
}

/// A block of a page, before lines are joined.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    /// A heading; levels from 1.
    Heading {
        /// Rank over the whole document, from 1.
        level: u8,
        /// The lines as they are on the page.
        lines: Vec<Line>,
    },
    /// A sequence of lines: a paragraph, or several close ones.
    Paragraph {
        /// The lines as they are on the page.
        lines: Vec<Line>,
        /// Whether the paragraph is a block quotation.
        quote: bool,
    },
    /// A list with at least one item.
    List {
        /// Items in reading order.
        items: Vec<Item>,
    },
    /// A table, with lines or without.
    Table {
        /// Rows of cells; cells that another one covers are left out.
        rows: Vec<Vec<Cell>>,
    },
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// The text, joined to one line.
    pub(super) runs: Vec<Run>,
    /// Number of columns that the cell covers.
    pub(super) columns: usize,
    /// Number of rows that the cell covers.
    pub(super) rows: usize,
}

/// A list item without its marker.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    /// The number; `None` for a bullet.
    pub(super) number: Option<u64>,
    /// Depth of the nesting, from 0.
    pub(super) depth: usize,
    /// The lines, the first without the marker.
    pub(super) lines: Vec<Line>,
}

/// A line as it is on the page. Lengths are in points, x to the right, y upwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// The text, in reading order.
    pub(super) runs: Vec<Run>,
    /// Left edge of the first letter.
    pub(super) x: f32,
    /// Right edge of the last letter.
    pub(super) end: f32,
    /// Height of the baseline above the bottom of the page.
    pub(super) y: f32,
    /// Size of the largest letters.
    pub(super) size: f32,
    /// Whether the line is an entry of a form, which becomes a separate paragraph.
    pub(super) is_entry: bool,
}

/// A span of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// The text, spaces between words included.
    pub(super) text: String,
    /// The format, as far as it differs from most text of the document.
    pub(super) style: Style,
    /// The target, if the run is a link.
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
