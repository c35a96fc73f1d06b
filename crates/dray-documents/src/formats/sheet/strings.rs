//! Shared strings of a workbook, in one allocation.

use std::borrow::Cow;
use std::rc::Rc;

use crate::formats::office::xml::{Event, Xml, decode_part};
use crate::limits::{Budget, Failure};
use crate::markdown::superscript;

/// The table of strings that cells refer to by number.
#[derive(Debug, Default)]
pub(super) struct Strings {
    text: String,
    ends: Vec<usize>,
    /// The numbers of strings with their own colour, in order.
    coloured: Vec<usize>,
}

impl Strings {
    /// Reads `sharedStrings.xml`. Its declared length is ignored.
    pub(super) fn read(bytes: &[u8], budget: &Rc<Budget>) -> Result<Self, Failure> {
        let text = decode_part(bytes);
        let mut xml = Xml::new(&text, budget);
        let mut strings = Self::default();
        loop {
            match xml.next()? {
                Event::Open(element) if element.name() == "si" => {
                    let (text, is_coloured) = rich_text(&mut xml)?;
                    if is_coloured {
                        strings.coloured.push(strings.ends.len());
                    }
                    strings.text.push_str(&text);
                    strings.ends.push(strings.text.len());
                }
                Event::End => return Ok(strings),
                _ => {}
            }
        }
    }

    /// Whether one of the strings has its own colour.
    pub(super) fn is_coloured(&self, index: usize) -> bool {
        self.coloured.binary_search(&index).is_ok()
    }

    /// The string of this number; `None` after the last one.
    pub(super) fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.text.get(start..end)
    }
}

/// The text of a string item, inline string or comment, after its start: runs joined, phonetic hints dropped. Also
/// returns whether a run has its own colour, so that the cell's colour does not apply.
pub(super) fn rich_text(xml: &mut Xml<'_>) -> Result<(String, bool), Failure> {
    let depth = xml.depth();
    let (mut out, mut is_coloured) = (String::new(), false);
    let mut is_raised = false;
    loop {
        match xml.next()? {
            Event::Open(element) => match element.name() {
                "t" => {
                    let text = xml.text()?;
                    let text = unescape_text(&text);
                    let raised = is_raised.then(|| superscript(&text)).flatten();
                    out.push_str(raised.as_deref().unwrap_or(&text));
                }
                "rPh" | "phoneticPr" => xml.skip()?,
                "r" => is_raised = false,
                "vertAlign" => is_raised = element.attr("val").as_deref() == Some("superscript"),
                "color" => is_coloured = true,
                _ => {}
            },
            Event::Close if xml.depth() < depth => return Ok((out, is_coloured)),
            Event::End => return Ok((out, is_coloured)),
            _ => {}
        }
    }
}

/// `_x000D_` is how workbooks spell a character that XML does not allow.
pub(super) fn unescape_text(text: &str) -> Cow<'_, str> {
    if !text.contains("_x") {
        return text.into();
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("_x") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let code = from
            .get(2..6)
            .filter(|_| from.get(6..7) == Some("_"))
            .and_then(crate::hex::parse_hex)
            .and_then(char::from_u32);
        if let Some(c) = code {
            // A control character that XML cannot contain is left out of Markdown, too.
            if !c.is_control() || matches!(c, '\n' | '\t') {
                out.push(c);
            }
            rest = from.get(7..).unwrap_or_default();
        } else {
            out.push_str("_x");
            rest = from.get(2..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_workbooks_are_characters() {
        for (text, plain) in [
            ("a_x000D_\nb", "a\nb"),
            ("_x005F_x0041_", "_x0041_"),
            ("_x00", "_x00"),
            ("snake_xcase_", "snake_xcase_"),
            ("_xÄÖÜß_", "_xÄÖÜß_"),
            ("_x+041_", "_x+041_"),
        ] {
            assert_eq!(unescape_text(text), plain);
        }
    }
}
