//! Makes packages for tests and converts them.

mod alt_chunk;
mod corpus;
mod docx;
mod equations;
mod form_fields;
mod hidden;
mod hostile;
mod lists;
mod odf;
mod pptx;
mod random;
mod symbols;

use std::fmt::Write as _;
use std::io::{Cursor, Write as _};

use crate::formats::{ConversionHint, Converted, convert};
use crate::limits::Limits;
use crate::markdown::Selection;

pub(in crate::formats) const DOCX: &str =
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
pub(in crate::formats) const PPTX: &str =
    "application/vnd.openxmlformats-officedocument.presentationml.presentation";
pub(in crate::formats) const ODT: &str = "application/vnd.oasis.opendocument.text";
pub(in crate::formats) const ODP: &str = "application/vnd.oasis.opendocument.presentation";

/// The namespaces that tests of `OpenDocument` files use.
pub(in crate::formats) const ODF_NAMESPACES: &str = "xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\" \
    xmlns:style=\"urn:oasis:names:tc:opendocument:xmlns:style:1.0\" \
    xmlns:text=\"urn:oasis:names:tc:opendocument:xmlns:text:1.0\" \
    xmlns:table=\"urn:oasis:names:tc:opendocument:xmlns:table:1.0\" \
    xmlns:draw=\"urn:oasis:names:tc:opendocument:xmlns:drawing:1.0\" \
    xmlns:presentation=\"urn:oasis:names:tc:opendocument:xmlns:presentation:1.0\" \
    xmlns:number=\"urn:oasis:names:tc:opendocument:xmlns:datastyle:1.0\" \
    xmlns:fo=\"urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0\" \
    xmlns:svg=\"urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0\" \
    xmlns:calcext=\"urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0\" \
    xmlns:dc=\"http://purl.org/dc/elements/1.1/\" xmlns:xlink=\"http://www.w3.org/1999/xlink\"";

/// A ZIP of parts.
pub(in crate::formats) fn zipped(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        zip.start_file(*name, zip::write::SimpleFileOptions::default())
            .unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Relationships by id, type and target; a target with a scheme is external.
pub(in crate::formats) fn relations(of: &[(&str, &str, &str)]) -> String {
    let mut out = String::from(
        "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">",
    );
    for (id, kind, target) in of {
        let mode = if target.contains("://") {
            " TargetMode=\"External\""
        } else {
            ""
        };
        write!(
            out,
            "<Relationship Id=\"{id}\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}\" Target=\"{target}\"{mode}/>"
        )
        .unwrap();
    }
    out.push_str("</Relationships>");
    out
}

/// Converts everything within given limits.
pub(in crate::formats) fn converted_within(mime: &str, bytes: &[u8], limits: Limits) -> Converted {
    selected(mime, bytes, limits, Selection::All)
}

/// Converts the selected parts.
pub(in crate::formats) fn selected(
    mime: &str,
    bytes: &[u8],
    limits: Limits,
    selection: Selection,
) -> Converted {
    let hint = ConversionHint {
        mime: mime.to_owned(),
        ..ConversionHint::default()
    };
    convert(&mut Cursor::new(bytes), &hint, limits, selection)
}

/// Converts everything within the usual limits.
pub(in crate::formats) fn converted(mime: &str, bytes: &[u8]) -> Converted {
    converted_within(mime, bytes, Limits::default())
}

/// The Markdown of a document and its warnings, and its Markdown with hidden content.
pub(in crate::formats) fn shown_and_hidden(
    mime: &str,
    bytes: &[u8],
) -> (String, Vec<String>, String) {
    let shown = converted(mime, bytes);
    let hint = ConversionHint {
        mime: mime.to_owned(),
        show_hidden: true,
        ..ConversionHint::default()
    };
    let all = convert(
        &mut Cursor::new(bytes),
        &hint,
        Limits::default(),
        Selection::All,
    );
    assert_eq!((shown.failure, all.failure), (None, None));
    (shown.markdown, shown.warnings, all.markdown)
}

/// The Markdown of a document that converts without a complaint.
pub(in crate::formats) fn markdown(mime: &str, bytes: &[u8]) -> String {
    let converted = converted(mime, bytes);
    assert_eq!((converted.failure, converted.stopped), (None, None));
    converted.markdown
}
