//! Cases that are not in the table: masks, directives, duplicates, notices, and complaints by their numbers.

use super::*;

#[test]
fn r_4_a_missing_file_is_reported_without_its_directory() {
    let found = given(
        "Done. MEDIA:/home/u/secret/plan.pdf\nMEDIA:/other/plan.pdf",
        &[],
    );
    assert_eq!(found.text, "Done.");
    assert_eq!(found.notices, ["plan.pdf"]);
    let found = given("MEDIA:/home/u/x.weird and on", &[]);
    assert_eq!(found.text, "MEDIA:/home/u/x.weird and on");
    assert_eq!(found.notices, ["x.weird"]);
}

#[test]
fn r_4_files_of_any_extension_are_sent() {
    // Complaints 35474, 42206, 33454, 37318.
    for file in [
        "/w/a.md",
        "/w/a.py",
        "/w/a.vcf",
        "/w/a.toml",
        "/w/Makefile",
        "/w/a.unheardof",
        "/w/.config",
    ] {
        one(&format!("Here: MEDIA:{file}"), file, "Here:");
        one(&format!("MEDIA:{file} is it."), file, "is it.");
    }
}

#[test]
fn complaint_111046_a_leaked_sentinel_does_not_lose_the_file() {
    one("MEDIA:/tmp/y.pdf<|eos|>", "/tmp/y.pdf", "");
    one("see MEDIA:/tmp/y.pdf.<|eos|>", "/tmp/y.pdf", "see");
    one("**MEDIA:/tmp/y.pdf**</s><|im_end|>", "/tmp/y.pdf", "");
    one(
        "MEDIA:/tmp/y.pdf<|not a sentinel|>",
        "/tmp/y.pdf",
        "<|not a sentinel|>",
    );
    one("MEDIA:/tmp/y.pdf<b>", "/tmp/y.pdf", "<b>");
}

#[test]
fn complaint_78358_prose_glued_to_the_path_does_not_lose_the_file() {
    one(
        "MEDIA:/tmp/file1.pngSome text",
        "/tmp/file1.png",
        "Some text",
    );
}

#[test]
fn complaint_63632_a_directive_glued_to_the_path_is_honoured() {
    let found = given("MEDIA:/w/r.xlsx[[as_document]]", &["/w/r.xlsx"]);
    assert!(found.directives.as_document && found.files == ["/w/r.xlsx"]);
}

#[test]
fn complaint_34375_json_that_quotes_a_tag_sends_nothing() {
    for text in [
        r#"The tool said {"result": "MEDIA:/tmp/a.png"} just now."#,
        r#"{"files": ["MEDIA:/tmp/a.png", "x"]}"#,
        "```\nMEDIA:/tmp/a.png\n```",
        "{\n  \"out\": [\n    \"MEDIA:/tmp/a.png\"\n  ]\n}",
        r#"  "path": "saved \"it\" at MEDIA:/tmp/a.png","#,
    ] {
        check(text, &["/tmp/a.png"], &[], text.trim());
    }
    // After the brackets are closed, or after an empty line, tags count again.
    one(
        "{\"a\": \"b\"}\n\"MEDIA:/tmp/a.png\"",
        "/tmp/a.png",
        "{\"a\": \"b\"}",
    );
    one("{\n\nsee \"MEDIA:/tmp/a.png\"", "/tmp/a.png", "{\n\nsee");
}

#[test]
fn complaint_29131_a_file_is_sent_once() {
    check(
        "MEDIA:/tmp/a.png\nMEDIA:/tmp/b.png\nMEDIA:/tmp/a.png",
        &["/tmp/a.png", "/tmp/b.png"],
        &["/tmp/a.png", "/tmp/b.png"],
        "",
    );
    let home = |path: &str| Some(path.replace('~', "/home/u"));
    let found = extract_with("MEDIA:~/a.png MEDIA:/home/u/a.png", home);
    assert_eq!(found.files, ["/home/u/a.png"]);
}

#[test]
fn fenced_code_contains_no_tag() {
    for text in [
        "```\nMEDIA:/tmp/a.png\n```",
        "~~~text\nMEDIA:/tmp/a.png\n~~~~",
        "  ```py\nMEDIA:/tmp/a.png",
        "````\n```\nMEDIA:/tmp/a.png\n````",
    ] {
        check(text, &["/tmp/a.png"], &[], text.trim());
    }
    one(
        "```\ncode\n```\nMEDIA:/tmp/a.png",
        "/tmp/a.png",
        "```\ncode\n```",
    );
}

#[test]
fn quoted_lines_contain_no_tag() {
    check(
        "> MEDIA:/tmp/a.png\nyes",
        &["/tmp/a.png"],
        &[],
        "> MEDIA:/tmp/a.png\nyes",
    );
}

#[test]
fn inline_code_is_a_tag_only_if_it_is_nothing_else_and_its_file_exists() {
    let text = "write `see MEDIA:/tmp/a.png` there";
    check(text, &["/tmp/a.png"], &[], text);
    one("`MEDIA:/tmp/a.png`", "/tmp/a.png", "");
    one("file: **`MEDIA:/tmp/a b.png`**.", "/tmp/a b.png", "file:");
    let missing = given("Use `MEDIA:/path/file.png` for files.", &[]);
    assert_eq!(missing.text, "Use `MEDIA:/path/file.png` for files.");
    assert!(missing.notices.is_empty());
    check(
        "`MEDIA:/a.png MEDIA:/b.png`",
        &["/a.png", "/b.png"],
        &[],
        "`MEDIA:/a.png MEDIA:/b.png`",
    );
}

#[test]
fn a_tag_beside_inline_code_counts() {
    one("`x` MEDIA:/tmp/a.png `y`", "/tmp/a.png", "`x`  `y`");
    one("MEDIA:`/tmp/a b` `y`", "/tmp/a b", "`y`");
    one("a ` b MEDIA:/tmp/a.png", "/tmp/a.png", "a ` b");
}

#[test]
fn directives_apply_to_the_message_and_are_removed_from_the_text() {
    let found = given(
        "[[audio_as_voice]]\nListen\nMEDIA:/tmp/a.ogg",
        &["/tmp/a.ogg"],
    );
    assert!(found.directives.audio_as_voice);
    assert_eq!(found.text, "Listen");
    let found = given("a [[[AS_DOCUMENT]]] b [[as_documents]] [[as", &[]);
    assert!(found.directives.as_document);
    assert_eq!(found.text, "a [] b [[as_documents]] [[as");
}

#[test]
fn newlines_collapse_outside_of_code_and_ends_are_trimmed() {
    check(
        "\n\n a\n\n\n\nb\nMEDIA:/x.png\n\nc \n",
        &["/x.png"],
        &["/x.png"],
        "a\n\nb\n\nc",
    );
    let code = "```\na\n\n\n\nb\n```";
    check(code, &[], &[], code);
    check(" \n MEDIA:/x.png \n ", &["/x.png"], &["/x.png"], "");
}

#[test]
fn windows_and_home_paths_are_paths() {
    one(
        r"MEDIA:C:\Users\me\a b.pdf now",
        r"C:\Users\me\a b.pdf",
        "now",
    );
    one("media:d:/x.pdf", "d:/x.pdf", "");
    one("Media: ~/out/x.pdf", "~/out/x.pdf", "");
}

#[test]
fn wrappers_that_open_something_else_are_kept() {
    one("MEDIA:/tmp/a.png*bold*", "/tmp/a.png", "*bold*");
    one("MEDIA:/tmp/a.png`code`", "/tmp/a.png", "`code`");
    one("*MEDIA:/tmp/a.png*tail", "/tmp/a.png", "tail");
}

#[test]
fn an_apostrophe_inside_quotes_is_part_of_the_path() {
    one("MEDIA:'/tmp/it's here.pdf' ok", "/tmp/it's here.pdf", "ok");
    one("MEDIA:'/tmp/a.pdf' and 'b'", "/tmp/a.pdf", "and 'b'");
    one("MEDIA:'/tmp/a.pdf", "/tmp/a.pdf", "");
    one("MEDIA:'/tmp/a.pdf.' x", "/tmp/a.pdf", "x");
}

#[test]
fn a_scan_returns_candidates_longest_first() {
    let text = "a MEDIA:/t/x y.pdf z";
    let (tags, directives) = scan_tags(text);
    assert_eq!(directives, MediaDirectives::default());
    let [tag] = tags.as_slice() else {
        panic!("one tag: {tags:?}");
    };
    assert_eq!((tag.start, tag.quoted, tag.code), (2, false, false));
    let found: Vec<_> = tag
        .candidates
        .iter()
        .map(|candidate| candidate.path.as_str())
        .collect();
    assert_eq!(found, ["/t/x y.pdf z", "/t/x y.pdf", "/t/x"]);
    assert_eq!(tag.fallback, Some(1));
    assert_eq!(&text[tag.candidates[1].span.clone()], "MEDIA:/t/x y.pdf");
    assert_eq!(tag_paths(text), ["/t/x", "/t/x y.pdf", "/t/x y.pdf z"]);
}

#[test]
fn spans_are_of_the_whole_text() {
    let text = "line\n> q\nMEDIA:\n/a.png\nthen `MEDIA:/b.png`\n";
    let (tags, _) = scan_tags(text);
    let cut: Vec<_> = tags
        .iter()
        .map(|tag| &text[tag.candidates[0].span.clone()])
        .collect();
    assert_eq!(cut, ["MEDIA:\n/a.png", "`MEDIA:/b.png`"]);
}
