//! Paths and clips of a page, in its own coordinates: the box of each shape, and whether the shape fills its box.

use pdfboss_core::{Matrix, Point, Rect};

/// Most shapes of one path that are distinguished; the others count as one shape that does not fill its box.
const MAX_SHAPES: usize = 2_000;
/// Most corners of one shape that are kept: a rectangle has four, and a fifth that closes it.
const MAX_CORNERS: usize = 6;
/// Largest distance at which two coordinates count as one.
const COORDINATE_TOLERANCE: f32 = 0.5;
/// The region of a page without a clip.
const UNCLIPPED_AREA: Rect = Rect::new(-1e9, -1e9, 1e9, 1e9);

/// A region of the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Region {
    /// The smallest upright rectangle around it.
    pub(super) area: Rect,
    /// Whether the path fills that rectangle.
    pub(super) filled: bool,
}

impl Region {
    /// The complete plane, without a clip.
    pub(super) const WHOLE_PLANE: Self = Self {
        area: UNCLIPPED_AREA,
        filled: true,
    };

    /// A rectangle of user space under a matrix.
    pub(super) fn of(rect: Rect, matrix: Matrix) -> Option<Self> {
        let area = rect.transform(matrix);
        let finite = [area.x0, area.y0, area.x1, area.y1]
            .iter()
            .all(|value| value.is_finite());
        finite.then_some(Self {
            area,
            filled: is_upright(matrix),
        })
    }

    /// The intersection of two regions; `None` if they are disjoint.
    pub(super) fn within(self, clip: Self) -> Option<Self> {
        Some(Self {
            area: self.area.intersect(clip.area)?,
            filled: self.filled && clip.filled,
        })
    }
}

/// Whether a matrix maps upright rectangles to upright rectangles.
fn is_upright(matrix: Matrix) -> bool {
    let small = |value: f32, reference: f32| value.abs() < 1e-3 * (reference.abs() + 1e-6);
    (small(matrix.b, matrix.a) && small(matrix.c, matrix.d))
        || (small(matrix.a, matrix.b) && small(matrix.d, matrix.c))
}

/// A path under construction.
#[derive(Debug, Default)]
pub(super) struct Path {
    shapes: Vec<Region>,
    corners: Vec<Point>,
    area: Option<Rect>,
    curved: bool,
    /// Whether the path has `W` or `W*`, so that the next painting operator also clips.
    pub(super) clips: bool,
}

impl Path {
    /// Begins a shape, and ends the one before.
    pub(super) fn move_to(&mut self, point: Point) {
        self.end_shape();
        self.add(point);
    }

    /// Adds a straight line to a point.
    pub(super) fn line_to(&mut self, point: Point) {
        self.add(point);
    }

    /// Adds a curve to the last of these points; the others are control points.
    pub(super) fn curve_to(&mut self, through: &[Point]) {
        self.curved = true;
        for point in through {
            self.add(*point);
        }
    }

    /// Adds a rectangle as a separate shape.
    pub(super) fn rectangle(&mut self, rect: Rect, matrix: Matrix) {
        self.end_shape();
        if let Some(region) = Region::of(rect, matrix) {
            self.push(region);
        }
    }

    /// The shapes, and an empty path in their place.
    pub(super) fn take(&mut self) -> Vec<Region> {
        self.end_shape();
        self.clips = false;
        std::mem::take(&mut self.shapes)
    }

    fn add(&mut self, corner: Point) {
        // A shape with a point at infinity does not cover any area with certainty.
        if !(corner.x.is_finite() && corner.y.is_finite()) {
            self.curved = true;
            return;
        }
        if self.corners.len() < MAX_CORNERS {
            self.corners.push(corner);
        }
        let point = Rect::new(corner.x, corner.y, corner.x, corner.y);
        self.area = Some(self.area.map_or(point, |area| area.union(point)));
    }

    fn end_shape(&mut self) {
        let corners = std::mem::take(&mut self.corners);
        let curved = std::mem::take(&mut self.curved);
        if let Some(area) = self.area.take() {
            self.push(Region {
                area,
                filled: !curved && is_rectangle(&corners),
            });
        }
    }

    fn push(&mut self, region: Region) {
        let is_full = self.shapes.len() >= MAX_SHAPES;
        match self.shapes.last_mut() {
            // Beyond the limit, shapes become one shape that counts as open, so that no text is hidden by mistake.
            Some(last) if is_full => {
                last.area = last.area.union(region.area);
                last.filled = false;
            }
            _ => self.shapes.push(region),
        }
    }
}

/// Whether the corners are those of an upright rectangle.
fn is_rectangle(corners: &[Point]) -> bool {
    let near = |left: f32, right: f32| (left - right).abs() <= COORDINATE_TOLERANCE;
    let [first, second, third, fourth, closing @ ..] = corners else {
        return false;
    };
    let closes = match closing {
        [] => true,
        [end] => near(end.x, first.x) && near(end.y, first.y),
        _ => false,
    };
    let upright = |from: &Point, to: &Point| near(from.x, to.x);
    let level = |from: &Point, to: &Point| near(from.y, to.y);
    closes
        && ((upright(first, second)
            && level(second, third)
            && upright(third, fourth)
            && level(fourth, first))
            || (level(first, second)
                && upright(second, third)
                && level(third, fourth)
                && upright(fourth, first)))
}

/// The shapes of a clip as one region.
pub(super) fn union(shapes: &[Region]) -> Option<Region> {
    match shapes {
        [] => None,
        [one] => Some(*one),
        [first, others @ ..] => Some(Region {
            area: others
                .iter()
                .fold(first.area, |area, other| area.union(other.area)),
            filled: false,
        }),
    }
}
