//! DOC: Word 97 to 2003, and the text of Word 6 and 95 (MS-DOC).
//!
//! The text is stored in pieces, in the order of a table. Its format is stored separately, by the position of the text
//! in the file.

mod file;
mod fonts;
mod lists;
mod runs;
mod styles;
#[cfg(test)]
mod tests;
mod text;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use self::file::{File, Table, table_positions};
use self::text::Walker;
use super::deck::write_plain_comments;
use crate::compound::Compound;
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::{Damage, Failure};
use crate::markdown::{Inline, Markdown};

/// Writes the body, then text boxes, notes and comments, each from a separate range of the text (a story).
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut compound = Compound::open(input)?;
    let file = File::open(&mut compound, &budget)?;
    let pieces = file::text_pieces(&file);
    if pieces.is_empty() && file.stories.body > 0 {
        return Err(Failure::Corrupt(Damage::MissingPart));
    }
    let mut walker = Walker::new(&file, pieces, &budget)?;
    walker.references = note_references(&file);
    let stories = &file.stories;
    walker.write(0..stories.body, out)?;
    let footnotes = stories.body..stories.body + stories.footnotes;
    let comments =
        footnotes.end + stories.headers..footnotes.end + stories.headers + stories.comments;
    let endnotes = comments.end..comments.end + stories.endnotes;
    let boxes = endnotes.end..endnotes.end + stories.text_boxes;
    walker.write(boxes, out)?;
    write_notes(
        &mut walker,
        &file,
        Table::FootnoteTexts,
        footnotes,
        ("Footnotes", ""),
        out,
    )?;
    write_notes(
        &mut walker,
        &file,
        Table::EndnoteTexts,
        endnotes,
        ("Endnotes", "e"),
        out,
    )?;
    let mut texts = Vec::new();
    for range in story_parts(&file, Table::CommentTexts, comments) {
        budget.element()?;
        texts.push((String::new(), walker.line(range, out)?.to_plain()));
    }
    write_plain_comments(&texts, out)
}

/// The positions of references to notes in the body, and the mark of each.
fn note_references(file: &File) -> HashMap<usize, String> {
    // The last position is the end of the story.
    let positions = |table| {
        let mut positions: Vec<usize> = table_positions(file.table(table), 2).collect();
        positions.pop();
        positions
    };
    let footnotes = positions(Table::FootnoteReferences);
    let endnotes = positions(Table::EndnoteReferences);
    let mark = |prefix: &'static str| {
        move |(number, position): (u32, usize)| (position, format!("[^{prefix}{number}]"))
    };
    let mut references: HashMap<usize, String> = (1..).zip(endnotes).map(mark("e")).collect();
    references.extend((1..).zip(footnotes).map(mark("")));
    references
}

/// The texts of notes or comments, each a range of characters.
fn story_parts(file: &File, table: Table, story: Range<usize>) -> Vec<Range<usize>> {
    let starts: Vec<usize> = table_positions(file.table(table), 0).collect();
    starts
        .windows(2)
        .filter_map(|pair| match pair {
            [first, end] => Some(story.start + first..(story.start + end).min(story.end)),
            _ => None,
        })
        .filter(|range| !range.is_empty())
        .collect()
}

/// Writes the heading, such as `### Footnotes`, and one paragraph for each note.
fn write_notes(
    walker: &mut Walker<'_>,
    file: &File,
    table: Table,
    story: Range<usize>,
    (heading, prefix): (&str, &str),
    out: &mut Markdown,
) -> Result<(), Failure> {
    let mut has_heading = false;
    for (number, range) in (1..).zip(story_parts(file, table, story)) {
        let text = walker.line(range, out)?;
        if text.is_blank() {
            continue;
        }
        if !std::mem::replace(&mut has_heading, true) {
            out.heading(3, &Inline::plain(heading))?;
        }
        let mut note = Inline::new();
        note.raw(&format!("[^{prefix}{number}]: "));
        note.append(text);
        out.paragraph(&note)?;
    }
    Ok(())
}
