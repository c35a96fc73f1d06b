//! Files that are named without a tag.

use super::*;

#[test]
fn bare_paths_in_prose_are_found_when_they_exist() {
    let text = "I wrote /w/a.png, (/w/b.pdf) and \"~/c.md\". See https://x/y.png, x/w/a.png and /w/missing.png; /w/noext";
    let existing = [
        "/w/a.png",
        "/w/b.pdf",
        "~/c.md",
        "/y.png",
        "/w/noext",
        "//x/y.png",
    ];
    assert_eq!(
        bare_paths(text, |path| existing.contains(&path)),
        ["/w/a.png", "/w/b.pdf", "~/c.md"]
    );
}

#[test]
fn complaint_20834_what_is_mentioned_in_code_is_not_sent() {
    let text = "`/w/a.png`\n```\n/w/a.png\n```\n> /w/a.png\n{\"file\": \"/w/a.png\"}";
    assert!(bare_paths(text, |_| true).is_empty());
}

#[test]
fn a_bare_path_is_found_once() {
    assert_eq!(bare_paths("/a.png /a.png\n/a.png", |_| true), ["/a.png"]);
}

#[test]
fn each_mentioned_path_is_checked_once_and_at_most_64_are() {
    let text = "/w/a.png, /w/none.pdf and again /w/a.png or /w/none.pdf; `/w/code.png`";
    assert_eq!(mentioned_paths(text), ["/w/a.png", "/w/none.pdf"]);
    let mut checked = Vec::new();
    bare_paths(text, |path| {
        checked.push(path.to_owned());
        false
    });
    assert_eq!(checked, mentioned_paths(text));
    let many: Vec<_> = (0..70).map(|number| format!("/w/{number}.png")).collect();
    let paths = mentioned_paths(&many.join(" "));
    assert_eq!(paths.len(), 64);
    assert_eq!(paths[63], "/w/63.png");
}

#[test]
fn cut_pictures_leave_no_gap_and_code_keeps_its_empty_lines() {
    let picture = "![a](https://h/a.png)";
    let text = format!(
        "{picture}\nOne:\n\n{picture}\n\n<img src='http://h/b'> two {picture}.\n```\n\n\n\n{picture}\n```\n{picture}"
    );
    let spans: Vec<_> = remote_images(&text)
        .into_iter()
        .map(|image| image.span)
        .collect();
    assert_eq!(spans.len(), 5);
    assert_eq!(
        cut_spans(&text, &spans),
        format!("One:\n\n two .\n```\n\n\n\n{picture}\n```")
    );
    // The others stay as they are.
    assert_eq!(
        cut_spans(&text, &spans[..1]),
        text.strip_prefix(&format!("{picture}\n")).unwrap()
    );
    assert_eq!(cut_spans("  a\n", &[]), "a");
}

#[test]
fn remote_pictures_are_found_with_their_spans() {
    let text = "x ![a cat](https://h.example/p/cat.png?w=1 \"Cat\") y <img alt='d' src=\"http://h/d\"> ![n](https://h/page) ![f](https://v3.fal.media/files/1)";
    let found = remote_images(text);
    let seen: Vec<_> = found
        .iter()
        .map(|image| (image.url.as_str(), image.alt.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("https://h.example/p/cat.png?w=1", "a cat"),
            ("http://h/d", "d"),
            ("https://v3.fal.media/files/1", "f"),
        ]
    );
    assert_eq!(
        &text[found[0].span.clone()],
        "![a cat](https://h.example/p/cat.png?w=1 \"Cat\")"
    );
    assert_eq!(
        &text[found[1].span.clone()],
        "<img alt='d' src=\"http://h/d\">"
    );
}

#[test]
fn text_that_resembles_a_remote_picture_is_not_a_picture() {
    for text in [
        "![a](/local.png)",
        "![a](https://h/a.png",
        "[a](https://h/a.png)",
        "`![a](https://h/a.png)`",
        "<image src='http://h/a.png'>",
        "<img src='data:image/png;base64,AA'>",
        "<img data-src='http://h/a.png'>",
        "![](http://)",
    ] {
        assert_eq!(remote_images(text), [], "{text}");
    }
}
