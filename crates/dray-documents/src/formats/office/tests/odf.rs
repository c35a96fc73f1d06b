//! ODT and ODP, rule by rule (read-attachment 7.8, 7.10).

use super::{ODF_NAMESPACES, ODP, ODT, converted, markdown, zipped};
use crate::limits::Failure;

const AUTOMATIC_STYLES: &str = "<office:automatic-styles>\
    <style:style style:name=\"T1\" style:family=\"text\"><style:text-properties fo:font-weight=\"bold\"/></style:style>\
    <style:style style:name=\"up\" style:family=\"text\"><style:text-properties style:text-position=\"super 58%\"/></style:style>\
    <style:style style:name=\"high\" style:family=\"text\"><style:text-properties style:text-position=\"33% 58%\"/></style:style>\
    <style:style style:name=\"low\" style:family=\"text\"><style:text-properties style:text-position=\"-33% 58%\"/></style:style>\
    <style:style style:name=\"P1\" style:family=\"paragraph\" style:parent-style-name=\"Title\"/>\
    <style:style style:name=\"dp2\" style:family=\"drawing-page\"><style:drawing-page-properties presentation:visibility=\"hidden\"/></style:style>\
    <text:list-style style:name=\"L1\"><text:list-level-style-number text:level=\"1\" style:num-format=\"1\" text:start-value=\"5\"/><text:list-level-style-bullet text:level=\"2\"/></text:list-style>\
    </office:automatic-styles>";

pub(super) fn content(kind: &str, body: &str) -> Vec<u8> {
    let body = format!(
        "<office:document-content {ODF_NAMESPACES}>{AUTOMATIC_STYLES}<office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    );
    zipped(&[("content.xml", &body)])
}

fn text(body: &str) -> String {
    markdown(ODT, &content("text", body))
}

#[test]
fn headings_spans_spaces_and_links() {
    assert_eq!(
        text(
            "<text:p text:style-name=\"P1\">The title</text:p>\
             <text:h text:outline-level=\"2\">Part</text:h>\
             <text:p>a\n   <text:span text:style-name=\"T1\">bold </text:span>b<text:s text:c=\"2\"/>c<text:tab/>d<text:line-break/>e \
             <text:a xlink:href=\"https://a.example/\">link</text:a></text:p>"
        ),
        "# The title\n\n## Part\n\na **bold** b  c d\ne [link](https://a.example/)\n"
    );
}

#[test]
fn raised_digits_are_superscripts() {
    assert_eq!(
        text(
            "<text:p>10<text:span text:style-name=\"up\">6</text:span> m<text:span text:style-name=\"high\">2</text:span>\
             H<text:span text:style-name=\"low\">2</text:span></text:p>"
        ),
        "10⁶ m²H2\n"
    );
}

#[test]
fn nested_lists_continue_their_numbers() {
    let item = |text: &str| format!("<text:list-item><text:p>{text}</text:p></text:list-item>");
    let body = format!(
        "<text:list text:style-name=\"L1\">{}<text:list-item><text:p>six</text:p><text:list>{}</text:list><text:p>more</text:p></text:list-item></text:list>\
         <text:p>between</text:p>\
         <text:list text:style-name=\"L1\" text:continue-numbering=\"true\">{}</text:list>",
        item("five"),
        item("bullet"),
        item("seven")
    );
    assert_eq!(
        text(&body),
        "5. five\n6. six\n   - bullet\n\nmore\n\nbetween\n\n7. seven\n"
    );
}

#[test]
fn notes_comments_and_deletions() {
    assert_eq!(
        text(
            "<text:tracked-changes><text:changed-region><text:deletion><text:p>deleted</text:p></text:deletion></text:changed-region></text:tracked-changes>\
             <text:p>a<text:note text:note-class=\"footnote\"><text:note-citation>1</text:note-citation><text:note-body><text:p>below</text:p></text:note-body></text:note> \
             <text:note text:note-class=\"endnote\"><text:note-body><text:p>at the end</text:p></text:note-body></text:note>\
             <office:annotation><dc:creator>Ada</dc:creator><dc:date>2031-01-01</dc:date><text:p>why?</text:p></office:annotation></text:p>"
        ),
        "a[^1] [^e1]\n\n### Footnotes\n\n[^1]: below\n\n### Endnotes\n\n[^e1]: at the end\n\n### Comments\n\n- Ada: why?\n"
    );
}

#[test]
fn a_note_in_an_item_inherits_neither_its_marker_nor_its_format() {
    assert_eq!(
        text(
            "<text:list text:style-name=\"L1\"><text:list-item><text:p><text:span text:style-name=\"T1\">five\
             <text:note text:note-class=\"footnote\"><text:note-body><text:p>below</text:p></text:note-body></text:note></text:span>\
             <draw:frame><draw:text-box><text:p>boxed</text:p></draw:text-box></draw:frame></text:p></text:list-item></text:list>"
        ),
        "5. **five**[^1]\n\nboxed\n\n### Footnotes\n\n[^1]: below\n"
    );
}

#[test]
fn tables_cap_their_repeats_and_flatten_what_is_nested() {
    let cell = |text: &str| format!("<table:table-cell><text:p>{text}</text:p></table:table-cell>");
    let body = format!(
        "<table:table><table:table-header-rows><table:table-row>{}{}</table:table-row></table:table-header-rows>\
         <table:table-row table:number-rows-repeated=\"2\">{}<table:table-cell><table:table><table:table-row>{}{}</table:table-row></table:table></table:table-cell></table:table-row>\
         <table:table-row table:number-rows-repeated=\"1000000000\"><table:table-cell table:number-columns-repeated=\"1000000000\"/></table:table-row></table:table>",
        cell("h"),
        cell("i"),
        cell("x"),
        cell("a"),
        cell("b")
    );
    assert_eq!(
        text(&body),
        "| h | i |\n|---|---|\n| x | a ; b |\n| x | a ; b |\n"
    );
}

#[test]
fn frames_give_text_pictures_and_names_of_objects() {
    assert_eq!(
        text(
            "<text:p>anchor<draw:frame><draw:text-box><text:p>boxed</text:p></draw:text-box></draw:frame></text:p>\
             <text:p><draw:frame><draw:image xlink:href=\"Pictures/cat.png\"/><svg:desc>A cat</svg:desc></draw:frame></text:p>\
             <text:p><draw:frame><draw:object xlink:href=\"./Object 1\"/><draw:image xlink:href=\"./r.png\"/></draw:frame></text:p>"
        ),
        "anchor\n\nboxed\n\n![A cat](cat.png)\n\n_(embedded object: Object 1)_\n"
    );
}

#[test]
fn slides_keep_titles_visual_order_notes_and_hiding() {
    let frame = |class: &str, y: &str, text: &str| {
        format!(
            "<draw:frame presentation:class=\"{class}\" svg:x=\"1cm\" svg:y=\"{y}\"><draw:text-box>{text}</draw:text-box></draw:frame>"
        )
    };
    let body = format!(
        "<draw:page draw:name=\"one\">{}{}{}<draw:custom-shape svg:x=\"0cm\" svg:y=\"4cm\"><text:p>shape</text:p></draw:custom-shape><presentation:notes><draw:page-thumbnail/>{}</presentation:notes></draw:page><draw:page draw:style-name=\"dp2\"/>",
        frame(
            "outline",
            "30mm",
            "<text:list><text:list-item><text:p>point</text:p><text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list></text:list-item></text:list>"
        ),
        frame("title", "9cm", "<text:p>The title</text:p>"),
        frame("", "1in", "<text:p>top</text:p>"),
        frame("notes", "1cm", "<text:p>say this</text:p>")
    );
    assert_eq!(
        markdown(ODP, &content("presentation", &body)),
        "## Slide 1\n\n### The title\n\ntop\n\n- point\n  - deep\n\nshape\n\n> Notes: say this\n\n## Slide 2 (hidden)\n"
    );
}

#[test]
fn a_flat_file_reads_as_a_package_does() {
    let flat = format!(
        "<?xml version=\"1.0\"?><office:document {ODF_NAMESPACES}>{AUTOMATIC_STYLES}<office:body><office:text><text:p>flat <text:span text:style-name=\"T1\">file</text:span></text:p></office:text></office:body></office:document>"
    );
    let mime = "application/vnd.oasis.opendocument.text-flat-xml";
    assert_eq!(markdown(mime, flat.as_bytes()), "flat **file**\n");
}

#[test]
fn an_encrypted_document_asks_for_its_password() {
    let bytes = zipped(&[
        (
            "META-INF/manifest.xml",
            "<m:manifest xmlns:m=\"urn:oasis:names:tc:opendocument:xmlns:manifest:1.0\"><m:file-entry m:full-path=\"content.xml\"><m:encryption-data/></m:file-entry></m:manifest>",
        ),
        ("content.xml", "\u{1}\u{2}\u{3}"),
    ]);
    assert_eq!(converted(ODT, &bytes).failure, Some(Failure::Encrypted));
}
