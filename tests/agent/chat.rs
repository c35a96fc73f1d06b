//! Tests of sessions that are bound to a chat: each file is delivered there once, with proof.

use dray_types::Sha256Digest;
use serde_json::{Value, json};

use super::fixture::{AgentFixture, AgentSetup, user};

const PDF_BYTES: &[u8] = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n";
const SESSION_NAME: &str = "crane";

/// A fixture with a file in the sandbox and a session that is bound to a chat; and the id of the chat.
async fn fixture_with_chat(rules: Value) -> (AgentFixture, i64) {
    let fixture = AgentSetup::new(json!([]), rules).start().await;
    std::fs::write(fixture.sandbox.join("report.pdf"), PDF_BYTES).unwrap();
    let chat = fixture.telegram.chat();
    fixture.bind(SESSION_NAME, chat).await;
    (fixture, chat)
}

/// A model that sends `report.pdf` with a caption.
fn sending_rules() -> Value {
    json!([
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": "Done."}},
        {"reply": {"call": [{"name": "send_file", "arguments": {"paths": ["report.pdf"], "message": "The report"}}]}},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_delivered_to_the_chat_with_a_receipt_and_only_once() {
    let (fixture, chat) = fixture_with_chat(sending_rules()).await;
    let question = json!([user("Send me the report.")]);
    let answer = fixture.ask_in(Some(SESSION_NAME), question.clone()).await;
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    assert_eq!(answer.attachments(), [] as [Value; 0], "it is in the chat");
    let receipt: Value = serde_json::from_str(&fixture.result()).unwrap();
    assert_eq!(receipt["files"][0]["state"], "delivered", "{receipt}");
    assert_eq!(
        receipt["files"][0]["sha256"],
        Sha256Digest::of(PDF_BYTES).to_hex()
    );
    let messages = fixture.telegram.visible_messages(chat);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0].text, "The report");
    let file = messages[0].file.as_ref().unwrap();
    assert_eq!(file.sha256, Sha256Digest::of(PDF_BYTES));

    fixture.ask_in(Some(SESSION_NAME), question).await;
    let repeated: Value = serde_json::from_str(&fixture.result()).unwrap();
    assert_eq!(repeated, receipt, "the same delivery, not another one");
    assert_eq!(fixture.telegram.visible_messages(chat).len(), 1);
    let next_turn = json!([user("Send me the report."), {"role": "assistant", "content": "Done."}, user("Once more.")]);
    fixture.ask_in(Some(SESSION_NAME), next_turn).await;
    assert_eq!(
        fixture.telegram.visible_messages(chat).len(),
        2,
        "another turn is another delivery"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_media_tag_is_taken_out_of_the_answer_and_its_file_is_in_the_chat() {
    let (fixture, chat) = fixture_with_chat(json!([])).await;
    let path = fixture.sandbox.join("report.pdf");
    let say = format!("Here it is.\nMEDIA:{}\nBye.", path.display());
    let rules = json!({"rules": [{"reply": {"say": say, "piece": 3}}]});
    let script = dray_testkit::rehearsal::Script::from_json(&rules.to_string()).unwrap();
    fixture.model.set_script(script);
    let answer = fixture
        .ask_in(Some(SESSION_NAME), json!([user("The report?")]))
        .await;
    let text = answer.text();
    assert!(
        text.starts_with("Here it is.") && text.trim_end().ends_with("Bye."),
        "{text}"
    );
    assert!(
        !text.contains("MEDIA") && !text.contains("report.pdf"),
        "{text}"
    );
    for chunk in &answer.chunks {
        assert!(
            !chunk.to_string().contains("MEDIA"),
            "half a tag never shows: {chunk}"
        );
    }
    let messages = fixture.telegram.visible_messages(chat);
    let files: Vec<_> = messages
        .iter()
        .filter_map(|message| message.file.as_ref())
        .collect();
    assert_eq!(files.len(), 1, "{messages:?}");
    assert_eq!(files[0].sha256, Sha256Digest::of(PDF_BYTES));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_sent_by_the_tool_is_not_sent_again_by_a_tag() {
    let (fixture, chat) = fixture_with_chat(json!([])).await;
    let path = fixture.sandbox.join("report.pdf");
    let rules = json!({"rules": [
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": format!("MEDIA:{}", path.display())}},
        {"reply": {"call": [{"name": "send_file", "arguments": {"paths": ["report.pdf"]}}]}},
    ]});
    let script = dray_testkit::rehearsal::Script::from_json(&rules.to_string()).unwrap();
    fixture.model.set_script(script);
    fixture
        .ask_in(Some(SESSION_NAME), json!([user("The report?")]))
        .await;
    assert_eq!(fixture.telegram.visible_messages(chat).len(), 1);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_outside_of_the_sandbox_is_not_sent() {
    let (fixture, chat) = fixture_with_chat(json!([])).await;
    let secret = fixture.directory().join("secret.txt");
    std::fs::write(&secret, "s3cret").unwrap();
    let rules = json!({"rules": [
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": format!("MEDIA:{}", secret.display())}},
        {"reply": {"call": [{"name": "send_file", "arguments": {"paths": [secret.to_str().unwrap()]}}]}},
    ]});
    let script = dray_testkit::rehearsal::Script::from_json(&rules.to_string()).unwrap();
    fixture.model.set_script(script);
    let answer = fixture
        .ask_in(Some(SESSION_NAME), json!([user("The secret?")]))
        .await;
    let result = fixture.result();
    assert!(
        result.contains("\"success\":false") && !result.contains("s3cret"),
        "{result}"
    );
    assert!(
        answer.text().contains("Could not be attached: secret.txt"),
        "{}",
        answer.text()
    );
    let files = fixture
        .telegram
        .visible_messages(chat)
        .into_iter()
        .filter_map(|message| message.file);
    assert_eq!(files.count(), 0);
    assert_eq!(answer.attachments(), [] as [Value; 0]);
    fixture.stop().await;
}
