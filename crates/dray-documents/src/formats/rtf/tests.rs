//! RTF: what is kept, what is dropped, what is hostile.

use super::write_rtf;
use crate::formats::text::testing::{
    convert_bytes, convert_to_markdown, convert_until_limit, test_hint,
};
use crate::limits::{Damage, Failure, Limit, Limits};

fn markdown_of(source: &[u8]) -> String {
    convert_to_markdown("application/rtf", "rtf", source)
}

/// A document with that content.
fn body(content: &str) -> String {
    markdown_of(format!("{{\\rtf1\\ansi\\ansicpg1252\\deff0 {content}}}").as_bytes())
}

#[test]
fn paragraphs_and_formats() {
    assert_eq!(
        body(
            "Plain {\\b bold} \\i it\\i0\\b al\\plain ic\\par second\\line line\\par\\pard {\\strike gone} \\{x\\}\\\\"
        ),
        "Plain **bold** *it***al**ic\n\nsecond\nline\n\n~~gone~~ {x}\\\n"
    );
}

#[test]
fn raised_digits_are_superscripts() {
    assert_eq!(
        body("10{\\super 6} 10\\super -3\\nosupersub 5 H{\\sub 2}O 1{\\super st}"),
        "10⁶ 10⁻³5 H2O 1st\n"
    );
}

#[test]
fn characters_by_code_page_name_and_number() {
    assert_eq!(
        body(
            "\\'e9\\'80 \\ldblquote a\\rdblquote\\emdash b\\~c\\_d\\-e \\u8364?\\u-10179?\\u-8704? \\uc2\\u233\\'3f\\'3f.\\uc0\\u233 x"
        ),
        "é€ “a”—b\u{A0}c-de €😀 é.éx\n"
    );
    assert_eq!(
        markdown_of(b"{\\rtf1\\ansi\\ansicpg1251 \\'cf\\'f0\\'e8\\'e2\\'e5\\'f2}"),
        "Привет\n"
    );
    assert_eq!(
        markdown_of(b"{\\rtf1\\ansi{\\fonttbl{\\f0\\fcharset0 A;}{\\f1\\fcharset128 B;}}\\f1 \\'93\\'fa\\'96{\\'7b}\\f0\\'e9}"),
        "日\u{FFFD}{é\n"
    );
    assert_eq!(
        markdown_of(b"{\\rtf1\\ansi{\\fonttbl{\\f1\\fcharset128 B;}}\\f1 \\'93\\'fa\\'83A\\f0 x}"),
        "日アx\n"
    );
    assert_eq!(markdown_of(b"{\\rtf1\\pc \\'81}"), "ü\n");
}

#[test]
fn symbols_are_the_characters_that_their_font_shows() {
    let fonts = "{\\fonttbl{\\f0\\fcharset0 Arial;}{\\f3\\froman\\fcharset2 Symbol;}\
        {\\f4\\fcharset2{\\*\\panose 0500}Wingdings;}{\\f5\\fcharset2 Webdings;}{\\f6\\fcharset0 Symbol;}}";
    assert_eq!(
        body(&format!(
            "{fonts}dose {{\\f3 \\'a3}} 5 {{\\f3 m}}g \
             {{\\field{{\\*\\fldinst SYMBOL 179 \\\\f \"Symbol\"}}{{\\fldrslt\\f3 \\'b3}}}} 18 \
             {{\\f4 \\'fc}} {{\\f3 \\u-3919?}}1 {{\\f6 m}} \\f3 a\\plain a"
        )),
        "dose ≤ 5 µg ≥ 18 ✓ ±1 m αa\n"
    );
    let unknown = |content: &str| {
        let source = format!("{{\\rtf1\\ansi {fonts}{content}}}");
        convert_bytes(
            &test_hint("application/rtf", "rtf"),
            source.as_bytes(),
            Limits::default(),
        )
    };
    let shown = unknown("a {\\f5 a}");
    assert_eq!(shown.markdown, "a \u{FFFD}\n");
    assert_eq!(
        shown.warnings,
        ["characters of a symbol font are not shown"]
    );
    // The sign before an item only makes it an item.
    assert!(unknown("{\\listtext\\f5 a}item").warnings.is_empty());
}

#[test]
fn check_boxes_and_lists_show_their_state() {
    let field = |instruction: &str, data: &str, result: &str| {
        format!(
            "{{\\field{{\\*\\fldinst {instruction} {{\\*\\formfield{{{data}{{\\*\\ffname n}}}}}}}}{{\\fldrslt {result}}}}}"
        )
    };
    let entries = "{\\*\\ffl Approved}{\\*\\ffl Rejected}";
    let source = [
        "FORM ".to_owned(),
        field("FORMCHECKBOX", "\\fftype1\\ffres1\\ffdefres0", ""),
        " yes ".to_owned(),
        field("FORMCHECKBOX", "\\fftype1\\ffres25\\ffdefres0", ""),
        " no ".to_owned(),
        field(
            "FORMDROPDOWN",
            &format!("\\fftype2\\ffres1{entries}"),
            "Rejected",
        ),
        " ".to_owned(),
        field("FORMTEXT", "\\fftype0\\ffres0", "Ann"),
    ];
    assert_eq!(body(&source.concat()), "FORM ☒ yes ☐ no Rejected Ann\n");
}

#[test]
fn groups_without_text_are_dropped() {
    assert_eq!(
        body(
            "{\\info{\\title T}}{\\*\\generator G;}{\\colortbl;\\red0;}{\\header H}{\\footerf F}{\\*\\themedata 00}\
             {\\object{\\*\\objdata 00ff}{\\result shown}}{\\*\\unknown u}{\\pict\\pngblip 89504e}{\\*\\bkmkstart b}\
             {\\upr{ansi}{\\*\\ud{uni}}}{\\shp{\\*\\shpinst{\\sp{\\sn n}{\\sv v}}{\\shptxt box}}{\\shprslt old}}\
             a{\\v hidden}{\\deleted gone}b"
        ),
        "shownuniboxab\n"
    );
}

#[test]
fn left_out_content_is_reported() {
    let conversion = convert_bytes(
        &test_hint("application/rtf", "rtf"),
        b"{\\rtf1 a{\\pict 00}{\\v x}",
        Limits::default(),
    );
    assert_eq!(conversion.markdown, "a\n");
    assert_eq!(
        conversion.warnings,
        [
            "images are left out",
            "the file ends too early",
            "hidden content dropped: 1 character",
        ]
    );
}

#[test]
fn binary_data_is_skipped() {
    assert_eq!(
        markdown_of(b"{\\rtf1 a{\\pict\\bin4 }{}}}b\\bin2 \\}c}"),
        "abc\n"
    );
    assert_eq!(markdown_of(b"{\\rtf1 a\\bin-5 b\\bin2147483647 c}"), "ab\n");
}

#[test]
fn rows_and_cells_become_a_table() {
    assert_eq!(
        body(
            "before\\par\\trowd\\cellx1\\cellx2\\pard\\intbl a\\cell b|c\\cell\\row\
             \\trowd\\pard\\intbl {\\b d}\\par e\\cell\\cell\\row\\pard after\\par"
        ),
        "before\n\n| a | b\\|c |\n|---|---|\n| **d**<br>e |  |\n\nafter\n"
    );
}

#[test]
fn tables_within_cells_are_lines_and_tables_apart_stay_apart() {
    assert_eq!(
        body(
            "\\trowd\\pard\\intbl x\\par\\pard\\intbl\\itap2 a\\nestcell b\\nestcell{\\*\\nesttableprops\\trowd\\nestrow}\
             {\\nonesttables\\par}\\pard\\intbl y\\cell z\\cell\\row\\pard\\par\\trowd\\pard\\intbl 1\\cell\\row"
        ),
        "| x<br>a ; b<br>y | z |\n|---|---|\n\n| 1 |\n|---|\n"
    );
}

#[test]
fn headings_by_level_and_by_style() {
    assert_eq!(
        body(
            "{\\stylesheet{\\s0 Normal;}{\\s1\\b heading 1;}{\\s7\\outlinelevel2 Own;}}\
             {\\pard\\s1\\b One\\par}\\pard\\s0 text\\par\\pard\\s7 Three\\par\\pard\\outlinelevel1 Two\\par\\pard\\outlinelevel9 no\\par"
        ),
        "# One\n\ntext\n\n### Three\n\n## Two\n\nno\n"
    );
}

#[test]
fn lists_by_their_markers() {
    assert_eq!(
        body(
            "\\pard{\\listtext\\'b7\\tab}\\ls1\\ilvl0 a\\par\\pard{\\listtext 2.\\tab}\\ls1\\ilvl1 b\\par\
             \\pard{\\pntext 1.3)\\tab}c\\par\\pard d"
        ),
        "- a\n  2. b\n- 1.3) c\n\nd\n"
    );
}

#[test]
fn links_and_notes() {
    assert_eq!(
        body(
            "{\\field{\\*\\fldinst{HYPERLINK \"https://a.example/x\"}}{\\fldrslt{\\ul here}}} \
             {\\field{\\*\\fldinst HYPERLINK \\\\l \"mark\"}{\\fldrslt there}} \
             {\\field{\\*\\fldinst HYPERLINK \"javascript:x\"}{\\fldrslt no}} \
             {\\field{\\*\\fldinst PAGE}{\\fldrslt 7}}{\\super\\chftn{\\footnote {\\chftn} A note}}."
        ),
        "[here](https://a.example/x) [there](#mark) no 7[^1].\n\n### Footnotes\n\n[^1]: A note\n"
    );
}

#[test]
fn comments_follow_the_text_with_their_authors() {
    assert_eq!(
        body(
            "a{\\*\\atrfstart 1}b{\\*\\atrfend 1}{\\*\\atnid AL}{\\*\\atnauthor Ada L}\\chatn{\\*\\annotation{\\*\\atnref 1}{\\*\\atndate 5}\\pard {\\chatn} why\\par so?}c\\par{}\
             d{\\*\\annotation{\\*\\atnref 2}{\\footnote lost}nobody}{\\*\\annotation }e"
        ),
        "abc\n\nde\n\n### Comments\n\n- Ada L: why\n  so?\n- lostnobody\n"
    );
}

#[test]
fn nesting_of_any_depth_keeps_the_text_and_drops_other_content() {
    let source = format!(
        "{{\\rtf1 {}deep{{\\*\\objdata 00{{11}}22}}{{\\pict 33}}down{}end}}rest",
        "{".repeat(100_000),
        "}".repeat(100_000)
    );
    let conversion = convert_bytes(
        &test_hint("application/rtf", "rtf"),
        source.as_bytes(),
        Limits::default(),
    );
    assert_eq!(conversion.markdown, "deepdownend\n");
    assert!(
        conversion
            .warnings
            .contains(&"groups nested too deeply are shown flat".to_owned())
    );
}

#[test]
fn limits_keep_the_text_that_was_read() {
    let source = format!("{{\\rtf1 a\\par {}}}", "word ".repeat(1_200_000));
    let (text, limit) = convert_until_limit("application/rtf", "rtf", source.as_bytes());
    assert_eq!(limit, Limit::Size);
    assert!(text.starts_with("a\n\nword word") && text.len() > 4_900_000);
    let rows = "\\trowd\\pard\\intbl x\\cell\\row".repeat(10);
    let limits = Limits {
        max_elements: 3,
        ..Limits::default()
    };
    let conversion = convert_bytes(
        &test_hint("application/rtf", "rtf"),
        format!("{{\\rtf1 {rows}}}").as_bytes(),
        limits,
    );
    assert_eq!(conversion.stopped, Some(Limit::Element));
    assert!(
        conversion
            .markdown
            .starts_with("| x |\n|---|\n| x |\n| x |\n")
    );
}

#[test]
fn an_endless_table_shows_a_thousand_rows_and_counts_the_rest() {
    let text = body(&"\\trowd\\pard\\intbl x\\cell\\row".repeat(3001));
    assert!(text.ends_with("| x |\n\n_(2000 more rows truncated)_\n"));
}

#[test]
fn damaged_files() {
    let conversion = convert_bytes(
        &test_hint("application/rtf", "rtf"),
        b"{\\pwd}",
        Limits::default(),
    );
    assert_eq!(
        conversion.failure,
        Some(Failure::Corrupt(Damage::Malformed))
    );
    for blank in [
        &b"{\\rtf1 }"[..],
        b"{\\rtf1 {\\field{\\fldrslt",
        b"{\\rtf1 {\\pict 00}}",
    ] {
        let conversion = convert_bytes(
            &test_hint("application/rtf", "rtf"),
            blank,
            Limits::default(),
        );
        assert_eq!(conversion.failure, Some(Failure::NoText));
    }
    for (source, text) in [
        (&b"{\\rtf1 a"[..], "a\n"),
        (b"{\\rtf1 a\\", "a\n"),
        (b"{\\rtf1 a}}}}b", "a\n"),
        (
            b"{\\rtf1 \\trowd\\intbl a\\cell b",
            "| a | b |\n|---|---|\n",
        ),
        (
            b"{\\rtf1 {\\footnote a",
            "[^1]\n\n### Footnotes\n\n[^1]: a\n",
        ),
        (b"", ""),
    ] {
        assert_eq!(
            markdown_of(source),
            text,
            "{}",
            String::from_utf8_lossy(source)
        );
    }
}

#[test]
fn the_body_of_a_mail_is_decoded_in_the_same_way() {
    use std::rc::Rc;

    use crate::limits::Budget;
    use crate::markdown::{Markdown, Selection};

    let mut out = Markdown::new(Rc::new(Budget::new(Limits::default())), Selection::All);
    write_rtf(b"{\\rtf1\\fromhtml1 {\\*\\htmltag <p>}a\\par}", &mut out).unwrap();
    assert_eq!(out.finish().markdown, "a\n");
}
