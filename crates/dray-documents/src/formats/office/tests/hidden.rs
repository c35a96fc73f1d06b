//! Text that a person who opens the document does not see is left out and counted.

use super::docx::{docx, p, part, r, styled_paragraph};
use super::odf::content;
use super::pptx::{NO_PARTS, deck, paragraph, shape, slide};
use super::{DOCX, ODF_NAMESPACES, ODP, ODT, PPTX, zipped};

/// The text and the warnings of a document with a body, and those of the same document with hidden content.
fn of_docx(body: &str, styles: &str) -> (String, Vec<String>, String) {
    let styles = part("styles", styles);
    let bytes = docx(body, &[("styles.xml", "styles", &styles)]);
    super::shown_and_hidden(DOCX, &bytes)
}

#[test]
fn a_choice_that_no_program_shows_gives_way_to_its_fallback() {
    let alternate = |namespaces: &str, required: &str| {
        p(&format!(
            "<mc:AlternateContent {namespaces}><mc:Choice Requires=\"{required}\">{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent>",
            r("choice"),
            r("fallback")
        ))
    };
    let word14 = "xmlns:w14=\"http://schemas.microsoft.com/office/word/2010/wordml\"";
    for (namespaces, required, text) in [
        (word14, "w14", "choice\n"),
        ("xmlns:zz=\"urn:x\"", "zz", "fallback\n"),
        ("xmlns:w14=\"urn:x\"", "w14", "fallback\n"),
        (
            &format!("{word14} xmlns:zz=\"urn:x\""),
            "w14 zz",
            "fallback\n",
        ),
        ("", "zz", "fallback\n"),
    ] {
        let body = alternate(namespaces, required);
        let (shown, warnings, _) = of_docx(&body, "");
        assert_eq!(shown, text, "{namespaces} {required}");
        assert_eq!(warnings.is_empty(), text == "choice\n", "{warnings:?}");
    }
    let body = alternate("xmlns:zz=\"urn:x\"", "zz");
    let (_, warnings, all) = of_docx(&body, "");
    assert_eq!(warnings, ["hidden content dropped: 6 characters"]);
    assert_eq!(all, "choicefallback\n");
}

#[test]
fn paragraphs_that_their_style_hides_are_left_out() {
    let hidden = "<w:rPr><w:vanish/></w:rPr>";
    let styles = format!(
        "<w:style w:type=\"paragraph\" w:styleId=\"base\">{hidden}</w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"H\"><w:basedOn w:val=\"base\"/></w:style>\
         <w:style w:type=\"character\" w:styleId=\"C\">{hidden}</w:style>"
    );
    let run =
        |props: &str, text: &str| format!("<w:r><w:rPr>{props}</w:rPr><w:t>{text}</w:t></w:r>");
    let body = [
        p(&r("seen")),
        p(&[
            "<w:pPr><w:pStyle w:val=\"H\"/></w:pPr>",
            &r("secret"),
            // Two styles that hide text show it, and direct formatting decides alone.
            &run("<w:rStyle w:val=\"C\"/>", "toggled "),
            &run("<w:vanish w:val=\"0\"/>", "direct"),
        ]
        .concat()),
    ]
    .concat();
    let (shown, warnings, all) = of_docx(&body, &styles);
    assert_eq!(shown, "seen\n\ntoggled direct\n");
    assert_eq!(warnings, ["hidden content dropped: 6 characters"]);
    assert_eq!(all, "seen\n\nsecrettoggled direct\n");

    let default = format!(
        "<w:style w:type=\"paragraph\" w:default=\"1\" w:styleId=\"N\">{hidden}</w:style>\
         <w:style w:type=\"paragraph\" w:styleId=\"V\"/>"
    );
    let body = [p(&r("secret")), styled_paragraph("V", "seen")].concat();
    assert_eq!(of_docx(&body, &default).0, "seen\n");
    let defaults = format!("<w:docDefaults><w:rPrDefault>{hidden}</w:rPrDefault></w:docDefaults>");
    assert_eq!(of_docx(&p(&r("secret")), &defaults).0, "");
}

#[test]
fn hidden_drawings_are_left_out_with_their_text() {
    let drawing = |props: &str, content: &str| {
        format!(
            "<w:r><w:drawing><wp:anchor><wp:docPr id=\"1\" name=\"s\" {props}/>{content}</wp:anchor></w:drawing></w:r>"
        )
    };
    let text_box = format!("<w:txbxContent>{}</w:txbxContent>", p(&r("secret")));
    let picture = "<a:blip r:embed=\"none\"/>";
    let in_hidden_run =
        drawing("", &text_box).replace("<w:r><w:d", "<w:r><w:rPr><w:vanish/></w:rPr><w:d");
    let vml = format!(
        "<w:r><w:pict><v:shape style=\"position:absolute; visibility: hidden\">{text_box}</v:shape></w:pict></w:r>"
    );
    for hidden in [
        drawing("hidden=\"1\"", &text_box),
        drawing("hidden=\"true\" descr=\"secret\"", picture),
        in_hidden_run,
        vml,
    ] {
        let body = p(&[r("before").as_str(), &hidden, &r(" after")].concat());
        let (shown, warnings, all) = of_docx(&body, "");
        assert_eq!(shown, "before after\n", "{hidden}");
        assert_eq!(
            warnings,
            ["hidden content dropped: 6 characters"],
            "{hidden}"
        );
        assert!(all.contains("secret"), "{all}");
    }
    let visible = p(&drawing("hidden=\"0\"", &text_box));
    assert_eq!(of_docx(&visible, "").0, "secret\n");
}

/// Text, warnings, and text with hidden content of an ODT with this body.
fn of_odt(body: &str) -> (String, Vec<String>, String) {
    super::shown_and_hidden(ODT, &content("text", body))
}

#[test]
fn paragraphs_and_sections_of_odt_that_are_hidden_are_left_out() {
    let seen = "<text:p>seen</text:p>";
    let table = "<table:table><table:table-row><table:table-cell><text:p>et</text:p></table:table-cell></table:table-row></table:table>";
    let field = |attributes: &str| {
        format!("<text:p>sec<text:hidden-paragraph {attributes}/>ret</text:p>{seen}")
    };
    let section = |attributes: &str| {
        format!(
            "<text:section {attributes}><text:p>sec<draw:frame><draw:text-box><text:p>r</text:p></draw:text-box></draw:frame></text:p>{table}</text:section>{seen}"
        )
    };
    for hidden in [
        section("text:display=\"none\""),
        section("text:display=\"condition\" text:is-hidden=\"true\""),
        field("text:condition=\"ooow:1\""),
        field("text:condition=\"ooow:a==1\" text:is-hidden=\"true\""),
    ] {
        let (shown, warnings, all) = of_odt(&hidden);
        assert_eq!(shown, "seen\n", "{hidden}");
        assert_eq!(
            warnings,
            ["hidden content dropped: 6 characters"],
            "{hidden}"
        );
        assert!(all.starts_with("sec"), "{all}");
    }
    for visible in [
        section("text:display=\"condition\" text:is-hidden=\"false\""),
        section(""),
        field("text:condition=\"ooow:0\" text:is-hidden=\"false\""),
    ] {
        let (shown, warnings, all) = of_odt(&visible);
        assert!(shown.starts_with("sec") && shown == all, "{shown}");
        assert_eq!(warnings, Vec::<String>::new(), "{visible}");
    }
}

#[test]
fn paragraphs_of_odt_that_their_style_hides_are_left_out() {
    let hide = "<style:text-properties text:display=\"none\"/>";
    let styles = format!(
        "<office:automatic-styles>\
         <style:style style:name=\"base\" style:family=\"paragraph\">{hide}</style:style>\
         <style:style style:name=\"H\" style:family=\"paragraph\" style:parent-style-name=\"base\"/>\
         </office:automatic-styles>"
    );
    let body = format!(
        "<office:document-content {ODF_NAMESPACES}>{styles}<office:body><office:text>\
         <text:p text:style-name=\"H\">secret</text:p><text:p>seen</text:p></office:text></office:body></office:document-content>"
    );
    let odt = |body: &str| super::shown_and_hidden(ODT, &zipped(&[("content.xml", body)]));
    let (shown, warnings, all) = odt(&body);
    assert_eq!(shown, "seen\n");
    assert_eq!(warnings, ["hidden content dropped: 6 characters"]);
    assert_eq!(all, "secret\n\nseen\n");
    let default = body.replace(
        "<style:style style:name=\"base\" style:family=\"paragraph\">",
        "<style:default-style style:family=\"paragraph\">",
    );
    let default = default.replacen("</style:style>", "</style:default-style>", 1);
    assert_eq!(odt(&default).0, "");
}

#[test]
fn shapes_that_the_selection_pane_hides_are_left_out() {
    let hide = |shapes: &str| shapes.replacen("name=\"s\"", "name=\"s\" hidden=\"1\"", 1);
    let secret = shape("", 10, 0, &paragraph("", "secret"));
    let group = |shapes: &str| {
        format!(
            "<p:grpSp><p:nvGrpSpPr><p:cNvPr id=\"7\" name=\"s\"/></p:nvGrpSpPr>{shapes}</p:grpSp>"
        )
    };
    let table = "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id=\"2\" name=\"s\"/></p:nvGraphicFramePr><a:tbl><a:tr><a:tc><a:txBody><a:p><a:r><a:t>secret</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>";
    let picture =
        "<p:pic><p:nvPicPr><p:cNvPr id=\"3\" name=\"s\" descr=\"secret\"/></p:nvPicPr></p:pic>";
    for hidden in [
        hide(&secret),
        hide(&group(&secret)),
        hide(&group(&group(&secret))),
        hide(table),
        hide(picture),
    ] {
        let seen = shape("", 500, 0, &paragraph("", "seen"));
        let deck = deck(&[(slide("", &[hidden.as_str(), &seen].concat()), NO_PARTS)]);
        let (shown, warnings, all) = super::shown_and_hidden(PPTX, &deck);
        assert_eq!(shown, "## Slide 1\n\nseen\n", "{hidden}");
        assert_eq!(
            warnings,
            ["hidden content dropped: 6 characters"],
            "{hidden}"
        );
        assert!(all.contains("secret"), "{all}");
    }
    let visible = [group(&secret).as_str(), &hide("name=\"s\"")].concat();
    let deck = deck(&[(slide("", &visible), NO_PARTS)]);
    assert_eq!(
        super::shown_and_hidden(PPTX, &deck).0,
        "## Slide 1\n\nsecret\n"
    );
}

#[test]
fn shapes_of_odp_that_are_switched_off_are_left_out() {
    let shape = |display: &str| {
        format!("<draw:custom-shape {display}><text:p>secret</text:p></draw:custom-shape>")
    };
    let frame =
        |display: &str, content: &str| format!("<draw:frame {display}>{content}</draw:frame>");
    let off = "draw:display=\"none\"";
    let picture = "<draw:image xlink:href=\"a.png\"/><svg:desc>secret</svg:desc>";
    for hidden in [
        shape(off),
        shape("draw:display=\"printer\""),
        format!("<draw:g {off}>{}</draw:g>", shape("")),
        frame(
            off,
            "<draw:text-box><text:p>secret</text:p></draw:text-box>",
        ),
        frame(off, picture),
    ] {
        let body = format!(
            "<draw:page>{hidden}<draw:custom-shape draw:display=\"screen\"><text:p>seen</text:p></draw:custom-shape></draw:page>"
        );
        let (shown, warnings, all) = super::shown_and_hidden(ODP, &content("presentation", &body));
        assert_eq!(shown, "## Slide 1\n\nseen\n", "{hidden}");
        assert_eq!(
            warnings,
            ["hidden content dropped: 6 characters"],
            "{hidden}"
        );
        assert!(all.contains("secret"), "{all}");
    }
}

#[test]
fn a_choice_on_a_slide_that_no_program_shows_gives_way_to_its_fallback() {
    let alternate = format!(
        "<mc:AlternateContent xmlns:mc=\"http://schemas.openxmlformats.org/markup-compatibility/2006\" xmlns:zz=\"urn:x\">\
         <mc:Choice Requires=\"zz\">{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent>",
        shape("", 1, 0, &paragraph("", "choice")),
        shape("", 2, 0, &paragraph("", "fallback"))
    );
    let deck = deck(&[(slide("", &alternate), NO_PARTS)]);
    let (shown, warnings, _) = super::shown_and_hidden(PPTX, &deck);
    assert_eq!(shown, "## Slide 1\n\nfallback\n");
    assert_eq!(warnings, ["hidden content dropped: 6 characters"]);
}
