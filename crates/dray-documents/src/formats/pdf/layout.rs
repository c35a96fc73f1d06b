//! Lays out the text spans of a page: vertical text is rotated and columns are split before the engine reads the page.

use std::rc::Rc;

use pdfboss_output::{LayoutOptions, Pitch, ReadingOrder, Ruling, TextSpan, page_layout_opts};

use super::blocks::{self, Reader};
use super::columns;
use super::emphasis::Emphasis;
use super::engine::Block;
use super::sizes::FontSizeCounts;
use super::vertical;

/// The parameters of the layout of pages.
#[derive(Clone, Copy)]
pub(super) struct Layout<'a> {
    /// The sizes of letters of the document, when it has several pages.
    pub(super) sizes: Option<&'a FontSizeCounts>,
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
        // Rulings are not rotated with the text, so they would cut it in wrong places.
        if let Some(beside) = vertical::rotate_vertical_text(&mut spans) {
            let mut blocks = self.region(spans, &[], ReadingOrder::Geometric, true);
            blocks.extend(self.region(beside, &[], ReadingOrder::Geometric, true));
            return blocks;
        }
        // The file defines the reading order, so columns need not be guessed.
        if order == ReadingOrder::StructureTree {
            return self.region(spans, rulings, order, false);
        }
        let regions = columns::split(spans, rulings);
        let regions = regions.into_iter();
        regions
            .flat_map(|region| self.region(region.spans, rulings, order, region.is_column))
            .collect()
    }

    /// The blocks of a part of a page. A column has no separate title.
    fn region(
        self,
        mut spans: Vec<TextSpan>,
        rulings: &[Ruling],
        order: ReadingOrder,
        is_column: bool,
    ) -> Vec<Block> {
        if let Some(sizes) = self.sizes {
            sizes.add_blank_text(&mut spans);
        }
        let mut options = options();
        if is_column {
            // The first line of a column may be large in comparison with the column without being a title of the
            // page.
            options.page_title_min_gap = f32::MAX;
        }
        let layout = page_layout_opts(&spans, rulings, order, &options);
        let reader = Reader {
            emphasis: self.emphasis,
            targets: self.targets,
        };
        blocks::convert_layout(layout, reader)
    }
}

/// How the engine cuts a page into blocks. Paragraphs are distinguished afterwards, by more criteria than the engine
/// uses.
fn options() -> LayoutOptions {
    LayoutOptions {
        paragraph_pitch: Pitch::LowerHalfMedian,
        heading_merge_step: 1.45,
        ..LayoutOptions::default()
    }
}
