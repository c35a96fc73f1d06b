//! Soft masks of the graphics state, as far as they decide whether text can be seen (ISO 32000-1, 11.6.5.3).

use pdfboss_core::{Dict, Object, Rect};

use super::color::{Ink, device};
use super::resources::number;
use super::{MIN_ALPHA, Paint, covers};
use crate::formats::pdf::metered::MeteredDocument;

/// Most components of a backdrop's colour.
const MAX_COMPONENTS: usize = 4;

/// The mask of a graphics state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MaskState {
    #[default]
    None,
    /// A mask that is not computed here. Content that is painted with it counts as visible.
    Unknown,
    /// The index among the masks of the page.
    Known(usize),
}

/// The property that determines the opacity of a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MaskKind {
    /// The opacity of the group of the mask.
    Alpha,
    /// The lightness of the group, over a backdrop of this colour.
    Luminosity(Ink),
}

/// A mask and the paints of its group, in order.
#[derive(Debug)]
pub(super) struct SoftMask {
    pub(super) kind: MaskKind,
    pub(super) paints: Vec<Paint>,
}

impl MaskKind {
    /// Reads the dictionary of a mask; `None` if it has properties that are not computed here.
    pub(super) fn of(dict: &Dict, source: &MeteredDocument<'_>) -> Option<Self> {
        let transfer = dict.get("TR").and_then(|object| source.fetch(object));
        // A transfer function may make dark parts visible.
        if transfer
            .is_some_and(|function| function.as_name().is_none_or(|name| name.0 != "Identity"))
        {
            return None;
        }
        match dict.get_name("S")?.0.as_str() {
            "Alpha" => Some(Self::Alpha),
            "Luminosity" => Some(Self::Luminosity(backdrop(dict, source))),
            _ => None,
        }
    }
}

/// The colour under the group: black unless the mask names another one.
fn backdrop(dict: &Dict, source: &MeteredDocument<'_>) -> Ink {
    let Some(color) = dict.get("BC").and_then(|object| source.fetch(object)) else {
        return Ink::BLACK;
    };
    let parts = color.as_array().unwrap_or_default().iter();
    let parts: Option<Vec<f32>> = parts
        .take(MAX_COMPONENTS)
        .map(|part: &Object| number(Some(part), source))
        .collect();
    parts.map_or(Ink::Unknown, |parts| device(&parts))
}

impl SoftMask {
    /// Whether the mask hides an area completely.
    pub(super) fn hides(&self, area: Rect) -> bool {
        let MaskKind::Luminosity(backdrop) = self.kind else {
            let mut paints = self.paints.iter();
            return paints.all(|paint| area.intersect(paint.region.area).is_none());
        };
        for paint in self.paints.iter().rev() {
            if area.intersect(paint.region.area).is_none() {
                continue;
            }
            if !is_dark(paint.ink) {
                return false;
            }
            if paint.opaque && paint.region.filled && covers(paint.region.area, area) {
                return true;
            }
        }
        is_dark(backdrop)
    }
}

/// Whether a mask of this colour hides everything.
fn is_dark(ink: Ink) -> bool {
    ink != Ink::Unknown && ink.luminance() < MIN_ALPHA
}
