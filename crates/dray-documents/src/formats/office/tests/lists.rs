//! Labels of numbered items: `(c)`, `ii.` and `1.2` are text, because the markers of Markdown are numbers with a dot.

use super::docx::{docx, p, part, r};
use super::pptx::{NO_PARTS, deck, paragraph, shape, slide};
use super::{DOCX, ODF_NAMESPACES, ODT, PPTX, markdown, zipped};

/// A DOCX with one list of these levels (format and pattern) and these items (level and text).
fn docx_list(start: u32, levels: &[(&str, &str)], items: &[(u32, &str)]) -> Vec<u8> {
    let levels: Vec<String> = levels
        .iter()
        .enumerate()
        .map(|(at, (format, pattern))| {
            let start = if at == 0 { start } else { 1 };
            format!(
                "<w:lvl w:ilvl=\"{at}\"><w:start w:val=\"{start}\"/><w:numFmt w:val=\"{format}\"/><w:lvlText w:val=\"{pattern}\"/></w:lvl>"
            )
        })
        .collect();
    let numbering = part(
        "numbering",
        &format!(
            "<w:abstractNum w:abstractNumId=\"0\">{}</w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"0\"/></w:num>",
            levels.concat()
        ),
    );
    let body: Vec<String> = items
        .iter()
        .map(|(level, text)| {
            p(&format!(
                "<w:pPr><w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"1\"/></w:numPr></w:pPr>{}",
                r(text)
            ))
        })
        .collect();
    docx(
        &body.concat(),
        &[("numbering.xml", "numbering", &numbering)],
    )
}

#[test]
fn items_of_a_contract_keep_their_labels() {
    let legal = docx_list(
        1,
        &[("decimal", "%1."), ("decimal", "%1.%2")],
        &[(0, "Scope"), (1, "first"), (1, "second; see 1.2"), (1, "")],
    );
    assert_eq!(
        markdown(DOCX, &legal),
        "1. Scope\n   - 1.1 first\n   - 1.2 second; see 1.2\n"
    );
    let clauses = docx_list(
        3,
        &[("lowerLetter", "(%1)"), ("lowerRoman", "%2.")],
        &[
            (0, "clause c"),
            (1, "sub i"),
            (1, "sub ii"),
            (0, "clause d, see (c)(ii)"),
        ],
    );
    assert_eq!(
        markdown(DOCX, &clauses),
        "- (c) clause c\n  - i. sub i\n  - ii. sub ii\n- (d) clause d, see (c)(ii)\n"
    );
}

#[test]
fn items_of_odf_keep_their_labels() {
    let item = |text: &str| format!("<text:list-item><text:p>{text}</text:p></text:list-item>");
    let document = format!(
        "<office:document-content {ODF_NAMESPACES}><office:automatic-styles><text:list-style style:name=\"L\">\
         <text:list-level-style-number text:level=\"1\" style:num-format=\"1\" style:num-suffix=\".\"/>\
         <text:list-level-style-number text:level=\"2\" style:num-format=\"1\" text:display-levels=\"2\"/>\
         <text:list-level-style-number text:level=\"3\" style:num-format=\"a\" style:num-prefix=\"(\" style:num-suffix=\")\"/>\
         </text:list-style></office:automatic-styles><office:body><office:text><text:list text:style-name=\"L\">\
         <text:list-item><text:p>Scope</text:p><text:list>{}<text:list-item><text:p>second</text:p><text:list>{}</text:list></text:list-item></text:list></text:list-item>\
         {}</text:list></office:text></office:body></office:document-content>",
        item("first"),
        item("deep"),
        item("Terms")
    );
    assert_eq!(
        markdown(ODT, &zipped(&[("content.xml", &document)])),
        "1. Scope\n   - 1.1 first\n   - 1.2 second\n     - (a) deep\n2. Terms\n"
    );
}

#[test]
fn items_of_slides_keep_their_labels() {
    let numbered = |level: u32, scheme: &str, text: &str| {
        paragraph(
            &format!("<a:pPr lvl=\"{level}\"><a:buAutoNum type=\"{scheme}\"/></a:pPr>"),
            text,
        )
    };
    let body = [
        numbered(0, "arabicPeriod", "one"),
        numbered(1, "alphaLcParenBoth", "sub a"),
        numbered(1, "alphaLcParenBoth", "sub b"),
        numbered(0, "arabicPeriod", "two"),
    ]
    .concat();
    let slide = slide("", &shape("<p:ph idx=\"1\"/>", 0, 0, &body));
    assert_eq!(
        markdown(PPTX, &deck(&[(slide, NO_PARTS)])),
        "## Slide 1\n\n1. one\n   - (a) sub a\n   - (b) sub b\n2. two\n"
    );
}
