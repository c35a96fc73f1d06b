//! For any content of a part, a converter terminates, keeps to its limits and does not panic.

use proptest::prelude::*;

use super::super::super::sheet::tests::{XLSX, workbook};
use super::docx::docx;
use super::{DOCX, ODP, ODT, PPTX, converted_within, relations, zipped};
use crate::formats::Converted;
use crate::limits::Limits;

/// Pieces of markup that one of the converters interprets.
const XML_PIECES: &[&str] = &[
    "<w:p>",
    "</w:p>",
    "<w:r>",
    "</w:r>",
    "<w:t>a|b</w:t>",
    "<w:tbl>",
    "</w:tbl>",
    "<w:tr>",
    "</w:tr>",
    "<w:tc>",
    "</w:tc>",
    "<w:gridSpan w:val=\"99999999999\"/>",
    "<w:vMerge/>",
    "<w:fldChar w:fldCharType=\"begin\"/>",
    "<w:fldChar w:fldCharType=\"separate\"/>",
    "<w:fldChar w:fldCharType=\"end\"/>",
    "<w:instrText>HYPERLINK \"x\" \\l</w:instrText>",
    "<w:txbxContent>",
    "</w:txbxContent>",
    "<w:pPr>",
    "</w:pPr>",
    "<w:rPr>",
    "</w:rPr>",
    "<w:b/>",
    "<w:del/>",
    "<w:vanish/>",
    "<w:numPr><w:ilvl w:val=\"-1\"/><w:numId w:val=\"1\"/></w:numPr>",
    "<w:footnoteReference w:id=\"1\"/>",
    "<w:br/>",
    "<mc:AlternateContent>",
    "</mc:AlternateContent>",
    "<mc:Choice>",
    "</mc:Choice>",
    "<mc:Fallback>",
    "</mc:Fallback>",
    "<p:sp>",
    "</p:sp>",
    "<p:grpSp>",
    "</p:grpSp>",
    "<p:grpSpPr>",
    "</p:grpSpPr>",
    "<p:pic>",
    "</p:pic>",
    "<p:ph type=\"title\"/>",
    "<p:ph/>",
    "<a:off x=\"-9223372036854775808\" y=\"9223372036854775807\"/>",
    "<a:ext cx=\"0\" cy=\"-1\"/>",
    "<a:chOff x=\"9223372036854775807\" y=\"1\"/>",
    "<a:chExt cx=\"0\" cy=\"0\"/>",
    "<a:p>",
    "</a:p>",
    "<a:r>",
    "</a:r>",
    "<a:t>x\u{B}y</a:t>",
    "<a:pPr lvl=\"99\">",
    "</a:pPr>",
    "<a:buAutoNum startAt=\"18446744073709551615\"/>",
    "<a:tbl>",
    "</a:tbl>",
    "<a:tr>",
    "</a:tr>",
    "<a:tc>",
    "</a:tc>",
    "<text:p>",
    "</text:p>",
    "<text:h text:outline-level=\"255\">",
    "</text:h>",
    "<text:list>",
    "</text:list>",
    "<text:list-item text:start-value=\"18446744073709551615\">",
    "</text:list-item>",
    "<text:note>",
    "</text:note>",
    "<text:span>",
    "</text:span>",
    "<text:s text:c=\"99999999\"/>",
    "<office:annotation>",
    "</office:annotation>",
    "<draw:page>",
    "</draw:page>",
    "<draw:frame svg:x=\"1e999cm\" svg:y=\"-3\">",
    "</draw:frame>",
    "<draw:text-box>",
    "</draw:text-box>",
    "<draw:image/>",
    "<presentation:notes>",
    "</presentation:notes>",
    "<table:table>",
    "</table:table>",
    "<table:table-row table:number-rows-repeated=\"18446744073709551615\">",
    "</table:table-row>",
    "<table:table-cell table:number-columns-repeated=\"4294967295\">",
    "</table:table-cell>",
    "<table:covered-table-cell/>",
    "<row r=\"18446744073709551615\">",
    "<row>",
    "</row>",
    "<c r=\"XFD1048576\">",
    "<c t=\"s\" s=\"1\">",
    "</c>",
    "<v>1e308</v>",
    "<v>-1</v>",
    "<f>A1</f>",
    "<mergeCell ref=\"A1:XFD1048576\"/>",
    "words # * ",
    "&amp;",
    "&lol;",
    "&#13;",
    "&#x110000;",
    "<!-- c -->",
    "<![CDATA[x]]>",
    "<?pi?>",
];

const WORD_NAMESPACES: &str = "xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\" \
    xmlns:mc=\"http://schemas.openxmlformats.org/markup-compatibility/2006\"";

fn check(conversion: &Converted) -> Result<(), TestCaseError> {
    prop_assert!(!conversion.markdown.contains('\r'));
    prop_assert!(conversion.markdown.is_empty() || conversion.markdown.ends_with('\n'));
    prop_assert!(conversion.markdown.len() < 100_000);
    prop_assert!(conversion.failure.is_none() || conversion.stopped.is_none());
    Ok(())
}

fn limits() -> Limits {
    Limits {
        max_text_bytes: 20_000,
        max_elements: 2_000,
        ..Limits::default()
    }
}

/// Closes every element that is still open, so that a converter reads to the end.
fn close_elements(pieces: &[&str]) -> String {
    let mut out = String::new();
    let mut open: Vec<&str> = Vec::new();
    for piece in pieces {
        if let Some(closing) = piece.strip_prefix("</") {
            let closing = closing.trim_end_matches('>');
            if open.last() != Some(&closing) {
                continue;
            }
            open.pop();
        } else if piece.starts_with('<')
            && !piece.starts_with("<!")
            && !piece.starts_with("<?")
            && !piece.ends_with("/>")
            && !piece.contains("</")
        {
            let end = piece.find([' ', '>']).unwrap_or(piece.len());
            open.push(&piece[1..end]);
        }
        out.push_str(piece);
    }
    for name in open.iter().rev() {
        out.extend(["</", name, ">"]);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_markup_is_converted_within_the_limits(
        pieces in prop::collection::vec(prop::sample::select(XML_PIECES), 0..80),
        whole in any::<bool>(),
    ) {
        let markup = if whole { close_elements(&pieces) } else { pieces.concat() };
        check(&converted_within(DOCX, &docx(&markup, &[
            ("numbering.xml", "numbering", &format!("<w:numbering {WORD_NAMESPACES}>{markup}</w:numbering>")),
            ("footnotes.xml", "footnotes", &format!("<w:footnotes {WORD_NAMESPACES}><w:footnote w:id=\"1\">{markup}</w:footnote></w:footnotes>")),
        ]), limits()))?;
        let slide = format!("<p:sld>{markup}</p:sld>");
        let deck = zipped(&[
            ("ppt/presentation.xml", "<p:presentation><p:sldId r:id=\"a\"/></p:presentation>"),
            ("ppt/_rels/presentation.xml.rels", &relations(&[("a", "slide", "s.xml")])),
            ("ppt/s.xml", &slide),
            ("ppt/_rels/s.xml.rels", &relations(&[("n", "notesSlide", "s.xml"), ("l", "slideLayout", "s.xml"), ("m", "slideMaster", "s.xml"), ("c", "comments", "s.xml")])),
        ]);
        check(&converted_within(PPTX, &deck, limits()))?;
        for mime in [ODT, ODP, "application/vnd.oasis.opendocument.spreadsheet"] {
            check(&converted_within(mime, &zipped(&[("content.xml", &format!("<x>{markup}</x>"))]), limits()))?;
        }
        let sheet = format!("<worksheet><sheetData>{markup}</sheetData></worksheet>");
        check(&converted_within(XLSX, &workbook("", &[("name=\"S\"", &sheet)], &markup, &[]), limits()))?;
    }

    #[test]
    fn any_damaged_file_is_converted_within_the_limits(at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<bool>(), name in 0..8_usize) {
        let (file, mime) = [
            ("harbour.docx", DOCX),
            ("budget.xlsx", XLSX),
            ("plan.pptx", PPTX),
            ("log.odt", ODT),
            ("deck.odp", ODP),
            ("tides.ods", "application/vnd.oasis.opendocument.spreadsheet"),
            ("old.xls", "application/vnd.ms-excel"),
            ("day.epub", "application/epub+zip"),
        ][name];
        let mut bytes = super::corpus::file(file);
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = value;
        }
        check(&converted_within(mime, &bytes, limits()))?;
    }

    #[test]
    fn any_bytes_are_converted_within_the_limits(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for mime in [DOCX, ODT, XLSX, "application/vnd.ms-excel", "application/epub+zip", "application/vnd.oasis.opendocument.text-flat-xml"] {
            check(&converted_within(mime, &bytes, limits()))?;
        }
    }
}
