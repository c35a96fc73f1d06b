//! Numbered lines of a text, of which long ones are read in parts.

use std::fmt::Write as _;

/// Most bytes of lines in one result.
const MAX_ANSWER_BYTES: usize = 48 * 1024;

/// The lines to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRange {
    /// Number of the first line, from 1.
    pub(super) start: usize,
    /// The first byte of that line, from 1.
    pub(super) start_byte: usize,
    /// Most lines.
    pub(super) count: usize,
}

/// The lines of a range with their numbers, up to a limit, and how to read on.
pub(super) fn numbered_lines(content: &str, range: LineRange) -> String {
    // The lines are counted as models count: a line feed at the end begins no further line.
    let all = content.lines().count();
    if range.start > all {
        return format!("The file has {all} lines.");
    }
    let mut text = String::new();
    let mut next = range.start;
    let lines = content.lines().enumerate().skip(range.start - 1);
    for (index, line) in lines.take(range.count) {
        let number = index + 1;
        let skipped = if number == range.start {
            line.floor_char_boundary(range.start_byte - 1)
        } else {
            0
        };
        let line = line.get(skipped..).unwrap_or_default();
        if skipped > 0 && line.is_empty() {
            let _ = writeln!(text, "Line {number} has {skipped} bytes.");
        } else {
            // The first line is always returned, so that a call makes progress.
            if text.len() + line.len() > MAX_ANSWER_BYTES && number > range.start {
                break;
            }
            let (shown, rest) = line.split_at(line.floor_char_boundary(MAX_ANSWER_BYTES));
            let _ = writeln!(text, "{number}\t{shown}");
            if !rest.is_empty() {
                let _ = writeln!(
                    text,
                    "Line {number} of {all} has {} more bytes; continue with start {number} and start_byte {}.",
                    rest.len(),
                    skipped + shown.len() + 1
                );
                return text;
            }
        }
        next = number + 1;
    }
    if next <= all {
        let _ = writeln!(
            text,
            "The file has {all} lines; continue with start {next}."
        );
    }
    text
}
