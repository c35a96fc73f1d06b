//! CSV and TSV: RFC 4180 with tolerance (read-attachment 7.2).

mod record;
#[cfg(test)]
mod tests;

use dray_types::terminal;
use record::{Records, UnclosedQuote};

use super::source;
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::{Failure, Limit};
use crate::markdown::{Cell, Markdown, Table};

/// Most records that are read to find the delimiter.
const MAX_SAMPLE_RECORDS: usize = 50;
/// Records between two checks of the time limit.
const RECORDS_PER_CHECK: u64 = 256;

/// Converts the text to one table. Values keep their spelling.
pub(super) fn convert(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = source::read_text(input, hint, out.budget())?;
    let text = terminal::without_escapes(&text);
    let tabs = hint.mime == "text/tab-separated-values"
        || matches!(hint.extension.as_str(), "tsv" | "tab");
    let (delimiter, text) = match declared_delimiter(&text) {
        Some((delimiter, rest)) => (delimiter, rest),
        None => (detect_delimiter(&text, tabs), &*text),
    };
    let (table, result) = match read_table(Records::new(text, delimiter, true), out) {
        Err(UnclosedQuote) => {
            out.warn("a quote is never closed; quotes are shown as text");
            // If quotes are read as text, no quote can be left open.
            read_table(Records::new(text, delimiter, false), out).unwrap_or_default()
        }
        Ok(outcome) => outcome,
    };
    match result {
        None => out.table(table)?,
        Some(limit) => {
            out.table_so_far(table)?;
            return Err(limit.into());
        }
    }
    Ok(())
}

/// Reads all records into a table. Also returns the limit that ended the table early, if any.
fn read_table(
    mut records: Records<'_>,
    out: &Markdown,
) -> Result<(Table, Option<Limit>), UnclosedQuote> {
    let budget = out.budget();
    let room = budget.text_left();
    let mut table = out.new_table();
    let mut number = 0;
    let mut shown_bytes = 0;
    loop {
        let wanted = table.wants(number + 1);
        let Some(fields) = records.next(wanted)? else {
            return Ok((table, None));
        };
        number += 1;
        let mut limit = Ok(());
        if wanted {
            shown_bytes += fields
                .iter()
                // A pipe and two spaces around each field.
                .map(|field| field.len() as u64 + 3)
                .sum::<u64>();
            let cells = fields.iter().map(|field| Cell::plain(field)).collect();
            limit = budget.element();
            if limit.is_ok() {
                table.row(number, cells);
            }
            if shown_bytes > room {
                limit = Err(Limit::Size);
            }
        } else {
            table.skip(number);
            if number.is_multiple_of(RECORDS_PER_CHECK) {
                limit = budget.clock();
            }
        }
        if let Err(limit) = limit {
            return Ok((table, Some(limit)));
        }
    }
}

/// The delimiter in a first line `sep=;`, and the text after that line.
fn declared_delimiter(text: &str) -> Option<(u8, &str)> {
    let (line, rest) = text.split_once('\n')?;
    let value = line.trim_matches('"').strip_prefix("sep=")?;
    match value.as_bytes() {
        [delimiter @ (b',' | b';' | b'\t' | b'|')] => Some((*delimiter, rest)),
        _ => None,
    }
}

/// The delimiter that splits most of the first records into the same number of fields. A comma also occurs in numbers
/// and sentences, so other delimiters have priority over it with equal results, unless only the comma separates values
/// without a space. If none splits, the result is the comma or, depending on the name, the tab.
fn detect_delimiter(text: &str, tabs: bool) -> u8 {
    let mut best = (0, if tabs { b'\t' } else { b',' });
    for candidate in *b"\t;|," {
        let share = delimiter_consistency(text, candidate);
        if tabs && candidate == b'\t' && share > 0 {
            return candidate;
        }
        let is_better = share > best.0
            || (candidate == b','
                && share > 0
                && share == best.0
                && separates_values(text, b',')
                && !separates_values(text, best.1));
        if is_better {
            best = (share, candidate);
        }
    }
    best.1
}

/// Whether a delimiter occurs in the first lines without a space after it. Commas between digits do not count. In
/// `1.2.3.4,Mozilla (X11; Linux)` the comma separates values; the semicolon is punctuation within one.
fn separates_values(text: &str, delimiter: u8) -> bool {
    text.lines().take(MAX_SAMPLE_RECORDS).any(|line| {
        let bytes = line.as_bytes();
        bytes.iter().enumerate().any(|(at, byte)| {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            let after = bytes.get(at + 1);
            let is_decimal_comma = delimiter == b','
                && before.is_some_and(u8::is_ascii_digit)
                && after.is_some_and(u8::is_ascii_digit);
            *byte == delimiter && after != Some(&b' ') && !is_decimal_comma
        })
    })
}

/// The percentage of records with the most frequent number of fields; 0 if that number is one.
fn delimiter_consistency(text: &str, delimiter: u8) -> usize {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    let mut records = Records::new(text, delimiter, true);
    let mut record_count = 0;
    while record_count < MAX_SAMPLE_RECORDS {
        let fields = match records.next(true) {
            Ok(Some(fields)) => fields.len(),
            Ok(None) => break,
            Err(UnclosedQuote) => {
                // The record with the open quote is read again as text.
                records.unquote();
                continue;
            }
        };
        record_count += 1;
        match counts.iter_mut().find(|(known, _)| *known == fields) {
            Some((_, count)) => *count += 1,
            None => counts.push((fields, 1)),
        }
    }
    counts
        .into_iter()
        .max_by_key(|(fields, count)| (*count, *fields))
        .filter(|(fields, _)| *fields > 1)
        .map_or(0, |(_, count)| count * 100 / record_count)
}
