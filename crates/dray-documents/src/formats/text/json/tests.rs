//! JSON and JSON Lines: order, spelling, depth.

use crate::formats::text::testing::{
    convert_bytes, convert_to_markdown, convert_until_limit, test_hint,
};
use crate::limits::{Limit, Limits};

fn json(source: &str) -> String {
    convert_to_markdown("application/json", "json", source.as_bytes())
}

#[test]
fn order_and_spelling_are_kept() {
    let text = json(
        "{\"z\":12345678901234567890,\"a\":[1.10,1E400,-0,0.5e+3],\"e\":{},\"f\":[ ],\"s\":\"a\\\"b\\\\\",\
         \"n\":{\"t\":true,\"u\":null},\"z\":[[1],[]]}",
    );
    assert_eq!(
        text,
        "```json\n{\n  \"z\": 12345678901234567890,\n  \"a\": [\n    1.10,\n    1E400,\n    -0,\n    0.5e+3\n  ],\n  \
         \"e\": {},\n  \"f\": [],\n  \"s\": \"a\\\"b\\\\\",\n  \"n\": {\n    \"t\": true,\n    \"u\": null\n  },\n  \
         \"z\": [\n    [\n      1\n    ],\n    []\n  ]\n}\n```\n"
    );
}

#[test]
fn scalars_and_blank_files() {
    assert_eq!(json("  \"x\" \n"), "```json\n\"x\"\n```\n");
    assert_eq!(json("\u{FEFF}1"), "```json\n1\n```\n");
    assert_eq!(json(" \n"), "");
}

#[test]
fn escapes_of_visible_characters_are_decoded() {
    assert_eq!(
        json(r#"["Gr\u00f6\u00dfe \ud83d\ude00 \/", "\u202e\ud83d\n\u0041\u0000"]"#),
        "```json\n[\n  \"Größe 😀 /\",\n  \"\\u202e\\ud83d\\n\\u0041\\u0000\"\n]\n```\n"
    );
}

#[test]
fn malformed_text_is_shown_unchanged() {
    for source in [
        "{\"a\":1,}",
        "[1 2]",
        "{a:1}",
        "[01]",
        "[1.]",
        "[+1]",
        "[NaN]",
        "\"a",
        "[\"a\tb\"]",
        "[\"\\x\"]",
        "[\"\\u12\"]",
        "[\"\\u+123\"]",
        "{\"a\" 1}",
        "{\"a\":}",
        "[1]]",
        "[1}",
        "{1:2}",
        "[,]",
        "tru",
        "1 2",
        "[1,]",
        "-",
    ] {
        let conversion = convert_bytes(
            &test_hint("application/json", "json"),
            source.as_bytes(),
            Limits::default(),
        );
        assert_eq!(conversion.markdown, format!("```\n{source}\n```\n"));
        assert_eq!(
            conversion.warnings,
            ["the JSON is malformed and shown as it is"]
        );
    }
}

#[test]
fn text_nested_too_deeply_is_shown_unchanged() {
    for open in ["[", "{\"a\":"] {
        let source = open.repeat(100_000);
        let conversion = convert_bytes(
            &test_hint("application/json", "json"),
            source.as_bytes(),
            Limits::default(),
        );
        assert_eq!(conversion.markdown, format!("```\n{source}\n```\n"));
        assert_eq!(
            conversion.warnings,
            ["the JSON is nested too deeply and shown as it is"]
        );
    }
    let deep = format!("{}{}", "[".repeat(256), "]".repeat(256));
    assert!(json(&deep).starts_with("```json\n[\n  [\n    ["));
}

#[test]
fn indentation_does_not_grow_past_the_limit() {
    let source = format!(
        "{}{}1{}",
        "[".repeat(255),
        "1,".repeat(50_000),
        "]".repeat(255)
    );
    let (text, limit) = convert_until_limit("application/json", "json", source.as_bytes());
    assert_eq!(limit, Limit::Size);
    assert!(text.len() < 5_100_000 && text.ends_with("\n```\n"));
}

#[test]
fn lines_are_compact_in_one_fence() {
    let conversion = convert_bytes(
        &test_hint("application/x-ndjson", "jsonl"),
        b"{\"a\": [1, 2.0]}\r\n\r\n  {\"b\" : null }\nnot json\n",
        Limits::default(),
    );
    assert_eq!(
        conversion.markdown,
        "```json\n{\"a\":[1,2.0]}\n{\"b\":null}\nnot json\n```\n"
    );
    assert_eq!(
        conversion.warnings,
        ["a line is not JSON and is shown unchanged"]
    );
}
