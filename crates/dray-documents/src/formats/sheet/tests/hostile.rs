//! Tests of hostile workbooks: impossible values, huge contents and damage.

use super::super::super::office::tests::{converted, converted_within, markdown};
use super::{XLSX, sheet, workbook};
use crate::limits::{Damage, Failure, Limit, Limits};

#[test]
fn a_cell_in_the_last_row_and_column_is_shown_without_the_empty_cells() {
    let rows = "<row r=\"1\"><c r=\"A1\"><v>1</v></c></row><row r=\"1048576\"><c r=\"XFD1048576\"><v>2</v></c></row>";
    assert_eq!(
        markdown(
            XLSX,
            &workbook("", &[("name=\"S\"", &sheet(rows))], "<sst/>", &[])
        ),
        "## S\n\n| 1 |  |\n|---|---|\n|  |  |\n|  | 2 |\n"
    );
}

#[test]
fn one_long_string_in_many_cells_stops_at_the_size_limit() {
    let strings = format!("<sst><si><t>{}</t></si></sst>", "x".repeat(1 << 20));
    let cells = "<c t=\"s\"><v>0</v></c>".repeat(100);
    let bytes = workbook(
        "",
        &[("name=\"S\"", &sheet(&format!("<row>{cells}</row>")))],
        &strings,
        &[],
    );
    let converted = converted(XLSX, &bytes);
    assert_eq!(converted.stopped, Some(Limit::Size));
    assert!(converted.markdown.len() < 6_000_000);
}

#[test]
fn nine_thousand_sheets_are_read() {
    let content = sheet("<row><c><v>1</v></c></row>");
    let names: Vec<String> = (0..9_000)
        .map(|number| format!("name=\"S{number}\""))
        .collect();
    let sheets: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), content.as_str()))
        .collect();
    let converted = converted(XLSX, &workbook("", &sheets, "<sst/>", &[]));
    assert_eq!((converted.failure, converted.stopped), (None, None));
    assert_eq!(converted.parts_seen, 9_000);
}

#[test]
fn rows_beyond_the_element_limit_leave_those_before() {
    let rows = "<row><c><v>1</v></c></row>".repeat(100);
    let limits = Limits {
        max_elements: 12,
        ..Limits::default()
    };
    let bytes = workbook("", &[("name=\"S\"", &sheet(&rows))], "<sst/>", &[]);
    let converted = converted_within(XLSX, &bytes, limits);
    assert_eq!(converted.stopped, Some(Limit::Element));
    assert_eq!(converted.markdown.matches("| 1 |").count(), 10);
}

#[test]
fn impossible_numbers_are_ignored() {
    let rows = "<row r=\"99999999999999999999\"><c r=\"ZZZZZZZZZZZZ99999999999\" s=\"4000000000\" t=\"s\"><v>18446744073709551615</v></c><c r=\"A1\" t=\"zzz\"><f t=\"shared\" si=\"4294967295\" ref=\"A1\">1</f><v>7</v></c></row>";
    assert_eq!(
        markdown(
            XLSX,
            &workbook(
                "",
                &[("name=\"S\"", &sheet(rows))],
                "<sst uniqueCount=\"18446744073709551615\"/>",
                &[]
            )
        ),
        "## S\n\n| 7 |\n|---|\n"
    );
}

#[test]
fn the_largest_integer_is_not_a_valid_row_number() {
    let row = "<row r=\"18446744073709551615\"><c><v>7</v></c></row>";
    let rows = format!("{row}<row><c><v>8</v></c></row>{row}");
    let (file, sheets) = (sheet(&rows), "## S\n\n| 7 |\n|---|\n| 8 |\n| 7 |\n");
    assert_eq!(
        markdown(XLSX, &workbook("", &[("name=\"S\"", &file)], "<sst/>", &[])),
        sheets
    );
}

#[test]
fn only_a_damaged_sheet_is_lost() {
    let bytes = workbook(
        "",
        &[
            (
                "name=\"A\"",
                "<worksheet><sheetData><row><c><v>1</v></c></row></oops>",
            ),
            ("name=\"B\"", &sheet("<row><c><v>2</v></c></row>")),
        ],
        "<sst/>",
        &[],
    );
    let both = converted(XLSX, &bytes);
    assert_eq!(both.failure, None);
    assert_eq!(
        both.markdown,
        "## A\n\n| 1 |\n|---|\n\n## B\n\n| 2 |\n|---|\n"
    );
    assert_eq!(both.warnings, ["sheet 1 is damaged"]);
}

#[test]
fn damaged_binary_workbooks_are_reported() {
    for mime in [
        "application/vnd.ms-excel",
        "application/vnd.ms-excel.sheet.binary.macroEnabled.12",
    ] {
        assert_eq!(
            converted(mime, b"neither of them").failure,
            Some(Failure::Corrupt(Damage::Structure)),
            "{mime}"
        );
    }
}
