//! Tests of shapes and charts on worksheets.

use super::super::super::office::tests::{converted, relations, selected};
use super::{XLSX, sheet, workbook};
use crate::limits::Limits;
use crate::markdown::{Selection, Span};

pub(super) fn shape(row: u32, attributes: &str, paragraphs: &[&str]) -> String {
    let paragraphs: Vec<String> = paragraphs
        .iter()
        .map(|text| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>"))
        .collect();
    let paragraphs = paragraphs.concat();
    anchor(
        row,
        &format!(
            "<xdr:sp><xdr:nvSpPr><xdr:cNvPr id=\"2\" name=\"n\" {attributes}/></xdr:nvSpPr><xdr:spPr/>\
             <xdr:txBody><a:bodyPr/>{paragraphs}</xdr:txBody></xdr:sp>"
        ),
    )
}

fn anchor(row: u32, content: &str) -> String {
    format!(
        "<xdr:twoCellAnchor><xdr:from><xdr:col>1</xdr:col><xdr:colOff>7</xdr:colOff><xdr:row>{row}</xdr:row><xdr:rowOff>7</xdr:rowOff></xdr:from>\
         <xdr:to><xdr:col>9</xdr:col><xdr:row>9</xdr:row></xdr:to>{content}<xdr:clientData/></xdr:twoCellAnchor>"
    )
}

/// The part with what is drawn on a sheet.
pub(super) fn drawing_part(anchors: &str) -> String {
    format!(
        "<xdr:wsDr xmlns:xdr=\"http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing\" \
         xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\" \
         xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\" \
         xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\">{anchors}</xdr:wsDr>"
    )
}

/// A workbook with one sheet of these rows, on which this is drawn.
fn drawn(rows: &str, anchors: &str) -> Vec<u8> {
    let drawing = drawing_part(anchors);
    let chart = "<c:chartSpace xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\" \
        xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\"><c:chart>\
        <c:title><c:tx><c:rich><a:p><a:r><a:t>Turnover</a:t></a:r></a:p></c:rich></c:tx></c:title>\
        <c:plotArea><c:ser><c:tx><c:v>Sales</c:v></c:tx><c:val><c:pt idx=\"0\"><c:v>3</c:v></c:pt></c:val></c:ser></c:plotArea>\
        </c:chart></c:chartSpace>";
    let of_drawing = relations(&[
        ("c1", "chart", "chart.xml"),
        ("p1", "image", "../media/logo.png"),
    ]);
    workbook(
        "",
        &[("name=\"S\"", &sheet(rows))],
        "<sst/>",
        &[
            ("drawing.xml", "drawing", &drawing),
            ("_rels/drawing.xml.rels", "other", &of_drawing),
            ("chart.xml", "other", chart),
        ],
    )
}

const CHART_FRAME: &str = "<xdr:graphicFrame><xdr:nvGraphicFramePr><xdr:cNvPr id=\"3\" name=\"c\"/></xdr:nvGraphicFramePr>\
    <a:graphic><a:graphicData><c:chart r:id=\"c1\"/></a:graphicData></a:graphic></xdr:graphicFrame>";
const PICTURE_SHAPE: &str = "<xdr:pic><xdr:nvPicPr><xdr:cNvPr id=\"4\" name=\"p\" descr=\"A logo\"/></xdr:nvPicPr>\
    <xdr:blipFill><a:blip r:embed=\"p1\"/></xdr:blipFill></xdr:pic>";

#[test]
fn shapes_pictures_and_charts_follow_the_table_by_their_rows() {
    let anchors = [
        shape(5, "", &["last"]),
        anchor(3, CHART_FRAME),
        anchor(4, PICTURE_SHAPE),
        shape(0, "hidden=\"1\"", &["hidden text"]),
        shape(0, "hidden=\"0\"", &["valid until 1 May", "second"]),
    ]
    .concat();
    let book = drawn("<row><c><v>1</v></c></row>", &anchors);
    let found = converted(XLSX, &book);
    assert_eq!(
        found.markdown,
        "## S\n\n| 1 |\n|---|\n\nvalid until 1 May\n\nsecond\n\n- Turnover\n- Sales: 3\n\n![A logo](logo.png)\n\nlast\n"
    );
    assert_eq!(found.warnings, ["hidden content dropped: 10 characters"]);
    let rows = Selection::Rows {
        span: Span { first: 6, last: 9 },
    };
    let cut = selected(XLSX, &book, Limits::default(), rows).markdown;
    assert!(cut.contains("last") && !cut.contains("second"), "{cut}");
}

#[test]
fn a_sheet_with_only_a_text_box_is_not_empty() {
    let found = converted(XLSX, &drawn("", &shape(0, "", &["ONLY TEXT"])));
    assert_eq!(found.markdown, "## S\n\nONLY TEXT\n");
    let hidden = converted(XLSX, &drawn("", &shape(0, "hidden=\"1\"", &["text"])));
    assert_eq!(hidden.markdown, "## S\n\n_(empty sheet)_\n");
    assert_eq!(hidden.warnings, ["hidden content dropped: 4 characters"]);
}
