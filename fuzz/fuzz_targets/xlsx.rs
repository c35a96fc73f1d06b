//! Styles, number formats and cells of a workbook: their reader neither panics nor stalls and keeps to its limits.

#![no_main]

mod document;
mod packed;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, part)) = bytes.split_first() else {
        return;
    };
    let mut file = vec![*choice];
    file.extend(packed::zip(&[
        (
            "xl/workbook.xml",
            b"<w xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'><sheet name='S' r:id='1'/></w>",
        ),
        (
            "xl/_rels/workbook.xml.rels",
            b"<r><Relationship Id='1' Type='x/worksheet' Target='sheet.xml'/><Relationship Id='2' Type='x/styles' Target='styles.xml'/><Relationship Id='3' Type='x/sharedStrings' Target='styles.xml'/></r>",
        ),
        ("xl/styles.xml", part),
        ("xl/sheet.xml", part),
    ]));
    document::check(
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xlsx",
        &file,
    );
});
