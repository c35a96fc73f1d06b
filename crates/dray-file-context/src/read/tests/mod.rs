//! Calls and answers of `read_files`.

mod pages;

use serde_json::{Value, json};

use super::*;
use crate::catalog::tests::{document, entry};
use crate::catalog::{FileCatalog, FileTurn};
use crate::limits;
use crate::model::FileType;

fn catalog() -> FileCatalog {
    let mut expired = document("e-0");
    expired.unavailable = true;
    FileCatalog::new(vec![
        document("h-0"),
        entry("h-1", "p.png", FileType::Image, FileTurn::History),
        expired,
        entry("c-0", "c.pdf", FileType::File, FileTurn::Current),
    ])
}

fn plan(tool: &str, arguments: &Value) -> ReadPlan {
    let arguments = ReadArguments::read(tool, arguments).unwrap();
    ReadPlan::new(&arguments, &catalog(), limits::DEFAULT_READ_BUDGET_CHARS)
}

fn answer(tool: &str, arguments: &Value) -> Value {
    let answer =
        plan(tool, arguments).run(|task| Ok(ReadText::of(format!("text of {}", task.file.id))));
    serde_json::from_str(&answer.json()).unwrap()
}

#[test]
fn r_7_media_are_attached_and_not_readable_as_text() {
    let image = &answer(READ_TOOL, &json!({"ids": ["h-1"]}))[0];
    assert_eq!(
        (&image["code"], &image["name"]),
        (&json!("unsupported_type"), &json!("p.png"))
    );
    assert!(
        image["content"]
            .as_str()
            .unwrap()
            .contains("attached to the conversation; it is not readable as text")
    );
}

#[test]
fn order_and_duplicates_are_kept_and_no_ids_give_an_empty_array() {
    let read = answer(READ_TOOL, &json!({"ids": ["c-0", "h-0", "c-0"]}));
    let contents: Vec<_> = read
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["content"].as_str().unwrap())
        .collect();
    assert_eq!(contents, ["text of c-0", "text of h-0", "text of c-0"]);
    assert_eq!(
        plan(READ_TOOL, &json!({"ids": []}))
            .run(|_| Ok(ReadText::of("x")))
            .json(),
        "[]"
    );
}

#[test]
fn arguments_other_than_an_array_of_strings_are_refused_as_a_whole() {
    for wrong in [
        json!({"ids": "h-0"}),
        json!({"ids": [1]}),
        json!({}),
        json!({"ids": null}),
        json!({"ids": ["a", 1]}),
    ] {
        let message = ReadArguments::read(READ_TOOL, &wrong)
            .unwrap_err()
            .to_string();
        assert_eq!(message, "ids: expected an array of strings");
    }
    for wrong in ["", "nonsense", "[1]", "7", "\"x\""] {
        assert_eq!(
            ReadArguments::parse(READ_TOOL, wrong)
                .unwrap_err()
                .to_string(),
            "Params is not object",
            "{wrong}"
        );
    }
    for wrong in [
        json!({"ids": [], "offset": -1}),
        json!({"ids": [], "limit": 0}),
        json!({"ids": [], "limit": "3"}),
        json!({"ids": [], "range": 3}),
    ] {
        assert!(ReadArguments::read(READ_TOOL, &wrong).is_err(), "{wrong}");
    }
    let unknown_tool = ReadArguments::parse("write_files", "{}")
        .unwrap_err()
        .to_string();
    assert_eq!(unknown_tool, "Can't find the tool write_files");
}

#[test]
fn json_is_read_leniently() {
    for text in [
        "{\"ids\": [\"a, ]b\",],}",
        "```json\n{\"ids\": [\"a, ]b\"]}\n```",
        "Sure: {\"ids\": [\"a, ]b\"]} done",
        "\"{\\\"ids\\\": [\\\"a, ]b\\\"]}\"",
    ] {
        assert_eq!(
            ReadArguments::parse(READ_TOOL, text).unwrap().names,
            ["a, ]b"],
            "{text}"
        );
    }
}

#[test]
fn the_result_has_its_keys_in_order() {
    let plan = plan(READ_TOOL, &json!({"ids": ["c-0", "none"]}));
    let answer = plan.run(|_| Ok(ReadText::of("…text…")));
    assert!(answer.json().starts_with(
        r#"[{"id":"c-0","name":"c.pdf","content":"…text…","status":"ok","offset":0,"length":6,"truncated":false},{"id":"none","name":"","content":""#
    ));
}

#[test]
fn r_5_an_unknown_id_lists_existing_ids_and_affects_no_other_id() {
    let read = answer(READ_TOOL, &json!({"ids": ["nope", "h-0", "e-0"]}));
    assert_eq!(read[0]["code"], "unknown_id");
    assert_eq!(read[0]["status"], "error");
    assert_eq!(
        read[0]["content"],
        "File is not available in the current chat context. Readable ids: h-0, c-0"
    );
    assert_eq!(
        (&read[1]["status"], &read[1]["content"]),
        (&json!("ok"), &json!("text of h-0"))
    );
    assert_eq!(read[2]["code"], "expired");
    let many = FileCatalog::new(
        (0..80)
            .map(|number| document(&format!("d{number}-0")))
            .collect(),
    );
    let arguments = ReadArguments::read(READ_TOOL, &json!({"ids": ["x"]})).unwrap();
    let listed = ReadPlan::new(&arguments, &many, 1000)
        .run(|_| Ok(ReadText::default()))
        .json();
    assert!(listed.contains("d79-0, and 30 older ones") && !listed.contains("d29-0,"));
}

#[test]
fn r_5_every_failure_has_its_code_and_a_sentence_and_keeps_the_name() {
    for code in FailureCode::ALL_CODES {
        let answer = plan(READ_TOOL, &json!({"ids": ["c-0", "h-0"]}))
            .assemble(vec![Err(ReadFailure::of(code)), Ok(ReadText::of("fine"))]);
        let read: Value = serde_json::from_str(&answer.json()).unwrap();
        assert_eq!(read[0]["code"], serde_json::to_value(code).unwrap());
        assert_eq!(read[0]["content"], code.sentence());
        assert_eq!(read[0]["name"], "c.pdf");
        assert_eq!(read[1]["content"], "fine");
    }
    assert_eq!(
        ReadFailure::of(FailureCode::PrivateNetwork).text(),
        "Request to private network not allowed"
    );
    assert_eq!(
        ReadFailure::of(FailureCode::Failed).text(),
        "Load file error"
    );
    assert_eq!(
        ReadFailure::with_message(FailureCode::Failed, "").text(),
        "Load file error"
    );
    assert_eq!(
        ReadFailure::too_large(10).text(),
        "File exceeds maximum allowed size (10 bytes)"
    );
}

#[test]
fn r_5_an_empty_text_and_a_missing_result_are_failures_of_their_file() {
    let answer =
        plan(READ_TOOL, &json!({"ids": ["c-0", "h-0"]})).assemble(vec![Ok(ReadText::of(" \n"))]);
    let codes: Vec<_> = answer.files.iter().map(|file| file.code).collect();
    assert_eq!(codes, [Some(FailureCode::Empty), Some(FailureCode::Failed)]);
}

#[test]
fn r_11_the_legacy_call_accepts_ids_and_numbers_and_answers_by_index() {
    let read = answer(
        LEGACY_TOOL,
        &json!({"file_indexes": ["c-0", "1", "2", "3", "9", "0", "01", "-1"]}),
    );
    let codes: Vec<_> = read
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["code"].clone())
        .collect();
    assert_eq!(read[0]["content"], "text of c-0");
    assert_eq!(
        (&read[1]["index"], &read[1]["content"]),
        (&json!("1"), &json!("text of c-0"))
    );
    assert_eq!(read[2]["content"], "text of h-0");
    assert_eq!(codes[3], "unsupported_type");
    assert!(codes[4..].iter().all(|code| code == "unknown_id"));
    assert!(ReadArguments::read(LEGACY_TOOL, &json!({"ids": ["c-0"]})).is_err());
}

#[test]
fn urls_are_handles_even_as_a_model_copies_them_out_of_a_reminder() {
    let mut entry = document("h-0");
    entry.public_url = Some("https://h.example/a?x=1&y=2".into());
    entry.former_urls = vec!["https://h.example/old".into()];
    let catalog = FileCatalog::new(vec![entry]);
    let urls = [
        "https://h.example/a?x=1&y=2",
        "https://h.example/a?x=1&amp;y=2",
        "https://h.example/old",
        "https://h.example/other",
    ];
    let arguments = ReadArguments::read(READ_TOOL, &json!({"urls": urls})).unwrap();
    let answer = ReadPlan::new(&arguments, &catalog, 1000)
        .run(|task| Ok(ReadText::of(task.file.id.clone())));
    let read: Value = serde_json::from_str(&answer.json()).unwrap();
    let codes: Vec<_> = answer.files.iter().map(|file| file.code).collect();
    assert_eq!(codes, [None, None, None, Some(FailureCode::UnknownId)]);
    assert_eq!(read[1]["url"], "https://h.example/a?x=1&amp;y=2");
}

#[test]
fn a_call_beyond_the_limit_of_files_refuses_only_the_rest() {
    let ids: Vec<_> = (0..=limits::MAX_READ_IDS).map(|_| "c-0").collect();
    let plan = plan(READ_TOOL, &json!({"ids": ids}));
    assert_eq!(plan.tasks().count(), limits::MAX_READ_IDS);
    let answer = plan.run(|_| Ok(ReadText::of("x")));
    assert_eq!(
        answer.files.last().unwrap().code,
        Some(FailureCode::TooMany)
    );
}
