//! The body of a DOCX: the converter neither panics nor stalls and keeps to its limits.

#![no_main]

mod document;
mod packed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, body)) = bytes.split_first() else {
        return;
    };
    let mut file = vec![*choice];
    file.extend(packed::zip(&[
        ("word/document.xml", body),
        ("word/numbering.xml", body),
        ("word/footnotes.xml", body),
        (
            "word/_rels/document.xml.rels",
            b"<r><Relationship Id='1' Type='x/numbering' Target='numbering.xml'/><Relationship Id='2' Type='x/footnotes' Target='footnotes.xml'/><Relationship Id='3' Type='x/styles' Target='numbering.xml'/></r>",
        ),
    ]));
    document::check(
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
        &file,
    );
});
