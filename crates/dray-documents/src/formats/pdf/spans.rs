//! Repairs text spans before they are laid out: bullets of symbol fonts, ligatures of right-to-left scripts, and
//! exponents.

use pdfboss_core::Rect;
use pdfboss_text::TextSpan;

use crate::markdown::superscript;

/// The characters by which symbol fonts show a bullet, in the private-use area.
const BULLET_SYMBOLS: [char; 9] = [
    '\u{f06c}', '\u{f06e}', '\u{f071}', '\u{f076}', '\u{f0a7}', '\u{f0a8}', '\u{f0b7}', '\u{f0d8}',
    '\u{f0fc}',
];

/// Repairs all spans of a page.
pub(super) fn repair_spans(spans: &mut [TextSpan]) {
    for span in spans.iter_mut() {
        repair_bullet(span);
        if !span.logical {
            repair_ligatures(span);
        }
    }
    raise_exponents(spans);
}

/// Replaces digits that are smaller and higher than the text directly before them by superscript digits. In a line of
/// plain text, they would be further digits of the number before them.
fn raise_exponents(spans: &mut [TextSpan]) {
    let mut follows_exponent = false;
    for index in 1..spans.len() {
        let Some([before, span]) = spans.get_mut(index - 1..=index) else {
            return;
        };
        let is_raised = is_directly_after(before, span)
            && if follows_exponent {
                (span.y - before.y).abs() < before.size * 0.1
            } else {
                (0.2..0.8).contains(&((span.y - before.y) / before.size))
                    && span.size < before.size * 0.85
            };
        let raised = is_raised.then(|| superscript(&span.text)).flatten();
        follows_exponent = raised.is_some();
        if let Some(raised) = raised {
            span.text = raised;
        }
    }
}

/// Whether upright text begins where the text before it ends.
fn is_directly_after(before: &TextSpan, span: &TextSpan) -> bool {
    let is_upright = |span: &TextSpan| span.rotate == 0 && !span.vertical;
    is_upright(before)
        && is_upright(span)
        && !before.text.ends_with(char::is_whitespace)
        && (span.x - before.end_x).abs() < before.size * 0.35
}

/// The families of the standard fonts with Latin letters, which a file may use without their outlines.
const STANDARD_FONTS: [&str; 3] = ["Helvetica", "Times", "Courier"];

/// A single unknown character, or one that is a sign of a symbol font, is a bullet: fonts of the standard encoding show
/// one for every unassigned code (ISO 32000-1, D.2).
fn repair_bullet(span: &mut TextSpan) {
    let family = span.font_name.split(['-', ',']).next().unwrap_or_default();
    // ReportLab writes every bullet as an unassigned code, also within a line. A row of unknown characters is not a row of
    // bullets: it is text that the file does not define.
    let may_have_bullets =
        span.text.matches('\u{fffd}').count() == 1 || span.text.contains(char::is_alphanumeric);
    if STANDARD_FONTS.contains(&family) && may_have_bullets {
        span.text = span.text.replace('\u{fffd}', "\u{2022}");
    }
    let mut visible = span
        .text
        .chars()
        .filter(|character| !character.is_whitespace());
    let (Some(only), None) = (visible.next(), visible.next()) else {
        return;
    };
    let is_unassigned_code = only == '\u{fffd}' && span.text.chars().count() == 1;
    if is_unassigned_code || BULLET_SYMBOLS.contains(&only) {
        span.text = span.text.replace(only, "\u{2022}");
    }
}

/// Reverses the letters of one glyph of a right-to-left script. The engine treats every letter of such text as a
/// separate glyph and reverses all of them, although the letters of a ligature are already in reading order.
fn repair_ligatures(span: &mut TextSpan) {
    if span.glyph_x.len() < 2 {
        return;
    }
    // Without a place for every letter it is unknown which of them are one glyph.
    let mut letters: Vec<char> = span.text.chars().collect();
    if letters.len() != span.glyph_x.len() {
        return;
    }
    let mut changed = false;
    let mut from = 0;
    // Only letters of one glyph begin at exactly the same place.
    for glyph in span
        .glyph_x
        .chunk_by(|left, right| left.to_bits() == right.to_bits())
    {
        let to = from + glyph.len();
        if let Some(ligature) = letters.get_mut(from..to)
            && ligature.len() > 1
            && ligature
                .iter()
                .all(|character| is_right_to_left(*character))
        {
            ligature.reverse();
            changed = true;
        }
        from = to;
    }
    if changed {
        span.text = letters.into_iter().collect();
    }
}

/// Whether a character is a letter of a script that runs from right to left. Combining marks do not count.
pub(super) fn is_right_to_left(character: char) -> bool {
    character.is_alphabetic()
        && matches!(character, '\u{5d0}'..='\u{5f4}' | '\u{620}'..='\u{64a}' | '\u{66e}'..='\u{6d3}' | '\u{6d5}'
            | '\u{6e5}'..='\u{6e6}' | '\u{6ee}'..='\u{6ef}' | '\u{6fa}'..='\u{710}' | '\u{712}'..='\u{72f}'
            | '\u{74d}'..='\u{7a5}' | '\u{7b1}'..='\u{7ea}' | '\u{800}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}'
            | '\u{fe70}'..='\u{fefc}')
}

/// Width of a letter, as a share of its size, if the font does not define its width.
const LETTER_WIDTH: f32 = 0.5;

/// A span of upright text in an ordinary font, as the engine would give it.
pub(super) fn plain(text: &str, x: f32, y: f32, size: f32) -> TextSpan {
    #[expect(clippy::cast_precision_loss, reason = "lines are short")]
    let end_x = x + text.chars().count() as f32 * size * LETTER_WIDTH;
    let (ascent, descent) = (size * 0.8, size * -0.2);
    TextSpan {
        text: text.to_owned(),
        logical: true,
        x,
        y,
        end_x,
        end_y: y,
        rotate: 0,
        glyph_x: Box::default(),
        size,
        font: String::new(),
        font_name: String::new(),
        page: 0,
        bbox: Rect::new(x, y + descent, end_x, y + ascent),
        ascent,
        descent,
        bold: false,
        italic: false,
        monospace: false,
        serif: false,
        font_family: String::new(),
        font_stretch: None,
        font_weight: None,
        rise: 0.0,
        vertical: false,
        invisible: false,
        color: None,
        underline: false,
        strikethrough: false,
        highlight: false,
        highlight_color: None,
        artifact: None,
        structure: None,
        alt: None,
        lang: None,
        expansion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unassigned_codes_of_the_standard_fonts_are_bullets() {
        for (font, text, shown) in [
            (
                "Helvetica-Bold",
                "\u{fffd} one \u{fffd}",
                "\u{2022} one \u{2022}",
            ),
            ("Times-Roman", "\u{fffd}", "\u{2022}"),
            ("Courier", "\u{fffd}\u{fffd}", "\u{fffd}\u{fffd}"),
            ("ABCDEF+Helvetica", "\u{fffd} 5 mg", "\u{fffd} 5 mg"),
        ] {
            let mut spans = [TextSpan {
                font_name: font.to_owned(),
                ..plain(text, 0.0, 0.0, 10.0)
            }];
            repair_spans(&mut spans);
            assert_eq!(spans[0].text, shown, "{font}");
        }
    }
}
