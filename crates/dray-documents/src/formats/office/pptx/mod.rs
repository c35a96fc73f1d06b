//! PPTX: slides in the order of the presentation (read-attachment 7.8).

mod layout;
mod open;
mod slide;

use std::collections::HashMap;
use std::rc::Rc;

use layout::Layout;
use slide::Walker;

use super::blocks::Block;
use super::deck::{Shape, Slide};
use super::package::{Package, Relations, default_if_damaged};
use super::xml::{Event, Ns, Xml, decode_part};
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::{Budget, Damage, Failure};
use crate::markdown::Markdown;
use crate::symbol_font::UNKNOWN_SYMBOLS_WARNING;

/// A damaged slide is named in a warning; the presentation is damaged only when no slide could be read.
pub(super) fn convert(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let budget = Rc::clone(out.budget());
    let mut package = Package::open(input, &budget)?;
    let main = package.main(&["ppt/presentation.xml"])?;
    let relations = package.relations(&main)?;
    let bytes = package
        .part(&main)?
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let order = slide_order(&bytes, &relations, &budget)?;
    let authors = default_if_damaged(
        comment_authors(&relations, &mut package),
        out,
        "comments are",
    )?;
    let mut layouts = Layouts::default();
    let mut damaged = None;
    let mut has_slide = false;
    for (number, part) in (1..).zip(&order) {
        budget.clock()?;
        match read_slide(number, part, &mut package, &mut layouts, &authors, out) {
            Ok(()) => has_slide = true,
            Err(failure @ Failure::Corrupt(_)) => {
                out.warn(format!("slide {number} is damaged"));
                damaged = Some(failure);
                // The heading alone, so that the reader sees where a slide is missing.
                let slide = Slide {
                    number,
                    ..Slide::default()
                };
                slide.write(out)?;
            }
            Err(failure) => return Err(failure),
        }
    }
    match damaged {
        Some(failure) if !has_slide => Err(failure),
        _ => Ok(()),
    }
}

/// The parts of the slides, in order; an empty name if a relationship has no part.
fn slide_order(
    bytes: &[u8],
    relations: &Relations,
    budget: &Rc<Budget>,
) -> Result<Vec<String>, Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    let mut order = Vec::new();
    loop {
        match xml.next()? {
            Event::Open(element) if element.ns == Ns::Slides && element.name() == "sldId" => {
                let part = xml
                    .relation(&element, "id")
                    .and_then(|id| relations.get(&id))
                    .map(|relation| relation.target.clone());
                // An id without its part keeps its position: later slides keep their numbers, and this one is reported
                // as damaged.
                order.push(part.unwrap_or_default());
            }
            Event::End => return Ok(order),
            _ => {}
        }
    }
}

/// Names of those who commented, by id.
fn comment_authors(
    relations: &Relations,
    package: &mut Package<'_>,
) -> Result<HashMap<String, String>, Failure> {
    let mut authors = HashMap::new();
    for kind in ["commentAuthors", "authors"] {
        let Some(name) = relations.part(kind) else {
            continue;
        };
        let Some(bytes) = package.part(name)? else {
            continue;
        };
        let text = decode_part(&bytes);
        let mut xml = Xml::new(&text, package.budget());
        loop {
            match xml.next()? {
                Event::Open(element) if matches!(element.name(), "cmAuthor" | "author") => {
                    let id = element.attr("id").unwrap_or_default();
                    authors.insert(id, element.attr("name").unwrap_or_default());
                }
                Event::End => break,
                _ => {}
            }
        }
    }
    Ok(authors)
}

/// Layouts that were read, by part: many slides share one.
#[derive(Debug, Default)]
struct Layouts {
    by_part: HashMap<String, Rc<Layout>>,
}

impl Layouts {
    /// The layout of a slide, with inherited data of its master.
    fn of(
        &mut self,
        relations: &Relations,
        package: &mut Package<'_>,
    ) -> Result<Rc<Layout>, Failure> {
        let Some(part) = relations.part("slideLayout") else {
            return Ok(Rc::default());
        };
        // Hundreds of slides share a few layouts, each of which costs two parts.
        if let Some(known) = self.by_part.get(part) {
            return Ok(Rc::clone(known));
        }
        let part = part.to_owned();
        let mut layout = Layout::default();
        if let Some(bytes) = package.part(&part)? {
            layout.read(&bytes, package.budget())?;
            let relations = package.relations(&part)?;
            if let Some(master) = relations.part("slideMaster").map(str::to_owned)
                && let Some(bytes) = package.part(&master)?
            {
                let mut master_layout = Layout::default();
                master_layout.read(&bytes, package.budget())?;
                // The layout overrides the master.
                layout.inherit_from(&master_layout);
            }
        }
        let layout = Rc::new(layout);
        self.by_part.insert(part, Rc::clone(&layout));
        Ok(layout)
    }
}

/// Reads and writes one slide.
fn read_slide(
    number: u32,
    part: &str,
    package: &mut Package<'_>,
    layouts: &mut Layouts,
    authors: &HashMap<String, String>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let bytes = package
        .part(part)?
        .ok_or(Failure::Corrupt(Damage::MissingPart))?;
    let relations = package.relations(part)?;
    // Layouts only give positions to shapes without one, so a damaged layout loses no content.
    let layout = match layouts.of(&relations, package) {
        Err(Failure::Corrupt(_)) => Rc::default(),
        other => other?,
    };
    let mut slide = Slide {
        number,
        ..Slide::default()
    };
    let mut walker = Walker::new(relations.clone(), layout);
    let walked = walk_slide(&mut walker, &bytes, package, out);
    slide.hidden = walker.hidden;
    slide.shapes = std::mem::take(&mut walker.shapes);
    if let Err(failure @ Failure::Stopped(_)) = walked {
        // The part of the slide that was read is kept; the writer may have reached its limit, too.
        let _ = slide.write(out);
        return Err(failure);
    }
    walked?;
    slide.notes = default_if_damaged(slide_notes(&relations, package, out), out, "notes are")?;
    let comments = slide_comments(&relations, package, authors);
    slide.comments = default_if_damaged(comments, out, "comments are")?;
    slide.write(out)
}

fn walk_slide(
    walker: &mut Walker,
    bytes: &[u8],
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = decode_part(bytes);
    let budget = Rc::clone(package.budget());
    let mut xml = Xml::new(&text, &budget).with_hidden_content(out.shows_hidden());
    let result = walk_events(walker, &mut xml, package, out);
    let hidden = xml.take_hidden_characters() + std::mem::take(&mut walker.hidden_characters);
    out.count_hidden("character", hidden);
    if std::mem::take(&mut walker.unknown_symbols) {
        out.warn(UNKNOWN_SYMBOLS_WARNING);
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

/// The speaker's notes: the body of the notes page, not its picture, number or header.
fn slide_notes(
    relations: &Relations,
    package: &mut Package<'_>,
    out: &mut Markdown,
) -> Result<Vec<Block>, Failure> {
    let Some(part) = relations.part("notesSlide").map(str::to_owned) else {
        return Ok(Vec::new());
    };
    let Some(bytes) = package.part(&part)? else {
        return Ok(Vec::new());
    };
    let mut walker = Walker::new(package.relations(&part)?, Rc::default());
    walker.only_body();
    walk_slide(&mut walker, &bytes, package, out)?;
    let shapes: Vec<Shape> = walker.shapes;
    Ok(shapes.into_iter().flat_map(|shape| shape.blocks).collect())
}

/// Comments, of both generations.
fn slide_comments(
    relations: &Relations,
    package: &mut Package<'_>,
    authors: &HashMap<String, String>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut comments = Vec::new();
    let parts: Vec<String> = relations
        .of_kind("comments")
        .map(|relation| relation.target.clone())
        .collect();
    for part in parts {
        let Some(bytes) = package.part(&part)? else {
            continue;
        };
        read_comments(&bytes, package.budget(), authors, &mut comments)?;
    }
    Ok(comments)
}

/// Adds the comments of one part: each with its author, and replies after the comment that they answer. In the XML of
/// modern comments, the replies come before the text of the comment itself.
fn read_comments(
    bytes: &[u8],
    budget: &Rc<Budget>,
    authors: &HashMap<String, String>,
    comments: &mut Vec<(String, String)>,
) -> Result<(), Failure> {
    let text = decode_part(bytes);
    let mut xml = Xml::new(&text, budget);
    // Comments and replies that are open: the depth inside each, and its index in `comments`.
    let mut open: Vec<(usize, usize)> = Vec::new();
    loop {
        match xml.next()? {
            Event::Open(element) if matches!(element.name(), "cm" | "reply") => {
                budget.element()?;
                let id = element.attr("authorId").unwrap_or_default();
                open.push((xml.depth(), comments.len()));
                comments.push((authors.get(&id).cloned().unwrap_or_default(), String::new()));
            }
            Event::Open(element) if matches!(element.name(), "text" | "txBody") => {
                let body = paragraphs_text(&mut xml)?;
                if let Some((_, text)) = open.last().and_then(|(_, at)| comments.get_mut(*at)) {
                    *text = body;
                }
            }
            Event::Close => {
                if open.last().is_some_and(|(depth, _)| xml.depth() < *depth) {
                    open.pop();
                }
            }
            Event::End => return Ok(()),
            Event::Open(_) | Event::Text(_) => {}
        }
    }
}

/// The text of the last opened element, with a space between its paragraphs.
fn paragraphs_text(xml: &mut Xml<'_>) -> Result<String, Failure> {
    let depth = xml.depth();
    let mut out = String::new();
    loop {
        match xml.next()? {
            Event::Text(text) => out.push_str(&text),
            Event::Open(element) if matches!(element.name(), "p" | "br") && !out.is_empty() => {
                out.push(' ');
            }
            Event::Close if xml.depth() < depth => return Ok(out.trim().to_owned()),
            Event::End => return Err(Failure::Corrupt(Damage::Truncated)),
            Event::Open(_) | Event::Close => {}
        }
    }
}
