//! Checks that the examples of docs/file-context.md equal the library's output.

use serde_json::{Value, json};

use super::{build, file, message};
use crate::generation::ReminderLayout;
use crate::{ContextBuilder, ContextRequest, ContractGeneration};

const FILE_CONTEXT_PAGE: &str = include_str!("../../../../docs/file-context.md");

fn example() -> Value {
    json!({
        "responseChatItemId": "a2",
        "origin": "https://chat.example",
        "question": "Compare them.",
        "now": {"at": "2026-05-14T02:00:00Z", "timeZone": "Asia/Shanghai"},
        "userMessage": message("Human", "q2", &[
            file("file", "plan & budget.pdf", "/files/7.pdf"),
            file("image", "site.png", "https://cdn.example/site.png"),
        ]),
    })
}

fn holds(example: &str) {
    assert!(
        FILE_CONTEXT_PAGE.contains(&format!("\n{example}\n")),
        "docs/file-context.md lacks:\n{example}"
    );
}

#[test]
fn the_page_shows_every_layout_as_it_is_written() {
    for layout in [
        ReminderLayout::A,
        ReminderLayout::BDocuments,
        ReminderLayout::B,
        ReminderLayout::BMedia,
        ReminderLayout::C,
        ReminderLayout::Legacy,
    ] {
        let mut request = example();
        request["layout"] = json!(layout.as_str());
        request["workingDirectory"] = json!("/workspace");
        holds(&build(request).current_user_message.text());
    }
}

#[test]
fn the_page_shows_the_default_reminder_and_what_it_says_of_files_without_an_id() {
    let mut request = example();
    request["workingDirectory"] = json!("/workspace");
    holds(&build(request).current_user_message.text());
    let parts = [
        file("file", "plan.pdf", "/files/7.pdf"),
        file("file", "notes.txt", "ftp://old.example/notes.txt"),
        file("file", "more.pdf", "/files/8.pdf"),
    ];
    let request = json!({"responseChatItemId": "a2", "question": "Compare them.", "maxFiles": 1, "hideUrls": true,
        "userMessage": message("Human", "q2", &parts)});
    holds(&build(request).current_user_message.text());
}

#[test]
fn the_page_shows_a_request_that_works() {
    let (_, after) = FILE_CONTEXT_PAGE.split_once("```json\n").unwrap();
    let (shown, _) = after.split_once("```").unwrap();
    let request: ContextRequest = serde_json::from_str(shown).unwrap();
    let built = ContextBuilder::build(&request).unwrap();
    assert_eq!(built.current_files[0].id, "a2-0");
    assert!(built.catalog.find("a1-0").is_some());
}

#[test]
fn the_page_names_every_generation_and_layout() {
    for generation in ContractGeneration::ALL_GENERATIONS {
        assert!(
            FILE_CONTEXT_PAGE.contains(&format!("`{generation}`")),
            "{generation}"
        );
    }
    for layout in ReminderLayout::ALL {
        assert!(
            FILE_CONTEXT_PAGE.contains(&format!("`{layout}`")),
            "{layout}"
        );
    }
    for argument in ["ids", "offset", "limit", "range"] {
        assert!(
            FILE_CONTEXT_PAGE.contains(&format!("`{argument}`")),
            "{argument}"
        );
    }
    for code in crate::read::FailureCode::ALL_CODES {
        let name = serde_json::to_value(code).unwrap();
        assert!(
            FILE_CONTEXT_PAGE.contains(&format!("`{}`", name.as_str().unwrap())),
            "{name}"
        );
    }
}
