//! Text that arrives in chunks. It is shown immediately, unless it may be part of a tag: then it is held back until
//! this is certain.

use std::ops::Range;

use super::directive::{self, MediaDirectives};
use super::grammar::{
    TAG_WORD, is_wrapper, path_start, quoted_start, tag_occurrences, wrappers_before,
};
use super::mask::LineMasks;
use super::tag::{MediaTag, scan_unit};
use super::tidy::WhitespaceTidier;
use super::{FoundMedia, MAX_TAGS, MediaExtraction};

/// Most white space between `MEDIA:` and a path on another line.
const MAX_SPACE_BYTES: usize = 64;

/// Most lines that tags with a path on the next line join.
const MAX_JOINED_LINES: usize = 8;

/// Receives an answer in chunks and returns the text that can be shown. A partial tag is never shown.
///
/// The joined results equal the text from [`super::extract_with`] for the complete answer, independent of the chunks.
/// Text is held back at most until the end of its line, or of the line after `MEDIA:` if the path has not arrived yet.
#[derive(Clone, Debug, Default)]
pub struct HoldBack {
    masks: LineMasks,
    tidy: WhitespaceTidier,
    found: FoundMedia,
    /// The text that is not decided yet. It begins at the start of a line.
    buffer: String,
    /// Bytes of the buffer that were shown already.
    released: usize,
    /// Whether a tag begins at `released`.
    tag_pending: bool,
    /// Whether a line end has arrived since the last check.
    line_ended: bool,
}

impl HoldBack {
    /// The state before the first chunk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next chunk and returns the text that can be shown. `resolve` returns the full path of a file that
    /// exists and may be sent.
    pub fn push(&mut self, chunk: &str, resolve: impl FnMut(&str) -> Option<String>) -> String {
        self.feed(chunk);
        self.take(resolve)
    }

    /// Adds the next chunk without a decision: for callers that first have to look up which paths of
    /// [`undecided`](Self::undecided) exist before they [`take`](Self::take).
    pub fn feed(&mut self, chunk: &str) {
        self.buffer.push_str(chunk);
        self.line_ended |= chunk.contains('\n');
    }

    /// Paths whose existence determines the result of the next [`take`](Self::take).
    pub fn undecided(&self) -> Vec<String> {
        self.paths(false)
    }

    /// Like [`undecided`](Self::undecided), at the end of the answer.
    pub fn undecided_at_end(&self) -> Vec<String> {
        self.paths(true)
    }

    /// Returns the text that can be shown, as [`push`](Self::push) does.
    pub fn take(&mut self, resolve: impl FnMut(&str) -> Option<String>) -> String {
        let mut shown = String::new();
        // Without a new line end no unit is complete, so a long line is not examined again.
        if std::mem::take(&mut self.line_ended) {
            self.advance(false, resolve, &mut shown);
        }
        self.release(&mut shown);
        shown
    }

    /// Returns the remaining text, and all tags of the complete answer.
    pub fn finish(mut self, resolve: impl FnMut(&str) -> Option<String>) -> MediaExtraction {
        let mut text = String::new();
        self.advance(true, resolve, &mut text);
        let FoundMedia {
            files,
            notices,
            directives,
            ..
        } = self.found;
        MediaExtraction {
            files,
            text,
            notices,
            directives,
        }
    }

    /// Bytes examined so far.
    #[cfg(test)]
    pub(super) fn steps(&self) -> usize {
        self.found.steps
    }

    /// All tags and directives of the complete units.
    pub(super) fn tags(&self, at_end: bool) -> (Vec<MediaTag>, MediaDirectives) {
        // The masks are copied, because `take` needs their current state.
        let (mut masks, mut start, mut tags) = (self.masks.clone(), 0, Vec::new());
        let mut directives = MediaDirectives::default();
        while let Some((length, text)) = next_unit(&self.buffer, &masks, start, at_end) {
            let found = scan_unit(text, &mut masks);
            found
                .directives
                .into_iter()
                .filter_map(|span| text.get(span))
                .for_each(|text| directives.note(text));
            tags.extend(found.tags.into_iter().map(|tag| tag.shifted(start)));
            start += length;
        }
        (tags, directives)
    }

    fn paths(&self, at_end: bool) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        let tags_left = MAX_TAGS.saturating_sub(self.found.tags);
        for tag in self.tags(at_end).0.into_iter().take(tags_left) {
            paths.extend(tag.candidates.into_iter().map(|candidate| candidate.path));
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Decides every complete unit.
    fn advance(
        &mut self,
        at_end: bool,
        mut resolve: impl FnMut(&str) -> Option<String>,
        shown: &mut String,
    ) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut start = 0;
        while let Some((length, text)) = next_unit(&buffer, &self.masks, start, at_end) {
            // The masks change only here, once for each unit, because a second pass over a fence would close it again.
            let found = scan_unit(text, &mut self.masks);
            self.found.steps += found.steps;
            let mut cuts = found.directives;
            for cut in &cuts {
                self.found
                    .directives
                    .note(text.get(cut.clone()).unwrap_or_default());
            }
            cuts.extend(
                found
                    .tags
                    .iter()
                    .filter_map(|tag| self.found.decide(tag, &mut resolve)),
            );
            cuts.sort_unstable_by_key(|cut| cut.start);
            let fenced = self.masks.in_fence();
            emit_unit(&mut self.tidy, text, self.released, &cuts, fenced, shown);
            (self.released, self.tag_pending) = (0, false);
            start += length;
        }
        buffer.drain(..start);
        self.buffer = buffer;
    }

    /// Shows the part of an incomplete unit that cannot contain the start of a tag.
    fn release(&mut self, shown: &mut String) {
        if self.tag_pending {
            return;
        }
        let rest = self.buffer.get(self.released..).unwrap_or_default();
        self.found.steps += rest.len();
        let tag = tag_occurrences(rest).next();
        let end = match tag {
            Some(offset) => offset - wrappers_before(rest, offset, 0),
            None => {
                rest.len()
                    - unfinished_tag_bytes(rest).max(directive::unfinished_directive_bytes(rest))
            }
        };
        let open = rest.get(..end).unwrap_or_default();
        let mut offset = 0;
        for directive in directive::directive_occurrences(open) {
            self.found
                .directives
                .note(open.get(directive.clone()).unwrap_or_default());
            // This text is never in a fence: an incomplete unit has a line end only after `MEDIA:`, and fenced lines
            // have no tags.
            self.tidy.push(
                open.get(offset..directive.start).unwrap_or_default(),
                false,
                shown,
            );
            offset = directive.end;
        }
        self.tidy
            .push(open.get(offset..).unwrap_or_default(), false, shown);
        (self.released, self.tag_pending) = (self.released + end, tag.is_some());
    }
}

/// The length and the text of the complete unit at `start`.
fn next_unit<'text>(
    buffer: &'text str,
    masks: &LineMasks,
    start: usize,
    at_end: bool,
) -> Option<(usize, &'text str)> {
    let rest = buffer.get(start..).filter(|rest| !rest.is_empty())?;
    let length = unit_length(rest, masks, at_end)?;
    Some((length, rest.get(..length)?))
}

/// Shows the text of a unit without the cut spans.
fn emit_unit(
    tidy: &mut WhitespaceTidier,
    text: &str,
    released: usize,
    cuts: &[Range<usize>],
    fenced: bool,
    shown: &mut String,
) {
    let mut offset = released;
    for cut in cuts {
        tidy.push(
            text.get(offset..cut.start).unwrap_or_default(),
            fenced,
            shown,
        );
        // Spans of adjacent tags may share wrappers. Then the range is reversed, `get` returns `None`, and there is no
        // text between them.
        offset = offset.max(cut.end);
    }
    tidy.push(text.get(offset..).unwrap_or_default(), fenced, shown);
}

/// The length of the unit at the start of `rest`: a line, with further ones if the path of its last tag is on them.
fn unit_length(rest: &str, masks: &LineMasks, at_end: bool) -> Option<usize> {
    let whole = |from: usize| {
        let newline = rest.get(from..)?.find('\n').map(|offset| from + offset + 1);
        newline.or(at_end.then_some(rest.len()))
    };
    let mut length = whole(0)?;
    let mut line_start = 0;
    for _ in 0..MAX_JOINED_LINES {
        let line = rest.get(line_start..length)?;
        if (line_start == 0 && masks.masks_whole(line)) || !ends_open(line) {
            break;
        }
        let after = rest.get(length..)?;
        let start = after.trim_start();
        let space = after.len() - start.len();
        // An endless run of white space must not block the stream.
        if space > MAX_SPACE_BYTES || (start.is_empty() && at_end) {
            break;
        }
        // The longest start of a path has four bytes: a quote and `C:\`.
        if start.len() < 4 && !at_end && !start.contains('\n') {
            return None;
        }
        if path_start(start).is_none() && quoted_start(start).is_none() {
            break;
        }
        line_start = length + space;
        length = whole(line_start)?;
    }
    Some(length)
}

/// Whether a line ends with `MEDIA:`.
fn ends_open(line: &str) -> bool {
    let line = line.trim_end();
    let start = line.len().checked_sub(TAG_WORD.len());
    start
        .and_then(|start| line.get(start..))
        .is_some_and(|end| end.eq_ignore_ascii_case(TAG_WORD))
}

/// How many bytes at the end of `text` may become `MEDIA:`, with wrappers before it.
fn unfinished_tag_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let unfinished = (1..TAG_WORD.len()).find(|length| {
        let tail = bytes
            .len()
            .checked_sub(*length)
            .and_then(|start| bytes.get(start..));
        tail.zip(TAG_WORD.as_bytes().get(..*length))
            .is_some_and(|(tail, word)| tail.eq_ignore_ascii_case(word))
    });
    let unfinished = unfinished.unwrap_or(0);
    let before = bytes.get(..bytes.len() - unfinished).unwrap_or_default();
    unfinished
        + before
            .iter()
            .rev()
            .take(super::grammar::MAX_WRAPPERS)
            .take_while(|byte| is_wrapper(**byte))
            .count()
}
