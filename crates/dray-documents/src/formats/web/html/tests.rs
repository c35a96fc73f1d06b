//! HTML: every rule of read-attachment 7.5, and hostile pages.

use std::fmt::Write as _;
use std::rc::Rc;

use super::write_html;
use crate::limits::{Budget, Failure, Limit, Limits};
use crate::markdown::{FinishedMarkdown, Markdown, Selection, Span};

fn within(
    source: &str,
    limits: Limits,
    selection: Selection,
) -> (FinishedMarkdown, Result<(), Failure>) {
    let mut out = Markdown::new(Rc::new(Budget::new(limits)), selection);
    let result = write_html(source, &mut out);
    (out.finish(), result)
}

fn markdown_of(source: &str) -> String {
    let (written, result) = within(source, Limits::default(), Selection::All);
    assert_eq!(result, Ok(()));
    written.markdown
}

#[test]
fn headings_paragraphs_and_formats() {
    let text = markdown_of(
        "<!doctype html><html><head><title>T</title><style>p{}</style></head><body>\
         <h1>One  <em>two</em></h1>\n<p>Some <b>bold</b>, <i>italic</i> and <del>gone</del>\ntext \
         with <code>a`b</code>.<p>H<sub>2</sub>O &amp; &lt;x&gt; &eacute; &#x41;<h7>x</h7>\
         <h6>Six</h6><blockquote><p>said<p>more</blockquote><hr>end<br>of page",
    );
    assert_eq!(
        text,
        "# One two\n\nSome **bold**, *italic* and ~~gone~~ text with ``a`b``.\n\n\
         H2O & \\<x> é Ax\n\n###### Six\n\n> said\n>\n> more\n\n---\n\nend\nof page\n"
    );
}

#[test]
fn raised_digits_are_superscripts() {
    assert_eq!(
        markdown_of(
            "<p>10<sup>&minus;6</sup> H<sub>2</sub>O 1<sup>st</sup> <b>x<sup>n+1</sup></b>"
        ),
        "10⁻⁶ H2O 1st **xⁿ⁺¹**\n"
    );
}

#[test]
fn lists_nest_and_keep_their_numbers() {
    let text = markdown_of(
        "<ul><li>a<ul><li>b</li><li>c<ol start=5><li>five<li>six<li value=9>nine</ol></ul>\
         <li><p>d</p><p>e</p></ul><ol><li>one</ol><p>after",
    );
    assert_eq!(
        text,
        "- a\n  - b\n  - c\n    5. five\n    6. six\n    9. nine\n- d\n\n  e\n1. one\n\nafter\n"
    );
}

#[test]
fn tables_have_headers_captions_and_spans() {
    let text = markdown_of(
        "before<table><caption>Prices</caption><thead><tr><th>a</th><th colspan=2>b|c</th></tr>\
         </thead><tbody><tr><td rowspan=2>1<td>2<td>3<tr><td>4<br>5<td><ul><li>x<li>y</ul>\
         </tbody></table>after",
    );
    assert_eq!(
        text,
        "before\n\nPrices\n\n| a | b\\|c |  |\n|---|---|---|\n| 1 | 2 | 3 |\n\
         |  | 4<br>5 | - x<br>- y |\n\nafter\n"
    );
}

#[test]
fn nested_tables_are_lines_of_the_outer_cell() {
    let text = markdown_of(
        "<table><tr><th>h<th>i<tr><td>x<table><tr><td>a<td>b<tr><td>c<td>d</table>y<td>z</table>",
    );
    assert_eq!(
        text,
        "| h | i |\n|---|---|\n| x<br>a ; b<br>c ; d<br>y | z |\n"
    );
}

#[test]
fn tables_for_layout_are_not_shown_as_tables() {
    let text = markdown_of(
        "<table role=presentation><tr><td><h1>Shop</h1><td><table><tr><td>a<td>b</table></table>x",
    );
    assert_eq!(text, "# Shop\n\n| a | b |\n|---|---|\n\nx\n");
}

#[test]
fn code_keeps_its_lines_and_language() {
    let text = markdown_of(
        "<pre class='x language-rust'>\nfn a() {\n    <b>b</b>()\n}\n</pre>\
         <pre><code class=\"language-c++\">int  x;<br>y;</code></pre><p><code>in  line</code>",
    );
    assert_eq!(
        text,
        "```rust\nfn a() {\n    b()\n}\n```\n\n```c++\nint  x;\ny;\n```\n\n`in line`\n"
    );
}

#[test]
fn hidden_content_and_markup_that_is_not_text_are_left_out() {
    let source = "<p hidden>a<p>b<script>c<p></script><template><p>d</template><noscript>e</noscript>\
         <!-- f --><svg><title>icon</title><style>g</style><text>h</text></svg><span style='color:red; \
         DISPLAY : none !important'>i<span>j</span>k</span><div hidden=until-found>l</div>\
         <b hidden><b>m</b>n</b>o<table><tr><td>p<tr hidden><td>q<tr><td>r</table>";
    let (written, result) = within(source, Limits::default(), Selection::All);
    assert_eq!(result, Ok(()));
    assert_eq!(
        written.markdown,
        "biconh\n\nl\n\no\n\n| p |\n|---|\n| r |\n"
    );
    assert_eq!(written.warnings, ["hidden content dropped: 7 characters"]);
}

/// Converts each source, and compares the text and the number of hidden characters.
#[track_caller]
fn check_hidden(cases: &[(&str, &str, u32)]) {
    for &(source, shown, dropped) in cases {
        let (written, result) = within(source, Limits::default(), Selection::All);
        assert_eq!(result, Ok(()));
        assert_eq!(written.markdown.trim(), shown, "{source}");
        let expected = match dropped {
            0 => Vec::new(),
            count => vec![format!("hidden content dropped: {count} characters")],
        };
        assert_eq!(written.warnings, expected, "{source}");
    }
}

#[test]
fn text_that_a_style_hides_or_makes_unreadable_is_left_out() {
    check_hidden(&[
        ("<p>a<span style='visibility:hidden'>bc</span>d", "ad", 2),
        (
            "<p>a<span style='Visibility: collapse !important'>bc</span>d",
            "ad",
            2,
        ),
        ("<p>a<span style='font-size:0'>bc</span>d", "ad", 2),
        ("<p>a<b style='font-size:0px'>bc</b>d", "ad", 2),
        (
            "<p>a<span style='font-size:1px;color:#fff'>bc</span>d",
            "ad",
            2,
        ),
        ("<p>a<span style='font-size:0.01em'>bc</span>d", "ad", 2),
        ("<p>a<span style='font: bold 0/0 serif'>bc</span>d", "ad", 2),
        // The size of an inner element counts; a factor of size 0 is size 0.
        (
            "<div style='font-size:0'>x<p style='font-size:14px'>a</p> <p style='font-size:2em'>y</p></div>",
            "a",
            2,
        ),
        (
            "<a href=u style='font-size:0'>bc<span style='font-size:1em'>d</span><span style='font-size:12px'>a</span></a>",
            "[a](u)",
            3,
        ),
        (
            "<a href='https://a.example/' style='font-size:0'><img src='i' alt='a'></a>",
            "[![a](i)](https://a.example/)",
            0,
        ),
        (
            "<p style='font-size:9pt'>a<span style='opacity:0'>b</span>",
            "ab",
            0,
        ),
        ("<p style='font: 400 12px/0 serif'>a", "a", 0),
        ("<p style='font-size:large'>a", "a", 0),
    ]);
}

#[test]
fn content_that_no_browser_shows_is_left_out() {
    check_hidden(&[
        ("<dialog>bc</dialog>a", "a", 2),
        ("<dialog open>a</dialog>", "a", 0),
        ("<dialog style='display:block'>a</dialog>", "a", 0),
        ("<dialog style='display:x'>bc</dialog>a", "a", 2),
        ("<div popover>bc</div>a", "a", 2),
        ("<datalist><option>bc</datalist>a", "a", 2),
        ("<video><p>bc</p></video>a", "a", 2),
        ("<audio>bc</audio>a", "a", 2),
        ("<canvas>bc</canvas>a", "a", 2),
        ("<object data=x><p>bc</object>a", "a", 2),
        ("<object>a</object>", "a", 0),
        ("<noframes>bc</noframes>a", "a", 2),
        ("<div style='content-visibility:hidden'>bc</div>a", "a", 2),
    ]);
}

#[test]
fn a_style_counts_as_a_browser_reads_it() {
    check_hidden(&[
        ("<p style='display/**/:none'>bc<p>a", "a", 2),
        ("<p style='dis\\70lay:none'>bc<p>a", "a", 2),
        ("<p style='display:none;display:block'>a", "a", 0),
        (
            "<p style='display:none!important;display:block'>bc<p>a",
            "a",
            2,
        ),
        ("<p style='display:none;display:x'>bc<p>a", "a", 2),
        ("<p style='display:none;x:(;display:block'>bc<p>a", "a", 2),
        (
            "<p style='font-size:0!important;font-size:12px'>bc<p>a",
            "a",
            2,
        ),
        ("<p hidden style='display:block'>a", "a", 0),
    ]);
}

#[test]
fn text_that_an_inner_element_shows_again_is_kept() {
    check_hidden(&[
        (
            "<div style='visibility:hidden'>bc<p style='visibility:visible'>a",
            "a",
            2,
        ),
        (
            "<p><b style='font-size:0'>bc<span style='font-size:14px'>a</span></b>",
            "a",
            2,
        ),
        ("<p><b style='font-size:0'><b>b</b>c</b>a", "a", 2),
        (
            "<p><b style='font-size:0'><img src=i alt=a></b>",
            "![a](i)",
            0,
        ),
        (
            "<div style='font-size:0'><p style='font-size:medium'>a<p style='font-size:calc(1em + 1px)'>b",
            "a\n\nb",
            0,
        ),
        ("<p style='font: 1em / 0px serif'>a", "a", 0),
        ("<p style='font: oblique 0deg 16px x'>a", "a", 0),
        ("<p style='font-size:-1px'>a", "a", 0),
    ]);
}

#[test]
fn links_and_images() {
    for (source, text) in [
        ("<a href='/x y'>z</a>", "[z](</x y>)"),
        ("<a href=javascript:alert(1)>z</a>", "z"),
        ("<a href='data:text/html,x'>z</a>", "z"),
        (
            "<a href=https://a.example/></a>",
            "[https://a.example/](https://a.example/)",
        ),
        ("<a href=#top></a>a", "a"),
        ("<a href=u>a<a href=v>b</a>", "[a](u)[b](v)"),
        ("<a href=u><div>a</div><p>b</a>", "[a](u)\n\n[b](u)"),
        (
            "<a href=u><img src=i.png alt='An  image'></a>",
            "[![An image](i.png)](u)",
        ),
        ("<img src='data:image/png;base64,AAAA' alt=dot>", "![dot]"),
        ("<img src='data:image/png;base64,AAAA'>", ""),
        ("<a name=x>y</a>", "y"),
    ] {
        assert_eq!(markdown_of(source).trim_end(), text, "{source}");
    }
}

#[test]
fn terms_and_definitions() {
    assert_eq!(
        markdown_of("<dl><dt>A<dd>one<dd>two<dt>B<dd><p>x<p>y</dl>z"),
        "A\n\n: one\n: two\n\nB\n\n: x\n\n  y\n\nz\n"
    );
}

#[test]
fn elements_that_nest_wrongly_keep_all_text_in_order() {
    for (source, text) in [
        ("<b>1<p>2</b>3</p>4", "**1**\n\n**2**3\n\n4"),
        ("<p>a<div>b</div>c</p>d", "a\n\nb\n\nc\n\nd"),
        ("</div></p></table>a</i>b", "ab"),
        ("<table><p>out<tr><td>in</table>", "out\n\n| in |\n|---|"),
        (
            "<table><tr><td>a</div><p>b</table>c",
            "| a<br>b |\n|---|\n\nc",
        ),
        ("<tr><td>a<td>b", "a\n\nb"),
        ("<td>a</td><li>b", "a\n\n- b"),
        ("<table><td>a<table><tr><td>b", "| a<br>b |\n|---|"),
        ("<table><tr><table><tr><td>b</table>c", "| b |\n|---|\n\nc"),
        ("<h1>a<h2>b</h3>c</h2>d", "# a\n\n## b\n\nc\n\nd"),
        ("<select><option>a<option>b</select>", "a\n\nb"),
        ("<ul><li>a</b></i><li hidden>x<li>c</ul>", "- a\n- c"),
    ] {
        let (written, result) = within(source, Limits::default(), Selection::All);
        assert_eq!(result, Ok(()));
        assert_eq!(written.markdown.trim_end(), text, "{source}");
    }
}

#[test]
fn fields_of_forms_show_their_state() {
    for (source, text) in [
        (
            "<p><input type=checkbox checked> yes <input type=CHECKBOX> no <input type=radio checked>maybe",
            "☒ yes ☐ no ☒ maybe",
        ),
        ("<select><option>a<option selected>b</select>", "a\n\n☒ b"),
        (
            "<p>Name:<input value='Ann  Lee'>Age: <input type=number value=7> <input type=hidden value=x><input type=submit value=Send>",
            "Name: Ann Lee Age: 7",
        ),
        (
            "<ul><li><input type=checkbox checked> done</ul>",
            "- [x] done",
        ),
    ] {
        assert_eq!(markdown_of(source).trim_end(), text, "{source}");
    }
    check_hidden(&[
        ("<p>a<input style='font-size:0' value=bc>", "a", 2),
        ("<p>a<input hidden value=bc>", "a", 0),
    ]);
}

#[test]
fn xhtml_closes_its_elements_and_has_cdata() {
    let text = markdown_of(
        "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='x'/></head>\
         <body><p>a<a id='p1'/>b <i/>c</p><p><![CDATA[1 < 2 && 3 > 2]]></p><div/>d</body></html>",
    );
    assert_eq!(text, "ab c\n\n1 < 2 && 3 > 2\n\nd\n");
    let double = "<html xmlns=\"http://www.w3.org/1999/xhtml\"><title/><p>a";
    assert_eq!(markdown_of(double), "a\n");
    // In HTML only a void element closes itself.
    assert_eq!(markdown_of("<p>a<b/>c"), "a**c**\n");
}

#[test]
fn a_page_with_only_a_title_shows_it() {
    assert_eq!(markdown_of("<title> The  title</title>"), "# The title\n");
    assert_eq!(markdown_of("<title>T</title><p>x"), "x\n");
    assert_eq!(markdown_of("<script>x</script>"), "");
}

#[test]
fn no_data_url_reaches_the_output() {
    let payload = "A".repeat(5000);
    let text = markdown_of(&format!(
        "<img alt=x src='data:image/png;base64,{payload}'><a href=' DATA:x,{payload}'>y</a>\
         <object data='data:x,{payload}'>z</object>"
    ));
    assert!(!text.contains("AAAA"), "{text}");
}

#[test]
fn nesting_of_any_depth_keeps_the_text() {
    for open in [
        "<div>",
        "<b>",
        "<span>",
        "<ul><li>",
        "<blockquote>",
        "<table><tr><td>",
        "<a href=x>",
        "<svg>",
        "<table>",
        "<p>",
        "<dl><dd>",
        "<pre>",
        "<h1>",
        "<font>",
        "<select><option>",
    ] {
        let mut source = open.repeat(if open == "<div>" { 100_000 } else { 10_000 });
        source.push_str("deep<script>no</script><p>down");
        let (written, result) = within(&source, Limits::default(), Selection::All);
        let text = written.markdown;
        assert!(
            text.contains("deep") && text.contains("down"),
            "{open}: {result:?}"
        );
        assert!(!text.contains("no"), "{open}");
    }
}

#[test]
fn content_below_the_depth_limit_is_reported_and_later_content_keeps_its_place() {
    let source = format!(
        "<ul><li>{}x{}y</ul><h1>end</h1>",
        "<div>".repeat(1000),
        "</div>".repeat(1000)
    );
    let (written, result) = within(&source, Limits::default(), Selection::All);
    assert_eq!(result, Ok(()));
    assert_eq!(written.markdown, "- x\n\n  y\n\n# end\n");
    assert_eq!(
        written.warnings,
        ["elements nested too deeply are shown flat"]
    );
}

#[test]
fn spans_of_a_billion_columns_use_little_memory() {
    let text = markdown_of(
        "<table><tr><td colspan=1000000000>a<td rowspan=99999999999999999999>b<tr><td colspan=-1>c<td colspan=0>d</table>",
    );
    assert!(text.len() < 2000 && text.contains("| c | d |"), "{text}");
}

#[test]
fn an_endless_table_shows_a_thousand_rows_and_counts_the_rest() {
    let mut source = String::from("<table><tr><th>n");
    for row in 1..=60_000 {
        let _ = write!(source, "<tr><td>{row}");
    }
    let text = markdown_of(&source);
    assert!(text.ends_with("| 1000 |\n\n_(59000 more rows truncated)_\n"));
}

#[test]
fn a_window_of_rows_keeps_the_header() {
    let source = "<table><tr><th>n<tr><td>1<tr><td>2<tr><td>3<tr><td>4</table>";
    let selection = Selection::Rows {
        span: Span { first: 3, last: 4 },
    };
    let (written, _) = within(source, Limits::default(), selection);
    assert_eq!(written.markdown, "| n |\n|---|\n| 2 |\n| 3 |\n");
}

#[test]
fn a_limit_in_the_middle_of_a_table_keeps_its_rows() {
    let source = "<p>a</p><table><tr><td>1<tr><td>2<tr><td>3</table>";
    let limits = Limits {
        max_elements: 3,
        ..Limits::default()
    };
    let (written, result) = within(source, limits, Selection::All);
    assert_eq!(result, Err(Failure::Stopped(Limit::Element)));
    assert_eq!(written.markdown, "a\n\n| 1 |\n|---|\n| 2 |\n");
}

#[test]
fn text_beyond_the_limit_is_cut_at_any_place() {
    let limits = || Limits {
        max_text_bytes: 1000,
        ..Limits::default()
    };
    let words = "word ".repeat(1000);
    for source in [
        format!("<p>{words}"),
        format!("<pre>{words}"),
        format!("<h1>{words}"),
        format!("<ul><li><b>{words}"),
        format!("<table><tr><td>{}", "x<br>".repeat(1000)),
        format!("<table><tr><td>a<tr><td>{words}<tr><td>b"),
        format!("<table><tr><td>a<table><tr><td>{words}"),
        format!("x{}", "<br>".repeat(10_000)),
    ] {
        let (written, result) = within(&source, limits(), Selection::All);
        assert_eq!(result, Err(Failure::Stopped(Limit::Size)), "{source:.30}");
        let length = written.markdown.len();
        assert!((1..1100).contains(&length), "{source:.30}: {length}");
    }
}

#[test]
fn a_line_of_five_megabytes_and_nulls_pass() {
    let source = "x\0y ".repeat(1_200_000);
    let (written, result) = within(&source, Limits::default(), Selection::All);
    assert_eq!(result, Ok(()));
    assert_eq!(written.markdown.len(), 4_800_000);
}
