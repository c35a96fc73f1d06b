//! Tests of characters in the fonts Symbol and Wingdings (read-attachment 7.6).

use super::docx::{docx, p, r};
use super::pptx::{NO_PARTS, deck, shape, slide};
use super::{DOCX, ODF_NAMESPACES, ODT, PPTX, converted, zipped};

fn symbol(font: &str, code: &str) -> String {
    format!("<w:r><w:sym w:font=\"{font}\" w:char=\"{code}\"/></w:r>")
}

#[test]
fn symbols_are_the_characters_that_their_font_shows() {
    let run = |fonts: &str, text: &str| {
        format!("<w:r><w:rPr><w:rFonts {fonts}/></w:rPr><w:t>{text}</w:t></w:r>")
    };
    let field = "<w:r><w:fldChar w:fldCharType=\"begin\"/></w:r>\
        <w:r><w:instrText> SYMBOL 179 \\f \"Symbol\" \\s 10 </w:instrText></w:r>\
        <w:r><w:fldChar w:fldCharType=\"end\"/></w:r>";
    let body = [
        p(&[
            r("Dose "),
            symbol("Symbol", "F0A3"),
            r(" 5 "),
            symbol("Symbol", "F06D"),
            r("g, "),
            symbol("Symbol", "F0B3"),
            r(" 18, 5 "),
            symbol("Symbol", "F0B1"),
            r(" 1, "),
            symbol("Symbol", "F061"),
            r(" and 20"),
            symbol("Symbol", "00B0"),
            r("C"),
        ]
        .concat()),
        p(&[
            symbol("Wingdings 2", "F052"),
            symbol("Wingdings 2", "F0A3"),
            symbol("Wingdings 2", "F050"),
            symbol("Wingdings", "F0FC"),
            symbol("Arial", "20AC"),
        ]
        .concat()),
        p(&[
            run("w:ascii=\"Symbol\" w:hAnsi=\"Symbol\"", "m\u{F0A3}"),
            run("w:ascii=\"Symbol\" w:asciiTheme=\"minorHAnsi\"", "m"),
            run("w:ascii=\"Arial\"", "m"),
        ]
        .concat()),
        p(field),
    ]
    .concat();
    let found = converted(DOCX, &docx(&body, &[]));
    assert_eq!(
        found.markdown,
        "Dose ≤ 5 µg, ≥ 18, 5 ± 1, α and 20°C\n\n☑☐✓✓€\n\nµ≤mm\n\n≥\n"
    );
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
}

#[test]
fn an_unknown_symbol_is_marked_and_reported_once() {
    let body = p(&[
        r("a"),
        symbol("Webdings", "F061"),
        symbol("A Font", "F0AA"),
        r("b"),
    ]
    .concat());
    let found = converted(DOCX, &docx(&body, &[]));
    assert_eq!(found.markdown, "a\u{FFFD}\u{FFFD}b\n");
    assert_eq!(
        found.warnings,
        ["characters of a symbol font are not shown"]
    );
}

#[test]
fn symbols_on_slides_are_the_characters_that_their_font_shows() {
    let run = |font: &str, text: &str| format!("<a:r><a:rPr>{font}</a:rPr><a:t>{text}</a:t></a:r>");
    let paragraph = [
        run("<a:latin typeface=\"Symbol\"/>", "m\u{F0A3}"),
        run("<a:sym typeface=\"Wingdings\"/>", "m\u{F0E0}"),
        run("", "m"),
    ]
    .concat();
    let content = slide("", &shape("", 1, 1, &format!("<a:p>{paragraph}</a:p>")));
    let text = converted(PPTX, &deck(&[(content, NO_PARTS)]));
    assert_eq!(text.markdown, "## Slide 1\n\nµ≤m→m\n");
    assert!(text.warnings.is_empty(), "{:?}", text.warnings);
}

#[test]
fn symbols_of_odt_are_the_characters_that_their_font_shows() {
    let fonts = "<office:font-face-decls><style:font-face style:name=\"S1\" svg:font-family=\"Symbol\"/>\
        <style:font-face style:name=\"W\" svg:font-family=\"&apos;Wingdings 2&apos;\"/>\
        <style:font-face style:name=\"Arial\" svg:font-family=\"Arial\"/></office:font-face-decls>";
    let style = |name: &str, family: &str, properties: &str| {
        format!(
            "<style:style style:name=\"{name}\" style:family=\"{family}\"><style:text-properties {properties}/></style:style>"
        )
    };
    let styles = [
        style("sym", "text", "style:font-name=\"S1\""),
        style("letters", "text", "style:font-name=\"Arial\""),
        style("signs", "paragraph", "style:font-name=\"W\""),
        style("pictures", "text", "fo:font-family=\"Webdings\""),
    ]
    .concat();
    let span = |style: &str, text: &str| {
        format!("<text:span text:style-name=\"{style}\">{text}</text:span>")
    };
    let body = format!(
        "<text:p>dose {} 5 {}g</text:p><text:p text:style-name=\"signs\">P\u{f052}{}</text:p><text:p>P{}</text:p>",
        span("sym", "\u{f0a3}"),
        span("sym", "m"),
        span("letters", " P"),
        span("pictures", "A")
    );
    let document = format!(
        "<office:document-content {ODF_NAMESPACES}>{fonts}<office:automatic-styles>{styles}</office:automatic-styles><office:body><office:text>{body}</office:text></office:body></office:document-content>"
    );
    let converted = converted(ODT, &zipped(&[("content.xml", &document)]));
    assert_eq!(converted.markdown, "dose ≤ 5 µg\n\n✓☑ P\n\nP\u{FFFD}\n");
    assert_eq!(
        converted.warnings,
        ["characters of a symbol font are not shown"]
    );
}
