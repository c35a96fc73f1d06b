//! The pieces of text of a page, given to the engine to be laid out.

use std::rc::Rc;

use pdfboss_output::{LayoutOptions, Pitch, ReadingOrder, Ruling, TextSpan, page_layout_opts};

use super::blocks::{self, Reader};
use super::emphasis::Emphasis;
use super::engine::Block;
use super::sizes::Sizes;

/// What pages are laid out with.
#[derive(Clone, Copy)]
pub(super) struct Layout<'a> {
    /// The sizes of letters of the document, when it has several pages.
    pub(super) sizes: Option<&'a Sizes>,
    pub(super) emphasis: Emphasis,
    /// Targets of the links of the page.
    pub(super) targets: &'a [Rc<str>],
}

impl Layout<'_> {
    /// The blocks of a page in reading order.
    pub(super) fn blocks(
        self,
        mut spans: Vec<TextSpan>,
        rulings: &[Ruling],
        order: ReadingOrder,
    ) -> Vec<Block> {
        self.emphasis.mark_code(&mut spans);
        if let Some(sizes) = self.sizes {
            sizes.lend(&mut spans);
        }
        let layout = page_layout_opts(&spans, rulings, order, &options());
        let reader = Reader {
            emphasis: self.emphasis,
            targets: self.targets,
        };
        blocks::taken_over(layout, reader)
    }
}

/// How the engine cuts a page into blocks. Paragraphs are told apart afterwards, by more than the engine looks at.
fn options() -> LayoutOptions {
    LayoutOptions {
        paragraph_pitch: Pitch::LowerHalfMedian,
        heading_merge_step: 1.45,
        ..LayoutOptions::default()
    }
}
