//! Text that a person cannot see on a page, in files made for the purpose.

use proptest::prelude::*;

use crate::formats::pdf::tests::samples::{convert_pdf, pdf_of_objects};

/// A picture of 100 by 100 pixels, a form that draws white text, and other objects to which pages refer.
const PAGE_RESOURCES: &str = "/Font << /F 4 0 R /T3 7 0 R >> /XObject << /Pic 5 0 R /Form 6 0 R /Tiny 8 0 R \
    /Solid 10 0 R /Glass 12 0 R /Cut 14 0 R >> \
    /ExtGState << /Clear << /ca 0 /CA 0 >> /Half << /ca 0.5 >> /Bare << /SMask /None >> \
    /Dark << /SMask << /S /Luminosity /G 16 0 R >> >> /Light << /SMask << /S /Luminosity /G 17 0 R >> >> \
    /Paper << /SMask << /S /Luminosity /BC [1] /G 16 0 R >> >> /Turned << /SMask << /S /Luminosity /TR 19 0 R /G 16 0 R >> >> \
    /Away << /SMask << /S /Alpha /G 18 0 R >> >> /There << /SMask << /S /Alpha /G 17 0 R >> >> \
    /Shaped << /SMask << /S /Luminosity /G 20 0 R >> >> /Again << /SMask << /S /Luminosity /G 21 0 R >> >> >> \
    /ColorSpace << /Lab [/Lab << /WhitePoint [0.9505 1 1.089] >>] /Few [/Indexed /DeviceRGB 1 <000000ffffff>] /Spot [/Separation /Orange /DeviceCMYK << /FunctionType 2 /Domain [0 1] /C0 [0 0 0 0] \
    /C1 [0 0.5 1 0] /N 1 >>] >>";

/// Entries of a form whose group is the source of a soft mask.
const GROUP_ENTRIES: &str = "/Type /XObject /Subtype /Form /BBox [0 0 612 792] /Group << /S /Transparency /CS /DeviceGray >>";

/// A file of one page.
fn page(content: &str) -> Vec<u8> {
    let stream = |dict: &str, data: &str| {
        format!(
            "<< {dict} /Length {} >>\nstream\n{data}\nendstream",
            data.len()
        )
    };
    let picture = |pixels: u32| {
        stream(
            &format!(
                "/Type /XObject /Subtype /Image /Width {pixels} /Height {pixels} /ColorSpace /DeviceGray \
                 /BitsPerComponent 8"
            ),
            "x",
        )
    };
    let masked = |mask: &str| {
        let dict = format!(
            "/Type /XObject /Subtype /Image /Width 1000 /Height 1000 /ColorSpace /DeviceGray /BitsPerComponent 8 {mask}"
        );
        stream(&dict, "x")
    };
    // One sample, in hexadecimal digits.
    let mask = |dict: &str, sample: &str| {
        let dict = format!(
            "/Type /XObject /Subtype /Image /Width 1 /Height 1 {dict} /Filter /ASCIIHexDecode"
        );
        stream(&dict, &format!("{sample}>"))
    };
    let group = |content: &str| stream(GROUP_ENTRIES, content);
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << {PAGE_RESOURCES} >> /Contents 9 0 R >>"
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        picture(1000),
        stream(
            "/Type /XObject /Subtype /Form /BBox [0 0 612 792]",
            "BT 1 g /F 12 Tf 72 500 Td (secret) Tj ET",
        ),
        "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] /CharProcs << >> \
         /Encoding << /Differences [65 /A] >> /FirstChar 65 /LastChar 65 /Widths [1] >>"
            .to_owned(),
        picture(1),
        stream("", content),
        masked("/SMask 11 0 R"),
        mask("/ColorSpace /DeviceGray /BitsPerComponent 8", "ff"),
        masked("/SMask 13 0 R"),
        mask("/ColorSpace /DeviceGray /BitsPerComponent 8", "01"),
        masked("/Mask 15 0 R"),
        mask("/ImageMask true /BitsPerComponent 1", "00"),
        // Groups of soft masks: empty, light where text is, painted elsewhere, of a text, and one that masks itself.
        group(""),
        group("1 g 60 590 200 40 re f"),
        group("1 g 300 300 9 9 re f"),
        "<< /FunctionType 2 /Domain [0 1] /C0 [1] /C1 [0] /N 1 >>".to_owned(),
        group("BT 1 g /F 12 Tf 72 600 Td (seen) Tj ET"),
        group("/Again gs 0 g 60 590 200 40 re f"),
    ];
    pdf_of_objects(&objects)
}

const VISIBLE_TEXT: &str = "BT /F 12 Tf 72 700 Td (This can be read.) Tj ET ";

/// Content that hides the word `secret`, each in another way.
const HIDING_CONTENTS: [(&str, &str); 28] = [
    ("white", "BT 1 g /F 12 Tf 72 600 Td (secret) Tj ET"),
    (
        "nearly white",
        "BT 0.97 1 0.98 rg /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    ("no ink", "BT 0 0 0 0 k /F 12 Tf 72 600 Td (secret) Tj ET"),
    (
        "no spot ink",
        "BT /Spot cs 0 scn /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    (
        "white of Lab",
        "BT /Lab cs 100 0 0 scn /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    (
        "white of a table",
        "BT /Few cs 1 sc /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    (
        "behind a picture whose soft mask is solid",
        "BT /F 12 Tf 72 600 Td (secret) Tj ET q 200 0 0 40 60 590 cm /Solid Do Q",
    ),
    (
        "behind a picture whose mask cuts nothing out",
        "BT /F 12 Tf 72 600 Td (secret) Tj ET q 200 0 0 40 60 590 cm /Cut Do Q",
    ),
    ("half a point", "BT /F 0.5 Tf 72 600 Td (secret) Tj ET"),
    (
        "scaled to nothing",
        "q 0.01 0 0 0.01 72 600 cm BT /F 12 Tf (secret) Tj ET Q",
    ),
    (
        "squeezed to no width",
        "BT 0 Tz /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    (
        "narrowed by its matrix",
        "BT /F 12 Tf 0.01 0 0 1 72 600 Tm (secret) Tj ET",
    ),
    (
        "narrowed by the matrix of the page",
        "q 0.01 0 0 1 72 600 cm BT /F 12 Tf (secret) Tj ET Q",
    ),
    ("mode 3", "BT 3 Tr /F 12 Tf 72 600 Td (secret) Tj ET"),
    (
        "mode 3 over a picture of one pixel",
        "q 200 0 0 40 60 590 cm /Tiny Do Q BT 3 Tr /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    ("off the page", "BT /F 12 Tf -400 600 Td (secret) Tj ET"),
    (
        "behind a picture",
        "BT /F 12 Tf 72 600 Td (secret) Tj ET q 200 0 0 40 60 590 cm /Pic Do Q",
    ),
    (
        "behind a box",
        "BT /F 12 Tf 72 600 Td (secret) Tj ET 0 g 60 590 200 40 re f",
    ),
    (
        "black on black",
        "0 g 60 590 200 40 re f BT /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    (
        "transparent",
        "BT /Clear gs /F 12 Tf 72 600 Td (secret) Tj ET",
    ),
    (
        "clipped away",
        "q 300 300 10 10 re W n BT /F 12 Tf 72 600 Td (secret) Tj ET Q",
    ),
    ("in a form", "/Form Do"),
    (
        "under a soft mask that is black",
        "q /Dark gs BT /F 12 Tf 72 600 Td (secret) Tj ET Q",
    ),
    (
        "under a soft mask that is clear where the text is",
        "/Away gs BT /F 12 Tf 72 600 Td (secret) Tj ET /Bare gs",
    ),
    (
        "beside the light part of a soft mask",
        "/Light gs BT /F 12 Tf 72 500 Td (secret) Tj ET /Bare gs",
    ),
    (
        "under a soft mask that was moved away",
        "q 1 0 0 1 300 0 cm /There gs 1 0 0 1 -300 0 cm BT /F 12 Tf 72 600 Td (secret) Tj ET Q",
    ),
    (
        "under a soft mask that masks itself",
        "q /Again gs BT /F 12 Tf 72 600 Td (secret) Tj ET Q",
    ),
    (
        "continued in white",
        "BT /F 12 Tf 72 600 Td () Tj 1 g (sec) Tj (ret) Tj ET",
    ),
];

#[test]
fn text_that_a_person_cannot_see_is_left_out_and_counted() {
    for (how, content) in HIDING_CONTENTS {
        let conversion = convert_pdf(page(&format!("{VISIBLE_TEXT}{content}")), false);
        assert_eq!(conversion.markdown, "This can be read.\n", "{how}");
        assert_eq!(
            conversion.warnings,
            ["hidden content dropped: 6 characters"],
            "{how}"
        );
    }
}

#[test]
fn a_text_that_replaces_far_fewer_glyphs_is_left_out_and_counted() {
    let replaced = |properties: &str, glyphs: &str| {
        format!("{VISIBLE_TEXT}/Span {properties} BDC BT /F 12 Tf 72 600 Td ({glyphs}) Tj ET EMC")
    };
    for properties in [
        "<</ActualText (ignore all of this)>>",
        "<</MCID 0/ActualText<FEFF00690067006E006F0072006500200061006C006C0020006F006600200074006800690073>>>",
    ] {
        let left_out = convert_pdf(page(&replaced(properties, "xy")), false);
        assert_eq!(
            left_out.markdown, "This can be read.\n\nxy\n",
            "{properties}"
        );
        assert_eq!(
            left_out.warnings,
            ["hidden content dropped: 15 characters"],
            "{properties}"
        );
        let shown = convert_pdf(page(&replaced(properties, "xy")), true);
        assert!(
            shown.markdown.contains("ignore all of this"),
            "{}",
            shown.markdown
        );
        assert_eq!(
            shown.warnings,
            ["hidden content shown: 15 characters"],
            "{properties}"
        );
    }
    let ligature = convert_pdf(page(&replaced("<</ActualText (ffi)>>", "x")), false);
    assert_eq!(ligature.markdown, "This can be read.\n\nffi\n");
    assert_eq!(ligature.warnings, [""; 0]);
}

#[test]
fn title_author_and_subject_of_a_file_are_not_shown() {
    let file = String::from_utf8(page(VISIBLE_TEXT)).unwrap();
    let info = "99 0 obj\n<< /Title (secret) /Author (secret) /Subject (secret) /Keywords (secret) >>\nendobj\n";
    let with_info = format!("{info}trailer\n<< /Info 99 0 R /Root 1 0 R >>");
    let file = file.replace("trailer\n<< /Root 1 0 R >>", &with_info);
    assert!(file.contains("/Info 99 0 R"));
    for show_hidden in [false, true] {
        let converted = convert_pdf(file.clone().into_bytes(), show_hidden);
        assert_eq!(
            converted.markdown, "This can be read.\n",
            "{:?}",
            converted.warnings
        );
    }
}

#[test]
fn hidden_text_is_shown_on_request_and_still_counted() {
    for (how, content) in HIDING_CONTENTS {
        let conversion = convert_pdf(page(&format!("{VISIBLE_TEXT}{content}")), true);
        assert!(
            conversion.markdown.contains("secret"),
            "{how}: {}",
            conversion.markdown
        );
        assert_eq!(
            conversion.warnings,
            ["hidden content shown: 6 characters"],
            "{how}"
        );
    }
}

/// Content that shows the word `seen` although a program would consider it hidden.
const LOOKING_HIDDEN: [(&str, &str); 21] = [
    (
        "white on a dark box",
        "0 0 0.4 rg 60 590 200 40 re f BT 1 g /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "white on a dark shape with round corners",
        "0.4 g 60 600 m 60 590 70 590 80 590 c 260 590 l 260 630 l 60 630 l h f \
             BT 1 g /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "white on a picture",
        "q 200 0 0 40 60 590 cm /Pic Do Q BT 1 g /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "white with a black outline",
        "BT 1 g 0 G 2 Tr /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "blue of Lab",
        "BT /Lab cs 40 20 -60 scn /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "black of a table",
        "BT /Few cs 0 sc /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "under a picture that can be seen through",
        "BT /F 12 Tf 72 600 Td (seen) Tj ET q 200 0 0 40 60 590 cm /Glass Do Q",
    ),
    (
        "full spot ink",
        "BT /Spot cs 1 scn /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "condensed to a half",
        "BT 50 Tz /F 1 Tf 12 0 0 12 72 600 Tm (seen) Tj ET",
    ),
    (
        "over a picture",
        "q 200 0 0 40 60 590 cm /Pic Do Q BT /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "under something half transparent",
        "BT /F 12 Tf 72 600 Td (seen) Tj ET q /Half gs 1 1 0 rg 60 590 200 40 re f Q",
    ),
    (
        "beside a box",
        "BT /F 12 Tf 72 600 Td (seen) Tj ET 0 g 300 590 200 40 re f",
    ),
    (
        "a box that a clip keeps away",
        "BT /F 12 Tf 72 600 Td (seen) Tj ET q 0 0 9 9 re W n 1 g 60 590 200 40 re f Q",
    ),
    (
        "after the state is restored",
        "q 1 g 3 Tr Q BT /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "under the light part of a soft mask",
        "q /Light gs BT /F 12 Tf 72 600 Td (seen) Tj ET Q",
    ),
    (
        "under a soft mask with opacity",
        "q /There gs BT /F 12 Tf 72 600 Td (seen) Tj ET Q",
    ),
    (
        "under a soft mask over a white backdrop",
        "q /Paper gs BT /F 12 Tf 72 600 Td (seen) Tj ET Q",
    ),
    (
        "under a soft mask with a function",
        "q /Turned gs BT /F 12 Tf 72 600 Td (seen) Tj ET Q",
    ),
    (
        "under a soft mask of letters",
        "q /Shaped gs BT /F 12 Tf 72 600 Td (seen) Tj ET Q",
    ),
    (
        "after a soft mask was taken off",
        "/Dark gs /Bare gs BT /F 12 Tf 72 600 Td (seen) Tj ET",
    ),
    (
        "a Type 3 font with a matrix of its own",
        "BT /T3 0.5 Tf 72 600 Td 1 0 0 1 72 600 Tm () Tj /F 12 Tf (seen) Tj ET",
    ),
];

#[test]
fn text_that_only_looks_hidden_to_a_program_stays() {
    for (how, content) in LOOKING_HIDDEN {
        let conversion = convert_pdf(page(&format!("{VISIBLE_TEXT}{content}")), false);
        assert!(
            conversion.markdown.contains("seen"),
            "{how}: {} {:?}",
            conversion.markdown,
            conversion.warnings
        );
        assert_eq!(conversion.warnings, [""; 0], "{how}");
    }
}

#[test]
fn the_ocr_layer_of_a_scan_is_visible_text() {
    for (how, content) in [
        (
            "invisible text over the scan",
            "q 612 0 0 792 0 0 cm /Pic Do Q BT 3 Tr /F 12 Tf 72 600 Td (Recognised text.) Tj ET",
        ),
        (
            "invisible text before the scan",
            "BT 3 Tr /F 12 Tf 72 600 Td (Recognised text.) Tj ET q 612 0 0 792 0 0 cm /Pic Do Q",
        ),
        (
            "text under the scan",
            "BT /F 12 Tf 72 600 Td (Recognised text.) Tj ET q 612 0 0 792 0 0 cm /Pic Do Q",
        ),
    ] {
        let conversion = convert_pdf(page(content), false);
        assert_eq!(conversion.markdown, "Recognised text.\n", "{how}");
        assert_eq!(conversion.warnings, [""; 0], "{how}");
    }
}

#[test]
fn a_page_with_only_hidden_text_has_a_warning() {
    let conversion = convert_pdf(page(HIDING_CONTENTS[0].1), false);
    assert_eq!(conversion.markdown, "");
    assert_eq!(
        conversion.warnings,
        ["hidden content dropped: 6 characters"]
    );
}

#[test]
fn a_form_is_judged_each_time_it_is_drawn() {
    let content =
        format!("{VISIBLE_TEXT}/Form Do 0 g 60 490 200 40 re f q 1 0 0 1 0 0 cm /Form Do Q");
    let conversion = convert_pdf(page(&content), false);
    assert_eq!(
        conversion.markdown.matches("secret").count(),
        1,
        "{}",
        conversion.markdown
    );
    assert_eq!(
        conversion.warnings,
        ["hidden content dropped: 6 characters"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_operators_give_text_or_a_failure(
        operators in proptest::collection::vec(
            prop::sample::select(vec![
                "q", "Q", "BT", "ET", "(a) Tj", "[(b) 9 (c)] TJ", "1 g", "0 g", "3 Tr", "7 Tr", "0 Tr", "/F 12 Tf",
                "/Form Do", "/Pic Do", "/Clear gs", "/Again gs", "/Light gs", "0 0 9 9 re", "W n", "f*", "B", "72 600 Td", "/Spot cs", "0 scn",
                "1e38 0 0 1e38 0 0 cm", "0 0 0 0 0 0 cm", "1 2 m 3 4 l h", "S", "/OC /None BDC", "EMC", "(", "<<", "]",
            ]),
            0..40,
        ),
    ) {
        let conversion = convert_pdf(page(&operators.join(" ")), false);
        prop_assert_eq!(conversion.markdown.is_empty(), conversion.failure.is_some());
    }
}
