//! Comments of a worksheet: notes, and threads of comments ([MS-XLSX], `CT_ThreadedComment`; MS-XLSB 2.1.7.9).

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use super::strings::rich_text;
use super::used::cell_name;
use super::xlsb_formats::{Records, wide_string};
use crate::compound::u32_at;
use crate::formats::office::package::{Package, Relations};
use crate::formats::office::xml::{Event, Xml, decode_part};
use crate::limits::{Budget, Failure};

// Record types (MS-XLSB 2.3).
const AUTHOR_RECORD: u16 = 632;
const COMMENT_RECORD: u16 = 635;
const TEXT_RECORD: u16 = 637;

/// A comment on a cell.
#[derive(Clone, Debug, Default)]
pub(super) struct CellComment {
    /// The name of the cell, such as `B7`.
    pub(super) cell: String,
    /// The name of its author; may be empty.
    pub(super) author: String,
    pub(super) text: String,
}

impl CellComment {
    /// The text after the name of its author.
    pub(super) fn line(&self) -> String {
        let text = self.text.replace("\r\n", "\n").replace('\r', "\n");
        let (author, text) = (self.author.trim(), text.trim());
        // Excel begins the text of a note with the name of its author.
        let after_author = text.strip_prefix(author);
        if author.is_empty() || after_author.is_some_and(|rest| rest.starts_with(':')) {
            return text.to_owned();
        }
        format!("{author}: {text}")
    }
}

/// The names of people who wrote in threads, by the ids that threads refer to.
#[derive(Debug, Default)]
pub(super) struct ThreadAuthors(HashMap<String, String>);

impl ThreadAuthors {
    /// Reads the part that the relations of a workbook name.
    pub(super) fn of_workbook(
        relations: &Relations,
        package: &mut Package<'_>,
    ) -> Result<Self, Failure> {
        let mut people = Self::default();
        let Some(part) = relations.part("person") else {
            return Ok(people);
        };
        let Some(bytes) = package.part(part)? else {
            return Ok(people);
        };
        let text = decode_part(&bytes);
        let budget = Rc::clone(package.budget());
        let mut xml = Xml::new(&text, &budget);
        loop {
            match xml.next()? {
                Event::Open(element) if element.name() == "person" => {
                    let id = element.attr("id").unwrap_or_default();
                    let name = element.attr("displayName").unwrap_or_default();
                    people.0.insert(id, name);
                }
                Event::End => return Ok(people),
                _ => {}
            }
        }
    }
}

/// The comments of a sheet. Replies are separate elements with the same cell. A thread replaces the note that represents
/// it in older programs.
pub(super) fn read_comments(
    relations: &Relations,
    people: &ThreadAuthors,
    package: &mut Package<'_>,
) -> Result<Vec<CellComment>, Failure> {
    let budget = Rc::clone(package.budget());
    let mut comments = Vec::new();
    for relation in relations.of_kind("threadedComment") {
        if let Some(bytes) = package.part(&relation.target)? {
            comments.extend(comments_of_part(
                &bytes,
                "threadedComment",
                people,
                &budget,
            )?);
        }
    }
    let in_threads: HashSet<String> = comments
        .iter()
        .map(|comment| comment.cell.clone())
        .collect();
    for relation in relations.of_kind("comments") {
        let Some(bytes) = package.part(&relation.target)? else {
            continue;
        };
        let mut notes = if is_binary(&relation.target) {
            binary_comments(&bytes, &budget)?
        } else {
            comments_of_part(&bytes, "comment", people, &budget)?
        };
        // Excel writes a threaded comment a second time as an old one, with a text about the version of the program.
        notes.retain(|note| !in_threads.contains(&note.cell));
        comments.extend(notes);
    }
    Ok(comments)
}

/// Whether a part is written in the records of XLSB.
fn is_binary(part: &str) -> bool {
    Path::new(part)
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("bin"))
}

fn comments_of_part(
    bytes: &[u8],
    name: &str,
    people: &ThreadAuthors,
    budget: &Rc<Budget>,
) -> Result<Vec<CellComment>, Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    let (mut authors, mut comments) = (Vec::new(), Vec::new());
    let mut open = CellComment::default();
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "author" => authors.push(xml.text()?),
            Event::Open(element) if element.name() == name => {
                budget.element()?;
                let person = element.attr("personId").and_then(|id| people.0.get(&id));
                let author = element
                    .number::<usize>("authorId")
                    .and_then(|index| authors.get(index));
                open.cell = element.attr("ref").unwrap_or_default();
                open.author = person.or(author).cloned().unwrap_or_default();
            }
            Event::Open(element) if element.name() == "text" => {
                open.text = if name == "comment" {
                    rich_text(&mut xml)?.0
                } else {
                    xml.text()?
                };
                // The text is the last relevant element of a comment, so its cell is known here.
                comments.push(std::mem::take(&mut open));
            }
            Event::End => return Ok(comments),
            _ => {}
        }
    }
}

/// The comments of a part of an XLSB workbook.
fn binary_comments(bytes: &[u8], budget: &Budget) -> Result<Vec<CellComment>, Failure> {
    let (mut authors, mut comments): (Vec<String>, Vec<CellComment>) = (Vec::new(), Vec::new());
    for (kind, data) in Records(bytes) {
        match kind {
            AUTHOR_RECORD => authors.push(wide_string(data, 0).unwrap_or_default().0),
            COMMENT_RECORD => {
                budget.element()?;
                let index = u32_at(data, 0).and_then(|index| usize::try_from(index).ok());
                let author = index.and_then(|index| authors.get(index));
                // The area has the first row, the last row, the first column and the last column.
                let cell = u32_at(data, 4).map(u64::from).zip(u32_at(data, 12));
                comments.push(CellComment {
                    cell: cell.map(cell_name).unwrap_or_default(),
                    author: author.cloned().unwrap_or_default(),
                    text: String::new(),
                });
            }
            TEXT_RECORD => {
                // The text follows one byte of flags.
                if let Some((comment, (text, _))) = comments.last_mut().zip(wide_string(data, 1)) {
                    comment.text = text;
                }
            }
            _ => {}
        }
    }
    Ok(comments)
}
