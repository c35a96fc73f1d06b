//! DOCX: the body in document order, then footnotes, endnotes and comments (read-attachment 7.6).

mod alt_chunk;
mod close;
pub(super) mod field;
mod form_field;
mod math;
pub(super) mod numbering;
mod open;
mod state;
mod styles;

use numbering::Numbering;
use state::{Note, Notes, Walker};
use styles::Styles;

use super::deck::write_comments;
use super::package::{Package, Relations, default_if_damaged};
use super::xml::{Event, Xml, decode_part};
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::{Damage, Failure};
use crate::markdown::{Inline, Markdown};

/// Writes the body, then notes and comments. A damaged part with styles, lists or notes is left out with a warning.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = std::rc::Rc::clone(out.budget());
    let mut package = Package::open(input, &budget)?;
    let main = package.main(&["word/document.xml"])?;
    let relations = default_if_damaged(package.relations(&main), out, "relationships are")?;
    let styles = optional_part(&mut package, &relations, "styles").and_then(|part| {
        part.map_or_else(
            || Ok(Styles::default()),
            |bytes| Styles::read(&bytes, &budget),
        )
    });
    let styles = default_if_damaged(styles, out, "styles are")?;
    let numbering = optional_part(&mut package, &relations, "numbering").and_then(|part| {
        part.map_or_else(
            || Ok(Numbering::default()),
            |bytes| Numbering::read(&bytes, &budget),
        )
    });
    let numbering = default_if_damaged(numbering, out, "lists are")?;
    let body = package
        .part(&main)?
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let mut walker = Walker::new(styles, numbering, relations.clone());
    walker.show_hidden = out.shows_hidden();
    walk_part(&mut walker, &body, &mut package, out)?;
    // The body may have tens of megabytes, which the parts with notes need as well.
    drop(body);
    let notes = std::mem::take(&mut walker.notes);
    for (kind, title, mark, referenced) in [
        ("footnotes", "Footnotes", "", &notes.footnotes),
        ("endnotes", "Endnotes", "e", &notes.endnotes),
    ] {
        if referenced.is_empty() {
            continue;
        }
        let found = collect_notes(&mut walker, &mut package, &relations, kind, out);
        let found = default_if_damaged(found, out, "notes are")?;
        write_notes(title, mark, referenced, &found, out)?;
    }
    let comments = collect_notes(&mut walker, &mut package, &relations, "comments", out);
    let comments = default_if_damaged(comments, out, "comments are")?;
    let comments = comments.into_iter().map(|note| (note.author, note.text));
    write_comments(comments, out)
}

/// Reads an optional part.
fn optional_part(
    package: &mut Package<'_>,
    relations: &Relations,
    kind: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    match relations.part(kind) {
        Some(name) => {
            let name = name.to_owned();
            package.part(&name)
        }
        None => Ok(None),
    }
}

/// Walks one part. If a limit ends the walk inside a table, the rows before the limit are written.
fn walk_part(
    walker: &mut Walker,
    bytes: &[u8],
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, package.budget()).with_hidden_content(out.shows_hidden());
    let result = walk_events(walker, &mut xml, package, out);
    out.count_hidden("character", xml.take_hidden_characters());
    if let Err(Failure::Stopped(_)) = result {
        walker.write_collected(out)?;
    }
    result
}

fn walk_events(
    walker: &mut Walker,
    xml: &mut Xml<'_>,
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    loop {
        match xml.next()? {
            Event::Open(element) => {
                if !walker.open(&element, xml, package, out)? {
                    xml.skip()?;
                }
            }
            Event::Close => walker.close(out)?,
            Event::Text(text) => walker.characters(&text),
            Event::End => return Ok(()),
        }
    }
}

/// The notes of one part, each as one line.
fn collect_notes(
    walker: &mut Walker,
    package: &mut Package<'_>,
    relations: &Relations,
    kind: &str,
    out: &mut Markdown,
) -> Result<Vec<Note>, Failure> {
    let Some(name) = relations.part(kind).map(str::to_owned) else {
        return Ok(Vec::new());
    };
    let Some(bytes) = package.part(&name)? else {
        return Ok(Vec::new());
    };
    walker.begin_story(package.relations(&name)?);
    walk_part(walker, &bytes, package, out)?;
    Ok(std::mem::take(&mut walker.collected))
}

/// `[^1]: text`, in the order in which the text refers to them.
fn write_notes(
    title: &str,
    mark: &str,
    referenced: &Notes,
    found: &[Note],
    out: &mut Markdown,
) -> Result<(), Failure> {
    let by_id: std::collections::HashMap<&str, &Note> =
        found.iter().map(|note| (note.id.as_str(), note)).collect();
    let mut has_heading = false;
    for (number, id) in referenced.in_order() {
        let Some(note) = by_id.get(id) else {
            continue;
        };
        if !std::mem::replace(&mut has_heading, true) {
            out.heading(3, &Inline::plain(title))?;
        }
        let mut line = Inline::new();
        line.raw(&format!("[^{mark}{number}]: "));
        line.append(note.text.clone());
        out.paragraph(&line)?;
    }
    Ok(())
}

impl Walker {
    /// Writes the collected part of an open table after a limit.
    fn write_collected(&mut self, out: &mut Markdown) -> Result<(), Failure> {
        if !self.in_note() && !self.tables.is_empty() {
            let outer = self.tables.swap_remove(0);
            outer.grid.write_so_far(out)?;
        }
        Ok(())
    }
}
