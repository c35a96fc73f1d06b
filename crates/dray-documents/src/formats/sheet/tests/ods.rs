//! ODS (read-attachment 7.7).

use super::super::super::office::tests::{markdown, zipped};

const ODS: &str = "application/vnd.oasis.opendocument.spreadsheet";
const O: &str = "xmlns:office=\"urn:oasis:names:tc:opendocument:xmlns:office:1.0\" \
    xmlns:style=\"urn:oasis:names:tc:opendocument:xmlns:style:1.0\" \
    xmlns:text=\"urn:oasis:names:tc:opendocument:xmlns:text:1.0\" \
    xmlns:table=\"urn:oasis:names:tc:opendocument:xmlns:table:1.0\"";

/// A workbook of tables.
fn ods(tables: &str) -> Vec<u8> {
    let content = format!(
        "<office:document-content {O}><office:automatic-styles><style:style style:name=\"ta2\" style:family=\"table\"><style:table-properties table:display=\"false\"/></style:style></office:automatic-styles><office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body></office:document-content>"
    );
    zipped(&[("content.xml", &content)])
}

fn cell(attributes: &str, text: &str) -> String {
    format!("<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>")
}

#[test]
fn values_read_as_a_person_sees_them() {
    let row = [
        cell("office:value-type=\"string\"", "a"),
        cell(
            "office:value-type=\"float\" office:value=\"0.30000000000000004\"",
            "0,30",
        ),
        cell(
            "office:value-type=\"percentage\" office:value=\"0.125\"",
            "13 %",
        ),
        cell(
            "office:value-type=\"date\" office:date-value=\"2031-03-14T09:30:00\"",
            "14.03.",
        ),
        cell(
            "office:value-type=\"time\" office:time-value=\"PT09H30M00S\"",
            "9:30",
        ),
        cell(
            "office:value-type=\"boolean\" office:boolean-value=\"true\"",
            "WAHR",
        ),
        "<table:table-cell table:formula=\"of:=SUM([.A1])\"/>".to_owned(),
    ]
    .concat();
    let table = format!(
        "<table:table table:name=\"T\"><table:table-row>{row}</table:table-row></table:table>"
    );
    assert_eq!(
        markdown(ODS, &ods(&table)),
        "## T\n\n| a | 0.30 | 13% (12.5%) | 2031-03-14 09:30:00 | 09:30:00 | TRUE | =SUM([.A1]) |\n|---|---|---|---|---|---|---|\n"
    );
}

#[test]
fn a_billion_repeats_are_neither_kept_nor_waited_for() {
    let table = format!(
        "<table:table table:name=\"T\" table:style-name=\"ta2\"><table:table-row>{0}</table:table-row>\
         <table:table-row table:number-rows-repeated=\"1000000000\">{0}<table:table-cell table:number-columns-repeated=\"4000000000\"/></table:table-row>\
         <table:table-row table:number-rows-repeated=\"4000000000\"><table:table-cell table:number-columns-repeated=\"4000000000\"/></table:table-row></table:table>",
        cell("", "x")
    );
    let text = markdown(ODS, &ods(&table));
    assert!(text.starts_with("## T (hidden)\n\n| x |\n|---|\n| x |\n"));
    assert_eq!(text.matches("| x |").count(), 1001);
    assert!(text.contains("more rows truncated"));
}

#[test]
fn a_value_repeated_over_columns_stops_where_a_sheet_does() {
    let table = format!(
        "<table:table table:name=\"T\"><table:table-row>{}</table:table-row></table:table>",
        cell("table:number-columns-repeated=\"4000000000\"", "x")
    );
    let text = markdown(ODS, &ods(&table));
    assert_eq!(text.matches(" x |").count(), 4096);
}

#[test]
fn merged_cells_and_comments() {
    let table = format!(
        "<table:table table:name=\"T\"><table:table-row><table:table-cell table:number-columns-spanned=\"2\"><office:annotation><text:p>ask</text:p></office:annotation><text:p>a</text:p></table:table-cell><table:covered-table-cell><text:p>under</text:p></table:covered-table-cell>{}</table:table-row></table:table>",
        cell("", "b")
    );
    assert_eq!(
        markdown(ODS, &ods(&table)),
        "## T\n\n| a | b |\n|---|---|\n\n- A1: ask\n"
    );
}

#[test]
fn cells_show_where_they_lead() {
    let link = |url: &str| {
        format!(
            "<table:table-cell><text:p>see <text:a xmlns:xlink=\"http://www.w3.org/1999/xlink\" xlink:href=\"{url}\">it</text:a></text:p></table:table-cell>"
        )
    };
    let row = [link("https://a.example/"), link("#Other.A1")].concat();
    assert_eq!(
        markdown(
            ODS,
            &ods(&format!(
                "<table:table table:name=\"T\"><table:table-row>{row}</table:table-row></table:table>"
            ))
        ),
        "## T\n\n| [see it](https://a.example/) | see it |\n|---|---|\n"
    );
}

#[test]
fn hidden_rows_and_columns_are_left_out() {
    let row = |attributes: &str, cells: &str| {
        format!("<table:table-row {attributes}>{cells}</table:table-row>")
    };
    let columns = "<table:table-column/><table:table-column table:visibility=\"collapse\"/><table:table-column/>";
    let rows = [
        row("", &[cell("", "a"), cell("", "b"), cell("", "c")].concat()),
        row(
            "table:visibility=\"filter\" table:number-rows-repeated=\"3\"",
            &cell("", "d"),
        ),
        row("", &cell("", "e")),
    ];
    let got = super::super::super::office::tests::converted(
        ODS,
        &ods(&format!(
            "<table:table table:name=\"S\">{columns}{}</table:table>",
            rows.concat()
        )),
    );
    assert!(
        got.markdown.starts_with("## S\n\n| a | c |\n|---|---|\n")
            && got.markdown.ends_with("| e |  |\n"),
        "{}",
        got.markdown
    );
    assert!(!got.markdown.contains('d') && !got.markdown.contains('b'));
    assert_eq!(got.warnings, ["hidden content dropped: 2 cells"]);
}
