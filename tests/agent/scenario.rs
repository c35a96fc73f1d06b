//! Tests of a whole conversation: a workbook is sent in, a file is sent out, and a second turn continues after the
//! first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_types::Sha256Digest;
use serde_json::{Value, json};

use super::fixture::{AgentSetup, user};
use super::rest_endpoint::{FakeEndpoint, LONG_TEXT_END};

const WORKBOOK_BYTES: &[u8] = include_bytes!("../../crates/dray/assets/prices.xlsx");
const XLSX_MEDIA_TYPE: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
const SUMMARY_TEXT: &str = "# Crane 4\n\n980.5 a day.\n";

/// A question with the workbook.
fn question() -> Value {
    json!({
        "role": "user",
        "content": "What does crane 4 cost?",
        "custom_content": {"attachments": [{
            "type": XLSX_MEDIA_TYPE,
            "title": "prices.xlsx",
            "url": format!("data:{XLSX_MEDIA_TYPE};base64,{}", STANDARD.encode(WORKBOOK_BYTES)),
        }]},
    })
}

/// A model that reads the workbook by `path`, writes a summary and sends it; in a second turn it reads again.
fn rules(path: &str) -> Value {
    json!([
        {"when": {"tool_result_of": "sandbox_list"}, "reply": {"say": "There is {result}"}},
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": "Sent."}},
        {"when": {"tool_result_of": "sandbox_put"},
         "reply": {"call": [{"name": "send_file", "arguments": {"paths": ["crane.md"]}}]}},
        {"when": {"tool_result_of": "read_attachment"},
         "reply": {"call": [{"name": "sandbox_put", "arguments": {"path": "crane.md", "content": SUMMARY_TEXT}}]}},
        {"when": {"nth": 2}, "reply": {"call": [{"name": "sandbox_list", "arguments": {}}]}},
        {"reply": {"call": [{"name": "read_attachment", "arguments": {"file_path": path}}]}},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workbook_is_uploaded_and_a_summary_is_sent_with_the_right_bytes() {
    let fixture = AgentSetup::new(json!([]), rules("a1-0")).start().await;
    let answer = fixture.ask(json!([question()])).await;
    assert!(answer.text().ends_with("Sent."), "{answer:?}");
    assert_eq!(answer.error(), Value::Null);

    let uploaded = fixture.sandbox.join("uploads/prices.xlsx");
    assert_eq!(std::fs::read(uploaded).unwrap(), WORKBOOK_BYTES);
    let first = Value::from(fixture.messages(0)).to_string();
    assert!(first.contains("[User uploaded: prices.xlsx"), "{first}");
    assert!(
        first.contains("<id>a1-0</id>") && !first.contains("unavailable"),
        "{first}"
    );
    let read = Value::from(fixture.messages(1)).to_string();
    assert!(
        read.contains("| Crane 4 | 2026-02-14 | 20.0% | 980.5 |"),
        "{read}"
    );
    assert!(
        !read.contains(&STANDARD.encode(&WORKBOOK_BYTES[..300])),
        "no bytes in messages"
    );

    let sent = answer.attachments();
    let sent = sent
        .iter()
        .find(|sent| sent["title"] == "crane.md")
        .unwrap();
    let bytes = fixture.fetch(sent["url"].as_str().unwrap()).await;
    assert_eq!(bytes, SUMMARY_TEXT.as_bytes());
    let receipt: Value = serde_json::from_str(fixture.result().lines().next().unwrap()).unwrap();
    assert_eq!(receipt["success"], true, "{receipt}");
    assert_eq!(
        receipt["files"][0]["sha256"],
        Sha256Digest::of(SUMMARY_TEXT.as_bytes()).to_hex()
    );
    assert!(
        !receipt.to_string().contains("http"),
        "the model never sees the link: {receipt}"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workbook_is_read_in_the_sandbox_too() {
    let fixture = AgentSetup::new(json!([]), rules("uploads/prices.xlsx"))
        .start()
        .await;
    fixture.ask(json!([question()])).await;
    let read = Value::from(fixture.messages(1)).to_string();
    assert!(
        read.contains("| Crane 4 | 2026-02-14 | 20.0% | 980.5 |"),
        "{read}"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_turn_finds_the_session_and_the_calls_of_the_first() {
    let fixture = AgentSetup::new(json!([]), rules("a1-0")).start().await;
    let first = fixture.ask(json!([question()])).await;
    let session = first.state()["dray_session"].clone();
    assert!(session.as_str().unwrap().starts_with("c-"), "{session}");
    let before = fixture.model.received_requests().len();
    let messages = json!([question(), first.message(), user("Is it there?")]);
    let second = fixture.ask(messages).await;
    assert!(second.text().contains("crane.md"), "{}", second.text());
    assert_eq!(second.state()["dray_session"], session);
    let second_request = Value::from(fixture.messages(before));
    let names: Vec<_> = second_request
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["tool_calls"][0]["function"]["name"].as_str())
        .filter(|name| *name != "sandbox_uploads")
        .collect();
    assert_eq!(
        names,
        ["read_attachment", "sandbox_put", "send_file"],
        "{second_request}"
    );
    assert!(
        !second_request
            .to_string()
            .contains("tool_execution_history")
    );
    let uploads = std::fs::read_dir(fixture.sandbox.join("uploads")).unwrap();
    assert_eq!(uploads.count(), 1, "the workbook is not uploaded again");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_result_is_offloaded_and_its_end_is_read_back() {
    let shop = FakeEndpoint::start().await;
    let rules = json!([
        {"when": {"tool_result_of": "read_attachment"}, "reply": {"say": "Read."}},
        {"reply": {"call": [{"name": "shop_long", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([shop.tools()]), rules);
    let fixture = setup
        .set("orchestrator.files.offload", "true")
        .start()
        .await;
    fixture.model.set_script(read_back_script(None));
    let answer = fixture.chat("Look.").await;
    assert_eq!(answer.error(), Value::Null);
    let notice = fixture.result();
    assert!(
        notice.len() < 5000 && !notice.contains(LONG_TEXT_END),
        "{notice}"
    );
    let name = notice
        .split("kept as ")
        .nth(1)
        .and_then(|rest| rest.split(';').next())
        .unwrap();
    fixture.model.set_script(read_back_script(Some(name)));
    let second = fixture
        .ask(json!([
            user("Look."),
            answer.message(),
            user("And its end?")
        ]))
        .await;
    assert_eq!(second.text().trim(), "Read.", "{second:?}");
    assert!(
        fixture.result().contains(LONG_TEXT_END),
        "{}",
        fixture.result()
    );
    fixture.stop().await;
}

/// A model that calls the long tool, or reads the file of this name from near its end.
fn read_back_script(name: Option<&str>) -> dray_testkit::rehearsal::Script {
    let call = match name {
        None => json!({"name": "shop_long", "arguments": {}}),
        Some(name) => {
            json!({"name": "read_attachment", "arguments": {"file_path": name, "range": "lines 3990-4002"}})
        }
    };
    let tool = call["name"].clone();
    let rules = json!({"rules": [
        {"when": {"tool_result_of": tool}, "reply": {"say": "Read."}},
        {"reply": {"call": [call]}},
    ]});
    dray_testkit::rehearsal::Script::from_json(&rules.to_string()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_came_with_the_question_is_read_and_copied_by_its_id() {
    let copy = json!({"file_index": "a1-0", "target_path": "copy.xlsx"});
    let rules = json!([
        {"when": {"tool_result_of": "sandbox_fetch_user_file"}, "reply": {"say": "Copied."}},
        {"when": {"tool_result_of": "read_files"},
         "reply": {"call": [{"name": "sandbox_fetch_user_file", "arguments": copy}]}},
        {"reply": {"call": [{"name": "read_files", "arguments": {"ids": ["a1-0"]}}]}},
    ]);
    let fixture = AgentSetup::new(json!([]), rules).start().await;
    let answer = fixture.ask(json!([question()])).await;
    assert!(answer.text().ends_with("Copied."), "{answer:?}");
    let read = Value::from(fixture.messages(1)).to_string();
    assert!(read.contains("Crane 4") && read.contains("980.5"), "{read}");
    let copied = std::fs::read(fixture.sandbox.join("copy.xlsx")).unwrap();
    assert_eq!(copied, WORKBOOK_BYTES);
    fixture.stop().await;
}
