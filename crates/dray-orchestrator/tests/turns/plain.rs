//! Without DIAL: a local manifest and any model.

use serde_json::json;

use crate::fixture::{TurnFixture, manifest, rest};

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_tools_is_the_model_s_words() {
    let script = r#"{"rules": [{"reply": {"say": "Hello {user}.", "piece": 3}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let result = fixture.send_text("you").await;
    assert_eq!((result.status, result.done), (200, true));
    assert_eq!(result.text(), "Hello you.");
    assert_eq!(result.reason(), "stop");
    assert_eq!(result.state(), json!({}));
    assert_eq!(
        result.chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant"})
    );
    let request = &fixture.asked()[0];
    assert_eq!(request["model"], "lead");
    assert_eq!(request["stream"], true);
    assert_eq!(request["temperature"], 0.5);
    assert_eq!(request["messages"][0]["role"], "system");
    assert!(
        request["messages"][0]["content"]
            .as_str()
            .unwrap()
            .starts_with("You help.")
    );
    assert!(request.get("tools").is_none() || !request["tools"].as_array().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_streamed_is_one_message() {
    let script = r#"{"rules": [{"reply": {"say": "Hello.", "piece": 2}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let body = json!({"model": "agent", "messages": [{"role": "user", "content": "x"}]});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url));
    let answer = request.json(&body).send(&|_| ()).await.unwrap();
    let whole: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["message"]["content"], "Hello.");
    assert_eq!(
        whole["choices"][0]["message"]["custom_content"]["state"],
        json!({})
    );
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_reported_on_request() {
    let script =
        r#"{"rules": [{"reply": {"say": "Hi.", "usage": {"prompt": 12, "completion": 3}}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let body = json!({"model": "agent", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "x"}]});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url));
    let result = fixture.send(request.json(&body)).await;
    let last = result.chunks.last().unwrap();
    assert_eq!(last["usage"]["total_tokens"], 15);
    assert_eq!(last["statistics"]["usage_per_model"][0]["model"], "lead");
    assert_eq!(
        fixture.asked()[0]["stream_options"],
        json!({"include_usage": true})
    );
    let without = fixture.send_text("y").await;
    assert!(without.chunks.last().unwrap()["usage"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_of_statistics_and_time_are_shown_when_they_are_switched_on() {
    let script =
        r#"{"rules": [{"reply": {"say": "Hi.", "usage": {"prompt": 12, "completion": 3}}}]}"#;
    let fixture = TurnFixture::with(&manifest(json!([])), script, |config| {
        config.show_usage_statistics = true;
        config.show_execution_time_stage = true;
    })
    .await;
    let result = fixture.send_text("x").await;
    let stages = result.stages();
    assert_eq!(stages.len(), 2);
    assert_eq!(stages[0].0, "Usage Statistics");
    assert!(stages[0].1.contains("| lead | 12 | 3 | 15 |"));
    assert_eq!(stages[1].0, "Execution time");
    assert!(stages.iter().all(|stage| stage.2 == "completed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn r_11_a_missing_template_and_a_wrong_manifest_are_reported_with_their_cause() {
    let mut wrong = manifest(json!([]));
    wrong["orchestrator"]["system_prompt"] = json!({"type": "predefined", "template": "nowhere"});
    let fixture = TurnFixture::plain(&wrong, r#"{"rules": [{"reply": {"say": "never"}}]}"#).await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.status, 400);
    assert_eq!(
        result.error()["message"],
        "template 'nowhere': prompt 'nowhere' not found in predefined content"
    );
    let path = fixture.directory().join("manifests/agent.json");
    let mut broken = manifest(json!([{"type": "rest-api", "name": 5, "tools": []}]));
    broken["tool_sets"][0]["extra"] = json!("so that the length differs");
    std::fs::write(path, broken.to_string()).unwrap();
    let result = fixture.send_text("x").await;
    assert!(result.status >= 400, "{result:?}");
    let message = result.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tool_sets.0.name"), "{message}");
    assert_eq!(fixture.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_tool_set_is_an_issue_and_the_chat_continues() {
    let sets = json!([{"type": "predefined", "template_name": "nowhere"}]);
    let fixture =
        TurnFixture::plain(&manifest(sets), r#"{"rules": [{"reply": {"say": "Hi."}}]}"#).await;
    let result = fixture.send_text("x").await;
    let stages = result.stages();
    assert_eq!(stages[0].0, "Initialization issues");
    assert!(
        stages[0]
            .1
            .contains("- **template 'nowhere'**: toolset 'nowhere' not found"),
        "{}",
        stages[0].1
    );
    assert_eq!(stages[0].2, "failed");
    assert_eq!(result.text(), "Hi.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_choice_without_tools_is_refused() {
    let fixture = TurnFixture::plain(
        &manifest(json!([])),
        r#"{"rules": [{"reply": {"say": "Hi."}}]}"#,
    )
    .await;
    let body = json!({"model": "agent", "stream": true, "tool_choice": "required",
        "messages": [{"role": "user", "content": "x"}]});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url));
    let result = fixture.send(request.json(&body)).await;
    assert_eq!(result.status, 400);
    assert_eq!(
        result.error()["message"],
        "tool_choice requires at least one tool to be configured"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_choice_and_response_format_are_sent_to_the_model() {
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Done."}},
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}}]}"#;
    let endpoint = crate::tools::FakeEndpoint::start().await;
    let fixture =
        TurnFixture::plain(&manifest(json!([rest(&endpoint.url(), &["a"])])), script).await;
    let body = json!({"model": "agent", "stream": true, "tool_choice": "required",
        "response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "x"}]});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url));
    let result = fixture.send(request.json(&body)).await;
    assert_eq!(result.text(), "Done.");
    let requests = fixture.asked();
    assert_eq!(requests[0]["tool_choice"], "required");
    assert!(requests[1].get("tool_choice").is_none(), "first call only");
    assert!(
        requests
            .iter()
            .all(|body| body["response_format"] == json!({"type": "json_object"}))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_message_are_named_and_images_are_shown_to_models_that_know_nothing_of_dial() {
    let fixture = TurnFixture::plain(
        &manifest(json!([])),
        r#"{"rules": [{"reply": {"say": "Seen."}}]}"#,
    )
    .await;
    let (text, image) = ("aGVsbG8gdGhlcmU=", "iVBORw0KGgo=");
    let attachments = json!([
        {"type": "text/plain", "title": "a.txt", "url": format!("data:text/plain;base64,{text}")},
        {"type": "image/png", "title": "b.png", "url": format!("data:image/png;base64,{image}")},
        {"title": "c.bin", "url": "data:;base64,***"},
    ]);
    let result = fixture
        .ask(json!([{"role": "user", "content": "look", "custom_content": {"attachments": attachments}}]))
        .await;
    assert_eq!(result.text(), "Seen.");
    let message = fixture.asked()[0]["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert!(message.get("custom_content").is_none(), "{message}");
    let parts = message["content"].as_array().unwrap();
    let said = parts[0]["text"].as_str().unwrap();
    assert!(said.starts_with("look\n<attachments>"), "{said}");
    assert!(
        said.contains("<title>a.txt</title>") && said.contains("<url>artifact/"),
        "{said}"
    );
    assert!(
        !said.contains(text) && !said.contains("X-Amz"),
        "neither bytes nor links: {said}"
    );
    assert!(said.contains("c.bin (not available: "), "{said}");
    assert_eq!(
        parts[1]["image_url"]["url"],
        format!("data:image/png;base64,{image}")
    );
    assert_eq!(parts.len(), 2);
}
