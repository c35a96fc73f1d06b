//! Joins lines into paragraphs and removes hyphens at line ends (read-attachment 7.9).
//!
//! A line continues on the next one if the first word of the next line did not fit on it. If the word would have
//! fitted, the author ended the line. Then a new paragraph begins if the next line is lower or more indented than
//! usual, or if the line ends a sentence and the next line begins another. Otherwise it is a line break.

use super::characters;
use super::engine::{Block, Line, Run};
use super::spans;

/// Steps between lines above this multiple of the usual step begin a paragraph.
const PARAGRAPH_GAP: f32 = 1.35;
/// The same threshold after a line that was ended on purpose.
const GAP_AFTER_SHORT: f32 = 1.12;
/// Blocks with at most this many lines also take their width from their neighbours.
const FEW_LINES: usize = 4;
/// Free space beyond the width of the next word, in sizes of letters, above which a line was ended on purpose.
const LINE_SLACK: f32 = 1.0;
/// Largest step between lines of one paragraph, in sizes of letters, for any spacing.
pub(super) const MAX_LINE_STEP: f32 = 2.6;
/// A line of fewer characters was ended on purpose: prose is not set that narrow.
const NARROW_CHARACTERS: usize = 26;
/// Least free space at the end of the last line of a paragraph, as a share of the column.
const MIN_LAST_LINE_SPACE: f32 = 0.1;
/// Largest difference between full lines of ragged text, as a share of the column.
const MAX_RAGGEDNESS: f32 = 0.15;
/// Fewest characters of a line that ends a sentence; shorter ones are entries of lists and addresses.
const MIN_SENTENCE: usize = 12;
/// Indentation above which a line counts as indented, in sizes of letters.
const MIN_INDENT: f32 = 0.5;

/// The column of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Column {
    pub(super) left: f32,
    /// The position at which its longest line ends.
    pub(super) right: f32,
    /// The position at which lines could end if the right margin of the page is as wide as the left one.
    pub(super) room: f32,
}

/// The columns of the blocks of a page, in the order of the blocks.
pub(super) struct ColumnEdges(Vec<Column>);

impl ColumnEdges {
    /// Finds the columns from all blocks of a page of this width.
    pub(super) fn of(blocks: &[Block], width: f32) -> Self {
        let own: Vec<Option<(f32, f32)>> = blocks.iter().map(own_edges).collect();
        let known = || own.iter().flatten();
        let left = known().map(|edges| edges.0).fold(f32::MAX, f32::min);
        let reach = known().map(|edges| edges.1).fold(0.0, f32::max);
        // A block in the right half means columns, and then the margins do not show where lines could end.
        let is_one_column = known().all(|edges| edges.0 < width / 2.0);
        let room = if is_one_column { width - left } else { reach };
        let edges = blocks.iter().enumerate().map(|(index, block)| {
            let Some((left, mut right)) = own.get(index).copied().flatten() else {
                return Column::default();
            };
            let is_short =
                matches!(block, Block::Paragraph { lines, .. } if lines.len() <= FEW_LINES);
            let neighbours = [index.checked_sub(1), Some(index + 1)];
            for neighbour in neighbours.into_iter().flatten().filter(|_| is_short) {
                if let Some((other_left, other_right)) = own.get(neighbour).copied().flatten()
                    && (other_left - left).abs() < 6.0
                {
                    right = right.max(other_right);
                }
            }
            // A line that ends at a position without other line ends may have been ended on purpose, so it does not
            // define the edge.
            let others = known().filter(|edges| edges.1 > right - LINE_SLACK * 10.0);
            let room = if others.count() > 1 {
                right
            } else {
                room.max(right)
            };
            Column { left, right, room }
        });
        Self(edges.collect())
    }

    /// The column of one block.
    pub(super) fn at(&self, block: usize) -> Column {
        self.0.get(block).copied().unwrap_or_default()
    }
}

/// The extent of the lines of a paragraph.
fn own_edges(block: &Block) -> Option<(f32, f32)> {
    let Block::Paragraph { lines, .. } = block else {
        return None;
    };
    let left = lines.iter().map(|line| line.x).reduce(f32::min)?;
    let right = lines.iter().map(|line| line.end).reduce(f32::max)?;
    Some((left, right))
}

/// The separator between two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineJoin {
    /// The second continues the first.
    Nothing,
    /// The line was ended on purpose.
    Break,
    /// A new paragraph begins.
    Paragraph,
}

/// The paragraphs of a run of lines that is in a column.
pub(super) fn join_paragraphs(lines: &[Line], column: Column) -> Vec<Vec<Run>> {
    let shape = Shape::of(lines, column);
    let mut paragraphs = Vec::new();
    let mut current = Vec::new();
    let mut before: Option<&Line> = None;
    for line in lines.iter().filter(|line| !is_blank(line)) {
        match before.map(|before| shape.between(before, line)) {
            None => {}
            Some(LineJoin::Paragraph) => paragraphs.push(std::mem::take(&mut current)),
            Some(LineJoin::Break) => push_text(&mut current, Run::plain("\n")),
            Some(LineJoin::Nothing) => glue_line(&mut current, line),
        }
        append_line(&mut current, line);
        before = Some(line);
    }
    paragraphs.push(current);
    paragraphs
}

/// Makes the paragraphs of a page from its blocks. A paragraph that continues at the top of the next column is joined.
#[derive(Default)]
pub(super) struct Flow {
    last: Option<OpenParagraph>,
}

/// A paragraph that may continue.
struct OpenParagraph {
    runs: Vec<Run>,
    /// Baseline of its last line.
    y: f32,
}

impl Flow {
    /// Adds the lines of the next block, and returns the paragraphs that are complete.
    pub(super) fn take(&mut self, lines: &[Line], column: Column) -> Vec<Vec<Run>> {
        let mut complete = Vec::new();
        let mut new = join_paragraphs(lines, column);
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
            return complete;
        };
        if let Some(mut open) = self.last.take() {
            // The top of the next column is higher on the page than the end of this one.
            let upwards = first.y > open.y + first.size;
            let continues = !ends_sentence(&open.runs) && starts_lowercase(first);
            if upwards && continues && !new.is_empty() {
                glue_line(&mut open.runs, first);
                let more = new.remove(0);
                for run in more {
                    push_text(&mut open.runs, run);
                }
                new.insert(0, open.runs);
            } else {
                complete.push(open.runs);
            }
        }
        if let Some(runs) = new.pop() {
            self.last = Some(OpenParagraph { runs, y: last.y });
        }
        complete.append(&mut new);
        complete
    }

    /// The paragraph that is still open at the end of the page.
    pub(super) fn end(&mut self) -> Option<Vec<Run>> {
        self.last.take().map(|open| open.runs)
    }
}

/// Whether a line begins with a lower-case letter.
fn starts_lowercase(line: &Line) -> bool {
    first_character(line).is_some_and(char::is_lowercase)
}

/// Lines of any shape as one paragraph.
pub(super) fn join_lines(lines: &[Line]) -> Vec<Run> {
    let mut runs = Vec::new();
    for line in lines.iter().filter(|line| !is_blank(line)) {
        if !runs.is_empty() {
            glue_line(&mut runs, line);
        }
        append_line(&mut runs, line);
    }
    runs
}

/// Lines as the text of one line.
pub(super) fn one_line(lines: &[Line]) -> String {
    join_lines(lines).into_iter().map(|run| run.text).collect()
}

/// Whether a line is blank.
fn is_blank(line: &Line) -> bool {
    line.runs.iter().all(|run| run.text.trim().is_empty())
}

/// The usual layout of the lines of a block.
struct Shape {
    column: Column,
    /// Whether only one line reaches the right edge, so that the width of a full line is unknown.
    is_edge_unknown: bool,
    /// Usual step from a line to the next; zero for too few lines.
    step: f32,
    /// Whether most lines end with so much free space that each line is separate, as in an address or a poem.
    is_loose: bool,
    /// Whether most lines are indented, so that lines at the left edge begin a paragraph.
    is_hanging: bool,
}

impl Shape {
    fn of(lines: &[Line], column: Column) -> Self {
        let mut steps: Vec<f32> = lines
            .windows(2)
            .filter_map(|pair| match pair {
                [upper, lower] if upper.y - lower.y > upper.size.min(lower.size) * 0.5 => {
                    Some(upper.y - lower.y)
                }
                _ => None,
            })
            .collect();
        steps.sort_by(f32::total_cmp);
        // The step is from the smaller half: steps between paragraphs are the larger ones.
        let step = steps.get(steps.len() / 4).copied().unwrap_or_default();
        let indented = lines
            .iter()
            .filter(|line| is_indented(line, column.left))
            .count();
        let tolerance = (column.right - column.left) * MAX_RAGGEDNESS;
        let reaching = lines
            .iter()
            .filter(|line| line.end > column.right - tolerance);
        let mut shape = Self {
            column,
            is_edge_unknown: reaching.count() == 1 && column.room > column.right,
            step,
            is_loose: false,
            is_hanging: indented * 2 > lines.len(),
        };
        let pairs = lines.len().saturating_sub(1);
        // Lines that end a sentence may be the last ones of paragraphs, when those before them are full and continue.
        let (mut ended, mut ended_in_sentence, mut full, mut continued) = (0, 0, 0, 0);
        for pair in lines.windows(2) {
            let [upper, lower] = pair else { continue };
            if shape.was_ended(upper, lower) {
                ended += 1;
                ended_in_sentence += usize::from(!are_sentences(upper, lower));
            } else {
                full += 1;
                let continues = |character: char| {
                    character.is_lowercase() || characters::is_unspaced(character)
                };
                continued += usize::from(first_character(lower).is_some_and(continues));
            }
        }
        let is_prose = full > 0 && continued * 3 >= full;
        shape.is_loose =
            pairs > 2 && (ended_in_sentence * 2 >= pairs || ended * 2 >= pairs && !is_prose);
        shape
    }

    fn between(&self, upper: &Line, lower: &Line) -> LineJoin {
        if upper.is_entry || lower.is_entry {
            return LineJoin::Paragraph;
        }
        // This check is first: a divided word continues on the next line, even over a wide gap.
        if is_hyphenated(&upper.runs, lower) || is_compound(&upper.runs, lower) {
            return LineJoin::Nothing;
        }
        let step = upper.y - lower.y;
        let wide = |times: f32| self.step > 0.0 && step > self.step * times;
        if wide(PARAGRAPH_GAP) || step > MAX_LINE_STEP * upper.size.max(lower.size) {
            return LineJoin::Paragraph;
        }
        let short = self.is_loose || self.was_ended(upper, lower);
        let begins = if self.is_hanging {
            is_indented(upper, self.column.left) && !is_indented(lower, self.column.left)
        } else {
            is_indented(lower, self.column.left) && !is_indented(upper, self.column.left)
        };
        let width = self.column.right - self.column.left;
        let sentences = are_sentences(upper, lower)
            && self.room(upper, lower, self.column.room) > width * MIN_LAST_LINE_SPACE;
        let ends = begins || sentences || wide(GAP_AFTER_SHORT);
        if short && ends || begins && ends_sentence(&upper.runs) {
            return LineJoin::Paragraph;
        }
        if sentences && self.is_edge_unknown && self.has_room(upper, lower, self.column.room) {
            return LineJoin::Paragraph;
        }
        if short {
            return LineJoin::Break;
        }
        LineJoin::Nothing
    }

    /// Whether a line was ended on purpose, because the first word of the next line would have fitted.
    fn was_ended(&self, upper: &Line, lower: &Line) -> bool {
        self.has_room(upper, lower, self.column.right)
    }

    /// Whether the first word of the next line would have fitted on this line, if lines end at `right`.
    fn has_room(&self, upper: &Line, lower: &Line, right: f32) -> bool {
        let text: String = lower.runs.iter().map(|run| run.text.as_str()).collect();
        let text = text.trim();
        let total = text.chars().count();
        let word = text.split_whitespace().next().unwrap_or_default();
        // Without spaces a line is filled to the last character.
        let word = word.chars().count().min(24);
        if total == 0 {
            return false;
        }
        if has_leader_dots(upper) {
            return true;
        }
        let unspaced = text.chars().next().is_some_and(characters::is_unspaced);
        if !unspaced && shown_length(upper) < NARROW_CHARACTERS {
            return true;
        }
        let word = if unspaced { 1 } else { word };
        let width = (lower.end - lower.x).max(0.0) * fraction_of(word, total);
        self.room(upper, lower, right) > width + LINE_SLACK * upper.size.max(lower.size)
    }

    /// The free width of a line before the next one, if lines end at `right`.
    fn room(&self, upper: &Line, lower: &Line, right: f32) -> f32 {
        // Lines of Arabic and Hebrew fill up from the right.
        if is_right_to_left(lower) {
            upper.x - self.column.left
        } else {
            right - upper.end
        }
    }
}

/// `part` divided by `whole`, each of which counts as at most 65,535.
fn fraction_of(part: usize, whole: usize) -> f32 {
    let small = |count: usize| f32::from(u16::try_from(count).unwrap_or(u16::MAX));
    small(part) / small(whole).max(1.0)
}

/// Whether a line begins to the right of the left edge of its column.
fn is_indented(line: &Line, left: f32) -> bool {
    line.x - left > line.size * MIN_INDENT
}

/// Whether a line has dots that lead to a page number, as in a table of contents.
fn has_leader_dots(line: &Line) -> bool {
    let text: String = line.runs.iter().map(|run| run.text.as_str()).collect();
    let text = text.trim_end();
    let numbered = text.ends_with(|character: char| character.is_alphanumeric());
    numbered && (text.contains(". . . .") || text.contains("....."))
}

/// The number of characters that a line shows.
fn shown_length(line: &Line) -> usize {
    let text: String = line.runs.iter().map(|run| run.text.as_str()).collect();
    text.trim().chars().count()
}

/// Whether text ends as sentences do.
fn ends_sentence(runs: &[Run]) -> bool {
    runs.iter()
        .rev()
        .find_map(|run| run.text.trim_end().chars().last())
        .is_some_and(|character| {
            matches!(character, '.' | '!' | '?' | ':' | '…' | '"' | '”' | '。')
        })
}

/// Whether a sentence ends with one line and another one begins with the next.
fn are_sentences(upper: &Line, lower: &Line) -> bool {
    let text = upper.runs.iter().rev().map(|run| run.text.trim_end());
    let last = text.flat_map(|text| text.chars().rev()).find(|character| {
        !matches!(
            character,
            '"' | '”' | '“' | '’' | '\'' | ')' | ']' | '»' | '」' | '』'
        )
    });
    let ends = last
        .is_some_and(|character| matches!(character, '.' | '!' | '?' | '…' | '。' | '！' | '？'));
    let begins = first_character(lower).is_some_and(|character| {
        !character.is_lowercase() && !matches!(character, '-' | '–' | ',')
    });
    ends && begins && shown_length(upper) >= MIN_SENTENCE
}

/// Whether a line runs from right to left, by its first letter.
fn is_right_to_left(line: &Line) -> bool {
    let mut letters = line.runs.iter().flat_map(|run| run.text.chars());
    letters
        .find(|letter| letter.is_alphabetic())
        .is_some_and(spans::is_right_to_left)
}

/// Whether a character is a hyphen, a soft hyphen or a hyphen-minus.
fn is_hyphen(character: char) -> bool {
    matches!(character, '-' | '\u{2010}' | '\u{ad}')
}

/// Whether the lines divide a word: the first ends with a lower-case letter and a hyphen, and the next begins with a
/// lower-case letter.
fn is_hyphenated(runs: &[Run], next: &Line) -> bool {
    let Some(run) = runs.last() else {
        return false;
    };
    let mut end = run.text.trim_end().chars().rev();
    let (Some(last), Some(letter)) = (end.next(), end.next()) else {
        return false;
    };
    let first = first_character(next);
    is_hyphen(last) && letter.is_lowercase() && first.is_some_and(char::is_lowercase)
}

/// The first character that a line shows.
fn first_character(line: &Line) -> Option<char> {
    line.runs
        .iter()
        .find_map(|run| run.text.trim_start().chars().next())
}

/// Prepares the end of the joined text for the next line: removes a hyphen, or adds a space.
fn glue_line(runs: &mut Vec<Run>, next: &Line) {
    let is_divided_word = is_hyphenated(runs, next);
    let Some(run) = runs.last_mut() else {
        return;
    };
    let end = run.text.trim_end().len();
    run.text.truncate(end);
    let last = run.text.chars().last();
    // A soft hyphen shows only where a line breaks, and this break is removed.
    if is_divided_word || last == Some('\u{ad}') {
        run.text.pop();
        return;
    }
    if is_compound(runs, next) {
        return;
    }
    let first = first_character(next);
    if !(last.is_some_and(characters::is_unspaced) && first.is_some_and(characters::is_unspaced)) {
        push_text(runs, Run::plain(" "));
    }
}

/// Whether the lines divide a compound: `Smith-` and `Jones` are written together, `1990 -` and `1995` are not.
fn is_compound(runs: &[Run], next: &Line) -> bool {
    let mut end = runs
        .last()
        .map_or("", |run| run.text.trim_end())
        .chars()
        .rev();
    end.next().is_some_and(is_hyphen)
        && end.next().is_some_and(char::is_alphanumeric)
        && first_character(next).is_some_and(char::is_alphanumeric)
}

/// Appends a line without the blanks around it.
fn append_line(runs: &mut Vec<Run>, line: &Line) {
    let count = line.runs.len();
    for (index, run) in line.runs.iter().enumerate() {
        let mut text = run.text.as_str();
        if index == 0 {
            text = text.trim_start();
        }
        if index + 1 == count {
            text = text.trim_end();
        }
        push_text(
            runs,
            Run {
                text: text.to_owned(),
                ..run.clone()
            },
        );
    }
}

/// Appends a run to the last one if it is of the same kind. A blank belongs to the run before it.
fn push_text(runs: &mut Vec<Run>, run: Run) {
    if run.text.is_empty() {
        return;
    }
    let is_space = run.text.trim().is_empty() && !run.text.contains('\n');
    match runs.last_mut() {
        Some(last) if last.style == run.style && last.link == run.link || is_space => {
            last.text.push_str(&run.text);
        }
        _ => runs.push(run),
    }
}
