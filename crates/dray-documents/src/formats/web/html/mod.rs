//! HTML to Markdown, token by token.
//!
//! This module builds no tree: it keeps only a list of the elements that are open, as deep as the limit allows, and the
//! line, the code or the table that is being collected. The parser does not recurse, memory use is close to the size of
//! the output, and content before a limit has already been written. Elements below the greatest depth are not opened;
//! their text is kept without their structure.

mod attributes;
mod css;
mod elements;
mod kinds;
mod table;
mod tags;
#[cfg(test)]
mod tests;
mod walker;

use std::borrow::Cow;

use html5gum::emitters::naive_next_state;
use html5gum::{Token, Tokenizer};

use crate::limits::{Failure, Limit};
use crate::markdown::Markdown;
use walker::Walker;

/// Tokens between two checks of the time limit.
const TOKENS_PER_CHECK: u32 = 256;

/// Writes a page, a chapter of a book or the body of a mail.
///
/// Source that begins as XML does is read as XHTML: every element may close itself, CDATA is text.
///
/// # Errors
///
/// The limit that was reached; earlier content is kept.
pub(crate) fn write_html(source: &str, out: &mut Markdown) -> Result<(), Failure> {
    let xml = is_xml(source);
    let source = if xml {
        escape_cdata(source)
    } else {
        source.into()
    };
    let mut walker = Walker::new(out, xml);
    let result = feed_tokens(&source, &mut walker).and_then(|()| walker.end());
    if let Err(limit) = result {
        walker.write_collected();
        return Err(Failure::Stopped(limit));
    }
    Ok(())
}

/// Feeds all tokens to the walk, and checks the time limit between them.
fn feed_tokens(source: &str, walker: &mut Walker<'_>) -> Result<(), Limit> {
    let mut tokens = Tokenizer::new(source);
    let mut unchecked_tokens = 0;
    while let Some(Ok(token)) = tokens.next() {
        unchecked_tokens += 1;
        if unchecked_tokens >= TOKENS_PER_CHECK {
            unchecked_tokens = 0;
            walker.clock()?;
        }
        match token {
            Token::StartTag(tag) => {
                // Only XML closes an element by a slash; in HTML `<script/>` still opens a script.
                let closed = walker.xml() && tag.self_closing;
                let raw = naive_next_state(&tag.name).filter(|_| !closed);
                if let Some(state) = raw {
                    tokens.set_state(state);
                }
                walker.start(tag)?;
            }
            Token::EndTag(tag) => walker.stop(&tag.name)?,
            Token::String(text) => walker.text(&String::from_utf8_lossy(&text))?,
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    Ok(())
}

/// Whether the source declares that it is XML.
fn is_xml(source: &str) -> bool {
    const XHTML_NAMESPACE: &str = "http://www.w3.org/1999/xhtml";
    let head = source
        .get(..source.floor_char_boundary(1024))
        .unwrap_or(source);
    head.trim_start().starts_with("<?xml")
        || head
            .split("xmlns=")
            .skip(1)
            .filter_map(|value| value.strip_prefix(['"', '\'']))
            .any(|value| value.starts_with(XHTML_NAMESPACE))
}

/// CDATA sections as escaped text, which is their meaning in XML and does not exist in HTML.
fn escape_cdata(source: &str) -> Cow<'_, str> {
    const CDATA_OPEN: &str = "<![CDATA[";
    if !source.contains(CDATA_OPEN) {
        return source.into();
    }
    let mut out = String::with_capacity(source.len());
    let mut sections = source.split(CDATA_OPEN);
    out.push_str(sections.next().unwrap_or_default());
    for section in sections {
        let (text, rest) = section.split_once("]]>").unwrap_or((section, ""));
        for character in text.chars() {
            match character {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                _ => out.push(character),
            }
        }
        out.push_str(rest);
    }
    out.into()
}
