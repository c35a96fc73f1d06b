//! Tests of what reaches a page from a document.

use super::*;

struct FakeLinks;

impl MarkdownLinks for FakeLinks {
    fn link(&self, target: &str) -> Option<LinkTarget> {
        match target {
            _ if target.starts_with('#') => Some(LinkTarget::Heading(target.to_owned())),
            _ if target.starts_with("https:") => Some(LinkTarget::Outside(target.to_owned())),
            _ if target.contains(':') => None,
            _ => Some(LinkTarget::Preview(format!("/v/T/{target}"))),
        }
    }

    fn picture(&self, target: &str) -> Option<String> {
        (!target.contains(':')).then(|| format!("/p/T/{target}"))
    }
}

fn html(markdown: &str) -> String {
    render(markdown, &FakeLinks).html
}

#[test]
fn html_of_the_document_is_shown_as_text() {
    for markdown in [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<div>\n<style>*{}</style>\n</div>",
        "`<b>` <!-- <b> -->",
        "```\n<script>\n```",
        "``` \"><script>\nx\n```",
        "| <script> |\n|---|\n| <img src=x> |",
        "# <script>",
        "[^1]\n\n[^1]: <script>x</script>",
        "![<script>](\"><script>)",
        "[x](a \"\\\"><script>\")",
        "[x](https:\"><script>)",
    ] {
        let html = html(markdown);
        for tag in ["<script", "<style", "<div>\n<", "<b>", "<img src=x", "<!--"] {
            assert!(!html.contains(tag), "{markdown}: {html}");
        }
    }
}

#[test]
fn tables_headings_and_tasks_have_their_elements_without_styles() {
    let html =
        html("# A b, c!\n\n# A b c\n\n| a | b |\n|--:|:-:|\n| 1 | 2 |\n\n- [x] done\n\n~~x~~");
    for part in [
        "<h1 id=\"a-b-c\">",
        "<h1 id=\"a-b-c-1\">",
        "<th>a</th>",
        "<td>2</td>",
        "type=\"checkbox\"",
        "<del>x</del>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("style="), "{html}");
}

#[test]
fn only_admitted_links_and_pictures_are_kept() {
    let html = html(
        "[a](b.md \"t\") [c](javascript:x) [d](https://e/) [h](#h) ![p *q*](r.png) ![s](https://t/u.png) \
         [![in](i.png)](b.md) <a@b.c>",
    );
    for part in [
        "<a href=\"/v/T/b.md\" target=\"_top\" title=\"t\">a</a>",
        " c ",
        "<a href=\"https://e/\" target=\"_blank\" rel=\"noopener noreferrer\">d</a>",
        "<a href=\"#h\">h</a>",
        "<img src=\"/p/T/r.png\" alt=\"p q\">",
        " s ",
        "<a href=\"/v/T/b.md\" target=\"_top\"><img src=\"/p/T/i.png\" alt=\"in\"></a>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(
        !html.contains("u.png") && !html.contains("javascript"),
        "{html}"
    );
}

#[test]
fn a_document_that_grows_too_large_is_cut_between_elements() {
    let small = render("a", &FakeLinks);
    assert!(!small.is_cut);
    let long = "[a](b.md)\n\n".repeat(200_000);
    let cut = render(&long, &FakeLinks);
    assert!(cut.is_cut);
    assert!(cut.html.len() < MAX_HTML_BYTES + 1000, "{}", cut.html.len());
    assert_eq!(cut.html.matches('<').count(), cut.html.matches('>').count());
}
