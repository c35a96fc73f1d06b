//! Watermarks: large words laid across pages, which do not belong to their text.

use std::collections::{BTreeMap, BTreeSet};

use pdfboss_text::TextSpan;

use super::visibility::PaintedPage;

/// Least size of the letters of a watermark, in points.
const MIN_POINTS: f32 = 20.0;
/// Least size of the letters of a watermark, as a multiple of the usual size on the page.
const MIN_TIMES_USUAL: f32 = 1.6;
/// Longest watermark in characters; longer text is only rotated text.
const MAX_CHARACTERS: usize = 80;
/// Most text spans on one page that are checked.
const MAX_CANDIDATES: usize = 200;
/// Sine of the least angle to the edges of the page at which text counts as diagonal: about 8 degrees.
const MIN_SLOPE: f32 = 0.14;
/// Least number of text spans that a watermark overlaps, unless it is on several pages.
const MIN_COVERED: usize = 2;
/// Gap between words, in sizes of letters.
const MIN_WORD_GAP: f32 = 0.2;
/// Most watermarks of one document that are distinguished.
const MAX_KNOWN: usize = 32;

/// Words on one page that look like a watermark.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    pub(super) text: String,
    /// Whether the candidate can only be a watermark, even on a single page.
    is_certain: bool,
    /// The candidate's spans, with their indices among the spans of the page.
    spans: Vec<(usize, TextSpan)>,
}

/// Removes the words that look like a watermark from the text of a page.
pub(super) fn take(spans: &mut Vec<TextSpan>, painted: &PaintedPage) -> Vec<Candidate> {
    let usual = usual_size(spans);
    let is_large =
        |span: &TextSpan| span.size >= MIN_POINTS && span.size >= usual * MIN_TIMES_USUAL;
    let mut found: BTreeMap<usize, bool> = BTreeMap::new();
    for (index, span) in spans.iter().enumerate().filter(|(_, span)| is_large(span)) {
        let faint = painted.is_faint(span);
        if (faint || is_tilted(span) || is_declared(span)) && found.len() < MAX_CANDIDATES {
            // A single sign may have other causes, such as a pale title or a slanted logo.
            found.insert(index, faint && is_tilted(span) || is_declared(span));
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (index, is_certain) in &found {
        if let Some(span) = spans.get(*index) {
            let is_certain = *is_certain || lies_over_text(span, spans, &found);
            add(&mut candidates, *index, span, is_certain);
        }
    }
    candidates.retain(|candidate| candidate.text.chars().count() <= MAX_CHARACTERS);
    let candidate_spans = candidates.iter().flat_map(|candidate| &candidate.spans);
    let watermark_spans: BTreeSet<usize> = candidate_spans.map(|(index, _)| *index).collect();
    let mut next = 0;
    spans.retain(|_| {
        next += 1;
        !watermark_spans.contains(&(next - 1))
    });
    for candidate in &mut candidates {
        let words: Vec<&str> = candidate.text.split_whitespace().collect();
        candidate.text = words.join(" ");
    }
    candidates
}

/// Whether a span overlaps text that is not one of the found watermarks.
fn lies_over_text(span: &TextSpan, spans: &[TextSpan], found: &BTreeMap<usize, bool>) -> bool {
    let others = spans.iter().enumerate().filter(|(index, other)| {
        !found.contains_key(index)
            && !other.text.trim().is_empty()
            && other.bbox.intersect(span.bbox).is_some()
    });
    others.take(MIN_COVERED).count() == MIN_COVERED
}

/// Adds a span to the last candidate, or begins another one.
fn add(candidates: &mut Vec<Candidate>, index: usize, span: &TextSpan, is_certain: bool) {
    if let Some(last) = candidates.last_mut()
        && let Some((_, before)) = last.spans.last()
        // Programs place the words, or even the letters, of a watermark one by one.
        && continues(before, span)
    {
        if distance(before, span) > span.size * MIN_WORD_GAP {
            last.text.push(' ');
        }
        last.text.push_str(&span.text);
        last.is_certain |= is_certain;
        last.spans.push((index, span.clone()));
    } else {
        candidates.push(Candidate {
            text: span.text.clone(),
            is_certain,
            spans: vec![(index, span.clone())],
        });
    }
}

/// The size that most letters have.
fn usual_size(spans: &[TextSpan]) -> f32 {
    let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
    for span in spans {
        *sizes.entry(span.size.to_bits()).or_default() += span.text.trim().chars().count();
    }
    let most_frequent = sizes.into_iter().max_by_key(|(_, count)| *count);
    most_frequent.map_or(0.0, |(bits, _)| f32::from_bits(bits))
}

/// Whether the file declares the text as a watermark (ISO 32000-1, 14.8.2.2).
fn is_declared(span: &TextSpan) -> bool {
    let subtype = span
        .artifact
        .as_ref()
        .and_then(|artifact| artifact.subtype.as_deref());
    subtype == Some("Watermark")
}

/// Whether text runs neither along nor across the page.
fn is_tilted(span: &TextSpan) -> bool {
    let (dx, dy) = (span.end_x - span.x, span.end_y - span.y);
    let length = dx.hypot(dy);
    length > 0.0 && dx.abs() > MIN_SLOPE * length && dy.abs() > MIN_SLOPE * length
}

/// The distance from the end of one span to the start of the next.
fn distance(a: &TextSpan, b: &TextSpan) -> f32 {
    (b.x - a.end_x).hypot(b.y - a.end_y)
}

/// Whether two spans are words of one line.
fn continues(a: &TextSpan, b: &TextSpan) -> bool {
    (a.size - b.size).abs() < 0.5 && distance(a, b) < a.size * 1.5
}

/// The watermarks of a document.
#[derive(Clone, Debug, Default)]
pub(super) struct Watermarks {
    /// The number of pages with each watermark.
    pages: BTreeMap<String, usize>,
    written: BTreeSet<String>,
}

impl Watermarks {
    /// Counts the watermarks of a page.
    pub(super) fn count(&mut self, candidates: &[Candidate]) {
        for text in candidates.iter().map(|candidate| &candidate.text) {
            if self.pages.len() < MAX_KNOWN || self.pages.contains_key(text) {
                *self.pages.entry(text.clone()).or_default() += 1;
            }
        }
    }

    /// Returns candidates that are not watermarks to the text of their page. Returns each watermark the first time that
    /// it occurs.
    pub(super) fn settle(
        &mut self,
        candidates: Vec<Candidate>,
        spans: &mut Vec<TextSpan>,
    ) -> Vec<String> {
        let mut new = Vec::new();
        for candidate in candidates {
            let pages = self.pages.get(&candidate.text).copied().unwrap_or(0);
            // On one page alone a large pale word may be a title; on several it is not part of their text.
            if candidate.is_certain || pages > 1 {
                if self.written.len() < MAX_KNOWN && self.written.insert(candidate.text.clone()) {
                    new.push(candidate.text);
                }
            } else {
                // The spans are inserted in rising order, so that each insertion restores the indices of the spans
                // after it.
                for (index, span) in candidate.spans {
                    spans.insert(index.min(spans.len()), span);
                }
            }
        }
        new
    }
}
