//! The reproduced results of platform-delivery 3.1, with the corrections of 3.7 where they differ.

use super::*;

#[test]
fn r_4_a_final_dot_goes_with_the_tag() {
    one("see MEDIA:/tmp/a.png.", "/tmp/a.png", "see");
}

#[test]
fn r_4_a_comma_stays() {
    one("MEDIA:/tmp/a.png, and", "/tmp/a.png", ", and");
}

#[test]
fn r_4_spaces_inside_a_path() {
    one(
        "MEDIA:/tmp/my report final.pdf done",
        "/tmp/my report final.pdf",
        "done",
    );
}

#[test]
fn r_4_the_path_on_the_next_line() {
    one("MEDIA:\n/tmp/a.pdf", "/tmp/a.pdf", "");
    one(
        "Look: MEDIA: \n\n  /tmp/a.pdf\nthere",
        "/tmp/a.pdf",
        "Look: \nthere",
    );
}

#[test]
fn r_4_quotes_are_unwrapped() {
    one("MEDIA:'/tmp/x y.pdf'", "/tmp/x y.pdf", "");
    one("MEDIA:\"/tmp/x y\" ok", "/tmp/x y", "ok");
    one("MEDIA:`/tmp/x`", "/tmp/x", "");
}

#[test]
fn r_4_emphasis_around_the_tag_goes_with_it() {
    one("**MEDIA:/tmp/a.pdf**", "/tmp/a.pdf", "");
    one("_MEDIA:/tmp/a.pdf_.", "/tmp/a.pdf", "");
    one("**MEDIA:/tmp/a.pdf.**", "/tmp/a.pdf", "");
}

#[test]
fn r_4_the_longest_extension_ends_the_path() {
    one("MEDIA:/tmp/archive.tar.gz", "/tmp/archive.tar.gz", "");
    check("MEDIA:/tmp/archive.tar.gz", &["/tmp/archive.tar"], &[], "");
}

#[test]
fn r_4_two_tags_without_space() {
    check(
        "MEDIA:/tmp/a.pngMEDIA:/tmp/b.png",
        &["/tmp/a.png", "/tmp/b.png"],
        &["/tmp/a.png", "/tmp/b.png"],
        "",
    );
    check(
        "**MEDIA:/tmp/a.png****MEDIA:/tmp/b.png**",
        &["/tmp/a.png", "/tmp/b.png"],
        &["/tmp/a.png", "/tmp/b.png"],
        "",
    );
}

#[test]
fn r_4_a_chinese_full_stop_stays() {
    one("MEDIA:/tmp/报告.pdf。", "/tmp/报告.pdf", "。");
}

#[test]
fn r_4_dots_and_apostrophes_inside_a_name() {
    one("MEDIA:/tmp/v1.2.pdf", "/tmp/v1.2.pdf", "");
    one("MEDIA:/tmp/it's.pdf", "/tmp/it's.pdf", "");
}

#[test]
fn r_4_brackets_stay() {
    one("[MEDIA:/tmp/a.png]", "/tmp/a.png", "[]");
}

#[test]
fn r_4_only_absolute_paths_are_tags() {
    for text in [
        "MEDIA:relative/a.png",
        "MEDIA:https://x/a.png",
        "MEDIA:<path>",
        "MEDIA:",
        "MEDIA: \"relative.png\"",
        "MEDIA:'https://x/a.png'",
        "MEDIA:~user/a.png",
        "the MEDIA: and /tmp",
    ] {
        let found = extract_media(text, |_| true);
        assert_eq!((found.files.len(), found.notices.len()), (0, 0), "{text}");
        assert_eq!(found.text, text);
    }
}

#[test]
fn r_4_a_file_with_an_unknown_extension_is_sent_if_it_exists() {
    one("MEDIA:/tmp/a.json.bak", "/tmp/a.json.bak", "");
    let found = given("MEDIA:/tmp/a.json.bak", &["/tmp/a.json"]);
    assert_eq!(
        (found.files.len(), found.text.as_str()),
        (0, "MEDIA:/tmp/a.json.bak")
    );
    assert_eq!(found.notices, ["a.json.bak"]);
}

#[test]
fn r_4_prose_is_not_swallowed_when_the_shorter_path_exists() {
    one(
        "MEDIA:/tmp/foo then see notes.md",
        "/tmp/foo",
        "then see notes.md",
    );
    one(
        "MEDIA:/tmp/foo then see notes.md",
        "/tmp/foo then see notes.md",
        "",
    );
    check(
        "MEDIA:/tmp/a b.pdf c",
        &["/tmp/a", "/tmp/a b.pdf"],
        &["/tmp/a b.pdf"],
        "c",
    );
}

#[test]
fn r_4_more_may_follow_a_path() {
    for rest in [
        "!",
        "?",
        ">",
        "<",
        "|",
        "#1",
        "…",
        "！",
        "》",
        "）。",
        "|cell|",
        "...",
        "\u{3000}x",
    ] {
        one(
            &format!("MEDIA:/tmp/y.pdf{rest}"),
            "/tmp/y.pdf",
            rest.trim_start(),
        );
    }
}

#[test]
fn r_4_an_extension_glued_to_prose_counts_when_it_exists() {
    one(
        "MEDIA:/tmp/file1.pngSome text",
        "/tmp/file1.png",
        "Some text",
    );
    one("MEDIA:/tmp/a.png已生成", "/tmp/a.png", "已生成");
    one("MEDIA:/tmp/a.png.Then more", "/tmp/a.png", ".Then more");
    one("MEDIA:/tmp/a.docxfoo", "/tmp/a.docx", "foo");
    let found = given("MEDIA:/tmp/file1.pngSome text", &[]);
    assert_eq!(found.text, "MEDIA:/tmp/file1.pngSome text");
    assert_eq!(found.notices, ["file1.pngSome"]);
}

#[test]
fn r_4_a_directive_may_follow_immediately() {
    let found = given("MEDIA:/w/r.xlsx[[as_document]]", &["/w/r.xlsx"]);
    assert_eq!(
        (found.files, found.text.as_str()),
        (vec!["/w/r.xlsx".to_owned()], "")
    );
    assert!(found.directives.as_document && !found.directives.audio_as_voice);
}
