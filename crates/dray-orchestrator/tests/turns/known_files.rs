//! Tests of what the model learns without a tool call, over two turns: files of the manifest (quickapps 13), and the
//! time (15).

use serde_json::{Value, json};

use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::tools::{FakeEndpoint, rounds};

const FILES_TOOL: &str = "internal_attachments_available_context";
const TIME_TOOL: &str = "internal_timeawareness_current_timestamp";

/// Results of a tool's calls in one request to the model.
fn results(body: &Value, tool: &str) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap();
    let calls = messages.iter().map(|message| &message["tool_calls"][0]);
    let calls = calls.filter(|call| call["function"]["name"] == tool);
    let ids: Vec<_> = calls.map(|call| call["id"].clone()).collect();
    messages
        .iter()
        .filter(|message| {
            message["tool_call_id"].is_string() && ids.contains(&message["tool_call_id"])
        })
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

fn next_turn(first: &ChatResult) -> Value {
    json!([{"role": "user", "content": "x"}, first.message(), {"role": "user", "content": "y"}])
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_manifest_are_named_once_while_the_client_returns_the_state() {
    let mut manifest = manifest(json!([]));
    manifest["contexts"] =
        json!([{"type": "file", "url": "files/B/a%20b.pdf", "description": "Prices"}]);
    let fixture =
        TurnFixture::plain(&manifest, r#"{"rules": [{"reply": {"say": "Hello."}}]}"#).await;
    let first = fixture.send_text("x").await;
    fixture.ask(next_turn(&first)).await;
    let forgot = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "y"}]);
    fixture.ask(forgot).await;
    let told = r#"{"entries":[{"title":"a%20b.pdf","url":"files/B/a%20b.pdf","type":"application/pdf","description":"Prices","status":"new"}]}"#;
    let requests = fixture.asked();
    assert_eq!(requests.len(), 3);
    for body in &requests {
        assert_eq!(results(body, FILES_TOOL), [told]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_noted_in_the_state_and_written_only_into_what_the_model_reads() {
    let endpoint = FakeEndpoint::start().await;
    let mut manifest = manifest(json!([rest(&endpoint.url(), &["a"])]));
    manifest["features"] = json!({});
    let script = r#"{"rules": [
        {"times": 1, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}},
        {"reply": {"say": "Done."}}]}"#;
    let fixture = TurnFixture::plain(&manifest, script).await;
    let first = fixture.send_text("x").await;
    let kept = rounds(&first);
    assert!(!kept[1]["content"].as_str().unwrap().contains("[Timestamp:"));
    let noted = &kept[1]["custom_content"]["state"]["_message_metadata"]["timestamp"];
    assert_eq!(noted["timestamp_source"], "default");
    assert_eq!(noted["timezone_name"], "UTC");
    let iso = noted["response_timestamp"].as_str().unwrap();
    let line = format!("\n[Timestamp: {} {} UTC]", &iso[..10], &iso[11..19]);
    fixture.ask(next_turn(&first)).await;
    let requests = fixture.asked();
    for body in &requests[1..] {
        let results = results(body, "shop_a");
        assert!(
            results.len() == 1 && results[0].ends_with(&line),
            "{results:?}"
        );
    }
    let times: Vec<_> = requests
        .iter()
        .map(|body| results(body, TIME_TOOL))
        .collect();
    assert_eq!([times[0].len(), times[1].len(), times[2].len()], [1, 1, 2]);
    let said = &times[0][0];
    assert!(said.ends_with(" (UTC, source=default)"), "{said}");
}
