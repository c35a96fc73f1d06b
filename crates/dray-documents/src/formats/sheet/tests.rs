//! Tests of worksheets, for each rule of read-attachment 7.7.

mod binary;
mod comments;
mod drawing;
mod hostile;
mod ods;

use std::fmt::Write as _;
use std::io::{Cursor, Read as _};

use super::super::office::tests::{converted, markdown, relations, selected, zipped};
use crate::formats::{ConversionHint, convert};
use crate::limits::Limits;
use crate::markdown::{Selection, Span, Unit};

pub(in crate::formats) const XLSX: &str =
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

const STYLE_PART: &str = "<styleSheet><numFmts><numFmt numFmtId=\"164\" formatCode=\"[h]:mm:ss\"/><numFmt numFmtId=\"165\" formatCode=\"yyyy\\-mm\\-dd\\ hh:mm\"/></numFmts>\
    <cellStyleXfs><xf numFmtId=\"9\"/></cellStyleXfs>\
    <cellXfs><xf numFmtId=\"0\"/><xf numFmtId=\"14\"/><xf numFmtId=\"10\"/><xf numFmtId=\"164\"/><xf numFmtId=\"165\"/><xf numFmtId=\"21\"/></cellXfs></styleSheet>";

/// A workbook with these sheets (attributes and content), and with further parts that are related to the first sheet.
pub(in crate::formats) fn workbook(
    properties: &str,
    sheets: &[(&str, &str)],
    strings: &str,
    more: &[(&str, &str, &str)],
) -> Vec<u8> {
    let mut list = String::new();
    let mut own = vec![
        (
            "s".to_owned(),
            "sharedStrings",
            "sharedStrings.xml".to_owned(),
        ),
        ("f".to_owned(), "styles", "styles.xml".to_owned()),
        ("p".to_owned(), "person", "worksheets/people.xml".to_owned()),
    ];
    let mut parts = vec![
        (
            "_rels/.rels".to_owned(),
            relations(&[("a", "officeDocument", "xl/workbook.xml")]),
        ),
        ("xl/styles.xml".to_owned(), STYLE_PART.to_owned()),
        ("xl/sharedStrings.xml".to_owned(), strings.to_owned()),
    ];
    for (index, (attributes, content)) in sheets.iter().enumerate() {
        write!(
            list,
            "<sheet {attributes} sheetId=\"{index}\" r:id=\"r{index}\"/>"
        )
        .unwrap();
        let (kind, directory) = if content.is_empty() {
            ("chartsheet", "chartsheets")
        } else {
            ("worksheet", "worksheets")
        };
        let name = format!("{directory}/sheet{index}.xml");
        own.push((format!("r{index}"), kind, name.clone()));
        parts.push((format!("xl/{name}"), (*content).to_owned()));
    }
    let of_sheet: Vec<(&str, &str, &str)> = more
        .iter()
        .map(|(name, kind, _)| (*name, *kind, *name))
        .collect();
    parts.push((
        "xl/worksheets/_rels/sheet0.xml.rels".to_owned(),
        relations(&of_sheet),
    ));
    for (name, _, content) in more {
        parts.push((format!("xl/worksheets/{name}"), (*content).to_owned()));
    }
    let own: Vec<(&str, &str, &str)> = own
        .iter()
        .map(|(id, kind, name)| (id.as_str(), *kind, name.as_str()))
        .collect();
    parts.push(("xl/_rels/workbook.xml.rels".to_owned(), relations(&own)));
    parts.push((
        "xl/workbook.xml".to_owned(),
        format!("<workbook xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\">{properties}<sheets>{list}</sheets></workbook>"),
    ));
    let parts: Vec<(&str, &str)> = parts
        .iter()
        .map(|(name, content)| (name.as_str(), content.as_str()))
        .collect();
    zipped(&parts)
}

/// A sheet of rows.
pub(super) fn sheet(rows: &str) -> String {
    format!(
        "<worksheet><dimension ref=\"A1:XFD1048576\"/><sheetData>{rows}</sheetData></worksheet>"
    )
}

fn sheet_markdown(rows: &str, strings: &str) -> String {
    markdown(
        XLSX,
        &workbook("", &[("name=\"S\"", &sheet(rows))], strings, &[]),
    )
}

#[test]
fn cells_show_the_text_that_a_person_sees() {
    let rows = "<row r=\"1\"><c r=\"A1\" t=\"s\"><v>0</v></c><c r=\"B1\" t=\"inlineStr\"><is><t>in</t><rPh><t>x</t></rPh><r><t>line</t></r></is></c><c r=\"C1\" t=\"str\"><f>A1&amp;\"\"</f><v>cached</v></c></row>\
        <row r=\"2\"><c r=\"A2\"><v>0.30000000000000004</v></c><c r=\"B2\" s=\"2\"><v>0.125</v></c><c r=\"C2\" s=\"1\"><v>47921</v></c></row>\
        <row r=\"3\"><c r=\"A3\" s=\"4\"><v>47921.395833333336</v></c><c r=\"B3\" s=\"5\"><v>0.39583333333333331</v></c><c r=\"C3\" s=\"3\"><v>1.1458333333333333</v></c></row>\
        <row r=\"4\"><c r=\"A4\" t=\"b\"><v>1</v></c><c r=\"B4\" t=\"e\"><v>#DIV/0!</v></c><c r=\"C4\"><f>SUM(A1:A3)</f></c></row>\
        <row r=\"5\"><c r=\"A5\" t=\"d\"><v>2031-03-14T00:00:00</v></c><c r=\"B5\"><v>1E+21</v></c><c r=\"C5\"><f>A1</f><v/></c></row>";
    assert_eq!(
        sheet_markdown(
            rows,
            "<sst count=\"9999999999\" uniqueCount=\"9999999999\"><si><t>sh|ared_x000A_two</t></si></sst>"
        ),
        "## S\n\n| sh\\|ared<br>two | inline | cached |\n|---|---|---|\n\
         | 0.3 | 12.50% | 2031-03-14 |\n\
         | 2031-03-14 09:30:00 | 09:30:00 | 27:30:00 |\n\
         | TRUE | #DIV/0! | =SUM(A1:A3) |\n\
         | 2031-03-14 | 1000000000000000000000 | =A1 |\n"
    );
}

#[test]
fn raised_digits_of_a_text_are_superscripts() {
    let strings = "<sst><si><r><t>10</t></r><r><rPr><vertAlign val=\"superscript\"/></rPr><t>6</t></r><r><t> H2</t></r></si></sst>";
    assert_eq!(
        sheet_markdown("<row><c t=\"s\"><v>0</v></c></row>", strings),
        "## S\n\n| 10⁶ H2 |\n|---|\n"
    );
}

#[test]
fn dates_of_the_1904_system_are_converted() {
    let rows = "<row><c s=\"1\"><v>46459</v></c><c t=\"inlineStr\"><is><t>x</t></is></c></row>";
    let bytes = workbook(
        "<workbookPr date1904=\"1\"/>",
        &[("name=\"S\"", &sheet(rows))],
        "<sst/>",
        &[],
    );
    assert_eq!(
        markdown(XLSX, &bytes),
        "## S\n\n| 2031-03-14 | x |\n|---|---|\n"
    );
}

#[test]
fn sheets_are_shown_in_order_and_hidden_empty_and_chart_sheets_are_marked() {
    let cell = "<row r=\"3\"><c r=\"C3\"><v>1</v></c><c r=\"F3\"><v>2</v></c></row><row r=\"5\"><c r=\"C5\"><v>3</v></c></row>";
    let bytes = workbook(
        "",
        &[
            ("name=\"First &amp; #1\"", &sheet(cell)),
            ("name=\"Secret\" state=\"veryHidden\"", &sheet(cell)),
            ("name=\"Empty\"", &sheet("")),
            ("name=\"Chart\"", ""),
        ],
        "<sst/>",
        &[],
    );
    let table = "| 1 | 2 |\n|---|---|\n|  |  |\n| 3 |  |\n";
    assert_eq!(
        markdown(XLSX, &bytes),
        format!(
            "## First & #1\n\n{table}\n## Secret (hidden)\n\n{table}\n## Empty\n\n_(empty sheet)_\n\n## Chart\n\n_(chart sheet)_\n"
        )
    );
}

#[test]
fn cells_with_web_links_become_markdown_links() {
    let text = |cell: &str, text: &str| format!("<c r=\"{cell}\" t=\"str\"><v>{text}</v></c>");
    let formula = |cell: &str, formula: &str| {
        format!("<c r=\"{cell}\" t=\"str\"><f>{formula}</f><v>go</v></c>")
    };
    let content = format!(
        "<worksheet xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\"><sheetData><row r=\"1\">{}{}{}</row><row r=\"2\">{}{}{}</row></sheetData>\
         <hyperlinks><hyperlink ref=\"A1\" r:id=\"https://a.example/x y\"/><hyperlink ref=\"B1:C1\" r:id=\"https://c.example/\"/>\
         <hyperlink ref=\"C1\" location=\"S!A1\"/><hyperlink ref=\"ZZZZ1\" r:id=\"https://a.example/x y\"/></hyperlinks></worksheet>",
        text("A1", "a | site"),
        text("B1", "https://c.example"),
        text("C1", "inside"),
        formula("A2", "HYPERLINK(&quot;https://b.example/?q=1&quot;,D1)"),
        formula("B2", "HYPERLINK(D1)"),
        formula("C2", "HYPERLINK(&quot;javascript:x&quot;)"),
    );
    let bytes = workbook(
        "",
        &[("name=\"S\"", &content)],
        "<sst/>",
        &[
            ("https://a.example/x y", "hyperlink", ""),
            ("https://c.example/", "hyperlink", ""),
        ],
    );
    assert_eq!(
        markdown(XLSX, &bytes),
        "## S\n\n| [a \\| site](<https://a.example/x y>) | https://c.example | inside |\n|---|---|---|\n\
         | [go](https://b.example/?q=1) | go | go |\n"
    );
}

#[test]
fn a_range_of_rows_uses_the_row_numbers_of_the_sheet() {
    let mut rows = String::new();
    for row in 1..=2000 {
        write!(
            rows,
            "<row r=\"{row}\"><c r=\"A{row}\"><v>{row}</v></c></row>"
        )
        .unwrap();
    }
    let bytes = workbook("", &[("name=\"S\"", &sheet(&rows))], "<sst/>", &[]);
    let selection = Selection::Named {
        unit: Unit::Sheet,
        name: "s".to_owned(),
        rows: Some(Span {
            first: 1501,
            last: 1502,
        }),
    };
    let part = selected(XLSX, &bytes, Limits::default(), selection);
    assert_eq!(part.markdown, "## S\n\n| 1 |\n|---|\n| 1501 |\n| 1502 |\n");
    let whole = converted(XLSX, &bytes);
    assert!(
        whole
            .markdown
            .ends_with("| 1001 |\n\n_(999 more rows truncated)_\n")
    );
    assert_eq!(
        (whole.omitted, whole.warnings),
        (999, vec!["not shown: 999 rows".to_owned()])
    );
    let hint = ConversionHint {
        mime: XLSX.to_owned(),
        all_rows: true,
        ..ConversionHint::default()
    };
    let all = convert(
        &mut Cursor::new(bytes),
        &hint,
        Limits::default(),
        Selection::All,
    );
    assert!(all.markdown.ends_with("| 1999 |\n| 2000 |\n"));
    assert_eq!((all.omitted, all.warnings.len()), (0, 0));
    let rows: Vec<u64> = (1002..=2000).collect();
    assert_eq!(all.search_lines.len(), 1);
    assert_eq!(all.search_lines[0].rows, rows);
}

#[test]
fn rows_and_cells_without_a_reference_follow_each_other() {
    assert_eq!(
        sheet_markdown(
            "<row><c><v>1</v></c><c><v>2</v></c></row><row><c><v>3</v></c></row>",
            "<sst/>"
        ),
        "## S\n\n| 1 | 2 |\n|---|---|\n| 3 |  |\n"
    );
}

#[test]
fn hidden_rows_and_columns_are_left_out_and_shown_on_request() {
    let sheet = "<worksheet><cols><col min=\"2\" max=\"2\" hidden=\"1\"/><col min=\"3\" max=\"3\" hidden=\"0\"/></cols>\
        <sheetData><row r=\"1\"><c r=\"A1\"><v>1</v></c><c r=\"B1\"><v>2</v></c><c r=\"C1\"><v>3</v></c></row>\
        <row r=\"2\" hidden=\"1\"><c r=\"A2\"><v>4</v></c></row><row r=\"3\" hidden=\"1\"/>\
        <row r=\"4\"><c r=\"A4\"><v>5</v></c></row></sheetData></worksheet>";
    let book = workbook("", &[("name=\"S\"", sheet)], "<sst/>", &[]);
    let left_out = converted(XLSX, &book);
    assert_eq!(
        left_out.markdown,
        "## S\n\n| 1 | 3 |\n|---|---|\n| 5 |  |\n"
    );
    assert_eq!(left_out.warnings, ["hidden content dropped: 2 cells"]);
    let hint = ConversionHint {
        mime: XLSX.to_owned(),
        show_hidden: true,
        ..ConversionHint::default()
    };
    let shown = convert(
        &mut Cursor::new(book),
        &hint,
        Limits::default(),
        Selection::All,
    );
    assert_eq!(
        shown.markdown,
        "## S\n\n| 1 | 2 | 3 |\n|---|---|---|\n| 4 |  |  |\n|  |  |  |\n| 5 |  |  |\n"
    );
    assert_eq!(shown.warnings, ["hidden content shown: 2 cells"]);
}

#[test]
fn rows_and_columns_without_a_size_are_hidden() {
    let sheet = "<worksheet><cols><col min=\"2\" max=\"2\" width=\"0\" customWidth=\"1\"/><col min=\"3\" max=\"3\" width=\"0.5\"/></cols>\
        <sheetData><row r=\"1\" ht=\"15\"><c r=\"A1\"><v>1</v></c><c r=\"B1\"><v>2</v></c><c r=\"C1\"><v>3</v></c></row>\
        <row r=\"2\" ht=\"0\" customHeight=\"1\"><c r=\"A2\"><v>4</v></c></row><row r=\"3\"><c r=\"A3\"><v>5</v></c></row></sheetData></worksheet>";
    let found = converted(XLSX, &workbook("", &[("name=\"S\"", sheet)], "<sst/>", &[]));
    assert_eq!(found.markdown, "## S\n\n| 1 | 3 |\n|---|---|\n| 5 |  |\n");
    assert_eq!(found.warnings, ["hidden content dropped: 2 cells"]);
}

/// A workbook with these styles and one sheet with these rows.
fn styled_workbook(styles: &str, cells: &str) -> Vec<u8> {
    let book = workbook("", &[("name=\"S\"", &sheet(cells))], "<sst/>", &[]);
    let mut archive = zip::ZipArchive::new(Cursor::new(book)).unwrap();
    let mut parts = Vec::new();
    for at in 0..archive.len() {
        let mut part = archive.by_index(at).unwrap();
        let mut content = String::new();
        part.read_to_string(&mut content).unwrap();
        let name = part.name().unwrap().into_owned();
        if name == "xl/styles.xml" {
            content = format!("<styleSheet>{styles}</styleSheet>");
        }
        parts.push((name, content));
    }
    let parts: Vec<(&str, &str)> = parts
        .iter()
        .map(|(name, content)| (name.as_str(), content.as_str()))
        .collect();
    zipped(&parts)
}

#[test]
fn numbers_are_shown_in_the_formats_of_their_cells() {
    let styles = "<numFmts><numFmt numFmtId=\"170\" formatCode=\"&quot;$&quot;#,##0.00\"/>\
        <numFmt numFmtId=\"171\" formatCode=\"#,##0,\"/></numFmts><cellXfs><xf numFmtId=\"0\"/><xf numFmtId=\"10\"/>\
        <xf numFmtId=\"170\"/><xf numFmtId=\"1\"/><xf numFmtId=\"171\"/></cellXfs>";
    let cells = "<row><c s=\"1\"><v>0.1234567890123</v></c><c s=\"2\"><v>-1234.5</v></c><c s=\"3\"><v>0.6</v></c>\
        <c s=\"4\"><v>7654321</v></c><c s=\"0\"><v>0.1234567890123</v></c></row>";
    assert_eq!(
        markdown(XLSX, &styled_workbook(styles, cells)),
        "## S\n\n| 12.35% | -$1,234.50 | 1 (0.6) | 7,654 | 0.1234567890123 |\n|---|---|---|---|---|\n"
    );
}

const COLOR_STYLES: &str = "<numFmts><numFmt numFmtId=\"170\" formatCode=\";;;\"/></numFmts>\
    <fonts><font><color theme=\"1\"/></font><font><color theme=\"0\"/></font><font><color indexed=\"9\"/></font>\
    <font><color rgb=\"FFFEFEFE\"/></font></fonts>\
    <fills><fill><patternFill patternType=\"none\"/></fill><fill><patternFill patternType=\"solid\"><fgColor rgb=\"FF000080\"/></patternFill></fill>\
    <fill><patternFill patternType=\"solid\"><fgColor rgb=\"FF000000\"/></patternFill></fill></fills>\
    <cellXfs><xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\"/><xf numFmtId=\"170\" fontId=\"0\" fillId=\"0\"/>\
    <xf fontId=\"1\" fillId=\"0\"/><xf fontId=\"2\" fillId=\"0\"/><xf fontId=\"3\" fillId=\"0\"/>\
    <xf fontId=\"0\" fillId=\"2\"/><xf fontId=\"1\" fillId=\"1\"/></cellXfs>";

#[test]
fn cells_without_visible_text_are_hidden_cells() {
    let cell = |style: u32| format!("<c s=\"{style}\" t=\"str\"><v>secret</v></c>");
    let hidden: String = (1..=5).map(cell).collect();
    let cells = format!(
        "<row><c><v>1</v></c>{hidden}<c s=\"1\"><v>42</v></c><c s=\"6\" t=\"str\"><v>white on blue</v></c></row>"
    );
    let book = styled_workbook(COLOR_STYLES, &cells);
    let left_out = converted(XLSX, &book);
    assert_eq!(
        left_out.markdown,
        "## S\n\n| 1 | white on blue |\n|---|---|\n"
    );
    assert_eq!(left_out.warnings, ["hidden content dropped: 6 cells"]);
    let hint = ConversionHint {
        mime: XLSX.to_owned(),
        show_hidden: true,
        ..ConversionHint::default()
    };
    let shown = convert(
        &mut Cursor::new(book),
        &hint,
        Limits::default(),
        Selection::All,
    );
    assert_eq!(shown.markdown.matches("secret").count(), 5);
    assert!(shown.markdown.contains("| 42 |"));
    assert_eq!(shown.warnings, ["hidden content shown: 6 cells"]);
}

#[test]
fn cells_whose_colour_comes_from_conditional_or_rich_text_formats_are_shown() {
    let rows = "<row><c s=\"2\" t=\"str\"><v>head</v></c><c s=\"2\" t=\"inlineStr\"><is><r><rPr><color rgb=\"FFFF0000\"/></rPr><t>red</t></r></is></c>\
        <c s=\"2\" t=\"str\"><v>secret</v></c></row></sheetData>\
        <conditionalFormatting sqref=\"A1 F1:G9\"><cfRule/></conditionalFormatting><sheetData>";
    let conversion = converted(XLSX, &styled_workbook(COLOR_STYLES, rows));
    assert_eq!(conversion.markdown, "## S\n\n| head | red |\n|---|---|\n");
    assert_eq!(conversion.warnings, ["hidden content dropped: 1 cell"]);
}

#[test]
fn the_palette_of_a_workbook_is_indexed_from_zero() {
    let palette: String = (0..64)
        .map(|index| match index {
            16 => "<rgbColor rgb=\"00FFFFFF\"/>",
            _ => "<rgbColor rgb=\"00000000\"/>",
        })
        .collect();
    let styles = format!(
        "<fonts><font><color indexed=\"8\"/></font><font><color indexed=\"16\"/></font></fonts>\
         <fills><fill><patternFill patternType=\"none\"/></fill></fills>\
         <cellXfs><xf fontId=\"0\" fillId=\"0\"/><xf fontId=\"1\" fillId=\"0\"/></cellXfs>\
         <colors><indexedColors>{palette}</indexedColors></colors>"
    );
    let cells =
        "<row><c s=\"0\" t=\"str\"><v>seen</v></c><c s=\"1\" t=\"str\"><v>secret</v></c></row>";
    let conversion = converted(XLSX, &styled_workbook(&styles, cells));
    assert_eq!(conversion.markdown, "## S\n\n| seen |\n|---|\n");
}
