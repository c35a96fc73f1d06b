//! Chunks of Markdown for one model call each (read-attachment 12.3).

/// Divisor of the slack: a chunk may be a third smaller or larger than the given size, so that it can end before a
/// heading or with its last line.
const CHUNK_SLACK_DIVISOR: usize = 3;

/// Splits at line ends. A chunk ends with the line that reaches `size` bytes, or before a heading if it has at least
/// two thirds of `size`. A line that would make the chunk larger than four thirds of `size` is cut between characters.
/// The joined chunks are the text.
pub fn chunks(text: &str, size: usize) -> Vec<&str> {
    let size = size.max(CHUNK_SLACK_DIVISOR);
    let max_bytes = size + size / CHUNK_SLACK_DIVISOR;
    let early = size - size / CHUNK_SLACK_DIVISOR;
    let mut parts = Vec::new();
    let mut start = 0;
    let mut end = 0;
    let mut close = |from: &mut usize, to: usize| {
        if let Some(chunk) = text.get(*from..to).filter(|chunk| !chunk.is_empty()) {
            parts.push(chunk);
        }
        *from = to;
    };
    for line in text.split_inclusive('\n') {
        if end - start >= early && is_heading(line) {
            close(&mut start, end);
        }
        let line_end = end + line.len();
        // A line without an end, such as minified JSON, must not exceed the window of the model.
        while line_end - start > max_bytes {
            let chunk_end = text.floor_char_boundary(start + max_bytes);
            close(&mut start, chunk_end);
        }
        end = line_end;
        if end - start >= size {
            close(&mut start, end);
        }
    }
    close(&mut start, end);
    parts
}

fn is_heading(line: &str) -> bool {
    let marks = line.len() - line.trim_start_matches('#').len();
    (1..=6).contains(&marks) && line.get(marks..).is_some_and(|rest| rest.starts_with(' '))
}
