//! Lines of computer code, which keep their breaks and their indentation.

use super::engine::{Block, Line};

/// A distance between lines of more than this multiple of the least distance contains a blank line.
const BLANK_LINE: f32 = 1.7;
/// Most blanks that a line may begin with.
const MAX_INDENT: usize = 120;

/// The lines of a block that holds only code.
pub(super) fn lines_of(block: &Block) -> Option<&[Line]> {
    match block {
        Block::Paragraph {
            lines,
            quote: false,
        } if lines.iter().all(is_code) => Some(lines),
        _ => None,
    }
}

fn is_code(line: &Line) -> bool {
    let mut visible_runs = line.runs.iter().filter(|run| !run.text.trim().is_empty());
    visible_runs.all(|run| run.style.code && run.link.is_none())
}

/// The text of lines of code. Indentation follows from where lines begin and how wide their letters are.
pub(super) fn text(lines: &[Line]) -> String {
    let left = lines.iter().map(|line| line.x).fold(f32::MAX, f32::min);
    let step = lines
        .windows(2)
        .filter_map(|pair| match pair {
            [upper, lower] if upper.y > lower.y => Some(upper.y - lower.y),
            _ => None,
        })
        .fold(f32::MAX, f32::min);
    let longest = lines
        .iter()
        .max_by(|left, right| (left.end - left.x).total_cmp(&(right.end - right.x)));
    let width = longest.map_or(0.0, letter_width);
    let mut text = String::new();
    let mut above: Option<&Line> = None;
    for line in lines {
        if above.is_some_and(|above| above.y - line.y > step * BLANK_LINE) {
            text.push('\n');
        }
        // A line without width has no letters to measure by.
        let letters = (line.x - left) / width.max(0.1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a page is at most some hundred letters wide"
        )]
        let indent = letters.round().clamp(0.0, 1000.0) as usize;
        text.push_str(&" ".repeat(indent.min(MAX_INDENT)));
        for run in &line.runs {
            text.push_str(&run.text);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
        above = Some(line);
    }
    text
}

fn letter_width(line: &Line) -> f32 {
    let letters: usize = line.runs.iter().map(|run| run.text.chars().count()).sum();
    #[expect(clippy::cast_precision_loss, reason = "lines are short")]
    let letters = letters.max(1) as f32;
    (line.end - line.x) / letters
}
