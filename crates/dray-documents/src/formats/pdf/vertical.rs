//! Text that is set vertically, as in Japanese books: lines run down the page and follow each other from right to left.
//!
//! The engine reads lines that run to the right. Therefore a page of vertical text is rotated: lines that run down then
//! run to the right, and the line at the right edge becomes the top line.

use pdfboss_core::Rect;
use pdfboss_text::TextSpan;

use super::characters;

/// Least number of steps between letters that is needed to detect the direction of text.
const MIN_STEPS: usize = 8;
/// Greatest horizontal offset between letters of one vertical line, in sizes of letters.
const MAX_LINE_OFFSET: f32 = 0.4;

/// Rotates the vertical text of a page. Horizontal text is removed from `spans` and returned, unless it is inside a
/// vertical line, as digits are. `None` for a page of horizontal text, which does not change.
pub(super) fn rotate_vertical_text(spans: &mut Vec<TextSpan>) -> Option<Vec<TextSpan>> {
    let by_font = visible(spans.iter().filter(|span| span.vertical));
    let stacked = by_font == 0 && is_stacked(spans);
    // With less vertical text than that, the page is horizontal and has a vertical word on it.
    if !stacked && by_font * 2 < visible(spans.iter()) {
        return None;
    }
    let lines = Lines::of(spans, stacked);
    let (mut turned, mut beside) = (Vec::new(), Vec::new());
    for span in spans.drain(..) {
        if span.vertical {
            turned.push(turned_span(&span, -span.y, -span.end_y, span.x));
        } else if span.rotate == 0 {
            let middle = f32::midpoint(span.x, span.end_x);
            if lines.contain(middle, span.bbox) {
                let top = -(span.y + span.size * 0.88);
                turned.push(turned_span(&span, top, top + span.size, middle));
            } else {
                beside.push(span);
            }
        } else if span.end_y < span.y {
            // Words of other scripts are rotated.
            turned.push(turned_span(&span, -span.y, -span.end_y, span.x));
        } else {
            beside.push(span);
        }
    }
    *spans = turned;
    Some(beside)
}

fn visible<'a>(spans: impl Iterator<Item = &'a TextSpan>) -> usize {
    spans
        .map(|span| {
            span.text
                .chars()
                .filter(|character| !character.is_whitespace())
                .count()
        })
        .sum()
}

/// Whether letters of scripts that may be set vertically are one below the other, each positioned separately.
fn is_stacked(spans: &[TextSpan]) -> bool {
    let (mut down, mut other) = (0_usize, 0_usize);
    for pair in spans.windows(2) {
        let [a, b] = pair else { continue };
        if !is_single(a) || !is_single(b) {
            other += usize::from(
                a.text
                    .chars()
                    .filter(|character| characters::is_unspaced(*character))
                    .count()
                    > 1,
            );
            continue;
        }
        let size = a.size.max(b.size);
        let beside = (a.x - b.x).abs() < size * MAX_LINE_OFFSET;
        let step = a.y - b.y;
        if beside && step > size * 0.5 && step < size * 2.0 {
            down += 1;
        } else if (a.y - b.y).abs() < size * MAX_LINE_OFFSET {
            other += 1;
        }
    }
    // Tables have columns of single letters too, but with others beside them.
    down >= MIN_STEPS && down > other * 3
}

fn is_single(span: &TextSpan) -> bool {
    let mut visible = span
        .text
        .chars()
        .filter(|character| !character.is_whitespace());
    span.rotate == 0
        && visible.next().is_some_and(characters::is_unspaced)
        && visible.next().is_none()
}

/// The positions of vertical lines: their centres and their extent, in whole points.
struct Lines(Vec<(f32, Rect)>);

impl Lines {
    fn of(spans: &[TextSpan], stacked: bool) -> Self {
        let mut positions: Vec<(f32, Rect)> = Vec::new();
        let vertical = spans
            .iter()
            .filter(|span| span.vertical || stacked && is_single(span));
        for span in vertical {
            let bbox = span.bbox.normalize();
            let middle = f32::midpoint(bbox.x0, bbox.x1);
            match positions.last_mut() {
                // In the order of the file, the letters of a line are consecutive.
                Some((centre, area)) if (*centre - middle).abs() < span.size * MAX_LINE_OFFSET => {
                    *area = area.union(bbox);
                }
                _ => positions.push((middle, bbox)),
            }
        }
        positions.sort_by(|left, right| left.0.total_cmp(&right.0));
        Self(positions)
    }

    /// Whether text with this horizontal centre and these bounds is inside a vertical line.
    fn contain(&self, middle: f32, bbox: Rect) -> bool {
        let bbox = bbox.normalize();
        let reach = bbox.height().max(1.0);
        let from = self
            .0
            .partition_point(|(centre, _)| *centre < middle - reach);
        let near = self.0.get(from..).unwrap_or_default();
        near.iter()
            .take_while(|(centre, _)| *centre <= middle + reach)
            .any(|(centre, area)| {
                let inside = (centre - middle).abs() < area.width().max(reach) * MAX_LINE_OFFSET;
                let narrow = bbox.width() <= area.width() * 1.5 + 1.0;
                inside && narrow && bbox.y1 <= area.y1 + reach && bbox.y0 >= area.y0 - reach
            })
    }
}

/// A span whose line runs from `x` to `end_x` at the height `y` of the rotated page.
fn turned_span(span: &TextSpan, x: f32, end_x: f32, y: f32) -> TextSpan {
    let half = span.size / 2.0;
    TextSpan {
        x,
        y,
        end_x: end_x.max(x),
        end_y: y,
        rotate: 0,
        vertical: false,
        glyph_x: Box::default(),
        bbox: Rect::new(x, y - half, end_x.max(x), y + half),
        ascent: half,
        descent: -half,
        ..span.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::pdf::spans::plain;

    /// Letters one below the other from the top of the page.
    fn column(text: &str, x: f32) -> Vec<TextSpan> {
        let letters = text.chars().zip(0_u8..);
        letters
            .map(|(letter, at)| {
                let mut span = plain(&letter.to_string(), x, 700.0 - 12.0 * f32::from(at), 12.0);
                span.end_x = x + 12.0;
                span.bbox = Rect::new(x, span.y - 2.0, x + 12.0, span.y + 10.0);
                span
            })
            .collect()
    }

    fn read(spans: &[TextSpan]) -> String {
        let mut spans: Vec<_> = spans.iter().collect();
        spans.sort_by(|left, right| right.y.total_cmp(&left.y).then(left.x.total_cmp(&right.x)));
        spans.iter().map(|span| span.text.as_str()).collect()
    }

    #[test]
    fn letters_that_are_stacked_read_down_and_then_to_the_left() {
        let mut spans = column("灯台は海を", 400.0);
        spans.extend(column("見ている。", 380.0));
        let mut year = plain("38", 400.0, 700.0 - 12.0 * 5.0, 12.0);
        year.end_x = 412.0;
        year.bbox = Rect::new(400.0, year.y - 2.0, 412.0, year.y + 10.0);
        spans.insert(5, year);
        spans.push(plain("Page 1", 50.0, 20.0, 10.0));
        let beside = rotate_vertical_text(&mut spans).unwrap();
        assert_eq!(read(&spans), "灯台は海を38見ている。");
        assert_eq!(read(&beside), "Page 1");
    }

    #[test]
    fn horizontal_text_of_single_letters_is_not_changed() {
        let mut spans: Vec<_> = (0_u8..20)
            .map(|at| plain("港", 50.0 + 12.0 * f32::from(at), 700.0, 12.0))
            .collect();
        assert!(rotate_vertical_text(&mut spans).is_none());
        assert_eq!(spans.len(), 20);
    }
}
