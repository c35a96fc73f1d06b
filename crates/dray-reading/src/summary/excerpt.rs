//! The excerpt without a summary: the outline, the beginning and the end (read-attachment 12.4).

use std::fmt::Write as _;

use dray_presentation::defang::defang;

/// Most headings in the outline.
const MAX_HEADINGS: usize = 200;
/// Longest heading in it, in characters.
const MAX_HEADING_CHARACTERS: usize = 200;

/// The outline of at most 20 % of the budget, then the first 60 %, a note about the omitted part, and the last 20 %.
///
/// `budget` is in bytes; the cuts are between characters and, where possible, between lines. The text was defanged and so
/// is the excerpt, because a cut can separate a joiner from the letters that need it.
pub fn excerpt(markdown: &str, budget: usize) -> String {
    // Beginning and end have 80 % of the budget together; the rest is for the outline.
    if markdown.len() <= budget / 5 * 4 {
        return markdown.to_owned();
    }
    let head_end = line_end_before(markdown, budget / 5 * 3);
    // Both cuts may be in one long line; the end must not repeat text of the beginning.
    let tail_start =
        line_start_after(markdown, markdown.len().saturating_sub(budget / 5)).max(head_end);
    let head = markdown.get(..head_end).unwrap_or_default();
    let tail = markdown.get(tail_start..).unwrap_or_default();
    let left_out = tail_start - head_end;
    let mut out = outline(markdown, budget / 5);
    out.push_str(head.trim_end());
    if left_out > 0 {
        out.push_str("\n\n_(");
        out.push_str(&left_out.to_string());
        out.push_str(" bytes left out here)_\n\n");
    }
    out.push_str(tail.trim_matches('\n'));
    out.push('\n');
    defang(&out)
}

/// The headings, as far as they fit into the limit, and the number of the others.
fn outline(markdown: &str, max_bytes: usize) -> String {
    let mut fenced = false;
    let headings: Vec<String> = markdown
        .lines()
        .filter(|line| {
            if line.starts_with("```") {
                fenced = !fenced;
            }
            let marks = line.len() - line.trim_start_matches('#').len();
            !fenced
                && (1..=6).contains(&marks)
                && line.get(marks..).is_some_and(|text| text.starts_with(' '))
        })
        .map(|line| line.chars().take(MAX_HEADING_CHARACTERS).collect())
        .collect();
    if headings.is_empty() {
        return String::new();
    }
    let mut out = String::from("Outline:\n\n");
    let mut shown = 0;
    for heading in headings.iter().take(MAX_HEADINGS) {
        let text = heading.trim_start_matches('#');
        let indent = "  ".repeat((heading.len() - text.len()).saturating_sub(1));
        let line = format!("{indent}- {}\n", text.trim());
        if out.len() + line.len() > max_bytes {
            break;
        }
        out.push_str(&line);
        shown += 1;
    }
    let more = headings.len() - shown;
    if more > 0 {
        let _ = writeln!(out, "- _({more} more headings)_");
    }
    out.push('\n');
    out
}

/// The last line end at or before an offset. If that line end is in the first half, the offset itself, moved back to
/// the start of a character.
fn line_end_before(text: &str, offset: usize) -> usize {
    if offset >= text.len() {
        return text.len();
    }
    let offset = text.floor_char_boundary(offset);
    let line = text
        .get(..offset)
        .and_then(|before| before.rfind('\n'))
        .map(|end| end + 1);
    // A cut at a line end in the first half would drop more than half of the text, which is worse than a cut inside a
    // line.
    line.filter(|end| *end * 2 > offset).unwrap_or(offset)
}

/// The first line start at or after an offset. If that line start is in the last half of the rest, the offset itself,
/// moved forward to the start of a character.
fn line_start_after(text: &str, offset: usize) -> usize {
    let offset = text.ceil_char_boundary(offset);
    let rest = text.get(offset..).unwrap_or_default();
    let line = rest.find('\n').map(|end| end + 1);
    line.filter(|end| *end * 2 < rest.len())
        .map_or(offset, |end| offset + end)
}
