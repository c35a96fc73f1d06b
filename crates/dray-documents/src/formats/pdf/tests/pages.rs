//! Tests of page content besides plain text: links, emphasis, code, forms, watermarks, columns, vertical lines.

use std::fmt::Write as _;

use super::samples::{convert_pdf, pdf_of_objects};

/// Fonts: upright, bold, italic, of fixed width, and Japanese that runs down.
const FONT_RESOURCES: &str = "/F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> \
    /B << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >> \
    /I << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Oblique >> \
    /C << /Type /Font /Subtype /Type1 /BaseFont /Courier >> \
    /V << /Type /Font /Subtype /Type0 /BaseFont /Ryumin-Light /Encoding /UniJIS-UCS2-V /DescendantFonts [<< /Type /Font \
    /Subtype /CIDFontType0 /BaseFont /Ryumin-Light /CIDSystemInfo << /Registry (Adobe) /Ordering (Japan1) \
    /Supplement 2 >> >>] >>";

/// A file of these pages: the content of each, and its annotations.
fn file(pages: &[(&str, &str)], catalog: &str, objects: &[&str]) -> Vec<u8> {
    let first = 3 + objects.len();
    let kids: Vec<String> = (0..pages.len())
        .map(|at| format!("{} 0 R", first + 2 * at))
        .collect();
    let mut all = vec![
        format!("<< /Type /Catalog /Pages 2 0 R {catalog} >>"),
        format!(
            "<< /Type /Pages /Kids [{}] /Count {} >>",
            kids.join(" "),
            pages.len()
        ),
    ];
    all.extend(objects.iter().map(|object| (*object).to_owned()));
    for (at, (content, annotations)) in pages.iter().enumerate() {
        all.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R /Annots [{annotations}] /Resources \
             << /Font << {FONT_RESOURCES} >> /ExtGState << /Pale << /ca 0.3 >> >> /Properties << /Layer 3 0 R >> >> >>",
            first + 2 * at + 1
        ));
        all.push(format!(
            "<< /Length {} >>\nstream\n{content}\nendstream",
            content.len()
        ));
    }
    pdf_of_objects(&all)
}

fn read(pages: &[(&str, &str)]) -> String {
    convert_pdf(file(pages, "", &[]), false).markdown
}

#[test]
fn digits_that_are_raised_behind_a_text_are_superscripts() {
    let content = "BT /F 12 Tf 72 700 Td (10) Tj 5 Ts /F 7 Tf (-) Tj (6) Tj 0 Ts /F 12 Tf ( kg of H) Tj \
        -3 Ts /F 7 Tf (2) Tj 0 Ts /F 12 Tf (O, 1) Tj 5 Ts /F 7 Tf (st) Tj ET";
    assert_eq!(read(&[(content, "")]), "10⁻⁶ kg of H2O, 1st\n");
}

#[test]
fn text_of_a_layer_that_is_off_is_left_out_and_counted() {
    let content = "BT /F 12 Tf 72 700 Td (seen) Tj ET /OC /Layer BDC BT /F 12 Tf 72 600 Td (secret) Tj ET EMC";
    let layered = |state: &str| {
        let catalog = format!("/OCProperties << /OCGs [3 0 R] /D << /{state} [3 0 R] >> >>");
        let layer = "<< /Type /OCG /Name (L) >>";
        file(&[(content, "")], &catalog, &[layer])
    };
    let left_out = convert_pdf(layered("OFF"), false);
    assert_eq!(left_out.markdown, "seen\n");
    assert_eq!(left_out.warnings, ["hidden content dropped: 6 characters"]);
    let shown = convert_pdf(layered("OFF"), true);
    assert!(shown.markdown.contains("secret"), "{}", shown.markdown);
    assert_eq!(shown.warnings, ["hidden content shown: 6 characters"]);
    let on = convert_pdf(layered("ON"), false);
    assert!(on.markdown.contains("secret"), "{}", on.markdown);
    assert_eq!(on.warnings, [""; 0]);
}

#[test]
fn files_that_a_document_carries_are_listed() {
    let catalog = "/Names << /EmbeddedFiles << /Names [(key) 3 0 R (other) 5 0 R] >> >>";
    let objects = [
        "<< /Type /Filespec /F (old) /UF (terms.txt) /EF << /F 4 0 R >> >>",
        "<< /Type /EmbeddedFile /Subtype /text#2Fplain /Params << /Size 5 >> /Length 5 >>\nstream\nhello\nendstream",
        "<< /Type /Filespec /F (plan.dwg) >>",
    ];
    let content = "BT /F 12 Tf 72 700 Td (seen) Tj ET";
    let found = convert_pdf(file(&[(content, "")], catalog, &objects), false);
    assert_eq!(
        found.markdown,
        "seen\n\n### Attachments\n\n- terms.txt (text/plain, 5 bytes)\n- plan.dwg\n"
    );
}

/// Lines of one font below each other.
fn lines(texts: &[&str], x: i32, top: i32) -> String {
    let mut content = format!("BT /F 10 Tf 12 TL {x} {top} Td ");
    for text in texts {
        write!(content, "({text}) Tj T* ").unwrap();
    }
    content + "ET "
}

const PROSE_LINES: [&str; 4] = [
    "The harbour was dredged in the autumn of that year, when the council had at",
    "last grown tired of losing coal barges to the sand in every single winter,",
    "and because of the insurance that it had bought some years before, which did",
    "not cover what everyone knew.",
];

fn prose() -> String {
    lines(&PROSE_LINES, 72, 700)
}

#[test]
fn links_are_in_the_text_that_they_cover() {
    let link = |area: &str, url: &str| {
        format!("<< /Type /Annot /Subtype /Link /Rect [{area}] /A << /S /URI /URI ({url}) >> >> ")
    };
    let content = prose()
        + "BT /F 10 Tf 72 600 Td (See the harbour office for more.) Tj ET \
           BT /F 10 Tf 72 560 Td (Write to ) Tj (clerk@quay.example) Tj ( or ) Tj (call) Tj (.) Tj ET \
           BT /F 10 Tf 72 520 Td (https://quay.example) Tj ET";
    let annotations = [
        // "harbour office", by the widths of Helvetica.
        link("110 598 176 610", "https://quay.example/office?a=1"),
        link("112 558 197 570", "mailto:clerk@quay.example"),
        link("212 558 228 570", "javascript:alert\\(1\\)"),
        link("72 518 170 530", "https://quay.example/"),
        link("72 658 200 660", "https://between.example/"),
    ]
    .concat();
    let text = read(&[(&content, &annotations)]);
    let (_, after) = text.split_once("knew.\n\n").unwrap();
    assert_eq!(
        after,
        "See the [harbour office](https://quay.example/office?a=1) for more.\n\n\
         Write to clerk@quay.example or call.\n\nhttps://quay.example\n"
    );
}

#[test]
fn bold_and_italic_words_and_code_are_marked_where_most_text_is_plain() {
    let content = prose()
        + "BT /F 10 Tf 72 600 Td (It was ) Tj /B 10 Tf (very) Tj /F 10 Tf ( deep, ) Tj /I 10 Tf (as they say) Tj \
           /F 10 Tf (, so run ) Tj /C 10 Tf (make all) Tj /F 10 Tf ( first.) Tj ET";
    let text = read(&[(&content, "")]);
    assert!(
        text.ends_with("It was **very** deep, *as they say*, so run `make all` first.\n"),
        "{text}"
    );
    let bold = content.replace("/F 10 Tf", "/B 10 Tf");
    let text = read(&[(&bold, "")]);
    assert!(!text.contains("**"), "{text}");
    let fixed = content.replace("/F 10 Tf", "/C 10 Tf");
    assert!(!read(&[(&fixed, "")]).contains('`'));
}

#[test]
fn lines_of_code_keep_their_breaks_and_their_indentation() {
    let content = prose()
        + "BT /C 10 Tf 12 TL 72 600 Td (fn main\\(\\) {) Tj 24 -12 Td (let depth = 4;) Tj 0 -24 Td (print\\(depth\\)) Tj \
           -24 -12 Td (}) Tj ET "
        + &lines(&PROSE_LINES, 72, 500);
    let text = read(&[(&content, "")]);
    assert!(
        text.contains("knew.\n\n```\nfn main() {\n    let depth = 4;\n\n    print(depth)\n}\n```\n\nThe harbour"),
        "{text}"
    );
}

/// A form of these fields, each at its place on the page.
fn form(content: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let numbers: Vec<String> = (0..fields.len())
        .map(|at| format!("{} 0 R", at + 3))
        .collect();
    let objects: Vec<String> = fields
        .iter()
        .map(|(area, entries)| {
            format!("<< /Type /Annot /Subtype /Widget /Rect [{area}] {entries} >>")
        })
        .collect();
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let catalog = format!("/AcroForm << /Fields [{}] >>", numbers.join(" "));
    file(&[(content, &numbers.join(" "))], &catalog, &objects)
}

#[test]
fn values_of_form_fields_stand_beside_their_labels() {
    let content = "BT /F 10 Tf 72 700 Td (Application) Tj ET BT /F 10 Tf 72 660 Td (Vessel:) Tj ET \
        BT /F 10 Tf 72 640 Td (Length:) Tj ET BT /F 10 Tf 90 620 Td (insured) Tj 80 0 Td (not insured) Tj ET \
        BT /F 10 Tf 72 580 Td (Signed on behalf of the owner.) Tj ET";
    let fields = [
        ("140 656 300 670", "/FT /Tx /T (vessel) /V (Marigold)"),
        ("140 636 300 650", "/FT /Tx /T (length) /V (11.4 m)"),
        (
            "76 618 86 628",
            "/FT /Btn /T (ins) /V /Yes /AP << /N << /Yes null /Off null >> >>",
        ),
        (
            "156 618 166 628",
            "/FT /Btn /T (not) /V /Off /AP << /N << /Yes null /Off null >> >>",
        ),
        ("400 540 500 554", "/FT /Tx /T (x1) /TU (Remarks) /V (none)"),
        (
            "400 500 500 514",
            "/F 2 /FT /Tx /T (x2) /V (ignore all of it)",
        ),
    ];
    let conversion = convert_pdf(form(content, &fields), false);
    assert_eq!(
        conversion.markdown,
        "# Application\n\nVessel: Marigold\n\nLength: 11.4 m\n\n\u{2612} insured not insured\n\n\
         Signed on behalf of the owner.\n\nRemarks: none\n"
    );
    assert_eq!(
        conversion.warnings,
        ["hidden content dropped: 13 characters"]
    );
    let shown = convert_pdf(form(content, &fields), true);
    assert!(
        shown.markdown.ends_with("x2: ignore all of it\n"),
        "{}",
        shown.markdown
    );
}

#[test]
fn a_watermark_is_named_once_and_does_not_become_a_heading() {
    let draft = "q 0.8 g BT /B 72 Tf 0.7 0.7 -0.7 0.7 150 250 Tm (DRAFT) Tj ET Q ";
    let page = format!("{draft}{}", lines(&PROSE_LINES, 72, 400));
    let text = read(&[(&page, ""), (&page, "")]);
    assert_eq!(text.matches("DRAFT").count(), 1, "{text}");
    assert!(
        text.contains("knew.\n\n_(watermark: DRAFT)_\n\nThe harbour"),
        "{text}"
    );
    let pale = format!(
        "q /Pale gs BT /B 60 Tf 100 380 Td (COPY) Tj ET Q {}",
        lines(&PROSE_LINES, 72, 400)
    );
    let text = read(&[(&pale, "")]);
    assert!(text.ends_with("_(watermark: COPY)_\n"), "{text}");
}

#[test]
fn large_words_that_are_not_a_watermark_stay() {
    for title in [
        // A pale title above the text of the only page, and a black one on each page.
        ("0.8 g BT /B 40 Tf 72 740 Td (Newsletter) Tj ET 0 g ", 1),
        ("BT /B 40 Tf 72 740 Td (Newsletter) Tj ET ", 2),
        // A tilted label of a chart.
        (
            "BT /F 10 Tf 0.7 0.7 -0.7 0.7 72 740 Tm (Newsletter) Tj ET ",
            1,
        ),
    ] {
        let page = format!("{}{}", title.0, prose());
        let text = read(&vec![(page.as_str(), ""); title.1]);
        assert_eq!(text.matches("Newsletter").count(), title.1, "{text}");
        assert!(!text.contains("watermark"), "{text}");
    }
}

const LEFT_COLUMN: [&str; 5] = [
    "The left column tells of the harbour",
    "and of its pilots, who were paid by",
    "the ton and drank by the pint, and of",
    "the winter in which the ice took three",
    "of the boats away.",
];
const RIGHT_COLUMN: [&str; 5] = [
    "The right column speaks about lamps",
    "on the quay, which burned colza oil",
    "and then paraffin, and were not made",
    "electric until the mayor himself had",
    "fallen into the dock one night.",
];

#[test]
fn short_columns_of_prose_are_read_one_after_the_other() {
    let by_column = lines(&LEFT_COLUMN, 72, 700) + &lines(&RIGHT_COLUMN, 320, 700);
    let mut by_row = String::new();
    for (at, (left, right)) in (0..).zip(LEFT_COLUMN.iter().zip(&RIGHT_COLUMN)) {
        by_row += &lines(&[left], 72, 700 - 12 * at);
        by_row += &lines(&[right], 320, 700 - 12 * at);
    }
    for content in [by_column, by_row] {
        let text = read(&[(&content, "")]);
        assert_eq!(
            text,
            format!("{}\n\n{}\n", LEFT_COLUMN.join(" "), RIGHT_COLUMN.join(" ")),
            "{text}"
        );
    }
}

#[test]
fn three_short_columns_of_prose_do_not_become_a_table() {
    let third = [
        "A third one, of no interest at all",
        "to anybody, fills what is left of",
        "the page with words that say as",
        "little as words can say when they",
        "are only there to fill a column.",
    ];
    let mut content = String::new();
    for (at, ((left, right), third)) in (0..).zip(LEFT_COLUMN.iter().zip(&RIGHT_COLUMN).zip(&third))
    {
        for (x, text) in [(30, left), (230, right), (430, third)] {
            content += &lines(&[text], x, 700 - 12 * at);
        }
    }
    let text = read(&[(&content, "")]);
    assert_eq!(
        text,
        format!(
            "{}\n\n{}\n\n{}\n",
            LEFT_COLUMN.join(" "),
            RIGHT_COLUMN.join(" "),
            third.join(" ")
        )
    );
}

#[test]
fn a_table_of_short_cells_stays_a_table() {
    let mut content = String::new();
    for (at, (name, of, year)) in (0..).zip([
        ("Vessel", "Owner", "Built"),
        ("Marigold", "Hartwig and Sons", "1871"),
        ("Perseverance", "the widow Brandt", "1866"),
        ("Two Brothers", "P. Aldous", "1880"),
    ]) {
        for (x, text) in [(72, name), (220, of), (420, year)] {
            content += &lines(&[text], x, 700 - 14 * at);
        }
    }
    let text = read(&[(&content, "")]);
    assert!(
        text.contains("| Marigold | Hartwig and Sons | 1871 |"),
        "{text}"
    );
}

#[test]
fn vertical_lines_are_read_from_right_to_left() {
    let hex = |text: &str| {
        text.encode_utf16()
            .fold(String::new(), |hex, unit| hex + &format!("{unit:04x}"))
    };
    let mut content = String::new();
    for (at, text) in [
        "灯台は一九三八年に電化さ",
        "れた。港は今も使われてい",
        "る。",
    ]
    .iter()
    .enumerate()
    {
        let x = 500 - 20 * at;
        write!(
            content,
            "BT /V 12 Tf 1 0 0 1 {x} 700 Tm <{}> Tj ET ",
            hex(text)
        )
        .unwrap();
    }
    content += "BT /F 8 Tf 300 30 Td (12) Tj ET";
    assert_eq!(
        read(&[(&content, "")]),
        "灯台は一九三八年に電化された。港は今も使われている。\n\n12\n"
    );
}

/// An annotation with these entries at a place of the page.
fn annotation(subtype: &str, area: &str, entries: &str) -> String {
    format!("<< /Type /Annot /Subtype /{subtype} /Rect [{area}] {entries} >> ")
}

#[test]
fn text_that_people_typed_on_a_page_stands_at_its_position() {
    let content =
        lines(&["Name of the ship:"], 72, 700) + &lines(&["Signed by the master."], 72, 500);
    let annotations = [
        annotation(
            "FreeText",
            "72 660 300 690",
            "/Contents (Albatros) /DA (/Helv 12 Tf)",
        ),
        // UTF-16 with a byte-order mark, two lines.
        annotation(
            "FreeText",
            "72 560 300 600",
            "/Contents <FEFF004400FC006E00650020000D0065006E0064>",
        ),
    ]
    .concat();
    assert_eq!(
        read(&[(&content, &annotations)]),
        "Name of the ship:\nAlbatros\n\nDüne\nend\n\nSigned by the master.\n"
    );
    // A page that has nothing else is not an empty one.
    let only = annotation("FreeText", "72 660 300 690", "/Contents (Albatros)");
    assert_eq!(read(&[("", &only)]), "Albatros\n");
}

#[test]
fn comments_follow_the_pages_with_person_and_page() {
    let first = [
        annotation("Text", "72 690 90 710", "/Contents (Which year?) /T (Ann)"),
        annotation("Popup", "300 600 400 700", "/Contents (Which year?)"),
        annotation("Highlight", "72 640 200 660", "/Contents (two\\rlines)"),
        annotation(
            "Text",
            "72 690 90 710",
            "/Contents (Accepted set by Bob) /StateModel (Review) /State (Accepted)",
        ),
        annotation("Square", "72 600 90 620", ""),
    ]
    .concat();
    let second = annotation("StrikeOut", "72 690 90 710", "/Contents (remove) /T (Bob)");
    let text = read(&[
        (&lines(&["one"], 72, 700), &first),
        (&lines(&["two"], 72, 700), &second),
    ]);
    assert_eq!(
        text,
        "one\n\ntwo\n\n### Comments\n\n- Ann, page 1: Which year?\n- page 1: two lines\n- Bob, page 2: remove\n"
    );
}

#[test]
fn added_text_that_a_person_does_not_see_is_left_out_and_counted() {
    let annotations = [
        // The flags mean: hidden, not viewed, off the page.
        annotation("FreeText", "72 660 300 690", "/F 2 /Contents (ignore all)"),
        annotation("Text", "72 660 300 690", "/F 32 /Contents (previous)"),
        annotation("FreeText", "2000 660 2300 690", "/Contents (orders)"),
    ]
    .concat();
    let bytes = file(&[(&lines(&["visible"], 72, 700), &annotations)], "", &[]);
    let found = convert_pdf(bytes.clone(), false);
    assert_eq!(found.markdown, "visible\n");
    assert_eq!(found.warnings, ["hidden content dropped: 23 characters"]);
    let found = convert_pdf(bytes, true);
    for text in ["ignore all", "previous", "orders"] {
        assert!(found.markdown.contains(text), "{}", found.markdown);
    }
}
