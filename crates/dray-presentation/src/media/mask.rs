//! Finds text that cannot contain a tag: fenced code, quoted lines, inline code, JSON strings (platform-delivery 3.4).
//!
//! Lines are examined one by one, so that a stream has the same result as the complete text.

use std::collections::BTreeMap;
use std::ops::Range;

/// The state after the previous lines.
#[derive(Clone, Debug, Default)]
pub(super) struct LineMasks {
    /// The open fence: its character and its length.
    fence: Option<(char, usize)>,
    /// Number of open JSON brackets.
    depth: usize,
}

/// The parts of one line in which a tag does not count.
#[derive(Debug, Default)]
pub(super) struct LineMask {
    /// Whether the complete line is masked.
    pub(super) whole: bool,
    /// Inline code with its backticks.
    pub(super) code: Vec<Range<usize>>,
    /// Strings of JSON with their quotes.
    pub(super) strings: Vec<Range<usize>>,
}

impl LineMasks {
    /// Whether the last line was inside a fence, or opened one.
    pub(super) fn in_fence(&self) -> bool {
        self.fence.is_some()
    }

    /// Finds the masked parts of the next line, which may include its line end, and updates the state.
    pub(super) fn mask_line(&mut self, line: &str) -> LineMask {
        let whole = LineMask {
            whole: true,
            ..LineMask::default()
        };
        let start = line.trim_start();
        if let Some((character, length)) = self.fence {
            let run = run_of(start, character);
            let closes = run >= length && start.trim_start_matches(character).trim().is_empty();
            self.fence = self.fence.filter(|_| !closes);
            return whole;
        }
        if let Some(fence) = opens_fence(start) {
            (self.fence, self.depth) = (Some(fence), 0);
            return whole;
        }
        if start.starts_with('>') {
            self.depth = 0;
            return whole;
        }
        // An empty line ends JSON. Otherwise an unclosed bracket in prose would mask the rest of the answer.
        if start.is_empty() {
            self.depth = 0;
        }
        LineMask {
            whole: false,
            code: find_code_spans(line),
            strings: self.find_strings(line),
        }
    }

    /// Whether the next line will be masked completely. The state is not changed, so the line may be incomplete.
    pub(super) fn masks_whole(&self, line: &str) -> bool {
        let start = line.trim_start();
        self.fence.is_some() || opens_fence(start).is_some() || start.starts_with('>')
    }

    /// Strings that are values: those after a key, and all inside JSON brackets.
    fn find_strings(&mut self, line: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let (mut last, mut before_last) = (None, None);
        let mut offset = 0;
        while let Some(character) = line.get(offset..).and_then(|rest| rest.chars().next()) {
            let mut next = offset + character.len_utf8();
            match character {
                '"' => {
                    let Some(end) = string_end(line, next) else {
                        // A quote that is not closed in its line is an inch mark or prose, not the start of a string.
                        break;
                    };
                    // A string after a key is a value, even without brackets (`"key": "value"` in prose).
                    let is_value = (before_last, last) == (Some('"'), Some(':'));
                    if self.depth > 0 || is_value {
                        found.push(offset..end);
                    }
                    next = end;
                }
                '{' | '[' if self.depth > 0 || opens_json(line, offset, character) => {
                    self.depth += 1;
                }
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if !character.is_whitespace() {
                (before_last, last) = (last, Some(character));
            }
            offset = next;
        }
        found
    }
}

/// The fence that a line opens. With further backticks in the line, it is inline code instead.
fn opens_fence(start: &str) -> Option<(char, usize)> {
    let character = start
        .chars()
        .next()
        .filter(|first| matches!(first, '`' | '~'))?;
    let length = run_of(start, character);
    let info = start.trim_start_matches(character);
    (length >= 3 && !(character == '`' && info.contains('`'))).then_some((character, length))
}

/// Number of times that `text` begins with `character`, which is ASCII.
fn run_of(text: &str, character: char) -> usize {
    text.len() - text.trim_start_matches(character).len()
}

/// Spans of inline code: each run of backticks up to the next run of the same length. Takes linear time, because one
/// pass from the end finds the next run of each length.
fn find_code_spans(line: &str) -> Vec<Range<usize>> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (offset, _) in line.match_indices('`') {
        match runs.last_mut() {
            Some((start, length)) if *start + *length == offset => *length += 1,
            _ => runs.push((offset, 1)),
        }
    }
    let mut next_of_length = BTreeMap::new();
    let mut partner = vec![None; runs.len()];
    for ((index, (_, length)), partner) in runs.iter().enumerate().zip(&mut partner).rev() {
        *partner = next_of_length.insert(*length, index);
    }
    let mut spans = Vec::new();
    let mut index = 0;
    while let Some((start, _)) = runs.get(index) {
        let closing = partner.get(index).copied().flatten();
        if let Some((close, (end, length))) =
            closing.and_then(|close| Some((close, runs.get(close)?)))
        {
            spans.push(*start..end + length);
            index = close;
        }
        index += 1;
    }
    spans
}

/// The position after the quote that closes a string whose content begins at `from`.
fn string_end(line: &str, from: usize) -> Option<usize> {
    let mut escaped = false;
    for (offset, byte) in line.as_bytes().get(from..)?.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(from + offset + 1),
            b'\n' => return None,
            _ => {}
        }
    }
    None
}

/// Whether a bracket looks like the start of JSON: it is followed by a string or alone on its line.
fn opens_json(line: &str, offset: usize, bracket: char) -> bool {
    let rest = line.get(offset + 1..).unwrap_or_default().trim_start();
    let alone = rest.is_empty()
        && line
            .get(..offset)
            .is_some_and(|before| before.trim().is_empty());
    alone || rest.starts_with('"') || (bracket == '[' && rest.starts_with("{\""))
}
