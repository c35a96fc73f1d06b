//! Tests of ODS workbooks (read-attachment 7.7).

use super::super::super::office::tests::{ODF_NAMESPACES, markdown, shown_and_hidden, zipped};

const ODS: &str = "application/vnd.oasis.opendocument.spreadsheet";

/// A workbook with these tables.
fn ods(tables: &str) -> Vec<u8> {
    ods_with("", tables)
}

/// A workbook with these styles and tables.
fn ods_with(styles: &str, tables: &str) -> Vec<u8> {
    let content = format!(
        "<office:document-content {ODF_NAMESPACES}><office:automatic-styles>{styles}<style:style style:name=\"ta2\" style:family=\"table\"><style:table-properties table:display=\"false\"/></style:style></office:automatic-styles><office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body></office:document-content>"
    );
    zipped(&[("content.xml", &content)])
}

fn cell(attributes: &str, text: &str) -> String {
    format!("<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>")
}

#[test]
fn values_are_formatted_as_a_person_sees_them() {
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
fn a_billion_repeated_rows_and_columns_use_little_memory_and_time() {
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
fn rows_after_a_repeat_of_the_largest_integer_are_read() {
    let empty = "<table:table-row table:number-rows-repeated=\"18446744073709551615\"><table:table-cell/></table:table-row>";
    let table = format!(
        "<table:table table:name=\"T\"><table:table-row>{}</table:table-row>{empty}{empty}<table:table-row>{}</table:table-row></table:table>",
        cell("", "x"),
        cell("table:number-columns-repeated=\"4294967295\"", "y")
    );
    let text = markdown(ODS, &ods(&table));
    assert!(text.starts_with("## T\n\n| x |"), "{text:.200}");
    assert!(text.contains("| y |"), "{text:.200}");
}

#[test]
fn a_value_repeated_over_columns_stops_at_the_column_limit() {
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
        "<table:table table:name=\"T\"><table:table-row><table:table-cell table:number-columns-spanned=\"2\"><office:annotation><dc:creator>Ann</dc:creator><text:p>ask</text:p></office:annotation><text:p>a</text:p></table:table-cell><table:covered-table-cell><text:p>under</text:p></table:covered-table-cell>{}</table:table-row></table:table>",
        cell("", "b")
    );
    assert_eq!(
        markdown(ODS, &ods(&table)),
        "## T\n\n| a | b |\n|---|---|\n\n- A1: Ann: ask\n"
    );
}

#[test]
fn shapes_pictures_and_objects_follow_the_table() {
    let frame = |attributes: &str, content: &str| {
        format!("<draw:frame {attributes}>{content}</draw:frame>")
    };
    let text = |text: &str| format!("<draw:text-box><text:p>{text}</text:p></draw:text-box>");
    let picture = |name: &str| frame("", &format!("<draw:image xlink:href=\"{name}.png\"/>"));
    let shapes = [
        "<draw:custom-shape><text:p>valid until <text:span>1 May</text:span></text:p></draw:custom-shape>",
        "<draw:g><draw:rect><text:p>in a group</text:p></draw:rect><draw:rect draw:display=\"none\"><text:p>secret</text:p></draw:rect></draw:g>",
        frame("draw:display=\"printer\"", &text("on paper")).as_str(),
        format!("<draw:g>{}{}</draw:g>", picture("2"), picture("3")).as_str(),
    ]
    .concat();
    let in_cell = [
        frame(
            "",
            "<draw:image xlink:href=\"Pictures/1.png\"/><svg:desc>A logo</svg:desc>",
        ),
        frame(
            "",
            "<draw:object xlink:href=\"./Object 1\"/><draw:image xlink:href=\"./r\"/>",
        ),
    ]
    .concat();
    let table = format!(
        "<table:table table:name=\"T\"><table:shapes>{shapes}</table:shapes><table:table-row><table:table-cell>{in_cell}<text:p>a</text:p></table:table-cell></table:table-row></table:table>"
    );
    let (shown, warnings, all) = shown_and_hidden(ODS, &ods(&table));
    assert_eq!(
        shown,
        "## T\n\n| a |\n|---|\n\nvalid until 1 May\n\nin a group\n\n![](2.png)\n\n![](3.png)\n\n![A logo](1.png)\n\n_(embedded object: Object 1)_\n"
    );
    assert_eq!(warnings, ["hidden content dropped: 13 characters"]);
    assert!(all.contains("\n\nsecret\n\n") && all.contains("\n\non paper\n\n"));
}

#[test]
fn cells_with_web_links_become_markdown_links() {
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
    let conversion = super::super::super::office::tests::converted(
        ODS,
        &ods(&format!(
            "<table:table table:name=\"S\">{columns}{}</table:table>",
            rows.concat()
        )),
    );
    assert!(
        conversion
            .markdown
            .starts_with("## S\n\n| a | c |\n|---|---|\n")
            && conversion.markdown.ends_with("| e |  |\n"),
        "{}",
        conversion.markdown
    );
    assert!(!conversion.markdown.contains('d') && !conversion.markdown.contains('b'));
    assert_eq!(conversion.warnings, ["hidden content dropped: 2 cells"]);
}

/// The formats `;;;` and `0;;`, and styles with text in visible and hidden colours, as `LibreOffice` writes them.
const HIDING_STYLES: &str = r##"
<number:number-style style:name="N1P0" style:volatile="true"><number:text/></number:number-style>
<number:text-style style:name="N1"><number:text/>
  <style:map style:condition="value()&gt;0" style:apply-style-name="N1P0"/>
  <style:map style:condition="value()&lt;0" style:apply-style-name="N1P0"/>
  <style:map style:condition="value()=0" style:apply-style-name="N1P0"/></number:text-style>
<number:number-style style:name="N2P0" style:volatile="true"><number:number number:min-integer-digits="1"/></number:number-style>
<number:number-style style:name="N2"><style:map style:condition="value()&gt;0" style:apply-style-name="N2P0"/></number:number-style>
<style:style style:name="none" style:family="table-cell" style:data-style-name="N1"/>
<style:style style:name="positive" style:family="table-cell" style:data-style-name="N2"/>
<style:style style:name="white" style:family="table-cell"><style:text-properties fo:color="#ffffff"/></style:style>
<style:style style:name="of-white" style:family="table-cell" style:parent-style-name="white"/>
<style:style style:name="on-blue" style:family="table-cell" style:parent-style-name="white"><style:table-cell-properties fo:background-color="#000080"/></style:style>
<style:style style:name="blue-on-blue" style:family="table-cell" style:parent-style-name="on-blue"><style:text-properties fo:color="#000585"/></style:style>
<style:style style:name="automatic" style:family="table-cell" style:parent-style-name="white"><style:text-properties style:use-window-font-color="true" fo:color="#ffffff"/></style:style>
<style:style style:name="conditional" style:family="table-cell" style:parent-style-name="white"><style:map style:condition="cell-content()=1" style:apply-style-name="none"/></style:style>"##;

fn styled_cell(style: &str, text: &str) -> String {
    cell(&format!("table:style-name=\"{style}\""), text)
}

fn number(style: &str, value: &str) -> String {
    let attributes = format!(
        "table:style-name=\"{style}\" office:value-type=\"float\" office:value=\"{value}\""
    );
    cell(&attributes, "")
}

/// The text and the warnings of a workbook with one table.
fn read_hidden(table: &str) -> (String, Vec<String>) {
    let table = format!("<table:table table:name=\"S\">{table}</table:table>");
    let conversion =
        super::super::super::office::tests::converted(ODS, &ods_with(HIDING_STYLES, &table));
    (conversion.markdown, conversion.warnings)
}

#[test]
fn rows_and_columns_without_a_size_are_hidden() {
    let styles = "<style:style style:name=\"ro0\" style:family=\"table-row\"><style:table-row-properties style:row-height=\"0cm\"/></style:style>\
        <style:style style:name=\"co0\" style:family=\"table-column\"><style:table-column-properties style:column-width=\"0.001in\"/></style:style>\
        <style:style style:name=\"co1\" style:family=\"table-column\"><style:table-column-properties style:column-width=\"2.26cm\"/></style:style>";
    let row = |attributes: &str, cells: &[&str]| {
        let cells: String = cells.iter().map(|text| cell("", text)).collect();
        format!("<table:table-row {attributes}>{cells}</table:table-row>")
    };
    let table = [
        "<table:table table:name=\"S\"><table:table-column table:style-name=\"co1\"/>".to_owned(),
        "<table:table-column table:style-name=\"co0\"/>".to_owned(),
        row("", &["a", "b"]),
        row("table:style-name=\"ro0\"", &["c"]),
        row("", &["d"]),
        "</table:table>".to_owned(),
    ];
    let found =
        super::super::super::office::tests::converted(ODS, &ods_with(styles, &table.concat()));
    assert_eq!(found.markdown, "## S\n\n| a |\n|---|\n| d |\n");
    assert_eq!(found.warnings, ["hidden content dropped: 2 cells"]);
}

#[test]
fn cells_whose_format_hides_the_value_are_left_out() {
    let row = [
        cell("", "seen"),
        styled_cell("none", "text"),
        number("none", "3"),
        number("none", "-3"),
        number("positive", "7"),
        number("positive", "-7"),
        styled_cell("positive", "a format of numbers shows text"),
    ];
    let (text, warnings) = read_hidden(&format!(
        "<table:table-row>{}</table:table-row>",
        row.concat()
    ));
    assert_eq!(
        text,
        "## S\n\n| seen | 7 | a format of numbers shows text |\n|---|---|---|\n"
    );
    assert_eq!(warnings, ["hidden content dropped: 4 cells"]);
}

#[test]
fn cells_with_text_in_the_colour_of_their_fill_are_left_out() {
    let row = [
        styled_cell("white", "secret"),
        styled_cell("of-white", "secret"),
        styled_cell("blue-on-blue", "secret"),
        styled_cell("on-blue", "white on blue"),
        styled_cell("automatic", "automatic"),
        styled_cell("conditional", "conditional"),
        "<table:table-cell table:style-name=\"white\"><text:p><text:span>in a span</text:span></text:p></table:table-cell>"
            .to_owned(),
    ];
    let (text, warnings) = read_hidden(&format!(
        "<table:table-row>{}</table:table-row>",
        row.concat()
    ));
    assert_eq!(
        text,
        "## S\n\n| white on blue | automatic | conditional | in a span |\n|---|---|---|---|\n"
    );
    assert_eq!(warnings, ["hidden content dropped: 3 cells"]);
}

#[test]
fn cells_without_a_style_inherit_hidden_styles_of_rows_and_columns() {
    let columns = "<table:table-column table:number-columns-repeated=\"2\" table:default-cell-style-name=\"white\"/>\
        <table:table-column/>";
    let rows = [
        "<table:table-row>".to_owned(),
        [cell("", "secret"), styled_cell("on-blue", "a"), cell("", "b")].concat(),
        "</table:table-row><table:table-row table:default-cell-style-name=\"none\" table:number-rows-repeated=\"900\">"
            .to_owned(),
        [styled_cell("on-blue", "c"), cell("", "secret"), cell("", "secret")].concat(),
        "</table:table-row>".to_owned(),
    ];
    let (text, warnings) = read_hidden(&format!("{columns}{}", rows.concat()));
    assert!(!text.contains("secret"), "{text}");
    assert!(text.starts_with("## S\n\n|  | a | b |"), "{text}");
    assert_eq!(text.matches("| c |").count(), 900);
    assert_eq!(warnings, ["hidden content dropped: 3 cells"]);
}

#[test]
fn cells_under_a_conditional_format_keep_their_text() {
    let (text, _) = read_hidden(&format!(
        "<table:table-row>{}{}</table:table-row><calcext:conditional-formats><calcext:conditional-format \
         calcext:target-range-address=\"S.A1:S.A9 S.C1\"/></calcext:conditional-formats>",
        styled_cell("white", "painted"),
        styled_cell("white", "secret")
    ));
    assert_eq!(text, "## S\n\n| painted |\n|---|\n");
}
