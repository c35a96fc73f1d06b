//! Tags in one unit of text: a line, or several lines if a path is not on the line of its `MEDIA:`.

use std::ops::Range;

use super::directive;
use super::grammar::{
    TAG_WORD, glued_extensions, has_known_extension, is_boundary, path_start, quoted_start,
    sentinels_at, tag_occurrences, wrappers_at, wrappers_before,
};
use super::mask::{LineMask, LineMasks};

/// Most candidates of one tag.
pub const MAX_CANDIDATES: usize = 32;

/// Most words of a path without a known extension.
const MAX_PATH_WORDS: usize = 8;

/// Bytes of the longest path.
const MAX_PATH_BYTES: usize = 4096;

/// Characters at the end of a quoted path that may not be a part of it (platform-delivery 3.3).
const TRAILING_CHARACTERS: [char; 10] = ['`', '"', '\'', '.', ',', ';', ':', ')', '}', ']'];

/// One `MEDIA:` with its possible paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTag {
    /// Byte offset of `MEDIA:`, without the wrappers before it.
    pub start: usize,
    /// The possible paths, longest first; at least one, at most [`MAX_CANDIDATES`].
    pub candidates: Vec<TagCandidate>,
    /// The candidate that is used if none exists. Without a fallback, the text is not changed in this case.
    pub fallback: Option<usize>,
    /// Whether the path is in quotes or backticks.
    pub quoted: bool,
    /// Whether the tag is in inline code, and only counts if its file exists.
    pub code: bool,
}

/// One possible interpretation of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagCandidate {
    /// The path as it is written.
    pub path: String,
    /// The span that is cut from the text if this candidate is used. Wrappers between two tags may be in the spans of
    /// both.
    pub span: Range<usize>,
}

/// The tags and directives of one unit.
#[derive(Debug, Default)]
pub(super) struct TagUnit {
    pub(super) tags: Vec<MediaTag>,
    pub(super) directives: Vec<Range<usize>>,
    /// Bytes examined. Tests check with it that the work is linear.
    pub(super) steps: usize,
}

/// Finds the tags of a unit and updates `masks` for the text after it.
pub(super) fn scan_unit(text: &str, masks: &mut LineMasks) -> TagUnit {
    let lines = line_masks(text, masks);
    let directives: Vec<_> = directive::directive_occurrences(text).collect();
    let mut scanner = TagScanner {
        text,
        lines: &lines,
        directives: &directives,
        floor: 0,
        steps: 4 * text.len(),
    };
    let mut tags = Vec::new();
    let mut starts = tag_occurrences(text).peekable();
    while let Some(tag_start) = starts.next() {
        let limit = starts.peek().copied().unwrap_or(text.len());
        if let Some(tag) = scanner.tag(tag_start, limit) {
            scanner.floor = tag_start + TAG_WORD.len();
            tags.push(tag);
        }
    }
    TagUnit {
        tags,
        steps: scanner.steps,
        directives,
    }
}

/// The mask of every line, with where it starts.
fn line_masks(text: &str, masks: &mut LineMasks) -> Vec<(usize, LineMask)> {
    let mut start = 0;
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        lines.push((start, masks.mask_line(line)));
        start += line.len();
    }
    lines
}

struct TagScanner<'unit> {
    text: &'unit str,
    lines: &'unit [(usize, LineMask)],
    directives: &'unit [Range<usize>],
    /// The position after the `MEDIA:` of the last tag. Wrappers between two tags may belong to either.
    floor: usize,
    steps: usize,
}

impl TagScanner<'_> {
    /// The tag whose `MEDIA:` is at `tag_start`. It ends before `limit`.
    fn tag(&mut self, tag_start: usize, limit: usize) -> Option<MediaTag> {
        // The last line that starts before the tag. There is always one, because the first line starts at 0.
        let index = self
            .lines
            .partition_point(|(start, _)| *start <= tag_start)
            .checked_sub(1)?;
        let (line_start, mask) = self.lines.get(index)?;
        let inside = |spans: &[Range<usize>]| {
            let index = spans
                .partition_point(|span| span.start + line_start <= tag_start)
                .checked_sub(1)?;
            spans
                .get(index)
                .filter(|span| tag_start < span.end + line_start)
                .cloned()
        };
        if mask.whole || inside(&mask.strings).is_some() {
            return None;
        }
        if let Some(span) = inside(&mask.code) {
            return self.code(
                tag_start,
                line_start + span.start..line_start + span.end,
                limit,
            );
        }
        let opening = tag_start - wrappers_before(self.text, tag_start, self.floor);
        let after = self.text.get(tag_start + TAG_WORD.len()..limit)?;
        let start = limit - after.trim_start().len();
        let end = self.region_end(start, limit);
        let region = self.text.get(start..end)?;
        self.steps += region.len().min(MAX_PATH_BYTES) + (start - tag_start);
        if let Some(quote) = quoted_start(region)
            && let Some(tag) = self.quoted(tag_start, opening, start, region, quote)
        {
            return Some(tag);
        }
        // Wrappers before the next tag belong to that tag.
        let next_opens = if end == limit {
            wrappers_before(self.text, end, start)
        } else {
            0
        };
        let region = region.get(..region.len() - next_opens)?;
        let bare = region.trim_start_matches(['`', '"', '\'']);
        self.bare(tag_start, opening, start + region.len() - bare.len(), bare)
    }

    /// The last possible end of a path that begins at `start`: the end of the line, the next directive, or the longest
    /// allowed path, whichever is first.
    fn region_end(&self, start: usize, limit: usize) -> usize {
        let index = self
            .directives
            .partition_point(|directive| directive.start < start);
        let directive = self
            .directives
            .get(index)
            .map_or(limit, |directive| directive.start);
        // The window limits the search for the line end, which would be quadratic for many tags in one line.
        let window = limit
            .min(directive)
            .min(start.saturating_add(MAX_PATH_BYTES));
        let window = self.text.floor_char_boundary(window).max(start);
        let line = self
            .text
            .get(start..window)
            .and_then(|rest| rest.find(['\n', '\r']));
        line.map_or(window, |length| start + length)
    }

    /// A tag that is the complete content of inline code.
    fn code(&mut self, tag_start: usize, span: Range<usize>, limit: usize) -> Option<MediaTag> {
        let opening = tag_start - wrappers_before(self.text, tag_start, self.floor);
        if limit < span.end || opening > span.start {
            return None;
        }
        let inner = self.text.get(tag_start + TAG_WORD.len()..span.end)?;
        self.steps += inner.len();
        let body = inner.trim_end_matches(['`', '"', '\'', '*', '_']);
        let path = body.trim_start().trim_start_matches(['"', '\'']);
        path_start(path)?;
        let candidate = TagCandidate {
            path: path.to_owned(),
            span: opening..self.closing(tag_start + TAG_WORD.len() + body.len(), true),
        };
        // With more than three wrappers, or a space, a part of the code would remain.
        (candidate.span.end >= span.end && path.len() <= MAX_PATH_BYTES).then(|| MediaTag {
            start: tag_start,
            candidates: vec![candidate],
            fallback: None,
            quoted: false,
            code: true,
        })
    }

    /// A tag with a quoted path. The path may contain the quote character, so there is a candidate for each possible
    /// closing quote.
    fn quoted(
        &self,
        tag_start: usize,
        opening: usize,
        start: usize,
        region: &str,
        quote: char,
    ) -> Option<MediaTag> {
        let mut candidates = Vec::new();
        for (close, _) in region.match_indices(quote).skip(1).take(MAX_PATH_WORDS) {
            let path = region.get(1..close)?.trim();
            let after = region.get(close + 1..).unwrap_or_default();
            // A quote followed by a letter is an apostrophe: `'it's.pdf'`.
            if path_start(path).is_none() || after.chars().next().is_some_and(char::is_alphanumeric)
            {
                continue;
            }
            let span = opening..self.closing(start + close + 1, opening < tag_start);
            let bare = path.trim_end_matches(TRAILING_CHARACTERS);
            if bare.len() < path.len() && path_start(bare).is_some() {
                candidates.push(TagCandidate {
                    path: bare.to_owned(),
                    span: span.clone(),
                });
            }
            candidates.push(TagCandidate {
                path: path.to_owned(),
                span,
            });
        }
        // The candidates are tried from long to short, because the longest path that exists is used.
        candidates.reverse();
        let fallback = candidates.len().checked_sub(1)?;
        Some(MediaTag {
            start: tag_start,
            candidates,
            fallback: Some(fallback),
            quoted: true,
            code: false,
        })
    }

    /// A tag with a path without quotes. There is a candidate for each place where the path may end.
    fn bare(
        &mut self,
        tag_start: usize,
        opening: usize,
        start: usize,
        region: &str,
    ) -> Option<MediaTag> {
        let first = path_start(region)?;
        // A bare path does not contain these two characters.
        let stop = region.find(['`', '"']).unwrap_or(region.len());
        let region = region.get(..stop).unwrap_or_default();
        let rest_of_text = self.text.get(start..).unwrap_or_default();
        let mut ends: Vec<(usize, bool)> = Vec::new();
        let (mut words, mut in_space) = (1, false);
        for (end, next) in region
            .char_indices()
            .chain([(region.len(), ' ')])
            .skip_while(|(end, _)| *end < first)
        {
            let path = region.get(..end).unwrap_or_default();
            // The region is followed by the next tag, a directive, a quote or the end.
            let bounded = end == region.len()
                || is_boundary(path, rest_of_text.get(end..).unwrap_or_default());
            let space = next.is_whitespace();
            if bounded && !in_space && end > first {
                let known = has_known_extension(path);
                if known || words <= MAX_PATH_WORDS {
                    ends.push((end, known));
                }
            }
            if next == '.' && end < region.len() {
                let after_dot = region.get(end + 1..).unwrap_or_default();
                let joined = glued_extensions(after_dot).map(|length| end + 1 + length);
                ends.extend(
                    joined
                        .filter(|end| !is_bounded(region, *end, rest_of_text))
                        .map(|end| (end, false)),
                );
            }
            words += usize::from(space && !in_space);
            in_space = space;
            if ends.len() >= MAX_CANDIDATES {
                break;
            }
        }
        self.steps += region.len();
        self.candidates(tag_start, opening, start, region, ends)
    }

    /// Makes candidates from the ends of a path, in any order.
    fn candidates(
        &self,
        tag_start: usize,
        opening: usize,
        start: usize,
        region: &str,
        mut ends: Vec<(usize, bool)>,
    ) -> Option<MediaTag> {
        ends.sort_unstable_by(|left, right| right.cmp(left));
        ends.dedup_by_key(|(end, _)| *end);
        // The longest are removed, because the fallback is the shortest with a known extension.
        let excess = ends.len().saturating_sub(MAX_CANDIDATES);
        ends.drain(..excess);
        let fallback = ends.iter().rposition(|(_, known)| *known);
        let candidate = |(end, _): &(usize, bool)| {
            let path = region.get(..*end)?.to_owned();
            Some(TagCandidate {
                path,
                span: opening..self.closing(start + end, opening < tag_start),
            })
        };
        let candidates: Vec<TagCandidate> = ends.iter().filter_map(candidate).collect();
        (!candidates.is_empty()).then_some(MediaTag {
            start: tag_start,
            candidates,
            fallback,
            quoted: false,
            code: false,
        })
    }

    /// The end of the tag whose path ends at `end`: after closing wrappers, one final dot and control sentinels.
    fn closing(&self, end: usize, wrapped: bool) -> usize {
        let closed = self.closed(end, wrapped);
        closed + sentinels_at(self.text.get(closed..).unwrap_or_default())
    }

    /// Like [`Self::closing`], without sentinels. Wrappers that open something else are not included, unless the tag is
    /// `wrapped`.
    fn closed(&self, end: usize, wrapped: bool) -> usize {
        let rest = self.text.get(end..).unwrap_or_default();
        let closes = |length: usize| {
            let next = rest.get(length..).and_then(|rest| rest.chars().next());
            let opens = next.is_some_and(|next| next.is_alphanumeric() || next == '/');
            wrapped
                || !opens
                || tag_occurrences(
                    rest.get(length..length + TAG_WORD.len())
                        .unwrap_or_default(),
                )
                .next()
                .is_some()
        };
        let closers = Some(wrappers_at(rest))
            .filter(|length| closes(*length))
            .unwrap_or(0);
        let after = rest.get(closers..).unwrap_or_default();
        let Some(after_dot) = after.strip_prefix('.') else {
            return end + closers;
        };
        let later_wrappers = if closers == 0 {
            wrappers_at(after_dot)
        } else {
            0
        };
        let sentence_ends = |rest: &str| {
            let rest = rest.get(sentinels_at(rest)..).unwrap_or_default();
            rest.chars().next().is_none_or(char::is_whitespace)
        };
        if after_dot.get(later_wrappers..).is_some_and(sentence_ends) {
            return end + closers + 1 + later_wrappers;
        }
        end + closers
    }
}

/// Whether a path that ends at `end` is properly bounded.
fn is_bounded(region: &str, end: usize, rest_of_text: &str) -> bool {
    end >= region.len()
        || is_boundary(
            region.get(..end).unwrap_or_default(),
            rest_of_text.get(end..).unwrap_or_default(),
        )
}

impl MediaTag {
    /// The same tag in a text with `by` more bytes before it.
    pub(super) fn shifted(mut self, by: usize) -> Self {
        self.start += by;
        for candidate in &mut self.candidates {
            candidate.span = candidate.span.start + by..candidate.span.end + by;
        }
        self
    }
}
