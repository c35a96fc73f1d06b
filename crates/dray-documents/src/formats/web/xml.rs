//! XML, indented (read-attachment 7.4).
//!
//! Document types are ignored. Only the five predefined entities and numeric references are expanded; others keep their
//! spelling, and no external resource is fetched.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::payload;
use crate::limits::{Budget, Failure, Limit};
use crate::markdown::Markdown;

/// Events between two checks of the time limit.
const EVENTS_PER_CHECK: u32 = 1024;

/// Writes an indented XML document in a code block. A malformed document is written unchanged.
pub(super) fn write_xml(text: &str, out: &mut Markdown) -> Result<(), Failure> {
    if text.trim().is_empty() {
        return Ok(());
    }
    let budget = out.budget().clone();
    let warning = match pretty_print(text, &budget) {
        Ok(pretty) => {
            out.code("xml", &payload::without_payloads(&pretty))?;
            return Ok(());
        }
        Err(XmlError::Limit(limit)) => return Err(limit.into()),
        Err(XmlError::Malformed) => "the XML is malformed and shown as it is",
        Err(XmlError::Deep) => "the XML is nested too deeply and shown as it is",
    };
    out.warn(warning);
    out.code("xml", &payload::without_payloads(text))?;
    Ok(())
}

/// The reason why a document cannot be indented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum XmlError {
    Malformed,
    Deep,
    Limit(Limit),
}

/// Indents a document. Output beyond the limit is cut, but the document is read to its end.
fn pretty_print(text: &str, budget: &Budget) -> Result<String, XmlError> {
    let mut printer = Printer {
        out: String::new(),
        room: usize::try_from(budget.text_left()).unwrap_or(usize::MAX),
        depth: 0,
        roots: 0,
        open: false,
        text: String::new(),
    };
    let max_depth = usize::try_from(budget.limits().max_depth).unwrap_or(usize::MAX);
    let mut reader = Reader::from_str(text.trim_start_matches('\u{FEFF}').trim_start());
    // Many writers leave `&` unescaped; otherwise such documents are well-formed.
    reader.config_mut().allow_dangling_amp = true;
    let mut events = 0;
    loop {
        events += 1;
        if events >= EVENTS_PER_CHECK {
            events = 0;
            budget.clock().map_err(XmlError::Limit)?;
        }
        match reader.read_event().map_err(|_| XmlError::Malformed)? {
            Event::Eof => break,
            event => printer.event(event)?,
        }
        if printer.depth > max_depth {
            return Err(XmlError::Deep);
        }
    }
    printer.end_text();
    if printer.depth > 0 || printer.roots != 1 {
        return Err(XmlError::Malformed);
    }
    Ok(printer.out)
}

struct Printer {
    out: String,
    room: usize,
    depth: usize,
    roots: u32,
    /// Whether only text followed the start tag that was written last.
    open: bool,
    /// Text that was not yet written.
    text: String,
}

impl Printer {
    fn event(&mut self, event: Event<'_>) -> Result<(), XmlError> {
        match event {
            Event::Start(tag) => {
                self.tag(&tag, ">")?;
                self.depth += 1;
                self.open = true;
            }
            Event::Empty(tag) => self.tag(&tag, "/>")?,
            Event::End(tag) => {
                let name = tag.name();
                self.depth = self.depth.checked_sub(1).ok_or(XmlError::Malformed)?;
                if self.open {
                    let text = std::mem::take(&mut self.text);
                    self.push(text.trim());
                } else {
                    self.end_text();
                    self.line();
                }
                self.open = false;
                for part in ["</", name.as_ref(), ">"] {
                    self.push(part);
                }
            }
            Event::Text(text) => self.collect(&text)?,
            Event::CData(text) => self.collect(&text)?,
            Event::GeneralRef(reference) => self.collect(&resolve_reference(&reference))?,
            Event::Comment(text) => self.own_line(["<!--", &text, "-->"]),
            Event::Decl(text) => self.own_line(["<?", &text, "?>"]),
            Event::PI(text) => self.own_line(["<?", &text, "?>"]),
            // A document type is ignored: its entities are never expanded (XXE, billion laughs).
            Event::DocType(_) | Event::Eof => {}
        }
        Ok(())
    }

    /// Collects text. Text outside of the root makes a document malformed.
    fn collect(&mut self, text: &str) -> Result<(), XmlError> {
        if self.depth == 0 && !text.trim().is_empty() {
            return Err(XmlError::Malformed);
        }
        // More text than can be written is dropped here, so that one element cannot take all memory.
        if self.text.len() <= self.room {
            self.text.push_str(text);
        }
        Ok(())
    }

    /// A start tag on a separate line.
    fn tag(&mut self, tag: &BytesStart<'_>, end: &str) -> Result<(), XmlError> {
        if self.depth == 0 {
            self.roots = self.roots.saturating_add(1);
        }
        if tag
            .attributes()
            .with_checks(false)
            .any(|attribute| attribute.is_err())
        {
            return Err(XmlError::Malformed);
        }
        let name = tag.name();
        let attributes = tag.attributes_raw().trim_end().replace('\n', " ");
        self.own_line(["<", name.as_ref(), &attributes]);
        self.push(end);
        Ok(())
    }

    /// Parts on a separate line.
    fn own_line(&mut self, parts: [&str; 3]) {
        self.end_text();
        self.open = false;
        self.line();
        for part in parts {
            self.push(part);
        }
    }

    /// Text next to elements, on a separate line.
    fn end_text(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        if !text.is_empty() {
            self.line();
            self.push(text);
        }
    }

    fn line(&mut self) {
        if !self.out.is_empty() {
            self.push("\n");
        }
        for _ in 0..self.depth {
            self.push("  ");
        }
    }

    fn push(&mut self, text: &str) {
        if self.out.len() <= self.room {
            self.out.push_str(text);
        }
    }
}

/// The text of a reference; the reference itself if it is neither predefined nor numeric.
pub(super) fn resolve_reference(reference: &BytesRef<'_>) -> String {
    let name: &str = reference;
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return character.to_string();
    }
    match name {
        "lt" => "<".to_owned(),
        "gt" => ">".to_owned(),
        "amp" => "&".to_owned(),
        "quot" => "\"".to_owned(),
        "apos" => "'".to_owned(),
        _ => format!("&{name};"),
    }
}

#[cfg(test)]
mod tests;
