//! Files of other formats that a document inserts as a whole (`altChunk`, ECMA-376-1, 17.17.2).
//!
//! Programs that make DOCX from HTML often write nothing else: the body has one reference to a web page. Word converts
//! such a file when it opens the document, so a reader sees its content in place.

use std::io::Cursor;

use super::state::Walker;
use crate::classify::{self, file_extension};
use crate::formats::office::package::Package;
use crate::formats::office::xml::{Element, Xml};
use crate::formats::{ConversionHint, converter, mail};
use crate::limits::Failure;
use crate::markdown::Markdown;

/// Warning about a file that is not shown, for any reason.
const LEFT_OUT_WARNING: &str = "an inserted file is left out";

impl Walker {
    /// Writes the content of the file to which `element` refers. A file that cannot be shown is left out with a
    /// warning.
    ///
    /// # Errors
    ///
    /// The limit that was reached; earlier content is kept.
    pub(super) fn alt_chunk(
        &mut self,
        element: &Element<'_>,
        xml: &Xml<'_>,
        package: &mut Package<'_>,
        out: &mut Markdown,
    ) -> Result<(), Failure> {
        let target = xml
            .relation(element, "id")
            .and_then(|id| self.relations.get(&id))
            // Content outside the file is never read.
            .filter(|relation| !relation.external)
            .map(|relation| relation.target.clone());
        let written = match target {
            // The inserted file consists of complete blocks, which a cell or a note cannot contain.
            Some(target) if !self.sink.is_open() => write_part(&target, package, out),
            _ => Err(Failure::Unsupported),
        };
        match written {
            // A limit ends the whole document, and an inserted file may be empty.
            Ok(()) | Err(Failure::NoText) => Ok(()),
            Err(Failure::Stopped(limit)) => Err(Failure::Stopped(limit)),
            Err(_) => {
                out.warn(LEFT_OUT_WARNING);
                Ok(())
            }
        }
    }
}

/// Converts one part of the package by its content, if it has a format that Word inserts.
fn write_part(target: &str, package: &mut Package<'_>, out: &mut Markdown) -> Result<(), Failure> {
    let bytes = package.part(target)?.ok_or(Failure::Unsupported)?;
    let mut input = Cursor::new(bytes);
    let class = classify::classify(&mut input, target).map_err(|_| Failure::Internal)?;
    input.set_position(0);
    let hint = ConversionHint {
        show_hidden: out.shows_hidden(),
        ..class.hint()
    };
    match hint.mime.as_str() {
        "message/rfc822" => mail::write_bodies(input.get_ref(), out),
        "text/html" | "application/xhtml+xml" | "text/plain" | "application/rtf" | "text/rtf" => {
            let found = converter(&hint).ok_or(Failure::Unsupported)?;
            (found.convert)(&mut input, &hint, out)
        }
        // A page without a document type or a known first element is recognised by its name.
        _ if matches!(file_extension(target).as_str(), "htm" | "html" | "xhtml") => {
            let page = ConversionHint {
                mime: "text/html".to_owned(),
                ..hint
            };
            let found = converter(&page).ok_or(Failure::Unsupported)?;
            (found.convert)(&mut input, &page, out)
        }
        // A document in a document would need a limit of depth, and programs that insert documents are rare.
        _ => Err(Failure::Unsupported),
    }
}
