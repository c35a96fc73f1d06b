//! The graphics state, as far as it decides whether text can be seen.

use pdfboss_core::content::Op;
use pdfboss_core::{Dict, Matrix, Object, Point, Rect};

use super::color::{Ink, Space, device};
use super::mask::MaskState;
use super::path::{Path, Region, union};
use super::resources::number;
use super::{Paint, ShownText};
use crate::formats::pdf::metered::MeteredDocument;

/// Least width of a line that can be a background of text, in points.
const MIN_LINE_WIDTH: f32 = 4.0;

/// The state that `q` saves and `Q` restores.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) matrix: Matrix,
    pub(super) clip: Region,
    pub(super) fill_space: Space,
    pub(super) stroke_space: Space,
    pub(super) fill: Ink,
    pub(super) stroke: Ink,
    fill_alpha: f32,
    stroke_alpha: f32,
    /// Whether no blend mode is set.
    plain: bool,
    pub(super) mask: MaskState,
    line_width: f32,
    render_mode: i32,
    pub(super) glyph_scale: f32,
    /// Bytes of a code of the font.
    pub(super) code_bytes: usize,
    /// Size of the font; `None` if it was not set by an operator.
    pub(super) font_size: Option<f32>,
    /// `Tz`, where 1 is the ordinary width.
    horizontal_scale: f32,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            matrix: Matrix::identity(),
            clip: Region::WHOLE_PLANE,
            fill_space: Space::Device,
            stroke_space: Space::Device,
            fill: Ink::BLACK,
            stroke: Ink::BLACK,
            fill_alpha: 1.0,
            stroke_alpha: 1.0,
            plain: true,
            mask: MaskState::None,
            line_width: 1.0,
            render_mode: 0,
            glyph_scale: 1.0,
            code_bytes: 1,
            font_size: None,
            horizontal_scale: 1.0,
        }
    }

    /// The state of text that is shown now under a text matrix.
    pub(super) fn text_state(&mut self, text_matrix: Matrix, paints_before: usize) -> ShownText {
        let matrix = text_matrix.concat(self.matrix);
        let em_width = self.font_size.map(|size| {
            let stretch = matrix.a.hypot(matrix.b) * self.horizontal_scale;
            (size * stretch * self.glyph_scale).abs()
        });
        let shown = ShownText {
            fill: self.fill,
            stroke: self.stroke,
            fill_alpha: self.fill_alpha,
            stroke_alpha: self.stroke_alpha,
            render_mode: self.render_mode,
            clip: self.clip,
            mask: self.mask,
            glyph_scale: self.glyph_scale,
            em_width,
            paints_before,
        };
        if self.render_mode >= 4 {
            // The clip is now the shape of the letters.
            self.clip.filled = false;
        }
        shown
    }

    /// Applies an operator that sets a value. Returns false for any other operator.
    pub(super) fn set(&mut self, op: &Op) -> bool {
        match op {
            Op::Concat(matrix) => {
                let m = matrix;
                // A matrix that is not finite would make every later position unknown.
                if [m.a, m.b, m.c, m.d, m.e, m.f]
                    .iter()
                    .all(|value| value.is_finite())
                {
                    self.matrix = matrix.concat(self.matrix);
                }
            }
            Op::SetLineWidth(width) => self.line_width = *width,
            Op::SetTextRender(mode) => self.render_mode = *mode,
            Op::SetHorizScaling(percent) => self.horizontal_scale = *percent / 100.0,
            Op::SetFillGray(gray) => self.set_fill(device(&[*gray])),
            Op::SetFillRGB(red, green, blue) => self.set_fill(device(&[*red, *green, *blue])),
            Op::SetFillCMYK(c, m, y, k) => self.set_fill(device(&[*c, *m, *y, *k])),
            Op::SetStrokeGray(gray) => self.set_stroke(device(&[*gray])),
            Op::SetStrokeRGB(red, green, blue) => self.set_stroke(device(&[*red, *green, *blue])),
            Op::SetStrokeCMYK(c, m, y, k) => self.set_stroke(device(&[*c, *m, *y, *k])),
            Op::SetFillColor(parts) | Op::SetFillColorN(parts, None) => {
                self.fill = self.fill_space.ink(parts);
            }
            // A pattern may have any colours.
            Op::SetFillColorN(_, Some(_)) => self.fill = Ink::Unknown,
            Op::SetStrokeColor(parts) | Op::SetStrokeColorN(parts, None) => {
                self.stroke = self.stroke_space.ink(parts);
            }
            Op::SetStrokeColorN(_, Some(_)) => self.stroke = Ink::Unknown,
            _ => return false,
        }
        true
    }

    fn set_fill(&mut self, ink: Ink) {
        (self.fill, self.fill_space) = (ink, Space::Device);
    }

    fn set_stroke(&mut self, ink: Ink) {
        (self.stroke, self.stroke_space) = (ink, Space::Device);
    }

    /// Applies the entries of an `ExtGState`, except its soft mask.
    pub(super) fn apply(&mut self, dict: &Dict, source: &MeteredDocument<'_>) {
        if dict.get("Font").is_some() {
            self.font_size = None;
        }
        if let Some(width) = number(dict.get("LW"), source) {
            self.line_width = width;
        }
        if let Some(alpha) = number(dict.get("ca"), source) {
            self.fill_alpha = alpha;
        }
        if let Some(alpha) = number(dict.get("CA"), source) {
            self.stroke_alpha = alpha;
        }
        if let Some(mode) = dict.get("BM").and_then(|value| source.fetch(value)) {
            let name = mode.as_name().map(|name| name.0.as_str());
            self.plain = matches!(name, Some("Normal" | "Compatible"));
        }
    }

    /// Whether a paint with this opacity hides the content below it.
    fn is_opaque(&self, alpha: f32) -> bool {
        self.plain && self.mask == MaskState::None && alpha >= 1.0 - MIN_TRANSPARENCY
    }

    /// Applies an operator that builds a path. Returns false for any other operator.
    pub(super) fn build(&self, op: &Op, path: &mut Path) -> bool {
        let point = |x: f32, y: f32| self.matrix.apply(Point::new(x, y));
        match *op {
            Op::MoveTo(x, y) => path.move_to(point(x, y)),
            Op::LineTo(x, y) => path.line_to(point(x, y)),
            Op::CurveTo(x1, y1, x2, y2, x, y) => {
                path.curve_to(&[point(x1, y1), point(x2, y2), point(x, y)]);
            }
            Op::CurveToV(x1, y1, x, y) | Op::CurveToY(x1, y1, x, y) => {
                path.curve_to(&[point(x1, y1), point(x, y)]);
            }
            Op::Rect(x, y, width, height) => {
                path.rectangle(Rect::new(x, y, x + width, y + height), self.matrix);
            }
            Op::ClipNonZero | Op::ClipEvenOdd => path.clips = true,
            Op::ClosePath => {}
            _ => return false,
        }
        true
    }

    /// Ends a path: the paints of an operator that fills or strokes it, and the clip that it may set.
    pub(super) fn end_path(&mut self, op: &Op, path: &mut Path) -> Vec<Paint> {
        let clips = path.clips;
        let mut shapes = path.take();
        let stroke = matches!(
            op,
            Op::Stroke
                | Op::CloseStroke
                | Op::FillStroke
                | Op::FillStrokeEvenOdd
                | Op::CloseFillStroke
                | Op::CloseFillStrokeEvenOdd
        );
        let fill = !matches!(op, Op::Stroke | Op::CloseStroke | Op::EndPath);
        let mut paints = Vec::new();
        let even_odd = matches!(
            op,
            Op::FillEvenOdd | Op::FillStrokeEvenOdd | Op::CloseFillStrokeEvenOdd
        );
        // Nested shapes have holes, so none of them counts as filled.
        if even_odd && shapes.len() > 1 {
            for shape in &mut shapes {
                shape.filled = false;
            }
        }
        let matrix = self.matrix;
        let width = self.line_width * (matrix.a * matrix.d - matrix.b * matrix.c).abs().sqrt();
        for shape in &shapes {
            if fill {
                paints.extend(self.paint(*shape, self.fill, self.fill_alpha));
            }
            // Thinner lines cross text out or underline it, and are not its background.
            if stroke && width >= MIN_LINE_WIDTH {
                let (area, half) = (shape.area, width / 2.0);
                let line = Region {
                    area: Rect::new(
                        area.x0 - half,
                        area.y0 - half,
                        area.x1 + half,
                        area.y1 + half,
                    ),
                    filled: false,
                };
                paints.extend(self.paint(line, self.stroke, self.stroke_alpha));
            }
        }
        if clips {
            self.clip_to(union(&shapes));
        }
        paints
    }

    /// Clips to a region. `None` clips everything.
    pub(super) fn clip_to(&mut self, region: Option<Region>) {
        // This region is far outside of every page, so text under it is hidden.
        let nothing = Region {
            area: Rect::new(1e9, 1e9, 1e9, 1e9),
            filled: true,
        };
        self.clip = region
            .and_then(|region| region.within(self.clip))
            .unwrap_or(nothing);
    }

    fn paint(&self, shape: Region, ink: Ink, alpha: f32) -> Option<Paint> {
        Some(Paint {
            region: shape.within(self.clip)?,
            ink,
            opaque: self.is_opaque(alpha),
            picture: None,
        })
        // A nearly transparent paint neither covers text nor is its background.
        .filter(|_| alpha >= super::MIN_ALPHA)
    }

    /// The paint of a shading, which fills the clip.
    pub(super) fn shading(&self) -> Paint {
        Paint {
            region: Region {
                filled: false,
                ..self.clip
            },
            ink: Ink::Unknown,
            opaque: false,
            picture: None,
        }
    }

    /// The paint of a picture, which fills the unit square.
    pub(super) fn picture(&self, picture: &Picture) -> Option<Paint> {
        let region = Region::of(Rect::new(0.0, 0.0, 1.0, 1.0), self.matrix)?;
        Some(Paint {
            region: region.within(self.clip)?,
            ink: Ink::Unknown,
            opaque: picture.opaque && self.is_opaque(self.fill_alpha),
            picture: Some(picture.pixels),
        })
    }
}

/// Most pixels of masks that are checked.
const MAX_MASK_PIXELS: f32 = 16_000_000.0;
/// Least opacity of an opaque pixel of a mask, of 255.
const MIN_SOLID: u8 = 243;
/// Percentage of the pixels of a mask that must be opaque.
const MIN_SOLID_PERCENT: usize = 95;
/// Transparency that a person does not notice.
const MIN_TRANSPARENCY: f32 = 0.05;

/// The relevant properties of a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picture {
    /// Width and height in pixels, as the picture claims them.
    pub(super) pixels: (f32, f32),
    /// Whether the picture hides the content below it: it is not a mask, and its masks hide at most its edge.
    pub(super) opaque: bool,
}

impl Picture {
    /// Reads the dictionary of an image; the short names are those of inline images.
    pub(super) fn of(dict: &Dict, source: &MeteredDocument<'_>) -> Self {
        let entry = |long: &str, short: &str| dict.get(long).or_else(|| dict.get(short));
        let size = |long: &str, short: &str| number(entry(long, short), source).unwrap_or(0.0);
        let stencil = entry("ImageMask", "IM")
            .and_then(|flag| source.fetch(flag)?.as_bool())
            .unwrap_or(false);
        let covers = ["SMask", "Mask"].iter().all(|name| match dict.get(name) {
            Some(mask) => is_solid(mask, *name == "SMask", source),
            None => true,
        });
        Self {
            pixels: (size("Width", "W"), size("Height", "H")),
            opaque: !stencil && covers,
        }
    }
}

/// Whether the mask of a picture shows all of it except parts of its edge. A soft mask has opacities; another mask
/// marks pixels that are not painted.
fn is_solid(mask: &Object, is_soft: bool, source: &MeteredDocument<'_>) -> bool {
    let Some(Object::Stream(mask)) = source.fetch(mask) else {
        return false;
    };
    let pixels = |name: &str| number(mask.dict.get(name), source).unwrap_or(0.0);
    // Inverted masks are rare, and decoding a large one takes too long: text behind it counts as visible.
    if mask.dict.get("Decode").is_some() || pixels("Width") * pixels("Height") > MAX_MASK_PIXELS {
        return false;
    }
    let Some(data) = source.picture(&mask).filter(|data| !data.is_empty()) else {
        return false;
    };
    let is_painted = |byte: &&u8| {
        if is_soft {
            **byte >= MIN_SOLID
        } else {
            **byte == 0
        }
    };
    data.iter().filter(is_painted).count() * 100 >= data.len() * MIN_SOLID_PERCENT
}
