//! PPTX, rule by rule (read-attachment 7.8).

use std::fmt::Write as _;

use super::{PPTX, markdown, relations, selected, zipped};
use crate::limits::{Damage, Failure, Limits};
use crate::markdown::{Selection, Span, Unit};

const P: &str = "xmlns:p=\"http://schemas.openxmlformats.org/presentationml/2006/main\" \
    xmlns:a=\"http://schemas.openxmlformats.org/drawingml/2006/main\" \
    xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\" \
    xmlns:dgm=\"http://schemas.openxmlformats.org/drawingml/2006/diagram\" \
    xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\"";

/// Relationships and further parts of one slide.
pub(super) struct SlideParts<'a> {
    relations: &'a [(&'a str, &'a str, &'a str)],
    parts: &'a [(&'a str, &'a str)],
}

pub(super) const NO_PARTS: SlideParts<'_> = SlideParts {
    relations: &[],
    parts: &[],
};

pub(super) fn slide(attributes: &str, shapes: &str) -> String {
    format!("<p:sld {P} {attributes}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>")
}

/// Slides in the order of the list. Their parts are numbered in reverse, so a reader that orders them by name fails the
/// test.
pub(super) fn deck(slides: &[(String, SlideParts<'_>)]) -> Vec<u8> {
    let mut ids = String::new();
    let mut own: Vec<(String, String)> = Vec::new();
    let mut parts: Vec<(String, String)> = vec![(
        "_rels/.rels".to_owned(),
        relations(&[("a", "officeDocument", "ppt/presentation.xml")]),
    )];
    for (index, (content, more)) in slides.iter().enumerate() {
        let name = format!("slides/slide{}.xml", slides.len() - index);
        write!(ids, "<p:sldId id=\"{}\" r:id=\"r{index}\"/>", 256 + index).unwrap();
        own.push((format!("r{index}"), name.clone()));
        parts.push((format!("ppt/{name}"), content.clone()));
        parts.push((
            format!("ppt/slides/_rels/slide{}.xml.rels", slides.len() - index),
            relations(more.relations),
        ));
        for (name, content) in more.parts {
            parts.push((format!("ppt/{name}"), (*content).to_owned()));
        }
    }
    parts.push((
        "ppt/presentation.xml".to_owned(),
        format!("<p:presentation {P}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>"),
    ));
    let mut rels: Vec<(&str, &str, &str)> = own
        .iter()
        .map(|(id, name)| (id.as_str(), "slide", name.as_str()))
        .collect();
    rels.push(("au", "commentAuthors", "commentAuthors.xml"));
    parts.push((
        "ppt/_rels/presentation.xml.rels".to_owned(),
        relations(&rels),
    ));
    let parts: Vec<(&str, &str)> = parts
        .iter()
        .map(|(name, content)| (name.as_str(), content.as_str()))
        .collect();
    zipped(&parts)
}

pub(super) fn paragraph(props: &str, text: &str) -> String {
    format!("<a:p>{props}<a:r><a:t>{text}</a:t></a:r></a:p>")
}

pub(super) fn shape(role: &str, y: i64, x: i64, paragraphs: &str) -> String {
    let place = if y < 0 {
        String::new()
    } else {
        format!("<a:xfrm><a:off x=\"{x}\" y=\"{y}\"/><a:ext cx=\"9\" cy=\"9\"/></a:xfrm>")
    };
    format!(
        "<p:sp><p:nvSpPr><p:cNvPr id=\"1\" name=\"s\"/><p:nvPr>{role}</p:nvPr></p:nvSpPr><p:spPr>{place}</p:spPr><p:txBody>{paragraphs}</p:txBody></p:sp>"
    )
}

#[test]
fn slides_come_in_order_with_title_and_visual_order() {
    let first = slide(
        "",
        &[
            shape("", 500, 0, &paragraph("", "below")),
            shape("", 100, 900, &paragraph("", "right")),
            shape("", 100, 10, &paragraph("", "left")),
            shape(
                "<p:ph type=\"title\"/>",
                700,
                0,
                &paragraph("", "The title"),
            ),
        ]
        .concat(),
    );
    let second = slide("show=\"0\"", "");
    assert_eq!(
        markdown(PPTX, &deck(&[(first, NO_PARTS), (second, NO_PARTS)])),
        "## Slide 1\n\n### The title\n\nleft\n\nright\n\nbelow\n\n## Slide 2 (hidden)\n"
    );
}

#[test]
fn bodies_have_bullets_by_level_and_numbers_where_declared() {
    let body = [
        paragraph("", "one"),
        paragraph("<a:pPr lvl=\"1\"/>", "deep"),
        paragraph("<a:pPr><a:buNone/></a:pPr>", "plain"),
        paragraph(
            "<a:pPr><a:buAutoNum type=\"arabicPeriod\" startAt=\"4\"/></a:pPr>",
            "four",
        ),
        paragraph(
            "<a:pPr><a:buAutoNum type=\"arabicPeriod\" startAt=\"4\"/></a:pPr>",
            "five",
        ),
    ]
    .concat();
    let slide = slide("", &shape("<p:ph idx=\"1\"/>", 0, 0, &body));
    assert_eq!(
        markdown(PPTX, &deck(&[(slide, NO_PARTS)])),
        "## Slide 1\n\n- one\n  - deep\n\nplain\n\n4. four\n5. five\n"
    );
}

#[test]
fn raised_digits_are_superscripts() {
    let run = |baseline: &str, text: &str| {
        format!("<a:r><a:rPr baseline=\"{baseline}\"/><a:t>{text}</a:t></a:r>")
    };
    let runs = [run("0", "10"), run("30000", "6"), run("-25000", "2")].concat();
    let content = slide("", &shape("", 100, 0, &format!("<a:p>{runs}</a:p>")));
    assert_eq!(
        markdown(PPTX, &deck(&[(content, NO_PARTS)])),
        "## Slide 1\n\n10⁶2\n"
    );
}

#[test]
fn placeholders_inherit_position_and_bullets_from_their_layout() {
    let layout = format!(
        "<p:sldLayout {P}><p:cSld><p:spTree><p:sp><p:nvSpPr><p:nvPr><p:ph type=\"body\" idx=\"7\"/></p:nvPr></p:nvSpPr><p:spPr><a:xfrm><a:off x=\"0\" y=\"900\"/></a:xfrm></p:spPr><p:txBody><a:lstStyle><a:lvl1pPr><a:buNone/></a:lvl1pPr></a:lstStyle><a:p/></p:txBody></p:sp></p:spTree></p:cSld></p:sldLayout>"
    );
    let content = slide(
        "",
        &[
            shape(
                "<p:ph type=\"body\" idx=\"7\"/>",
                -1,
                0,
                &paragraph("", "inherits"),
            ),
            shape("", 300, 0, &paragraph("", "above it")),
        ]
        .concat(),
    );
    let own = SlideParts {
        relations: &[("l", "slideLayout", "../slideLayouts/slideLayout1.xml")],
        parts: &[("slideLayouts/slideLayout1.xml", &layout)],
    };
    assert_eq!(
        markdown(PPTX, &deck(&[(content, own)])),
        "## Slide 1\n\nabove it\n\ninherits\n"
    );
}

#[test]
fn shapes_of_a_group_are_ordered_by_their_positions_on_the_slide() {
    let group = format!(
        "<p:grpSp><p:grpSpPr><a:xfrm><a:off x=\"0\" y=\"1000\"/><a:ext cx=\"100\" cy=\"100\"/><a:chOff x=\"0\" y=\"0\"/><a:chExt cx=\"1000\" cy=\"1000\"/></a:xfrm></p:grpSpPr>{}{}</p:grpSp>",
        shape("", 500, 0, &paragraph("", "inner low")),
        shape("", 0, 0, &paragraph("", "inner high"))
    );
    let content = slide(
        "",
        &[
            group,
            shape("", 2000, 0, &paragraph("", "last")),
            shape("", 600, 0, &paragraph("", "first")),
        ]
        .concat(),
    );
    assert_eq!(
        markdown(PPTX, &deck(&[(content, NO_PARTS)])),
        "## Slide 1\n\nfirst\n\ninner high\n\ninner low\n\nlast\n"
    );
}

/// A frame with a table, a chart, a diagram and a picture, one below the other.
fn figures() -> String {
    let cell = |attributes: &str, text: &str| {
        format!(
            "<a:tc {attributes}><a:txBody>{}</a:txBody></a:tc>",
            paragraph("", text)
        )
    };
    let table = format!(
        "<p:graphicFrame><p:xfrm><a:off x=\"0\" y=\"1\"/></p:xfrm><a:graphic><a:graphicData><a:tbl><a:tblGrid/><a:tr>{}{}</a:tr><a:tr>{}{}</a:tr></a:tbl></a:graphicData></a:graphic></p:graphicFrame>",
        cell("gridSpan=\"2\"", "h"),
        cell("hMerge=\"1\"", "covered"),
        cell("", "1"),
        cell("", "2")
    );
    let chart = "<p:graphicFrame><p:xfrm><a:off x=\"0\" y=\"2\"/></p:xfrm><c:chart r:id=\"ch\"/></p:graphicFrame>";
    let smart = "<p:graphicFrame><p:xfrm><a:off x=\"0\" y=\"3\"/></p:xfrm><dgm:relIds r:dm=\"dm\"/></p:graphicFrame>";
    let picture = "<p:pic><p:nvPicPr><p:cNvPr id=\"4\" name=\"x\" descr=\"A map\"/></p:nvPicPr><p:blipFill><a:blip r:embed=\"im\"/></p:blipFill><p:spPr><a:xfrm><a:off x=\"0\" y=\"4\"/></a:xfrm></p:spPr></p:pic>";
    let object = "<p:graphicFrame><p:xfrm><a:off x=\"0\" y=\"5\"/></p:xfrm><a:graphic><a:graphicData><p:oleObj r:id=\"ole\" progId=\"Excel.Sheet.12\"><p:pic/></p:oleObj></a:graphicData></a:graphic></p:graphicFrame>";
    [table.as_str(), chart, smart, picture, object].concat()
}

#[test]
fn tables_charts_diagrams_pictures_and_objects_are_all_converted() {
    let own = SlideParts {
        relations: &[
            ("ch", "chart", "../charts/c.xml"),
            ("dm", "diagramData", "../diagrams/d.xml"),
            ("im", "image", "../media/map.png"),
            ("ole", "package", "../embeddings/b.xlsx"),
        ],
        parts: &[
            (
                "charts/c.xml",
                "<c:chartSpace xmlns:c=\"http://schemas.openxmlformats.org/drawingml/2006/chart\"><c:plotArea><c:ser><c:tx><c:v>Ships</c:v></c:tx><c:cat><c:pt idx=\"0\"><c:v>Q1</c:v></c:pt></c:cat><c:val><c:pt idx=\"0\"><c:v>3</c:v></c:pt></c:val></c:ser></c:plotArea></c:chartSpace>",
            ),
            (
                "diagrams/d.xml",
                "<d:dataModel xmlns:d=\"http://schemas.openxmlformats.org/drawingml/2006/diagram\"><d:pt><d:t>Step</d:t></d:pt></d:dataModel>",
            ),
        ],
    };
    assert_eq!(
        markdown(PPTX, &deck(&[(slide("", &figures()), own)])),
        "## Slide 1\n\n| h |  |\n|---|---|\n| 1 | 2 |\n\n|  | Ships |\n|---|---|\n| Q1 | 3 |\n\n- Step\n\n![A map](map.png)\n\n_(embedded object: b.xlsx)_\n"
    );
}

#[test]
fn notes_and_comments_follow_the_slide() {
    let notes = format!(
        "<p:notes {P}><p:cSld><p:spTree>{}{}</p:spTree></p:cSld></p:notes>",
        shape(
            "<p:ph type=\"sldNum\" idx=\"5\"/>",
            -1,
            0,
            &paragraph("", "1")
        ),
        shape(
            "<p:ph type=\"body\" idx=\"1\"/>",
            -1,
            0,
            &[paragraph("", "say this"), paragraph("", "and that")].concat()
        )
    );
    let own = SlideParts {
        relations: &[
            ("n", "notesSlide", "../notesSlides/n.xml"),
            ("co", "comments", "../comments/c.xml"),
        ],
        parts: &[
            ("notesSlides/n.xml", &notes),
            (
                "comments/c.xml",
                "<p:cmLst xmlns:p=\"http://schemas.openxmlformats.org/presentationml/2006/main\"><p:cm authorId=\"0\"><p:text>too long</p:text></p:cm></p:cmLst>",
            ),
            (
                "commentAuthors.xml",
                "<p:cmAuthorLst xmlns:p=\"http://schemas.openxmlformats.org/presentationml/2006/main\"><p:cmAuthor id=\"0\" name=\"Ada\"/></p:cmAuthorLst>",
            ),
        ],
    };
    assert_eq!(
        markdown(PPTX, &deck(&[(slide("", ""), own)])),
        "## Slide 1\n\n> Notes: say this\n>\n> and that\n\n### Comments\n\n- Ada: too long\n"
    );
}

#[test]
fn a_comment_comes_before_its_replies_under_its_own_author() {
    let body = |text: &str| format!("<p188:txBody><a:bodyPr/>{text}</p188:txBody>");
    let comments = format!(
        "<p188:cmLst xmlns:p188=\"http://schemas.microsoft.com/office/powerpoint/2018/8/main\" {P}>\
         <p188:cm id=\"c1\" authorId=\"a1\"><p188:replyLst><p188:reply id=\"r1\" authorId=\"a2\">{}</p188:reply></p188:replyLst>{}</p188:cm>\
         <p188:cm id=\"c2\" authorId=\"a2\">{}</p188:cm></p188:cmLst>",
        body(&paragraph("", "No, keep it.")),
        body(&[paragraph("", "Delete"), paragraph("", "this slide?")].concat()),
        body(&paragraph("", "A new thread")),
    );
    let own = SlideParts {
        relations: &[("co", "comments", "../comments/c.xml")],
        parts: &[
            ("comments/c.xml", &comments),
            (
                "commentAuthors.xml",
                "<p188:authorLst xmlns:p188=\"http://schemas.microsoft.com/office/powerpoint/2018/8/main\"><p188:author id=\"a1\" name=\"Ann\"/><p188:author id=\"a2\" name=\"Bob\"/></p188:authorLst>",
            ),
        ],
    };
    assert_eq!(
        markdown(PPTX, &deck(&[(slide("", ""), own)])),
        "## Slide 1\n\n### Comments\n\n- Ann: Delete this slide?\n- Bob: No, keep it.\n- Bob: A new thread\n"
    );
}

#[test]
fn a_range_reads_only_its_slides() {
    let slides: Vec<(String, SlideParts<'_>)> = (1..=3)
        .map(|number| {
            let text = paragraph("", &format!("text {number}"));
            (slide("", &shape("", 0, 0, &text)), NO_PARTS)
        })
        .collect();
    let selection = Selection::Parts {
        unit: Unit::Slide,
        span: Span { first: 2, last: 2 },
    };
    let converted = selected(PPTX, &deck(&slides), Limits::default(), selection);
    assert_eq!(converted.markdown, "## Slide 2\n\ntext 2\n");
    assert_eq!(converted.parts_seen, 3);
}

#[test]
fn only_a_damaged_slide_is_lost() {
    let good = slide("", &shape("", 0, 0, &paragraph("", "fine")));
    let bytes = deck(&[("<p:sld".to_owned(), NO_PARTS), (good, NO_PARTS)]);
    let converted = super::converted(PPTX, &bytes);
    assert_eq!(converted.failure, None);
    assert_eq!(converted.markdown, "## Slide 1\n\n## Slide 2\n\nfine\n");
    assert_eq!(converted.warnings, ["slide 1 is damaged"]);
    let all = super::converted(PPTX, &deck(&[("<p:sld".to_owned(), NO_PARTS)]));
    assert_eq!(all.failure, Some(Failure::Corrupt(Damage::Truncated)));
}
