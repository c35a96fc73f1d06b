//! Finds the pictures of a page that replace its text: those of a scan.

use pdfboss_core::{ObjRef, Rect};
use pdfboss_text::TextSpan;

use super::{PaintedPage, SCAN_SHARE, size_of};
use crate::markdown::visible_characters;

/// Most characters that a page may have and still be a scan: a stamp, a page number.
const MAX_STAMP_CHARACTERS: u64 = 60;
/// Share of the page that one picture must take to be a part of a scan.
const MIN_PART_SHARE: f32 = 0.05;
/// Most parts that a scan may have.
const MAX_PARTS: usize = 8;
/// Most pictures of one page that are kept.
const MAX_PICTURES: usize = 1_000;

impl PaintedPage {
    /// Records a picture that is a separate object.
    pub(super) fn add_picture(&mut self, area: Rect, reference: ObjRef) {
        let is_known = self.pictures.iter().any(|(_, known)| *known == reference);
        if !is_known && self.pictures.len() < MAX_PICTURES {
            self.pictures.push((area, reference));
        }
    }

    /// The pictures that contain the text of a page, from top to bottom: the large ones of a page without text, or
    /// those that fill a page with hardly any text.
    pub(in crate::formats::pdf) fn pictures_beside(
        &self,
        spans: &[TextSpan],
        page: Rect,
    ) -> Vec<ObjRef> {
        let characters: u64 = spans
            .iter()
            .map(|span| visible_characters(&span.text))
            .sum();
        if characters > MAX_STAMP_CHARACTERS {
            return Vec::new();
        }
        let page_size = size_of(page);
        let share = |area: Rect| area.intersect(page).map_or(0.0, size_of) / page_size.max(1.0);
        let mut parts: Vec<(Rect, ObjRef)> = self
            .pictures
            .iter()
            .filter(|(area, _)| share(*area) >= MIN_PART_SHARE)
            .copied()
            .collect();
        let covered_share: f32 = parts.iter().map(|(area, _)| share(*area)).sum();
        // A few words beside a small picture are a page with a logo, not a scan.
        if characters > 0 && covered_share < SCAN_SHARE {
            return Vec::new();
        }
        parts.sort_by(|(left, _), (right, _)| share(*right).total_cmp(&share(*left)));
        // The largest are kept, then they are put in the order of reading.
        parts.truncate(MAX_PARTS);
        parts.sort_by(|(left, _), (right, _)| right.y1.total_cmp(&left.y1));
        parts.into_iter().map(|(_, reference)| reference).collect()
    }
}
