//! ODF: texts and presentations (read-attachment 7.8, 7.10), and the code that spreadsheets share with them.

mod close;
mod open;
mod source;
mod state;
mod styles;

use std::rc::Rc;

pub(in crate::formats) use source::Source;
use state::Walker;
use styles::Styles;

use super::blocks::one_line;
use super::deck::write_plain_comments;
use super::xml::{Element, Event, Ns, Xml, decode_part};
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::Failure;
use crate::markdown::{Inline, Markdown};

/// Converts an `OpenDocument` text (ODT).
pub(in crate::formats) fn convert_text(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let mut walker = walk_document(input, out)?;
    let notes = std::mem::take(&mut walker.notes);
    for (title, mark, notes) in [
        ("Footnotes", "", notes.footnotes),
        ("Endnotes", "e", notes.endnotes),
    ] {
        if notes.is_empty() {
            continue;
        }
        out.heading(3, &Inline::plain(title))?;
        for (index, blocks) in notes.into_iter().enumerate() {
            let mut text = Inline::new();
            text.raw(&format!("[^{mark}{}]: ", index + 1));
            text.append(one_line(blocks));
            out.paragraph(&text)?;
        }
    }
    write_plain_comments(&walker.comments, out)
}

/// The converter of presentations. Each slide is written when its element ends.
pub(in crate::formats) fn convert_slides(
    input: &mut dyn Input,
    _hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    walk_document(input, out)?;
    Ok(())
}

fn walk_document(input: &mut dyn Input, out: &mut Markdown) -> Result<Walker, Failure> {
    let budget = Rc::clone(out.budget());
    let mut source = Source::open(input, &budget)?;
    let mut styles = Styles::default();
    if let Some(bytes) = source.styles()? {
        // The styles are read before the content: of two styles with the same name, the automatic style of the content
        // is used.
        styles.read(&decode_part(&bytes), &budget)?;
    }
    let content = source.content()?;
    let text = decode_part(&content);
    styles.read(&text, &budget)?;
    let mut walker = Walker::new(styles);
    walker.show_hidden = out.shows_hidden();
    let mut xml = Xml::new(&text, &budget);
    let result = walk_events(&mut walker, &mut xml, out);
    if let Err(Failure::Stopped(_)) = result {
        walker.write_collected(out)?;
    }
    result?;
    Ok(walker)
}

fn walk_events(walker: &mut Walker, xml: &mut Xml<'_>, out: &mut Markdown) -> Result<(), Failure> {
    loop {
        match xml.next()? {
            Event::Open(element) => {
                if !walker.open(&element, out) {
                    xml.skip()?;
                }
            }
            Event::Close => walker.close(out)?,
            Event::Text(text) => walker.characters(&text),
            Event::End => return Ok(()),
        }
    }
}

/// Whether a shape is not shown on a screen (`draw:display`). `LibreOffice` writes it for
/// shapes that are switched off in the navigator.
pub(in crate::formats) fn is_switched_off(shape: &Element<'_>) -> bool {
    let display = shape.attr("display");
    matches!(display.as_deref(), Some("none" | "printer"))
}

/// A comment with its author; each may be empty.
#[derive(Debug, Default)]
pub(in crate::formats) struct Annotation {
    pub(in crate::formats) author: String,
    pub(in crate::formats) text: String,
}

/// Reads a comment, after its start.
pub(in crate::formats) fn read_annotation(xml: &mut Xml<'_>) -> Result<Annotation, Failure> {
    let depth = xml.depth();
    let mut found = Annotation::default();
    loop {
        match xml.next()? {
            Event::Open(element) if element.name() == "creator" => found.author = xml.text()?,
            Event::Open(element)
                if element.ns == Ns::OdfText && matches!(element.name(), "p" | "h") =>
            {
                let text = plain_text(xml)?;
                if !found.text.is_empty() {
                    found.text.push('\n');
                }
                found.text.push_str(&text);
            }
            Event::Open(element)
                if matches!(element.name(), "date" | "date-string" | "creator-initials") =>
            {
                xml.skip()?;
            }
            Event::Close if xml.depth() < depth => return Ok(found),
            Event::End => return Ok(found),
            _ => {}
        }
    }
}

/// The plain text of a paragraph, after its start: white space collapsed, spaces and tabs expanded.
pub(in crate::formats) fn plain_text(xml: &mut Xml<'_>) -> Result<String, Failure> {
    parts_of_text(xml, &mut TextParts::default())
}

/// The content of paragraphs other than text.
#[derive(Debug, Default)]
pub(in crate::formats) struct TextParts {
    /// Target of the first link.
    pub(in crate::formats) link: Option<String>,
    /// Whether a part of the text has its own style.
    pub(in crate::formats) is_styled: bool,
}

/// Like [`plain_text`]; adds the other content of the paragraph to `parts`.
pub(in crate::formats) fn parts_of_text(
    xml: &mut Xml<'_>,
    parts: &mut TextParts,
) -> Result<String, Failure> {
    let depth = xml.depth();
    let mut out = String::new();
    loop {
        match xml.next()? {
            Event::Text(text) => collapse_white_space(&text, &mut out),
            Event::Open(element) if element.ns == Ns::OdfText => match element.name() {
                "s" => {
                    // A count in the file must not decide how much is allocated.
                    let count = element.number::<usize>("c").unwrap_or(1).min(64);
                    out.push_str(&" ".repeat(count));
                }
                "tab" => out.push(' '),
                "line-break" => out.push('\n'),
                "a" if parts.link.is_none() => parts.link = element.attr("href"),
                "span" => parts.is_styled = true,
                "note" | "ruby-text" => xml.skip()?,
                _ => {}
            },
            Event::Open(element)
                if element.ns == Ns::OdfOffice && element.name() == "annotation" =>
            {
                xml.skip()?;
            }
            Event::Close if xml.depth() < depth => return Ok(out),
            Event::End => return Ok(out),
            _ => {}
        }
    }
}

/// Appends text with each run of white space as one space, and none at the beginning of a line.
pub(super) fn collapse_white_space(text: &str, out: &mut String) {
    for character in text.chars() {
        if matches!(character, ' ' | '\t' | '\n' | '\r') {
            if !out.is_empty() && !out.ends_with([' ', '\n']) {
                out.push(' ');
            }
        } else if character != '\u{AD}' {
            out.push(character);
        }
    }
}
