//! Tests of hostile packages: impossible values, huge contents and damage.

use super::docx::docx;
use super::{DOCX, converted, converted_within, relations, zipped};
use crate::limits::{Damage, Failure, Limit, Limits};

fn body_of(content: &str) -> Vec<u8> {
    docx(content, &[])
}

const P: &str = "<w:p><w:r><w:t>x</w:t></w:r></w:p>";

#[test]
fn a_bomb_stops_at_the_size_of_a_part() {
    let bomb = body_of(&"<w:p/>".repeat(200_000));
    let limits = Limits {
        max_part_bytes: 1 << 20,
        ..Limits::default()
    };
    assert_eq!(
        converted_within(DOCX, &bomb, limits).failure,
        Some(Failure::Stopped(Limit::Size))
    );
}

#[test]
fn a_thousand_spans_of_a_billion_columns_use_little_memory() {
    let cell = format!("<w:tc><w:tcPr><w:gridSpan w:val=\"1000000000\"/></w:tcPr>{P}</w:tc>");
    let table = format!("<w:tbl><w:tr>{}</w:tr></w:tbl>", cell.repeat(1000));
    let converted = converted(DOCX, &body_of(&table));
    assert_eq!(converted.failure, None);
    assert!(converted.markdown.len() < 100_000);
}

#[test]
fn nesting_stops_at_the_depth_limit_and_keeps_the_earlier_content() {
    let deep = format!(
        "{P}{}{}",
        "<w:tbl><w:tr><w:tc>".repeat(5000),
        "</w:tc></w:tr></w:tbl>".repeat(5000)
    );
    let converted = converted(DOCX, &body_of(&deep));
    assert_eq!(converted.stopped, Some(Limit::Depth));
    assert_eq!(converted.markdown, "x\n");
}

#[test]
fn a_table_that_reaches_the_element_limit_keeps_its_rows() {
    let row = format!("<w:tr><w:tc>{P}</w:tc></w:tr>");
    let limits = Limits {
        max_elements: 10,
        ..Limits::default()
    };
    let bytes = body_of(&format!("<w:tbl>{}</w:tbl>", row.repeat(50)));
    let converted = converted_within(DOCX, &bytes, limits);
    assert_eq!(converted.stopped, Some(Limit::Element));
    assert_eq!(converted.markdown.matches("| x |").count(), 10);
}

#[test]
fn each_kind_of_damage_is_reported() {
    let whole = body_of(P);
    for (bytes, failure) in [
        (
            whole[..whole.len() / 2].to_vec(),
            Failure::Corrupt(Damage::Truncated),
        ),
        (b"nothing".to_vec(), Failure::Corrupt(Damage::Structure)),
        (Vec::new(), Failure::Corrupt(Damage::Structure)),
        (
            zipped(&[("a.txt", "a")]),
            Failure::Corrupt(Damage::MissingPart),
        ),
        (
            zipped(&[("word/document.xml", "<w:document><w:p></w:q>")]),
            Failure::Corrupt(Damage::Malformed),
        ),
        (
            zipped(&[("word/document.xml", "<w:document><w:p>")]),
            Failure::Corrupt(Damage::Truncated),
        ),
    ] {
        assert_eq!(converted(DOCX, &bytes).failure, Some(failure));
    }
}

#[test]
fn a_relationship_that_leads_to_itself_or_out_is_harmless() {
    let package = zipped(&[
        (
            "_rels/.rels",
            &relations(&[("a", "officeDocument", "../../../word/document.xml")]),
        ),
        (
            "word/document.xml",
            &super::docx::part(
                "document",
                &format!(
                    "<w:body>{P}<w:p><w:r><w:footnoteReference w:id=\"1\"/></w:r></w:p></w:body>"
                ),
            ),
        ),
        (
            "word/_rels/document.xml.rels",
            &relations(&[
                ("s", "styles", "document.xml"),
                ("n", "numbering", "document.xml"),
                ("f", "footnotes", "document.xml"),
            ]),
        ),
    ]);
    let converted = converted(DOCX, &package);
    assert_eq!(converted.failure, None);
    assert!(converted.markdown.starts_with("x\n"));
}

#[test]
fn an_encrypted_package_asks_for_its_password() {
    let mut file = cfb::CompoundFile::create(std::io::Cursor::new(Vec::new())).unwrap();
    file.create_stream("/EncryptedPackage").unwrap();
    file.flush().unwrap();
    let bytes = file.into_inner().into_inner();
    assert_eq!(converted(DOCX, &bytes).failure, Some(Failure::Encrypted));
}

#[test]
fn an_encrypted_entry_asks_for_its_password() {
    let mut bytes = zipped(&[("word/document.xml", "<w:document/>")]);
    // The flag of encryption, in the local header and in the directory.
    let directory = bytes
        .windows(4)
        .position(|window| window == b"PK\x01\x02")
        .unwrap();
    bytes[6] |= 1;
    bytes[directory + 8] |= 1;
    assert_eq!(converted(DOCX, &bytes).failure, Some(Failure::Encrypted));
}

#[test]
fn parts_that_the_text_can_do_without_may_be_damaged() {
    let bytes = docx(
        &format!("{P}<w:p><w:r><w:footnoteReference w:id=\"1\"/></w:r></w:p>"),
        &[
            ("styles.xml", "styles", "<w:styles><broken"),
            ("footnotes.xml", "footnotes", "<w:footnotes></oops>"),
        ],
    );
    let converted = converted(DOCX, &bytes);
    assert_eq!(converted.failure, None);
    assert_eq!(converted.markdown, "x\n\n[^1]\n");
    assert_eq!(
        converted.warnings,
        ["styles are damaged", "notes are damaged"]
    );
}

#[test]
fn fields_without_an_end_are_parsed_in_linear_time() {
    let begins = "<w:r><w:fldChar w:fldCharType=\"begin\"/></w:r>".repeat(20_000);
    let ends = "<w:r><w:fldChar w:fldCharType=\"end\"/></w:r>".repeat(20_000);
    let texts = "<w:r><w:t>never</w:t></w:r>".repeat(20_000);
    let bytes = body_of(&format!("<w:p>{begins}{texts}{ends}</w:p>{P}"));
    let limits = Limits {
        wall_ms: 60_000,
        ..Limits::default()
    };
    assert_eq!(converted_within(DOCX, &bytes, limits).markdown, "x\n");
}

#[test]
fn a_package_with_more_entries_than_the_limit_is_refused() {
    let names: Vec<String> = (0..21).map(|number| format!("x/{number}")).collect();
    let parts: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let limits = Limits {
        max_entries: 20,
        ..Limits::default()
    };
    assert_eq!(
        converted_within(DOCX, &zipped(&parts), limits).failure,
        Some(Failure::Stopped(Limit::Element))
    );
}

#[test]
fn names_with_the_other_slash_are_found() {
    let document = super::docx::part("document", &format!("<w:body>{P}</w:body>"));
    let bytes = zipped(&[("word\\document.xml", document.as_str())]);
    assert_eq!(converted(DOCX, &bytes).markdown, "x\n");
}
