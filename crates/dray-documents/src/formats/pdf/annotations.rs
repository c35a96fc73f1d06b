//! Reads the annotations of a page: links out of the document, the positions of form fields, and the texts of people.

use std::rc::Rc;

use pdfboss_core::{AnnotationFlags, ObjRef, Object, Page, Rect};
use pdfboss_text::TextSpan;

use super::marks;
use super::markup::PageMarkup;
use super::metered::MeteredDocument;
use super::visibility::numbers;

/// Most annotations of one page that are read.
const MAX_ANNOTATIONS: usize = 20_000;
/// Most bytes of a link's target.
const MAX_URL_BYTES: usize = 2048;
/// Horizontal bands in which links are looked up.
const LINK_BANDS: usize = 64;
/// Most areas of links on one page.
const MAX_AREAS: usize = 4096;
/// Least width of the linked part of a span that reaches beyond its link, in sizes of letters.
const MIN_LINKED_WIDTH: f32 = 0.25;

/// The links, form fields and added texts of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Annotations {
    /// Targets, by number of the link.
    pub(super) targets: Vec<Rc<str>>,
    /// The areas of links, and their targets.
    areas: Vec<(Rect, usize)>,
    /// Widgets of form fields.
    pub(super) widgets: Vec<Widget>,
    /// Text that people typed on the page, and their comments.
    pub(super) markup: PageMarkup,
}

/// A place of a form field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widget {
    pub(super) object: ObjRef,
    pub(super) area: Rect,
    /// Whether a person does not see the field.
    pub(super) is_hidden: bool,
}

impl Annotations {
    /// Reads the annotations; damaged ones are ignored. Texts that a person does not see are counted, and read only
    /// with `show_hidden`.
    pub(super) fn read(page: &Page, source: &MeteredDocument<'_>, show_hidden: bool) -> Self {
        let mut found = Self::default();
        let list = page
            .dict()
            .get("Annots")
            .and_then(|object| source.fetch(object));
        let Some(Object::Array(items)) = list else {
            return found;
        };
        for item in items.iter().take(MAX_ANNOTATIONS) {
            let Some(Object::Dict(annotation)) = source.fetch(item) else {
                continue;
            };
            let entry = |name: &str| annotation.get(name).and_then(|object| source.fetch(object));
            let subtype = entry("Subtype");
            let Some([x0, y0, x1, y1]) = numbers::<4>(annotation.get("Rect"), source) else {
                continue;
            };
            let area = Rect::new(x0, y0, x1, y1).normalize();
            let flags = entry("F").and_then(|object| object.as_int()).unwrap_or(0);
            let flags = AnnotationFlags(u32::try_from(flags).unwrap_or(0));
            let is_hidden =
                flags.hidden() || flags.no_view() || area.intersect(page.crop_box).is_none();
            match subtype
                .as_ref()
                .and_then(Object::as_name)
                .map(|name| name.0.as_str())
            {
                Some("Link") => {
                    if let Some(url) = entry("A").and_then(|action| url_of(&action, source)) {
                        found.add_link(area, &url);
                    }
                }
                Some("Widget") => {
                    if let Object::Ref(object) = item {
                        found.widgets.push(Widget {
                            object: *object,
                            area,
                            is_hidden: is_hidden || area.width().min(area.height()) < 1.0,
                        });
                    }
                }
                Some(subtype) => {
                    let place = (area, is_hidden);
                    (found.markup).add(subtype, &annotation, place, (source, show_hidden));
                }
                None => {}
            }
        }
        found
    }

    fn add_link(&mut self, area: Rect, url: &str) {
        // The search begins at the end, because the parts of a link over several lines follow each other.
        let known = self.targets.iter().rposition(|target| **target == *url);
        let number = known.unwrap_or(self.targets.len());
        if number < marks::MAX_LINKS && self.areas.len() < MAX_AREAS {
            if known.is_none() {
                self.targets.push(url.into());
            }
            self.areas.push((area, number));
        }
    }

    /// Marks the text spans that are inside links.
    pub(super) fn mark(&self, spans: &mut [TextSpan]) {
        // This is necessary without links, too: private-use characters of the file could otherwise forge a link.
        marks::remove_lookalikes(spans);
        if self.areas.is_empty() {
            return;
        }
        let (low, high) = self
            .areas
            .iter()
            .fold((f32::MAX, f32::MIN), |(low, high), (area, _)| {
                (low.min(area.y0), high.max(area.y1))
            });
        let band = |y: f32| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "the value is clamped to a small range"
            )]
            let band = ((y - low) / (high - low).max(1.0) * LINK_BANDS as f32)
                .clamp(0.0, LINK_BANDS as f32 - 1.0) as usize;
            band
        };
        let mut bands = vec![Vec::new(); LINK_BANDS];
        for link in &self.areas {
            for band_links in bands
                .iter_mut()
                .take(band(link.0.y1) + 1)
                .skip(band(link.0.y0))
            {
                band_links.push(*link);
            }
        }
        for span in spans {
            let bbox = span.bbox.normalize();
            let (x, y) = (
                f32::midpoint(bbox.x0, bbox.x1),
                f32::midpoint(bbox.y0, bbox.y1),
            );
            if span.text.trim().is_empty() || y < low || y > high {
                continue;
            }
            let linked_part = |(area, link): &(Rect, usize)| {
                Some((linked_characters(span, bbox, (x, y), *area)?, *link))
            };
            if let Some(((from, to), link)) = bands
                .get(band(y))
                .into_iter()
                .flatten()
                .find_map(linked_part)
            {
                marks::mark(span, from, to, link);
            }
        }
    }
}

/// The characters of a span that are inside an area; `None` if hardly any is.
fn linked_characters(
    span: &TextSpan,
    bbox: Rect,
    (x, y): (f32, f32),
    area: Rect,
) -> Option<(usize, usize)> {
    let count = span.text.chars().count();
    // Letters of rotated text have no position along x, so the complete span is linked or none of it.
    if span.rotate != 0 || span.vertical {
        let inside = (area.x0..=area.x1).contains(&x) && (area.y0..=area.y1).contains(&y);
        return inside.then_some((0, count));
    }
    if !(area.y0..=area.y1).contains(&y) {
        return None;
    }
    let width = bbox.width().max(0.01);
    let share = |x: f32| ((x - bbox.x0) / width).clamp(0.0, 1.0);
    let (from, to) = (share(area.x0), share(area.x1));
    let is_whole = area.x0 <= bbox.x0 && area.x1 >= bbox.x1;
    if !is_whole && (to - from) * width < span.size * MIN_LINKED_WIDTH {
        return None;
    }
    // Edges of links are often imprecise and cut through letters, so complete words are linked.
    let edges = word_edges(&span.text);
    let from = nearest(&edges, position(from, count));
    let to = nearest(&edges, position(to, count));
    (from < to).then_some((from, to))
}

/// The character at a share of the width, as if all were as wide.
fn position(share: f32, count: usize) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "lines are short")]
    let position = share * count as f32;
    position
}

/// The positions at which words begin and end, and both ends of the text.
fn word_edges(text: &str) -> Vec<usize> {
    let mut edges = vec![0];
    let mut blank = true;
    let mut count = 0;
    for (index, character) in text.chars().enumerate() {
        if character.is_whitespace() != blank {
            edges.push(index);
            blank = !blank;
        }
        count = index + 1;
    }
    edges.push(count);
    edges
}

fn nearest(edges: &[usize], position: f32) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "lines are short")]
    let distance = |edge: &usize| (*edge as f32 - position).abs();
    edges
        .iter()
        .min_by(|left, right| distance(left).total_cmp(&distance(right)))
        .copied()
        .unwrap_or_default()
}

/// The target of an action, when it is an address.
fn url_of(action: &Object, source: &MeteredDocument<'_>) -> Option<String> {
    let action = action.as_dict()?;
    let kind = source.fetch(action.get("S")?)?;
    if kind.as_name()?.0 != "URI" {
        return None;
    }
    let url = source.fetch(action.get("URI")?)?;
    let url = String::from_utf8_lossy(url.as_str_bytes()?);
    let url = url.trim();
    // A control character would break the line or hide a part of the address.
    (!url.is_empty() && url.len() <= MAX_URL_BYTES && !url.contains(char::is_control))
        .then(|| url.to_owned())
}
