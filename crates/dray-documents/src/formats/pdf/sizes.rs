//! Sizes of letters in the complete document, so that headings have the same rank on every page.
//!
//! The engine ranks the headings of a page by the sizes of the texts of that page. For a single page, the largest
//! letters would become a title. Therefore blank text is added to each page, far outside and in a separate direction,
//! in all sizes of the document and in the same proportions.

use std::collections::BTreeMap;

use pdfboss_text::{Rect, TextSpan};

/// Ratio of blank text to the page's own text, so that the sizes of the document decide.
const BLANK_WEIGHT: usize = 8;
/// Most characters of blank text that a page gets.
const MAX_BLANK_CHARACTERS: usize = 64 * 1024;
/// Most sizes that are distinguished.
const MAX_SIZES: usize = 64;
/// The position of the blank text.
const BLANK_POSITION: f32 = -100_000.0;

/// The number of characters of each size, in half points.
#[derive(Clone, Debug, Default)]
pub(super) struct FontSizeCounts(BTreeMap<i32, usize>);

impl FontSizeCounts {
    /// Counts the letters of a page by their size.
    pub(super) fn count(&mut self, spans: &[TextSpan]) {
        for span in spans {
            let half_points = size_bucket(span.size);
            // A file with a size for every letter must not fill the table; further sizes do not rank.
            if self.0.len() >= MAX_SIZES && !self.0.contains_key(&half_points) {
                continue;
            }
            *self.0.entry(half_points).or_default() += span.text.chars().count();
        }
    }

    /// Adds the blank text to a page; none if all directions are in use.
    pub(super) fn add_blank_text(&self, spans: &mut Vec<TextSpan>) {
        let Some(template) = spans.first().cloned() else {
            return;
        };
        // The engine lays out each direction separately, so blank text in an unused one moves no other text.
        let free = [270, 180, 90]
            .into_iter()
            .find(|turn| spans.iter().all(|span| span.rotate != *turn));
        let (Some(rotate), total) = (free, self.0.values().sum::<usize>()) else {
            return;
        };
        let own: usize = spans.iter().map(|span| span.text.chars().count()).sum();
        let weight = own
            .saturating_mul(BLANK_WEIGHT)
            .clamp(1, MAX_BLANK_CHARACTERS);
        for (half_points, count) in &self.0 {
            let characters = (count.saturating_mul(weight) / total.max(1)).max(1);
            spans.push(blank_span(&template, *half_points, characters, rotate));
        }
    }
}

/// A size in half points, as the engine distinguishes sizes.
fn size_bucket(size: f32) -> i32 {
    // Sizes are never negative and far below the largest integer; other values are invalid and count as the largest.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is clamped to a range that fits"
    )]
    let half_points = (size * 2.0 + 0.5).clamp(0.0, 20_000.0) as i32;
    half_points
}

/// Blank text of one size; the other fields are those of `template`.
fn blank_span(template: &TextSpan, half_points: i32, characters: usize, rotate: i32) -> TextSpan {
    #[expect(
        clippy::cast_precision_loss,
        reason = "sizes are clamped to a range that is exact"
    )]
    let size = half_points as f32 / 2.0;
    TextSpan {
        text: " ".repeat(characters),
        x: BLANK_POSITION,
        y: BLANK_POSITION,
        end_x: BLANK_POSITION,
        end_y: BLANK_POSITION,
        rotate,
        glyph_x: Box::default(),
        size,
        bbox: Rect {
            x0: BLANK_POSITION,
            y0: BLANK_POSITION,
            x1: BLANK_POSITION,
            y1: BLANK_POSITION,
        },
        structure: None,
        artifact: None,
        ..template.clone()
    }
}
