//! The requested part of a document: `pages 3-5`, `sheet Budget rows 1001-2000`, `bytes 100000-` (read-attachment 13).

use std::fmt;

use dray_documents::formats::Converted;
use dray_documents::markdown::{Selection, Span, Unit};

/// Longest text that is parsed as a range, in bytes.
const MAX_RANGE_BYTES: usize = 300;

/// A range of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// `pages 3-5`, `slide 2`, `sheets 1-2`, `chapters 4-`; from 1.
    Parts(Unit, Span),
    /// `sheet Budget`, `sheet Budget rows 1001-2000`, `chapter Preface`.
    Named {
        /// [`Unit::Sheet`] or [`Unit::Chapter`].
        unit: Unit,
        /// Name or number of the sheet or chapter.
        name: String,
        /// Rows as the source numbers them.
        rows: Option<Span>,
    },
    /// `rows 1001-2000`, of every table.
    Rows(Span),
    /// `lines 10-20` of the Markdown; from 1.
    Lines(Span),
    /// `bytes 100000-` of the Markdown; from 0, the last one inclusive.
    Bytes {
        /// First byte, from 0.
        first: u64,
        /// Last byte, inclusive; `u64::MAX` for the end.
        last: u64,
    },
}

/// A range that cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "range is not valid. Use one of: pages 3-5, slides 2, sheet Budget rows 1001-2000, rows 10-20, chapter 4, lines 1-200, bytes 100000-"
)]
pub struct RangeError;

impl Range {
    /// Reads a range as people and models write it; words without regard to case, singular or plural.
    ///
    /// # Errors
    ///
    /// [`RangeError`] with the forms that are understood.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let text = text.trim();
        if text.len() > MAX_RANGE_BYTES || text.chars().any(char::is_control) {
            return Err(RangeError);
        }
        let (word, rest) = text.split_once(char::is_whitespace).ok_or(RangeError)?;
        let rest = rest.trim();
        match word.to_lowercase().as_str() {
            "page" | "pages" => Ok(Self::Parts(Unit::Page, parse_span(rest)?)),
            "slide" | "slides" => Ok(Self::Parts(Unit::Slide, parse_span(rest)?)),
            "sheet" | "sheets" => parse_named(Unit::Sheet, rest),
            "chapter" | "chapters" => parse_named(Unit::Chapter, rest),
            "row" | "rows" => Ok(Self::Rows(parse_span(rest)?)),
            "line" | "lines" => Ok(Self::Lines(parse_span(rest)?)),
            "byte" | "bytes" => parse_bytes(rest),
            _ => Err(RangeError),
        }
    }

    /// Options for the converter. Lines and bytes are cut afterwards.
    pub fn selection(&self) -> Selection {
        match self {
            Self::Parts(unit, span) => Selection::Parts {
                unit: *unit,
                span: *span,
            },
            Self::Named { unit, name, rows } => Selection::Named {
                unit: *unit,
                name: name.clone(),
                rows: *rows,
            },
            Self::Rows(span) => Selection::Rows { span: *span },
            Self::Lines(_) | Self::Bytes { .. } => Selection::All,
        }
    }

    /// Returns the requested part of the Markdown. Never cuts through a character.
    pub fn cut<'a>(&self, markdown: &'a str) -> &'a str {
        match self {
            Self::Parts(..) | Self::Named { .. } | Self::Rows(_) => markdown,
            Self::Lines(span) => {
                let start = line_start(markdown, span.first);
                let end = line_start(markdown, span.last.saturating_add(1));
                markdown.get(start..end).unwrap_or_default()
            }
            Self::Bytes { first, last } => {
                // Both ends round up to a character, so ranges that follow each other meet without a gap or a
                // repetition.
                let at = |offset: u64| {
                    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                    markdown.ceil_char_boundary(offset.min(markdown.len()))
                };
                markdown
                    .get(at(*first)..at(last.saturating_add(1)))
                    .unwrap_or_default()
            }
        }
    }

    /// The message if the document has no content in the range; `None` if it has.
    pub fn miss(&self, converted: &Converted) -> Option<String> {
        let (unit, available) = match self {
            Self::Parts(unit, _) | Self::Named { unit, .. } => (*unit, converted.parts_seen),
            Self::Rows(_) => return self.rows_miss(converted),
            Self::Lines(_) | Self::Bytes { .. } => {
                let nothing =
                    self.cut(&converted.markdown).is_empty() && !converted.markdown.is_empty();
                return nothing.then(|| {
                    format!(
                        "Nothing at {self}: the document has {} lines, {} bytes.",
                        converted.markdown.lines().count(),
                        converted.markdown.len()
                    )
                });
            }
        };
        if !converted.parts.is_empty() {
            let has_rows = matches!(self, Self::Named { rows: Some(_), .. });
            return if has_rows {
                self.rows_miss(converted)
            } else {
                None
            };
        }
        Some(if available == 0 {
            format!(
                "Nothing at {self}: this document has no {}s. Use lines or bytes.",
                unit.word()
            )
        } else {
            format!(
                "Nothing at {self}: the document has {available} {}s.",
                unit.word()
            )
        })
    }

    /// The message if no table has content in the rows.
    fn rows_miss(&self, converted: &Converted) -> Option<String> {
        // A table that a limit ended may have had the rows.
        let is_missing = converted.selected_rows == 0 && converted.stopped.is_none();
        is_missing.then(|| format!("Nothing at {self}: no table has text in these rows."))
    }
}

/// The range as headers show it. A name is text of the caller and is escaped like a path.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts(unit, span) => {
                write!(f, "{} {}", plural(unit.word(), *span), ShownSpan(*span))
            }
            Self::Named { unit, name, rows } => {
                write!(f, "{} {name}", unit.word())?;
                match rows {
                    Some(rows) => write!(f, " {} {}", plural("row", *rows), ShownSpan(*rows)),
                    None => Ok(()),
                }
            }
            Self::Rows(span) => write!(f, "{} {}", plural("row", *span), ShownSpan(*span)),
            Self::Lines(span) => write!(f, "{} {}", plural("line", *span), ShownSpan(*span)),
            Self::Bytes { first, last } => {
                let span = Span {
                    first: *first,
                    last: *last,
                };
                write!(f, "bytes {}", ShownSpan(span))
            }
        }
    }
}

fn plural(word: &str, span: Span) -> String {
    if span.first == span.last {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

struct ShownSpan(Span);

impl fmt::Display for ShownSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { first, last } = self.0;
        if first == last {
            write!(f, "{first}")
        } else if last == u64::MAX {
            write!(f, "{first}-")
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

/// `3`, `3-5`, `3-`, `-5`; from 1. Dashes of any length, `to` and `..` are understood.
fn parse_span(text: &str) -> Result<Span, RangeError> {
    let (first, last) = parse_ends(text)?;
    let first = first.unwrap_or(1);
    let span = Span {
        first,
        last: last.unwrap_or(u64::MAX),
    };
    (first >= 1 && span.last >= first)
        .then_some(span)
        .ok_or(RangeError)
}

fn parse_bytes(text: &str) -> Result<Range, RangeError> {
    let (first, last) = parse_ends(text)?;
    let first = first.unwrap_or(0);
    let last = last.unwrap_or(u64::MAX);
    (last >= first)
        .then_some(Range::Bytes { first, last })
        .ok_or(RangeError)
}

/// Parses both ends of a span; a single number is both.
fn parse_ends(text: &str) -> Result<(Option<u64>, Option<u64>), RangeError> {
    let text = text
        .replace(['\u{2013}', '\u{2014}', '\u{2212}'], "-")
        .replace("..", "-")
        .replace(" to ", "-");
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        digits => digits.parse().map(Some).map_err(|_| RangeError),
    };
    let Some((first, last)) = text.split_once('-') else {
        let only = number(&text)?.ok_or(RangeError)?;
        return Ok((Some(only), Some(only)));
    };
    match (number(first)?, number(last)?) {
        (None, None) => Err(RangeError),
        ends => Ok(ends),
    }
}

/// Parses a sheet or chapter by name, perhaps with rows. A range of numbers selects several by position.
fn parse_named(unit: Unit, rest: &str) -> Result<Range, RangeError> {
    if let Ok(span) = parse_span(rest)
        // One number after `sheet` may be the name of a sheet, such as 2024, so it stays a name.
        && (span.first != span.last || unit == Unit::Chapter)
    {
        return Ok(Range::Parts(unit, span));
    }
    let lower = rest.to_lowercase();
    let split = [" rows ", " row "]
        .iter()
        .filter_map(|word| lower.rfind(word).map(|at| (at, word.len())))
        .max();
    // Lower case can change the length of a text (`İ`); then offsets in `lower` are not valid in `rest`.
    let split = split.filter(|_| lower.len() == rest.len());
    let (name, rows) = match split {
        Some((at, length)) => match parse_span(rest.get(at + length..).unwrap_or_default()) {
            Ok(rows) => (rest.get(..at).unwrap_or_default(), Some(rows)),
            Err(_) => (rest, None),
        },
        None => (rest, None),
    };
    let name = name.trim();
    // A single mark belongs to the name: a sheet may be called `Sheet "2"`.
    let quoted = ['"', '\'']
        .iter()
        .find_map(|mark| name.strip_prefix(*mark)?.strip_suffix(*mark));
    let name = quoted.unwrap_or(name).trim();
    if name.is_empty() {
        return Err(RangeError);
    }
    Ok(Range::Named {
        unit,
        name: name.to_owned(),
        rows,
    })
}

/// Byte offset of a line, from 1; the end of the text if it has fewer lines.
fn line_start(text: &str, line: u64) -> usize {
    let before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    if before == 0 {
        return 0;
    }
    text.match_indices('\n')
        .nth(before - 1)
        .map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u64, last: u64) -> Span {
        Span { first, last }
    }

    #[test]
    fn every_form_is_read_and_shown() {
        for (text, range, display) in [
            (
                "pages 3-5",
                Range::Parts(Unit::Page, span(3, 5)),
                "pages 3-5",
            ),
            ("Page 7", Range::Parts(Unit::Page, span(7, 7)), "page 7"),
            ("slides 2", Range::Parts(Unit::Slide, span(2, 2)), "slide 2"),
            (
                "pages 3\u{2013}",
                Range::Parts(Unit::Page, span(3, u64::MAX)),
                "pages 3-",
            ),
            (
                "pages -4",
                Range::Parts(Unit::Page, span(1, 4)),
                "pages 1-4",
            ),
            (
                "chapter 4",
                Range::Parts(Unit::Chapter, span(4, 4)),
                "chapter 4",
            ),
            (
                "sheets 1 to 2",
                Range::Parts(Unit::Sheet, span(1, 2)),
                "sheets 1-2",
            ),
            ("lines 10-20", Range::Lines(span(10, 20)), "lines 10-20"),
            ("rows 5", Range::Rows(span(5, 5)), "row 5"),
            (
                "bytes 100000-",
                Range::Bytes {
                    first: 100_000,
                    last: u64::MAX,
                },
                "bytes 100000-",
            ),
            ("bytes 0-9", Range::Bytes { first: 0, last: 9 }, "bytes 0-9"),
        ] {
            assert_eq!(Range::parse(text), Ok(range.clone()), "{text}");
            assert_eq!(range.to_string(), display);
        }
    }

    #[test]
    fn sheets_go_by_name_with_or_without_rows() {
        for (text, name, rows) in [
            (
                "sheet Budget rows 1001-2000",
                "Budget",
                Some(span(1001, 2000)),
            ),
            ("sheet Budget", "Budget", None),
            (
                "sheet 'My rows 2024' rows 5",
                "My rows 2024",
                Some(span(5, 5)),
            ),
            ("sheet 2024", "2024", None),
            ("sheet Sheet \"2\" rows 1", "Sheet \"2\"", Some(span(1, 1))),
            ("sheet \"Sheet \"2\"\"", "Sheet \"2\"", None),
            ("sheet all rows of it", "all rows of it", None),
            (
                "SHEET \"Q1 2031\" ROW 2-",
                "Q1 2031",
                Some(span(2, u64::MAX)),
            ),
        ] {
            let range = Range::parse(text).unwrap();
            let unit = Unit::Sheet;
            assert_eq!(
                range,
                Range::Named {
                    unit,
                    name: name.into(),
                    rows
                },
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_ranges_are_refused_with_the_valid_forms() {
        for text in [
            "",
            "pages",
            "pages x",
            "pages 5-3",
            "pages 0",
            "pages -",
            "all",
            "3-5",
            "sheet ''",
            "bytes 9-1",
            "pages 1\u{0}",
            "pages 99999999999999999999",
            "chapters ",
        ] {
            assert_eq!(Range::parse(text), Err(RangeError), "{text}");
        }
        assert!(RangeError.to_string().contains("pages 3-5"));
    }

    #[test]
    fn lines_and_bytes_are_cut_at_characters() {
        let text = "ä1\nb2\nc3\n";
        let cut = |range: &str| Range::parse(range).unwrap().cut(text).to_owned();
        assert_eq!(cut("lines 2-2"), "b2\n");
        assert_eq!(cut("lines 2-"), "b2\nc3\n");
        assert_eq!(cut("lines 9-"), "");
        assert_eq!(cut("bytes 1-2"), "1");
        assert_eq!(cut("bytes 0-0"), "ä");
        assert_eq!(cut("bytes 4-"), "b2\nc3\n");
        assert_eq!(cut("bytes 99-"), "");
    }

    #[test]
    fn a_range_beyond_the_document_is_refused_with_its_length() {
        let converted = Converted {
            converter: "pdf".into(),
            markdown: String::new(),
            parts: Vec::new(),
            parts_seen: 12,
            stopped: None,
            failure: None,
            warnings: Vec::new(),
            member: None,
            pictures: Vec::new(),
            omitted: 0,
            selected_rows: 0,
            search_lines: Vec::new(),
        };
        let miss =
            |range: &str, converted: &Converted| Range::parse(range).unwrap().miss(converted);
        assert_eq!(
            miss("pages 30-", &converted).unwrap(),
            "Nothing at pages 30-: the document has 12 pages."
        );
        let text = Converted {
            parts_seen: 0,
            markdown: "a\n".into(),
            ..converted
        };
        assert_eq!(
            miss("slide 3", &text).unwrap(),
            "Nothing at slide 3: this document has no slides. Use lines or bytes."
        );
        assert_eq!(
            miss("rows 5000-", &text).unwrap(),
            "Nothing at rows 5000-: no table has text in these rows."
        );
        let table = Converted {
            selected_rows: 1,
            ..text.clone()
        };
        assert_eq!(miss("rows 5000-", &table), None);
        assert_eq!(miss("lines 1-5", &text), None);
        assert_eq!(
            miss("bytes 7-", &text).unwrap(),
            "Nothing at bytes 7-: the document has 1 lines, 2 bytes."
        );
    }
}
