//! Tests of the rules for DOCX (read-attachment 7.6).

use super::{DOCX, markdown, relations, zipped};

const W: &str = "xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\" \
    xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\" \
    xmlns:mc=\"http://schemas.openxmlformats.org/markup-compatibility/2006\" \
    xmlns:wp=\"http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing\" \
    xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\" \
    xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\" \
    xmlns:dgm=\"http://schemas.openxmlformats.org/drawingml/2006/diagram\" \
    xmlns:m=\"http://schemas.openxmlformats.org/officeDocument/2006/math\" \
    xmlns:v=\"urn:schemas-microsoft-com:vml\" xmlns:o=\"urn:schemas-microsoft-com:office:office\"";

/// A part whose root declares the usual namespaces.
pub(super) fn part(root: &str, content: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><w:{root} {W}>{content}</w:{root}>")
}

/// A document with a body and other parts, related by their kinds.
pub(super) fn docx(body: &str, others: &[(&str, &str, &str)]) -> Vec<u8> {
    let package = relations(&[("rId1", "officeDocument", "word/document.xml")]);
    let document = part("document", &format!("<w:body>{body}</w:body>"));
    let own: Vec<(&str, &str, &str)> = others
        .iter()
        .filter(|(_, kind, _)| !kind.is_empty())
        .map(|(target, kind, _)| (*target, *kind, *target))
        .collect();
    let own = relations(&own);
    let names: Vec<String> = others
        .iter()
        .map(|(target, _, _)| format!("word/{target}"))
        .collect();
    let mut parts = vec![
        ("_rels/.rels", package.as_str()),
        ("word/document.xml", document.as_str()),
        ("word/_rels/document.xml.rels", own.as_str()),
    ];
    for (name, (_, _, content)) in names.iter().zip(others) {
        if !content.is_empty() {
            parts.push((name, content));
        }
    }
    zipped(&parts)
}

pub(super) fn p(content: &str) -> String {
    format!("<w:p>{content}</w:p>")
}

pub(super) fn styled_paragraph(style: &str, text: &str) -> String {
    format!("<w:p><w:pPr><w:pStyle w:val=\"{style}\"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
}

pub(super) fn r(text: &str) -> String {
    format!("<w:r><w:t xml:space=\"preserve\">{text}</w:t></w:r>")
}

fn text(body: &str) -> String {
    markdown(DOCX, &docx(body, &[]))
}

#[test]
fn headings_come_from_names_ids_outline_levels_and_base_styles() {
    let styles = part(
        "styles",
        "<w:style w:type=\"paragraph\" w:styleId=\"berschrift1\"><w:name w:val=\"Heading 1\"/></w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"Titel\"><w:name w:val=\"Title\"/></w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"Mine\"><w:name w:val=\"Mine\"/><w:basedOn w:val=\"berschrift1\"/></w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"Deep\"><w:name w:val=\"Tief\"/><w:pPr><w:outlineLvl w:val=\"6\"/></w:pPr></w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"Body\"><w:name w:val=\"Body\"/><w:pPr><w:outlineLvl w:val=\"9\"/></w:pPr></w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"A\"><w:name w:val=\"a\"/><w:basedOn w:val=\"B\"/></w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"B\"><w:name w:val=\"b\"/><w:basedOn w:val=\"A\"/></w:style>",
    );
    let body = [
        styled_paragraph("Titel", "T"),
        styled_paragraph("berschrift1", "one"),
        styled_paragraph("Mine", "based"),
        styled_paragraph("Deep", "deep"),
        styled_paragraph("Body", "body"),
        styled_paragraph("A", "circle"),
        styled_paragraph("Heading3", "by id"),
        p(&format!("<w:pPr><w:outlineLvl w:val=\"1\"/></w:pPr>{}", r("direct"))),
        p("<w:pPr><w:pStyle w:val=\"Titel\"/></w:pPr><w:r><w:rPr><w:b/></w:rPr><w:t>no **</w:t></w:r>"),
    ]
    .concat();
    assert_eq!(
        markdown(DOCX, &docx(&body, &[("styles.xml", "styles", &styles)])),
        "# T\n\n# one\n\n# based\n\n###### deep\n\nbody\n\ncircle\n\n### by id\n\n## direct\n\n# no \\*\\*\n"
    );
}

#[test]
fn runs_merge_and_carry_their_formats() {
    let run = |props: &str, text: &str| {
        format!("<w:r><w:rPr>{props}</w:rPr><w:t xml:space=\"preserve\">{text}</w:t></w:r>")
    };
    let body = p(&[
        run("", "a "),
        run("<w:b/>", "bo"),
        run("<w:b w:val=\"1\"/>", "ld "),
        run("<w:i/>", "it"),
        run("<w:strike/>", " gone"),
        run("<w:b w:val=\"0\"/>", " end"),
    ]
    .concat());
    assert_eq!(text(&body), "a **bold** *it* ~~gone~~ end\n");
}

#[test]
fn raised_digits_are_superscripts_and_not_digits_of_the_number_before() {
    let run = |position: &str, text: &str| {
        format!("<w:r><w:rPr><w:vertAlign w:val=\"{position}\"/></w:rPr><w:t>{text}</w:t></w:r>")
    };
    let raised = run("superscript", "-6");
    let end = run("superscript", "st");
    let low = run("subscript", "2");
    let by_style = "<w:r><w:rPr><w:rStyle w:val=\"Up\"/></w:rPr><w:t>3</w:t></w:r>";
    let styles = part(
        "styles",
        "<w:style w:styleId=\"Up\"><w:rPr><w:vertAlign w:val=\"superscript\"/></w:rPr></w:style>",
    );
    let body = p(&format!(
        "{}{raised}{}{low}{}{end}{}{by_style}",
        r("10"),
        r(" H"),
        r("O 1"),
        r(" m")
    ));
    assert_eq!(
        markdown(DOCX, &docx(&body, &[("styles.xml", "styles", &styles)])),
        "10⁻⁶ H2O 1st m³\n"
    );
}

#[test]
fn tabs_breaks_and_hyphens_are_characters() {
    let body = p(
        "<w:pPr><w:tabs><w:tab w:val=\"left\" w:pos=\"1\"/></w:tabs></w:pPr>\
         <w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t><w:softHyphen/><w:t>e&#xAD;f</w:t><w:cr/><w:t>g</w:t></w:r>",
    );
    assert_eq!(text(&body), "a b\nc-def\ng\n");
}

#[test]
fn lists_are_nested_and_numbered_as_a_person_sees_them() {
    let numbering = part(
        "numbering",
        "<w:abstractNum w:abstractNumId=\"0\">\
           <w:lvl w:ilvl=\"0\"><w:start w:val=\"3\"/><w:numFmt w:val=\"decimal\"/></w:lvl>\
           <w:lvl w:ilvl=\"1\"><w:start w:val=\"1\"/><w:numFmt w:val=\"lowerLetter\"/></w:lvl></w:abstractNum>\
         <w:abstractNum w:abstractNumId=\"1\"><w:lvl w:ilvl=\"0\"><w:numFmt w:val=\"bullet\"/></w:lvl></w:abstractNum>\
         <w:num w:numId=\"1\"><w:abstractNumId w:val=\"0\"/></w:num>\
         <w:num w:numId=\"2\"><w:abstractNumId w:val=\"1\"/></w:num>\
         <w:num w:numId=\"3\"><w:abstractNumId w:val=\"0\"/><w:lvlOverride w:ilvl=\"0\"><w:startOverride w:val=\"1\"/></w:lvlOverride></w:num>",
    );
    let item = |num: u32, level: u32, text: &str| {
        p(&format!(
            "<w:pPr><w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"{num}\"/></w:numPr></w:pPr>{}",
            r(text)
        ))
    };
    let body = [
        item(1, 0, "three"),
        item(1, 1, "a"),
        item(1, 1, "b"),
        item(1, 0, "four"),
        item(1, 1, "a again"),
        item(2, 0, "bullet"),
        item(3, 0, "restarted"),
        item(3, 0, "two"),
        item(0, 0, "no list"),
    ]
    .concat();
    assert_eq!(
        markdown(
            DOCX,
            &docx(&body, &[("numbering.xml", "numbering", &numbering)])
        ),
        "3. three\n   1. a\n   2. b\n4. four\n   1. a again\n- bullet\n1. restarted\n2. two\n\nno list\n"
    );
}

#[test]
fn numbered_headings_show_their_number() {
    let level = |at: u32, format: &str, pattern: &str, more: &str| {
        format!(
            "<w:lvl w:ilvl=\"{at}\"><w:start w:val=\"1\"/><w:numFmt w:val=\"{format}\"/>{more}<w:lvlText w:val=\"{pattern}\"/></w:lvl>"
        )
    };
    let levels = [
        level(0, "upperRoman", "Article %1.", ""),
        level(1, "decimal", "%1.%2", "<w:isLgl/>"),
        level(2, "lowerLetter", "(%3)", ""),
        level(3, "bullet", "o", ""),
        level(4, "decimal", &"x".repeat(1000), ""),
    ];
    let numbering = part(
        "numbering",
        &format!(
            "<w:abstractNum w:abstractNumId=\"0\">{}</w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"0\"/></w:num>",
            levels.concat()
        ),
    );
    let heading = |level: u32, text: &str| {
        p(&format!(
            "<w:pPr><w:outlineLvl w:val=\"{level}\"/><w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"1\"/></w:numPr></w:pPr>{}",
            r(text)
        ))
    };
    let body = [
        heading(0, "Terms"),
        heading(0, "Duties"),
        heading(1, "Of both"),
        heading(2, "Details"),
        heading(3, "No number"),
        heading(2, ""),
        heading(4, "Long"),
    ]
    .concat();
    let long = "x".repeat(256);
    assert_eq!(
        markdown(
            DOCX,
            &docx(&body, &[("numbering.xml", "numbering", &numbering)])
        ),
        format!(
            "# Article I. Terms\n\n# Article II. Duties\n\n## 2.1 Of both\n\n### (a) Details\n\n#### No number\n\n##### {long} Long\n"
        )
    );
}

#[test]
fn links_by_relationship_and_by_field_show_no_instruction() {
    let body = p(&[
        "<w:hyperlink r:id=\"link\">".to_owned(),
        r("here"),
        "</w:hyperlink>".to_owned(),
        r(", "),
        "<w:r><w:fldChar w:fldCharType=\"begin\"/></w:r><w:r><w:instrText> HYPERLINK \"https://b.example/\" </w:instrText></w:r><w:r><w:fldChar w:fldCharType=\"separate\"/></w:r>".to_owned(),
        r("there"),
        "<w:r><w:fldChar w:fldCharType=\"end\"/></w:r>".to_owned(),
        r(", "),
        format!("<w:fldSimple w:instr=\"PAGE\">{}</w:fldSimple>", r("7")),
        "<w:hyperlink w:anchor=\"top\">".to_owned(),
        r(" up"),
        "</w:hyperlink>".to_owned(),
    ]
    .concat());
    let package = zipped(&[
        (
            "_rels/.rels",
            &relations(&[("a", "officeDocument", "/word/document.xml")]),
        ),
        (
            "word/document.xml",
            &part("document", &format!("<w:body>{body}</w:body>")),
        ),
        (
            "word/_rels/document.xml.rels",
            &relations(&[("link", "hyperlink", "https://a.example/x")]),
        ),
    ]);
    assert_eq!(
        markdown(DOCX, &package),
        "[here](https://a.example/x), [there](https://b.example/), 7 up\n"
    );
}

#[test]
fn revisions_are_as_if_accepted() {
    let body = [
        p(&format!(
            "{}<w:ins>{}</w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:moveFrom>{}</w:moveFrom><w:moveTo>{}</w:moveTo>",
            r("kept "),
            r("new "),
            r("from"),
            r("to")
        )),
        p(&format!("<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>{}", r("one "))),
        p(&r("line")),
        format!(
            "<w:tbl><w:tr><w:tc>{}</w:tc></w:tr><w:tr><w:trPr><w:del/></w:trPr><w:tc>{}</w:tc></w:tr><w:tr><w:tc>{}</w:tc></w:tr></w:tbl>",
            p(&r("h")),
            p(&r("deleted")),
            p(&r("stays"))
        ),
    ]
    .concat();
    assert_eq!(
        text(&body),
        "kept new to\n\none line\n\n| h |\n|---|\n| stays |\n"
    );
}

#[test]
fn notes_and_comments_follow_the_body() {
    let footnotes = part(
        "footnotes",
        &format!(
            "<w:footnote w:type=\"separator\" w:id=\"-1\">{0}</w:footnote><w:footnote w:id=\"5\">{0}{1}</w:footnote>",
            p(&r("first")),
            p(&r("more"))
        ),
    );
    let endnotes = part(
        "endnotes",
        &format!("<w:endnote w:id=\"1\">{}</w:endnote>", p(&r("last"))),
    );
    let comments = part(
        "comments",
        &format!(
            "<w:comment w:id=\"0\" w:author=\"Ada\">{}</w:comment>",
            p(&r("why?"))
        ),
    );
    let body = p(&format!(
        "{}<w:r><w:footnoteReference w:id=\"5\"/></w:r>{}<w:r><w:endnoteReference w:id=\"1\"/></w:r><w:r><w:commentReference w:id=\"0\"/></w:r>",
        r("a"),
        r("b")
    ));
    assert_eq!(
        markdown(
            DOCX,
            &docx(
                &body,
                &[
                    ("footnotes.xml", "footnotes", &footnotes),
                    ("endnotes.xml", "endnotes", &endnotes),
                    ("comments.xml", "comments", &comments)
                ]
            )
        ),
        "a[^1]b[^e1]\n\n### Footnotes\n\n[^1]: first more\n\n### Endnotes\n\n[^e1]: last\n\n### Comments\n\n- Ada: why?\n"
    );
}

#[test]
fn boxes_controls_and_alternates_show_once_in_place() {
    let body = [
        p(&format!(
            "{}<w:r><mc:AlternateContent><mc:Choice Requires=\"wps\"><w:txbxContent>{}</w:txbxContent></mc:Choice><mc:Fallback><w:pict><w:txbxContent>{}</w:txbxContent></w:pict></mc:Fallback></mc:AlternateContent></w:r>",
            r("anchor"),
            p(&r("boxed")),
            p(&r("boxed"))
        )),
        format!(
            "<w:sdt><w:sdtPr><w:alias w:val=\"x\"/></w:sdtPr><w:sdtContent>{}</w:sdtContent></w:sdt>",
            p(&format!("<w:smartTag>{}</w:smartTag>", r("control")))
        ),
    ]
    .concat();
    assert_eq!(text(&body), "anchor\n\nboxed\n\ncontrol\n");
}

#[test]
fn tables_stay_between_their_paragraphs_with_spans_and_nested_ones_flat() {
    let cell =
        |props: &str, content: &str| format!("<w:tc><w:tcPr>{props}</w:tcPr>{content}</w:tc>");
    let inner = format!(
        "<w:tbl><w:tr>{}{}</w:tr><w:tr>{}{}</w:tr></w:tbl>",
        cell("", &p(&r("a"))),
        cell("", &p(&r("b"))),
        cell("", &p(&r("c"))),
        cell("", &p(&r("d")))
    );
    let body = format!(
        "{}<w:tbl><w:tr>{}{}</w:tr><w:tr>{}{}{}</w:tr><w:tr>{}{}{}</w:tr></w:tbl>{}",
        p(&r("before")),
        cell("<w:gridSpan w:val=\"2\"/>", &p(&r("wide"))),
        cell("", &p(&r("x|y"))),
        cell("<w:vMerge w:val=\"restart\"/>", &p(&r("tall"))),
        cell("", &[p(&r("1")), p(&r("2"))].concat()),
        cell("", &[inner, p("")].concat()),
        cell("<w:vMerge/>", &p(&r("hidden"))),
        cell("", &p("")),
        cell("", &p(&r("end"))),
        p(&r("after"))
    );
    assert_eq!(
        text(&body),
        "before\n\n| wide |  | x\\|y |\n|---|---|---|\n| tall | 1<br>2 | a ; b<br>c ; d |\n|  |  | end |\n\nafter\n"
    );
}

#[test]
fn strict_documents_under_another_name_read_the_same() {
    let strict = "http://purl.oclc.org/ooxml/wordprocessingml/main";
    let package = zipped(&[
        (
            "_rels/.rels",
            "<Relationships><Relationship Id=\"x\" Type=\"http://purl.oclc.org/ooxml/officeDocument/relationships/officeDocument\" Target=\"main/text.xml\"/></Relationships>",
        ),
        (
            "main/text.xml",
            &format!(
                "<d:document xmlns:d=\"{strict}\"><d:body><d:p><d:r><d:t>strict</d:t></d:r></d:p></d:body></d:document>"
            ),
        ),
    ]);
    assert_eq!(markdown(DOCX, &package), "strict\n");
}

#[test]
fn equations_pictures_charts_diagrams_and_objects_give_their_text() {
    let chart = "<c:chartSpace xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\" xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\"><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Sales</a:t></a:r></a:p></c:rich></c:tx></c:title><c:plotArea><c:barChart><c:ser><c:tx><c:strRef><c:f>S!A1</c:f><c:strCache><c:pt idx=\"0\"><c:v>North</c:v></c:pt></c:strCache></c:strRef></c:tx><c:cat><c:strRef><c:strCache><c:pt idx=\"0\"><c:v>Q1</c:v></c:pt><c:pt idx=\"1\"><c:v>Q2</c:v></c:pt></c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:formatCode>General</c:formatCode><c:pt idx=\"0\"><c:v>4.2999999999999998</c:v></c:pt><c:pt idx=\"1\"><c:v>2</c:v></c:pt></c:numCache></c:numRef></c:val></c:ser></c:barChart></c:plotArea></c:chart></c:chartSpace>";
    let diagram = "<dgm:dataModel xmlns:dgm=\"http://schemas.openxmlformats.org/drawingml/2006/diagram\" xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\"><dgm:ptLst><dgm:pt><dgm:t><a:p><a:r><a:t>Plan</a:t></a:r></a:p></dgm:t></dgm:pt><dgm:pt type=\"pres\"/><dgm:pt><dgm:t><a:p><a:r><a:t>Do</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>";
    let body = [
        p("<m:oMath><m:r><w:rPr><w:i/></w:rPr><m:t>E=mc²</m:t></m:r></m:oMath>"),
        p("<w:r><w:drawing><wp:inline><wp:docPr id=\"1\" name=\"Bild 1\" descr=\"A cat\"/><a:graphic><a:blip r:embed=\"media/image1.png\"/></a:graphic></wp:inline></w:drawing></w:r>"),
        p("<w:r><w:drawing><a:graphicData><c:chart r:id=\"charts/chart1.xml\"/></a:graphicData></w:drawing></w:r>"),
        p("<w:r><w:drawing><a:graphicData><dgm:relIds r:dm=\"diagrams/data1.xml\"/></a:graphicData></w:drawing></w:r>"),
        p("<w:r><w:object><v:shape><v:imagedata r:id=\"media/image1.png\"/></v:shape><o:OLEObject ProgID=\"Excel.Sheet.12\" r:id=\"embeddings/Book_1.xlsx\"/></w:object></w:r>"),
    ]
    .concat();
    assert_eq!(
        markdown(
            DOCX,
            &docx(
                &body,
                &[
                    ("media/image1.png", "image", ""),
                    ("charts/chart1.xml", "chart", chart),
                    ("diagrams/data1.xml", "diagramData", diagram),
                    ("embeddings/Book_1.xlsx", "package", ""),
                ]
            )
        ),
        "E=mc²\n\n![A cat](image1.png)\n\n- Sales\n- North: Q1 4.3, Q2 2\n- Plan\n- Do\n\n_(embedded object: Book_1.xlsx)_\n"
    );
}

#[test]
fn hidden_text_is_left_out_with_a_warning() {
    let bytes = docx(
        &p(&format!(
            "{}<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>",
            r("seen")
        )),
        &[],
    );
    let converted = super::converted(DOCX, &bytes);
    assert_eq!(converted.markdown, "seen\n");
    assert_eq!(converted.warnings, ["hidden content dropped: 6 characters"]);
}

#[test]
fn title_author_and_keywords_of_a_document_are_not_shown() {
    let document = part("document", &format!("<w:body>{}</w:body>", p(&r("seen"))));
    let package = relations(&[
        ("rId1", "officeDocument", "word/document.xml"),
        ("rId2", "core-properties", "docProps/core.xml"),
    ]);
    let core = "<cp:coreProperties xmlns:cp=\"http://schemas.openxmlformats.org/package/2006/metadata/core-properties\" \
        xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:title>secret</dc:title><dc:creator>secret</dc:creator>\
        <cp:keywords>secret</cp:keywords></cp:coreProperties>";
    let file = zipped(&[
        ("_rels/.rels", &package),
        ("word/document.xml", &document),
        ("docProps/core.xml", core),
    ]);
    assert_eq!(super::converted(DOCX, &file).markdown, "seen\n");
}

#[test]
fn references_resolve_and_entities_do_not() {
    let document = format!(
        "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY lol \"ha\"><!ENTITY e SYSTEM \"file:///etc/passwd\">]>\
         <w:document {W}><w:body>{}</w:body></w:document>",
        p(&r("&lt;a&gt; &amp; &#x41;&lol;&e;"))
    );
    let package = zipped(&[("word/document.xml", &document)]);
    assert_eq!(markdown(DOCX, &package), "\\<a> & A&lol;&e;\n");
}
