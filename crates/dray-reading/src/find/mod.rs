//! Search within a document: where a text occurs, with its page or sheet, its heading and its surroundings
//! (read-attachment 13.6).

mod folded;
#[cfg(test)]
mod tests;

use std::ops::Range;

use dray_documents::markdown::{Part, SearchLines};
use folded::{FoldedText, lower_case};

/// Most hits that one search lists; the others are counted.
const MAX_SHOWN_HITS: usize = 50;
/// Characters around a hit that are shown, to either side.
const CONTEXT_CHARACTERS: usize = 120;
/// Characters of a hit that are shown; the target of a link within it can be long.
const MAX_HIT_CHARACTERS: usize = 500;
/// Longest text that is searched for, in characters.
const MAX_QUERY_CHARACTERS: usize = 200;
/// Lines of the note that readers are shown in place of lines that only a search reads.
const NOTE_LINES: usize = 2;

/// A document to search in.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchText<'a> {
    /// The text of the document.
    pub markdown: &'a str,
    /// Its pages, slides, sheets and chapters.
    pub parts: &'a [Part],
    /// Lines of it that readers are not shown.
    pub search_lines: &'a [SearchLines],
    /// Whether the text is not Markdown but plain text, in which every character is one that people see.
    pub is_verbatim: bool,
}

/// Returns the hits as Markdown: their number, then one list item for each. The comparison ignores case, and white
/// space in `query` matches any white space, line ends included, but no blank line. Text is found as it is written in
/// the Markdown and as people read it, without its marks. Lines count in the text that readers are shown.
pub fn find(document: &SearchText<'_>, query: &str) -> String {
    // A model writes the query. The time is proportional to its length times that of the document, so the length is
    // limited.
    let query: String = query.chars().take(MAX_QUERY_CHARACTERS).collect();
    let query = normalize_query(&query);
    if query.is_empty() {
        return "_(No hits)_\n".to_owned();
    }
    let markdown = document.markdown;
    let mut shown_hits = Vec::new();
    let mut total = 0_usize;
    let mut heading = "";
    let mut line = 1;
    let mut counted_bytes = 0;
    for passage in passages(document) {
        if passage.kind == PassageKind::Heading {
            let text = markdown.get(passage.range.clone()).unwrap_or_default();
            heading = text.trim_start_matches('#').trim();
        }
        for hit in passage.hits(markdown, &query) {
            total += 1;
            if shown_hits.len() < MAX_SHOWN_HITS {
                let before = markdown.get(counted_bytes..hit.start).unwrap_or_default();
                line += before.matches('\n').count();
                counted_bytes = hit.start;
                let location = location_text(document, &hit, line, heading);
                shown_hits.push(format!("- {location}: {}", hit_text(markdown, &hit)));
            }
        }
    }
    let count = match total {
        0 => return "_(No hits)_\n".to_owned(),
        1 => "_(1 hit)_".to_owned(),
        more if more > MAX_SHOWN_HITS => {
            format!("_({more} hits, the first {MAX_SHOWN_HITS} shown)_")
        }
        more => format!("_({more} hits)_"),
    };
    format!("{count}\n\n{}\n", shown_hits.join("\n"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassageKind {
    Heading,
    /// A row of a table.
    Row,
    /// A paragraph, or several list items.
    Text,
    /// Code, or lines of a plain text.
    Verbatim,
}

/// Consecutive lines in which a hit may cross line ends.
#[derive(Debug)]
struct Passage {
    range: Range<usize>,
    kind: PassageKind,
}

impl Passage {
    /// The hits of a query in the document, in order: as the text is written, and as people read it.
    fn hits(&self, markdown: &str, query: &str) -> Vec<Range<usize>> {
        let written = FoldedText::verbatim(markdown, &self.range).hits(query, markdown);
        let text = markdown.get(self.range.clone()).unwrap_or_default();
        let has_marks = text.contains(['\\', '*', '_', '~', '`', '[', '<', '>']);
        if self.kind == PassageKind::Verbatim || !has_marks {
            return written;
        }
        let mut hits = FoldedText::plain(markdown, &self.range).hits(query, markdown);
        hits.extend(written);
        hits.sort_by_key(|hit| hit.start);
        hits.dedup_by(|next, kept| next.start < kept.end);
        hits
    }
}

/// The passages of a document. Blank lines separate them; headings and rows are passages of their own.
fn passages(document: &SearchText<'_>) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut fence = 0;
    let mut is_open = false;
    let mut start = 0;
    for line in document.markdown.split_inclusive('\n') {
        let range = start..start + line.len();
        start = range.end;
        let kind = if !document.is_verbatim {
            line_kind(line, &mut fence)
        } else if line.starts_with('#') {
            PassageKind::Heading
        } else {
            PassageKind::Verbatim
        };
        let is_quote = kind == PassageKind::Text;
        let content = line.trim_start_matches(|character: char| is_quote && character == '>');
        if content.trim().is_empty() {
            is_open = false;
            continue;
        }
        let joins = matches!(kind, PassageKind::Text | PassageKind::Verbatim);
        match passages.last_mut() {
            Some(last) if is_open && joins && last.kind == kind => last.range.end = range.end,
            _ => passages.push(Passage { range, kind }),
        }
        is_open = true;
    }
    passages
}

/// The kind of a line of Markdown. `fence` is the length of the code fence that is open, or 0.
fn line_kind(line: &str, fence: &mut usize) -> PassageKind {
    let quoted = line.trim_start_matches([' ', '>']);
    // A fence can be the first block of a list item, after its marker.
    let unlisted = quoted.trim_start_matches(|character: char| {
        character.is_ascii_digit() || matches!(character, ' ' | '-' | '.')
    });
    let info = unlisted.trim_start_matches('`');
    let ticks = unlisted.len() - info.len();
    if *fence > 0 {
        if ticks >= *fence && info.trim().is_empty() {
            *fence = 0;
        }
        PassageKind::Verbatim
    } else if ticks >= 3 && !info.contains('`') {
        *fence = ticks;
        PassageKind::Verbatim
    } else if line.starts_with('#') {
        PassageKind::Heading
    } else if quoted.starts_with('|') {
        PassageKind::Row
    } else {
        PassageKind::Text
    }
}

/// The location of a hit, in the words of the `range` parameter.
fn location_text(
    document: &SearchText<'_>,
    hit: &Range<usize>,
    line: usize,
    heading: &str,
) -> String {
    let parts = document.parts.iter();
    let part = parts.take_while(|part| part.start <= hit.start).last();
    let part = part.map(|part| match &part.title {
        Some(title) => format!("{} {title}, ", part.unit.word()),
        None => format!("{} {}, ", part.unit.word(), part.number),
    });
    let heading = if heading.is_empty() {
        String::new()
    } else {
        format!(", under “{heading}”")
    };
    let place = line_text(document.search_lines, line);
    format!("{}{place}{heading}", part.unwrap_or_default())
}

/// The place of a line as readers find it: its line in the text that they are shown, or its row, which a range of rows
/// shows.
fn line_text(search_lines: &[SearchLines], line: usize) -> String {
    let mut shown_line = line;
    for lines in search_lines.iter().take_while(|lines| lines.first <= line) {
        if let Some(row) = lines.rows.get(line - lines.first) {
            return format!("row {row}");
        }
        if line - lines.first < lines.count {
            let last_shown = shown_line.saturating_sub(line - lines.first + 1);
            return format!("after line {last_shown}");
        }
        shown_line = (shown_line + NOTE_LINES).saturating_sub(lines.count);
    }
    format!("line {shown_line}")
}

/// A hit with the text around it in its lines.
fn hit_text(markdown: &str, hit: &Range<usize>) -> String {
    let before = markdown.get(..hit.start).unwrap_or_default();
    let before = before.rsplit('\n').next().unwrap_or_default();
    let after = markdown.get(hit.end..).unwrap_or_default();
    let after = after.split('\n').next().unwrap_or_default();
    let text = markdown.get(hit.clone()).unwrap_or_default();
    let mut shown: String = text.chars().take(MAX_HIT_CHARACTERS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    if shown.contains('\n') {
        let lines: Vec<&str> = shown.split('\n').map(str::trim).collect();
        shown = lines.join(" ");
    }
    format!("{}{shown}{}", context_before(before), context_after(after))
}

fn normalize_query(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().flat_map(lower_case).collect()
}

fn context_before(text: &str) -> String {
    let all = text.chars().count();
    if all <= CONTEXT_CHARACTERS {
        return text.trim_start().to_owned();
    }
    let shortened: String = text.chars().skip(all - CONTEXT_CHARACTERS).collect();
    format!("…{shortened}")
}

fn context_after(text: &str) -> String {
    if text.chars().count() <= CONTEXT_CHARACTERS {
        return text.trim_end().to_owned();
    }
    let shortened: String = text.chars().take(CONTEXT_CHARACTERS).collect();
    format!("{shortened}…")
}
