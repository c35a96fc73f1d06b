//! Files that are made for a test, and their conversion.

use std::fmt::Write as _;
use std::io::Cursor;

use crate::formats::{ConversionHint, Converted, convert};
use crate::limits::Limits;
use crate::markdown::Selection;

/// A file of these objects, numbered from 1. It has no cross-reference table, so readers search for the objects.
pub(in crate::formats::pdf) fn pdf_of_objects(objects: &[String]) -> Vec<u8> {
    let mut file = "%PDF-1.4\n".to_owned();
    for (at, object) in objects.iter().enumerate() {
        write!(file, "{} 0 obj\n{object}\nendobj\n", at + 1).unwrap();
    }
    file.push_str("trailer\n<< /Root 1 0 R >>\n%%EOF\n");
    file.into_bytes()
}

/// Converts all pages, with hidden text or without.
pub(in crate::formats::pdf) fn convert_pdf(file: Vec<u8>, show_hidden: bool) -> Converted {
    let hint = ConversionHint {
        mime: "application/pdf".to_owned(),
        show_hidden,
        ..ConversionHint::default()
    };
    convert(
        &mut Cursor::new(file),
        &hint,
        Limits::default(),
        Selection::All,
    )
}
