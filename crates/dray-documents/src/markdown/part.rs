//! Parts of a document: pages, slides, sheets, chapters; and the selection of them (read-attachment 13.1).

use serde::{Deserialize, Serialize};

/// The units of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A page of a PDF document.
    Page,
    /// A slide of a presentation, including hidden ones.
    Slide,
    /// A sheet of a workbook, in its order.
    Sheet,
    /// A chapter of a book, in the order of reading.
    Chapter,
}

impl Unit {
    /// The word for one part.
    pub fn word(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Slide => "slide",
            Self::Sheet => "sheet",
            Self::Chapter => "chapter",
        }
    }
}

/// One part, with the position of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Page, slide, sheet or chapter.
    pub unit: Unit,
    /// The part's number, from 1.
    pub number: u32,
    /// Title or name of the part, if it has one.
    pub title: Option<String>,
    /// Byte offset of its first character in the Markdown.
    pub start: usize,
}

/// An inclusive range, from 1; `last` is `u64::MAX` for an open end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First number of the range.
    pub first: u64,
    /// Last number, inclusive; `u64::MAX` for an open end.
    pub last: u64,
}

impl Span {
    /// The range of all numbers.
    pub const ALL: Self = Self {
        first: 1,
        last: u64::MAX,
    };

    /// Whether the range contains a number.
    pub fn holds(self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

/// The selected parts of a document. Lines and bytes are cut from the Markdown afterwards and are not handled here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "of")]
pub enum Selection {
    /// The complete document.
    #[default]
    All,
    /// Parts by their number in the document.
    Parts {
        /// Pages, slides, sheets or chapters.
        unit: Unit,
        /// Numbers of the selected parts.
        span: Span,
    },
    /// One part by its title or name, compared without case, and the given rows of its tables.
    Named {
        /// [`Unit::Sheet`] or [`Unit::Chapter`], which have names.
        unit: Unit,
        /// The part's name, or its number in digits.
        name: String,
        /// Rows as the source numbers them, from 1.
        rows: Option<Span>,
    },
    /// Rows of the tables of every part, as the source numbers them, from 1.
    Rows {
        /// Numbers of the selected rows.
        span: Span,
    },
}

impl Selection {
    /// Whether a part is selected.
    pub fn wants(&self, unit: Unit, number: u32, title: Option<&str>) -> bool {
        match self {
            Self::All | Self::Rows { .. } => true,
            Self::Parts {
                unit: selected,
                span,
            } => *selected == unit && span.holds(u64::from(number)),
            Self::Named {
                unit: selected,
                name,
                ..
            } => {
                *selected == unit
                    && (title
                        // The name `2` may match a sheet called `2` and the second sheet; then both are written.
                        .is_some_and(|title| {
                            title.trim().to_lowercase() == name.trim().to_lowercase()
                        })
                        || name.trim().parse::<u32>() == Ok(number))
            }
        }
    }

    /// The selected rows of a table; `None` without a selection.
    pub fn rows(&self) -> Option<Span> {
        match self {
            Self::Rows { span } => Some(*span),
            Self::Named { rows, .. } => *rows,
            Self::All | Self::Parts { .. } => None,
        }
    }
}
