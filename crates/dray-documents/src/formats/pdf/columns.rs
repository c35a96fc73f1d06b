//! Prose in columns that are too short for the engine to distinguish from a table.
//!
//! The engine treats a vertical gap as the gutter between columns of prose only if the columns are long. It reads short
//! columns across, line by line or as a table. This module searches for gaps in any sequence of lines, and checks
//! whether the text on both sides looks like prose: full lines, letters, sentences that continue on the next line.

use pdfboss_text::{Ruling, TextSpan};

use super::characters;

/// Fewest lines of a column.
const MIN_LINES: usize = 3;
/// Least width of a gutter, in points.
const MIN_GUTTER: f32 = 8.0;
/// Least width of a gutter, in font sizes.
const MIN_GUTTER_OF_SIZE: f32 = 0.8;
/// Largest distance between two lines of a block, in font sizes.
const MAX_STEP: f32 = 4.0;
/// Fewest text spans of columns that the engine itself detects.
const MIN_ENGINE_SPANS: usize = 40;
/// Fewest lines of columns that the engine itself detects.
const MIN_ENGINE_LINES: usize = 12;
/// Fewest visible characters of a line of prose, on average.
const MIN_CHARACTERS: usize = 16;
/// Least width of a full line, as a share of its column.
const MIN_FULL_LINE_SHARE: f32 = 0.6;
/// Most wide line steps that all columns have at the same height; more of them are the rows of a table.
const MAX_COMMON_GAPS: usize = 2;

/// Most failed attempts per page to find prose; further ones are not tried.
const MAX_ATTEMPTS: usize = 64;

/// A horizontal range on the page: left and right end, in points.
type Range = (f32, f32);

/// Text spans on one baseline.
struct Row {
    y: f32,
    size: f32,
    /// Indices of the spans.
    spans: Vec<usize>,
    /// Horizontal ranges with text. Gaps between them are at least as wide as a gutter.
    ink: Vec<Range>,
}

/// Text that is laid out separately.
pub(super) struct Region {
    pub(super) spans: Vec<TextSpan>,
    /// Whether the region is a column of prose.
    pub(super) is_column: bool,
}

/// Splits the text of a page into columns of short prose and the text between them, in reading order.
pub(super) fn split(spans: Vec<TextSpan>, rulings: &[Ruling]) -> Vec<Region> {
    let mut region_of_span = vec![0_usize; spans.len()];
    let rows = rows(&spans);
    let (mut regions, mut columns) = (1, Vec::new());
    let (mut row_index, mut attempts) = (0, 0);
    while let Some(row) = rows.get(row_index) {
        let mut found = None;
        // Each attempt may examine all rows below; a page of thousands of short rows would take seconds.
        if row.ink.len() > 1 && attempts < MAX_ATTEMPTS {
            attempts += 1;
            found = find_block(&rows, row_index);
        }
        let (end, gaps_in_common) = found.unwrap_or((row_index + 1, Vec::new()));
        let block_rows = rows.get(row_index..end).unwrap_or_default();
        let gutters = if is_left_to_engine(block_rows) {
            Vec::new()
        } else if let Some(gutters) = gutters(&spans, block_rows, &gaps_in_common, rulings) {
            gutters
        } else {
            assign_spans(&mut region_of_span, row, |_| regions - 1);
            row_index += 1;
            continue;
        };
        if gutters.is_empty() {
            for row in block_rows {
                assign_spans(&mut region_of_span, row, |_| regions - 1);
            }
            row_index = end;
            continue;
        }
        for row in block_rows {
            assign_spans(&mut region_of_span, row, |span| {
                regions + column_index(spans.get(span), &gutters)
            });
        }
        columns.extend(regions..=regions + gutters.len());
        // One more for the text between these columns and the next ones, which keeps its position between them.
        regions += gutters.len() + 2;
        row_index = end;
    }
    let mut split_regions: Vec<Region> = (0..regions)
        .map(|region| Region {
            spans: Vec::new(),
            is_column: columns.contains(&region),
        })
        .collect();
    for (span, region_of_span) in spans.into_iter().zip(region_of_span) {
        if let Some(region) = split_regions.get_mut(region_of_span) {
            region.spans.push(span);
        }
    }
    split_regions.retain(|region| !region.spans.is_empty());
    split_regions
}

/// Assigns the spans of a row to the regions that `region_of` gives for their indices.
fn assign_spans(region_of_span: &mut [usize], row: &Row, region_of: impl Fn(usize) -> usize) {
    for span in &row.spans {
        if let Some(region_of_span) = region_of_span.get_mut(*span) {
            *region_of_span = region_of(*span);
        }
    }
}

/// The index of a span's column: the number of gutters to its left.
fn column_index(span: Option<&TextSpan>, gutters: &[Range]) -> usize {
    let middle = span.map_or(0.0, |span| f32::midpoint(span.x, span.end_x));
    gutters.iter().filter(|gutter| gutter.1 <= middle).count()
}

/// The rows of upright text, from top to bottom.
fn rows(spans: &[TextSpan]) -> Vec<Row> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    let y = |index: &usize| spans.get(*index).map_or(0.0, |span| span.y);
    order.sort_by(|left, right| y(right).total_cmp(&y(left)));
    let mut rows: Vec<Row> = Vec::new();
    for index in order {
        let Some(span) = spans.get(index).filter(|span| span.rotate == 0) else {
            continue;
        };
        match rows.last_mut() {
            Some(row) if row.y - span.y <= 0.5 * row.size.max(span.size) => {
                row.size = row.size.max(span.size);
                row.spans.push(index);
            }
            _ => rows.push(Row {
                y: span.y,
                size: span.size,
                spans: vec![index],
                ink: Vec::new(),
            }),
        }
    }
    for row in &mut rows {
        let gutter = gutter_of(row.size);
        // Narrower gaps are spaces between words.
        let mut ink: Vec<Range> = row
            .spans
            .iter()
            .filter_map(|index| spans.get(*index))
            .filter(|span| !span.text.trim().is_empty())
            .map(|span| (span.x.min(span.end_x), span.x.max(span.end_x)))
            .collect();
        ink.sort_by(|left, right| left.0.total_cmp(&right.0));
        for (start, end) in ink {
            match row.ink.last_mut() {
                Some(last) if start - last.1 < gutter => last.1 = last.1.max(end),
                _ => row.ink.push((start, end)),
            }
        }
    }
    rows.retain(|row| !row.ink.is_empty());
    rows
}

fn gutter_of(size: f32) -> f32 {
    MIN_GUTTER.min(size).max(MIN_GUTTER_OF_SIZE * size)
}

/// Finds the block of rows from `start` that have a gap in common. Returns the index after its last row, and the gaps.
fn find_block(rows: &[Row], start: usize) -> Option<(usize, Vec<Range>)> {
    let first = rows.get(start)?;
    let gaps = |row: &Row| -> Vec<Range> {
        let pairs = row.ink.windows(2);
        pairs
            .filter_map(|pair| match pair {
                [a, b] => Some((a.1, b.0)),
                _ => None,
            })
            .collect()
    };
    let mut gaps_in_common = gaps(first);
    let mut end = start + 1;
    while let (Some(before), Some(row)) = (rows.get(end - 1), rows.get(end)) {
        if before.y - row.y > MAX_STEP * row.size.max(before.size) {
            break;
        }
        let mut free = gaps(row);
        let (left, right) = (row.ink.first()?.0, row.ink.last()?.1);
        // The margins count as gaps, because the line of a column may be short.
        free.extend([(f32::MIN, left), (right, f32::MAX)]);
        let next: Vec<Range> = gaps_in_common
            .iter()
            .flat_map(|gap_in_common| {
                free.iter()
                    .map(move |gap| (gap_in_common.0.max(gap.0), gap_in_common.1.min(gap.1)))
            })
            .filter(|gap_in_common| gap_in_common.1 - gap_in_common.0 >= gutter_of(row.size))
            .collect();
        if next.is_empty() {
            break;
        }
        gaps_in_common = next;
        end += 1;
    }
    (end - start >= MIN_LINES && !gaps_in_common.is_empty()).then_some((end, gaps_in_common))
}

/// Whether a block is long enough that the engine itself detects its columns.
fn is_left_to_engine(rows: &[Row]) -> bool {
    let span_count: usize = rows.iter().map(|row| row.spans.len()).sum();
    let (Some(top), Some(bottom)) = (rows.first(), rows.last()) else {
        return true;
    };
    let left = rows
        .iter()
        .filter_map(|row| row.ink.first())
        .map(|ink| ink.0);
    let right = rows
        .iter()
        .filter_map(|row| row.ink.last())
        .map(|ink| ink.1);
    let width = right.fold(f32::MIN, f32::max) - left.fold(f32::MAX, f32::min);
    span_count >= MIN_ENGINE_SPANS && rows.len() >= MIN_ENGINE_LINES && top.y - bottom.y > width
}

/// Selects the gaps that are gutters: with prose on all sides, and no two rulings across. `None` without any.
fn gutters(
    spans: &[TextSpan],
    rows: &[Row],
    gaps_in_common: &[Range],
    rulings: &[Ruling],
) -> Option<Vec<Range>> {
    let (top, bottom) = (rows.first()?, rows.last()?);
    if gaps_in_common.is_empty() {
        return None;
    }
    let crossed = |gap_in_common: &Range| {
        let across = rulings.iter().filter(|ruling| {
            let inside = ruling.start.y < top.y && ruling.start.y > bottom.y;
            inside && ruling.start.x < gap_in_common.0 && ruling.end.x > gap_in_common.1
        });
        across.count() > 1
    };
    // A gap inside a column makes all gaps fail, so the widest gap is tried alone afterwards.
    let mut widest = gaps_in_common.to_vec();
    widest.sort_by(|left, right| (right.1 - right.0).total_cmp(&(left.1 - left.0)));
    widest.truncate(1);
    [gaps_in_common.to_vec(), widest]
        .into_iter()
        .find(|gutters| !gutters.iter().any(crossed) && are_prose(spans, rows, gutters))
}

/// A line of one column.
struct Line {
    start: f32,
    end: f32,
    y: f32,
    text: String,
}

/// Whether the text between gutters is prose on all sides.
fn are_prose(spans: &[TextSpan], rows: &[Row], gutters: &[Range]) -> bool {
    let mut columns: Vec<Vec<Line>> = Vec::new();
    columns.resize_with(gutters.len() + 1, Vec::new);
    for row in rows {
        let mut parts: Vec<Vec<&TextSpan>> = vec![Vec::new(); gutters.len() + 1];
        for span in row.spans.iter().filter_map(|index| spans.get(*index)) {
            if let Some(part) = parts.get_mut(column_index(Some(span), gutters)) {
                part.push(span);
            }
        }
        for (column, part) in columns.iter_mut().zip(&mut parts) {
            part.sort_by(|left, right| left.x.total_cmp(&right.x));
            let text: Vec<&str> = part.iter().map(|span| span.text.trim()).collect();
            let text = text.join(" ").trim().to_owned();
            if let (false, Some(first), Some(last)) = (text.is_empty(), part.first(), part.last()) {
                column.push(Line {
                    start: first.x,
                    end: last.end_x,
                    y: row.y,
                    text,
                });
            }
        }
    }
    columns.iter().all(|lines| is_prose(lines)) && common_gaps(&columns) <= MAX_COMMON_GAPS
}

/// Whether lines are those of a paragraph: mostly letters, full lines, each continuing the one before.
fn is_prose(lines: &[Line]) -> bool {
    if lines.len() < MIN_LINES {
        return false;
    }
    let all: Vec<char> = lines.iter().flat_map(|line| line.text.chars()).collect();
    let visible_characters = all
        .iter()
        .filter(|character| !character.is_whitespace())
        .count();
    let letters = all
        .iter()
        .filter(|character| character.is_alphabetic())
        .count();
    let unspaced = all
        .iter()
        .filter(|character| characters::is_unspaced(**character))
        .count()
        * 2
        > visible_characters;
    let left = lines.iter().map(|line| line.start).fold(f32::MAX, f32::min);
    let right = lines.iter().map(|line| line.end).fold(f32::MIN, f32::max);
    let is_full = |line: &&Line| line.end - left >= MIN_FULL_LINE_SHARE * (right - left);
    let continues_sentence = |line: &&Line| {
        let first = line.text.chars().next();
        first
            .is_some_and(|character| character.is_lowercase() || characters::is_unspaced(character))
    };
    let min_characters = if unspaced {
        MIN_CHARACTERS / 2
    } else {
        MIN_CHARACTERS
    };
    let below = lines.get(1..).unwrap_or_default();
    visible_characters >= min_characters * lines.len()
        && letters * 10 >= visible_characters * 7
        && lines.iter().filter(is_full).count() * 5 >= lines.len() * 3
        && below.iter().filter(continues_sentence).count() * 3 >= below.len()
}

/// Counts the line steps wider than the usual one that all columns have at the same height, as in a table.
fn common_gaps(columns: &[Vec<Line>]) -> usize {
    let wide_steps = |lines: &[Line]| -> Vec<f32> {
        let step = |pair: &[Line]| match pair {
            [a, b] => a.y - b.y,
            _ => 0.0,
        };
        let usual_step = lines.windows(2).map(step).fold(f32::MAX, f32::min);
        let wide = lines
            .windows(2)
            .filter(|pair| step(pair) > usual_step * 1.25);
        wide.filter_map(|pair| pair.last())
            .map(|line| line.y)
            .collect()
    };
    let Some((first, others)) = columns.split_first() else {
        return 0;
    };
    let others: Vec<Vec<f32>> = others.iter().map(|lines| wide_steps(lines)).collect();
    let is_common = |y: &&f32| {
        others
            .iter()
            .all(|column| column.iter().any(|other| (other - **y).abs() < 2.0))
    };
    wide_steps(first).iter().filter(is_common).count()
}
