//! Links carried through the engine's layout.
//!
//! The engine joins text spans into lines and keeps only text and style of each span. Therefore linked text is put
//! between two private-use characters before the layout, which are removed from the lines afterwards. Another such
//! character marks the end of an entry of a form.

use std::rc::Rc;

use pdfboss_text::TextSpan;

use super::engine::Run;
use super::spans;

/// The character that begins the first link of a page; the characters of the others follow (Unicode, private use, plane
/// 15).
const FIRST_LINK: u32 = 0xF_0000;
/// The character that ends any link.
const LINK_END: char = '\u{FFFFD}';
/// The character at the end of an entry of a form, whose line is a separate paragraph.
pub(super) const ENTRY_END: char = '\u{FFFFC}';
/// Most links of one page that can be distinguished.
pub(super) const MAX_LINKS: usize = 4096;

/// The character that begins a link.
fn begin(link: usize) -> Option<char> {
    let link = u32::try_from(link.min(MAX_LINKS - 1)).ok()?;
    char::from_u32(FIRST_LINK + link)
}

/// The link that a character begins.
fn link_of(character: char) -> Option<usize> {
    let link = usize::try_from(u32::from(character).checked_sub(FIRST_LINK)?).ok()?;
    (link < MAX_LINKS).then_some(link)
}

fn is_mark(character: char) -> bool {
    matches!(character, LINK_END | ENTRY_END) || link_of(character).is_some()
}

/// Removes characters of the file that equal marks.
pub(super) fn remove_lookalikes(spans: &mut [TextSpan]) {
    for span in spans {
        if !span.text.is_ascii() && span.text.contains(is_mark) {
            span.text = span.text.replace(is_mark, "\u{fffd}");
        }
    }
}

/// Marks the characters `from..to` of a span as linked. A marker of a list item at its start is left out, because the
/// engine searches for it there.
pub(super) fn mark(span: &mut TextSpan, from: usize, to: usize, link: usize) {
    let from = from.max(list_marker(&span.text));
    let shown = span.text.chars().skip(from).take(to.saturating_sub(from));
    // The engine reverses right-to-left text, including the marks.
    if shown.clone().all(char::is_whitespace) || span.text.chars().any(spans::is_right_to_left) {
        return;
    }
    let Some(begin) = begin(link) else {
        return;
    };
    let count = span.text.chars().count();
    let mut text = String::with_capacity(span.text.len() + 8);
    let mut positions = Vec::new();
    for (index, character) in span.text.chars().enumerate() {
        let end = (index == to).then_some(LINK_END);
        // Where two links meet, the end of the first comes before the start of the second.
        for mark in end.into_iter().chain((index == from).then_some(begin)) {
            text.push(mark);
            positions.extend(span.glyph_x.get(index));
        }
        text.push(character);
        positions.extend(span.glyph_x.get(index));
    }
    if to >= count {
        text.push(LINK_END);
        positions.extend(span.glyph_x.last());
    }
    span.text = text;
    span.glyph_x = positions.into();
}

/// Number of characters of a list item's marker with the space after it; all characters if the span has nothing else.
fn list_marker(text: &str) -> usize {
    let rest = text.trim_start();
    let before = text.chars().count() - rest.chars().count();
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let sign = match rest.chars().nth(digits) {
        Some('.' | ')') if (1..=3).contains(&digits) => digits + 1,
        Some(bullet) if digits == 0 && !bullet.is_alphanumeric() && bullet != '(' => 1,
        _ => return 0,
    };
    let after_marker = rest.chars().skip(sign);
    let space = after_marker
        .take_while(|character| character.is_whitespace())
        .count();
    if space == 0 && rest.chars().count() > sign {
        return 0;
    }
    before + sign + space
}

/// The parts of a text between marks, each with the target of its link.
pub(super) fn parts(text: &str, links: &[Rc<str>]) -> Vec<(String, Option<Rc<str>>)> {
    if text.is_ascii() || !text.contains(is_mark) {
        return vec![(text.to_owned(), None)];
    }
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut link = None;
    for character in text.chars() {
        if !is_mark(character) {
            part.push(character);
            continue;
        }
        if !part.is_empty() {
            parts.push((std::mem::take(&mut part), link.clone()));
        }
        link = link_of(character).and_then(|link| links.get(link)).cloned();
    }
    if !part.is_empty() {
        parts.push((part, link));
    }
    parts
}

/// Makes blanks between two runs of one link part of it.
pub(super) fn join_links(runs: &mut [Run]) {
    for index in 1..runs.len().saturating_sub(1) {
        let link = match runs.get(index - 1..=index + 1) {
            Some([a, blank, b]) if a.link == b.link && blank.text.trim().is_empty() => {
                a.link.clone()
            }
            _ => continue,
        };
        if let Some(blank) = runs.get_mut(index).filter(|_| link.is_some()) {
            blank.link = link;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_text_gives_its_parts_and_a_list_marker_stays_in_front() {
        let links: Vec<Rc<str>> = vec!["https://a.example".into(), "https://b.example".into()];
        for (text, from, to, linked) in [
            ("see here now", 4, 8, "here"),
            ("all", 0, 3, "all"),
            ("• item", 0, 6, "item"),
            ("12. item", 0, 8, "item"),
            ("(a) item", 0, 8, "(a) item"),
            ("3.14", 0, 4, "3.14"),
        ] {
            let mut span = spans::plain(text, 0.0, 0.0, 10.0);
            mark(&mut span, from, to, 1);
            let parts = parts(&span.text, &links);
            let found: Vec<&str> = parts
                .iter()
                .filter(|(_, link)| link.as_deref() == Some("https://b.example"))
                .map(|(text, _)| text.as_str())
                .collect();
            assert_eq!(found, [linked], "{text}");
            let whole: String = parts.iter().map(|(text, _)| text.as_str()).collect();
            assert_eq!(whole, text);
        }
    }

    #[test]
    fn characters_of_the_file_that_equal_marks_are_replaced() {
        let mut spans = [spans::plain("a\u{f0000}b\u{ffffd}", 0.0, 0.0, 10.0)];
        remove_lookalikes(&mut spans);
        assert_eq!(spans[0].text, "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn a_marked_span_has_one_glyph_position_for_each_character() {
        let mut span = spans::plain("Ωμέγα x", 0.0, 0.0, 10.0);
        span.glyph_x = (0..7).map(|at: u8| f32::from(at)).collect();
        mark(&mut span, 0, 5, 0);
        assert_eq!(span.glyph_x.len(), span.text.chars().count());
    }
}
