//! Finds the text of a page that a person cannot see (read-attachment 7.9).
//!
//! The engine returns each span of text with its position, but not the order in which text, shapes and pictures are
//! painted. Therefore [`mod@walk`] reads the operators of the page first. It records all paints, and writes a mark
//! before every operator that shows text: a fill colour that encodes the number of the state at that operator. The
//! engine then reads the marked operators, and [`PaintedPage::judge`] finds the state of each span of text by its
//! colour.

mod color;
mod mask;
mod path;
mod pictures;
mod resources;
mod state;
#[cfg(test)]
mod tests;
mod walk;

use pdfboss_core::{ObjRef, Page, Rect};
use pdfboss_text::TextSpan;

use self::color::Ink;
use self::mask::{MaskState, SoftMask};
use self::path::Region;
pub(super) use self::resources::numbers;
pub(super) use self::walk::{MarkedStreams, walk};
use crate::limits::{Budget, Limit};
use crate::markdown::visible_characters;

/// Size of the smallest letters that a person can see, in points.
const MIN_POINTS: f32 = 1.0;
/// Width of an em below which no letter can be read, in points.
const MIN_EM_WIDTH: f32 = 0.4;
/// Least opacity that a person can see.
const MIN_ALPHA: f32 = 0.05;
/// Highest opacity of a text through which other text can be read.
const MAX_FAINT_ALPHA: f32 = 0.6;
/// Lowest luminance of a text through which other text can be read.
const MIN_FAINT_LUMINANCE: f32 = 0.7;
/// Pixels of a picture for each point below which it cannot show text.
const MIN_PIXELS_PER_POINT: f32 = 0.05;
/// Share of a span of text that must be behind a paint to count as covered.
const COVERED_SHARE: f32 = 0.85;
/// Share of the page that pictures must fill to count as a scan of it.
const SCAN_SHARE: f32 = 0.7;
/// Greatest distance from the page at which text still touches it, in points.
const PAGE_TOLERANCE: f32 = 1.0;
/// Number of horizontal bands of a page, by which paints are found.
const BAND_COUNT: usize = 128;
/// Most pictures that are examined as parts of a scan.
const MAX_SCAN_PICTURES: usize = 128;
/// Text spans between two checks of the time limit.
const SPANS_PER_CHECK: usize = 64;

/// The state in which text is shown.
#[derive(Clone, Copy, Debug)]
struct ShownText {
    fill: Ink,
    stroke: Ink,
    fill_alpha: f32,
    stroke_alpha: f32,
    /// `Tr` (ISO 32000-1, table 106).
    render_mode: i32,
    clip: Region,
    mask: MaskState,
    /// Size of a glyph of one unit relative to that of an ordinary font.
    glyph_scale: f32,
    /// Width of an em on the page, in points; `None` if the font was not set by an operator.
    em_width: Option<f32>,
    /// Number of paints before the text.
    paints_before: usize,
}

/// A painted shape or picture.
#[derive(Clone, Copy, Debug)]
struct Paint {
    region: Region,
    ink: Ink,
    /// Whether the paint hides the content below it.
    opaque: bool,
    /// Width and height in pixels, of a picture.
    picture: Option<(f32, f32)>,
}

/// The paints of a page, in order.
#[derive(Debug, Default)]
pub(super) struct PaintedPage {
    shown: Vec<ShownText>,
    paints: Vec<Paint>,
    /// Pictures that are separate objects, and their areas.
    pictures: Vec<(Rect, ObjRef)>,
    masks: Vec<SoftMask>,
    /// Characters of texts that stand for far fewer glyphs.
    pub(super) replaced_characters: u64,
    /// Whether a layer that is switched off may have text.
    pub(super) has_layer_text: bool,
}

/// The visibility of a span of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextVisibility {
    Visible,
    Hidden,
    /// Hidden by the picture of this index, unless the picture is a scan and the text is its OCR layer.
    BehindPicture(usize),
}

impl PaintedPage {
    /// Which text spans a person cannot see, in the order of the spans.
    ///
    /// # Errors
    ///
    /// [`Limit::Time`] when the time limit has passed.
    pub(super) fn judge(
        &self,
        spans: &[TextSpan],
        page: &Page,
        budget: &Budget,
    ) -> Result<Vec<bool>, Limit> {
        let bands = Bands::of(&self.paints, page.crop_box);
        let mut visibilities = Vec::with_capacity(spans.len());
        for (index, span) in spans.iter().enumerate() {
            if index.is_multiple_of(SPANS_PER_CHECK) {
                budget.clock()?;
            }
            visibilities.push(self.visibility_of(span, page.crop_box, &bands));
        }
        let is_scan = self.is_scan(spans, &visibilities, page.crop_box);
        let hidden = visibilities.iter().map(|visibility| match visibility {
            TextVisibility::Visible => false,
            TextVisibility::Hidden => true,
            TextVisibility::BehindPicture(_) => !is_scan,
        });
        Ok(hidden.collect())
    }

    /// Whether a span of text is so pale or transparent that other text can be read through it.
    pub(super) fn is_faint(&self, span: &TextSpan) -> bool {
        let shown = mark::read(span.color).and_then(|at| self.shown.get(at));
        shown.is_some_and(|shown| {
            shown.fill_alpha <= MAX_FAINT_ALPHA || shown.fill.luminance() >= MIN_FAINT_LUMINANCE
        })
    }

    fn visibility_of(&self, span: &TextSpan, page: Rect, bands: &Bands) -> TextVisibility {
        if span.text.trim().is_empty() {
            return TextVisibility::Visible;
        }
        let core = core_area(span);
        let shown = mark::read(span.color)
            // The engine's rendering mode must match; otherwise the colour only resembles a mark.
            .and_then(|at| self.shown.get(at))
            .filter(|shown| matches!(shown.render_mode, 3 | 7) == span.invisible);
        let scale = shown.map_or(1.0, |shown| shown.glyph_scale);
        let is_squeezed = shown
            .and_then(|shown| shown.em_width)
            .is_some_and(|width| width < MIN_EM_WIDTH);
        if is_outside(span.bbox, page) || span.size * scale < MIN_POINTS || is_squeezed {
            return TextVisibility::Hidden;
        }
        let Some(shown) = shown else {
            let is_visible = !span.invisible || self.has_picture(core, bands);
            return if is_visible {
                TextVisibility::Visible
            } else {
                TextVisibility::Hidden
            };
        };
        if core.intersect(shown.clip.area).is_none() || self.is_masked(shown.mask, core) {
            return TextVisibility::Hidden;
        }
        match shown.render_mode {
            3 if self.has_picture(core, bands) => TextVisibility::Visible,
            // The text is a clipping path: later paints are visible in its shape.
            7 if self.paints.len() > shown.paints_before => TextVisibility::Visible,
            3 | 7 => TextVisibility::Hidden,
            _ => self.cover(core, shown, bands).unwrap_or_else(|| {
                if self.has_contrast(core, shown, bands) {
                    TextVisibility::Visible
                } else {
                    TextVisibility::Hidden
                }
            }),
        }
    }

    fn is_masked(&self, mask: MaskState, area: Rect) -> bool {
        match mask {
            MaskState::Known(at) => self.masks.get(at).is_some_and(|mask| mask.hides(area)),
            MaskState::None | MaskState::Unknown => false,
        }
    }

    /// The paint that covers the text; `None` if it is not covered.
    fn cover(&self, core: Rect, shown: &ShownText, bands: &Bands) -> Option<TextVisibility> {
        let mut picture_cover = None;
        // Paints are in painting order: the earlier ones are below the text.
        for paint_index in bands.at(core).iter().rev() {
            if *paint_index < shown.paints_before {
                break;
            }
            let Some(paint) = self.paints.get(*paint_index) else {
                continue;
            };
            if paint.opaque && paint.region.filled && covers(paint.region.area, core) {
                if paint.picture.is_none() {
                    return Some(TextVisibility::Hidden);
                }
                picture_cover = Some(TextVisibility::BehindPicture(*paint_index));
            }
        }
        picture_cover
    }

    /// Whether the text has enough contrast with its background.
    fn has_contrast(&self, core: Rect, shown: &ShownText, bands: &Bands) -> bool {
        let mode = shown.render_mode.rem_euclid(4);
        let fill = matches!(mode, 0 | 2) && shown.fill_alpha >= MIN_ALPHA;
        let stroke = matches!(mode, 1 | 2) && shown.stroke_alpha >= MIN_ALPHA;
        (fill && self.contrasts_with_background(core, shown.fill, shown.paints_before, bands))
            || (stroke
                && self.contrasts_with_background(core, shown.stroke, shown.paints_before, bands))
    }

    fn contrasts_with_background(
        &self,
        core: Rect,
        ink: Ink,
        paints_before: usize,
        bands: &Bands,
    ) -> bool {
        for paint_index in bands.at(core).iter().rev() {
            if *paint_index >= paints_before {
                continue;
            }
            let Some(paint) = self.paints.get(*paint_index) else {
                continue;
            };
            if core.intersect(paint.region.area).is_none() {
                continue;
            }
            // A background of another colour is enough to read the text, even if it is not below all of it.
            if !paint.ink.looks_like(ink) {
                return true;
            }
            if paint.opaque && paint.region.filled && covers(paint.region.area, core) {
                return false;
            }
        }
        // Without a paint below, the background is the paper.
        !ink.looks_like(Ink::PAPER)
    }

    /// Whether a picture in the area of the text could show the same text.
    fn has_picture(&self, core: Rect, bands: &Bands) -> bool {
        bands.at(core).iter().any(|at| {
            self.paints.get(*at).is_some_and(|paint| {
                let area = paint.region.area;
                paint.picture.is_some_and(|(width, height)| {
                    let fine = |pixels: f32, points: f32| pixels >= MIN_PIXELS_PER_POINT * points;
                    fine(width.max(height), area.width().max(area.height()))
                        && fine(width.min(height), area.width().min(area.height()))
                }) && covers(area, core)
            })
        })
    }

    /// Whether the pictures that cover text are a scan of the page, and the text was recognised on them.
    fn is_scan(&self, spans: &[TextSpan], visibilities: &[TextVisibility], page: Rect) -> bool {
        let mut pictures = Vec::new();
        let (mut visible, mut behind_pictures) = (0, 0);
        for (span, visibility) in spans.iter().zip(visibilities) {
            match visibility {
                TextVisibility::Visible => visible += visible_characters(&span.text),
                TextVisibility::Hidden => {}
                TextVisibility::BehindPicture(picture) => {
                    behind_pictures += visible_characters(&span.text);
                    if !pictures.contains(picture) && pictures.len() < MAX_SCAN_PICTURES {
                        pictures.push(*picture);
                    }
                }
            }
        }
        let covered_area: f32 = pictures
            .iter()
            .filter_map(|picture| self.paints.get(*picture)?.region.area.intersect(page))
            .map(size_of)
            .sum();
        behind_pictures >= visible && covered_area >= SCAN_SHARE * size_of(page)
    }
}

/// The mark that a span of text carries.
mod mark {
    /// Most marks that can be distinguished.
    pub(super) const MAX_MARKS: usize = 1 << 24;

    /// The operator that sets the mark of this number. Its three components are exact in single precision.
    pub(super) fn write(number: usize) -> String {
        let [.., red, green, blue] = u32::try_from(number).unwrap_or_default().to_be_bytes();
        // The divisor is 256 and not 255: such fractions are exact in single precision and come back unchanged.
        let part = |byte: u8| f32::from(byte) / 256.0;
        format!(" {} {} {} rg ", part(red), part(green), part(blue))
    }

    /// The number that the mark encodes; `None` for a colour that is not a mark.
    pub(super) fn read(color: Option<(f32, f32, f32)>) -> Option<usize> {
        let (red, green, blue) = color?;
        let mut number = 0;
        for part in [red, green, blue] {
            let scaled = part * 256.0;
            if scaled.fract() != 0.0 || !(0.0..256.0).contains(&scaled) {
                return None;
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the value is a whole number below 256"
            )]
            let byte = scaled as usize;
            number = number << 8 | byte;
        }
        Some(number)
    }
}

/// Indices of paints by the horizontal bands of the page that they touch, in the order of painting.
struct Bands {
    page: Rect,
    bands: Vec<Vec<usize>>,
}

impl Bands {
    fn of(paints: &[Paint], page: Rect) -> Self {
        let mut bands = Self {
            page: page.normalize(),
            bands: vec![Vec::new(); BAND_COUNT],
        };
        for (paint_index, paint) in paints.iter().enumerate() {
            let (first, last) = (
                bands.index(paint.region.area.y0),
                bands.index(paint.region.area.y1),
            );
            if let Some(touched) = bands.bands.get_mut(first..=last) {
                for band in touched {
                    band.push(paint_index);
                }
            }
        }
        bands
    }

    fn index(&self, y: f32) -> usize {
        let share = (y - self.page.y0) / self.page.height().max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the value is clamped to a small range"
        )]
        let index = (share * BAND_COUNT as f32).clamp(0.0, BAND_COUNT as f32 - 1.0) as usize;
        index
    }

    /// The paints in the band of the middle of a span of text.
    fn at(&self, core: Rect) -> &[usize] {
        let index = self.index(f32::midpoint(core.y0, core.y1));
        self.bands.get(index).map_or(&[], Vec::as_slice)
    }
}

/// The part of a span of text that certainly contains ink, because font boxes extend far above and below the letters.
fn core_area(span: &TextSpan) -> Rect {
    let bbox = span.bbox.normalize();
    if span.rotate == 0 && !span.vertical {
        let y = [span.y, span.y + span.size * 0.5];
        return Rect::new(bbox.x0, y[0].min(y[1]), bbox.x1, y[0].max(y[1]));
    }
    let (dx, dy) = (bbox.width() / 4.0, bbox.height() / 4.0);
    Rect::new(bbox.x0 + dx, bbox.y0 + dy, bbox.x1 - dx, bbox.y1 - dy)
}

/// Whether so much of the text is within an area that the remainder is not readable.
fn covers(area: Rect, core: Rect) -> bool {
    // Text of a font without widths has no width.
    let core = Rect::new(
        core.x0,
        core.y0,
        core.x1.max(core.x0 + 0.01),
        core.y1.max(core.y0 + 0.01),
    );
    area.intersect(core)
        .is_some_and(|both| size_of(both) >= COVERED_SHARE * size_of(core))
}

fn size_of(area: Rect) -> f32 {
    area.width().abs() * area.height().abs()
}

/// Whether a span of text is entirely outside the page.
fn is_outside(bbox: Rect, page: Rect) -> bool {
    let (bbox, page) = (bbox.normalize(), page.normalize());
    bbox.x1 < page.x0 - PAGE_TOLERANCE
        || bbox.x0 > page.x1 + PAGE_TOLERANCE
        || bbox.y1 < page.y0 - PAGE_TOLERANCE
        || bbox.y0 > page.y1 + PAGE_TOLERANCE
}
