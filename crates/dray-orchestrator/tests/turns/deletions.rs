//! Items that were deleted from a conversation: no later response shows them to the model.

use serde_json::{Value, json};

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};
use crate::responses::create;

/// The model says something beside its calls, of which the client makes one.
const TALKING_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
    {"when": {"last_user_contains": "and?"}, "reply": {"say": "Nothing more."}},
    {"when": {"last_user_contains": "say it"}, "reply": {"say": "A word to forget."}},
    {"reply": {"say": "A thought to forget.", "call": [
        {"name": "shop_a", "arguments": {"q": "1"}}, {"name": "weather", "arguments": {}}]}}]}"#;

/// Sends a request to a path below `/v1/conversations`; `None` deletes.
async fn conversation(fixture: &TurnFixture, path: &str, body: Option<Value>) -> Value {
    let url = format!("{}/v1/conversations{path}", fixture.url);
    let request = match body {
        Some(body) => fixture.client.post(&url).json(&body),
        None => fixture.client.delete(&url),
    };
    let response = request.send(&|_| ()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response.json().await.unwrap()
}

fn last_prompt(fixture: &TurnFixture) -> String {
    fixture.asked().pop().unwrap()["messages"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_a_turn_that_waits_is_deleted_from_what_its_tools_left_too() {
    let endpoint = CountingEndpoint::start().await;
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let fixture = TurnFixture::plain(&agent, TALKING_SCRIPT).await;
    let id = conversation(&fixture, "", Some(json!({}))).await["id"].clone();
    let tool = json!({"type": "function", "name": "weather", "parameters": {"type": "object"}});
    let body = json!({"input": "go", "conversation": id, "tools": [tool]});
    let (status, first) = create(&fixture, &body).await;
    assert_eq!(status, 200, "{first}");
    let output = first["output"].as_array().unwrap();
    let item = |kind: &str| output.iter().find(|item| item["type"] == kind).unwrap();
    let message = item("message")["id"].as_str().unwrap();
    let path = format!("/{}/items/{message}", id.as_str().unwrap());
    conversation(&fixture, &path, None).await;
    let call = &item("function_call")["call_id"];
    let result = json!({"type": "function_call_output", "call_id": call, "output": "cold"});
    let body = json!({"input": [result], "conversation": id, "tools": [tool]});
    let (status, second) = create(&fixture, &body).await;
    assert_eq!(status, 200, "{second}");
    let prompt = last_prompt(&fixture);
    assert!(
        prompt.contains("shop_a") && prompt.contains("cold") && !prompt.contains("forget"),
        "{prompt}"
    );
    let (_, third) = create(&fixture, &json!({"input": "and?", "conversation": id})).await;
    assert_eq!(third["status"], "completed", "{third}");
    let prompt = last_prompt(&fixture);
    assert!(!prompt.contains("forget"), "{prompt}");
    assert_eq!(endpoint.called(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_copy_of_a_deleted_message_is_deleted() {
    let fixture = TurnFixture::plain(&manifest(json!([])), TALKING_SCRIPT).await;
    let id = conversation(&fixture, "", Some(json!({}))).await["id"].clone();
    let (_, first) = create(&fixture, &json!({"input": "say it", "conversation": id})).await;
    let message = first["output"][0]["id"].clone();
    let reference = json!({"type": "item_reference", "id": message});
    let input = json!([reference, {"role": "user", "content": "and?"}]);
    let (status, second) = create(&fixture, &json!({"input": input, "conversation": id})).await;
    assert_eq!(status, 200, "{second}");
    let prompt = last_prompt(&fixture);
    assert_eq!(prompt.matches("A word to forget").count(), 2, "{prompt}");
    let path = format!(
        "/{}/items/{}",
        id.as_str().unwrap(),
        message.as_str().unwrap()
    );
    conversation(&fixture, &path, None).await;
    create(&fixture, &json!({"input": "and?", "conversation": id})).await;
    let prompt = last_prompt(&fixture);
    assert!(!prompt.contains("forget"), "{prompt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continued_response_does_not_contain_text_that_was_deleted_from_its_conversation() {
    let fixture = TurnFixture::plain(&manifest(json!([])), TALKING_SCRIPT).await;
    let id = conversation(&fixture, "", Some(json!({}))).await["id"].clone();
    let (_, first) = create(&fixture, &json!({"input": "say it", "conversation": id})).await;
    let (_, second) = create(&fixture, &json!({"input": "and?", "conversation": id})).await;
    // A response that continues one of the conversation, and is not a part of it.
    let beside = json!({"input": "and?", "previous_response_id": second["id"]});
    let (_, beside) = create(&fixture, &beside).await;
    assert_eq!(beside["status"], "completed", "{beside}");
    assert!(last_prompt(&fixture).contains("A word to forget"));
    let path = format!("/{}", id.as_str().unwrap());
    let items = format!("{path}/items/");
    for response in [&first, &second] {
        let message = response["output"][0]["id"].as_str().unwrap();
        conversation(&fixture, &format!("{items}{message}"), None).await;
    }
    let prompts_without_texts = async || {
        for previous in [&first, &second, &beside] {
            let body = json!({"input": "and?", "previous_response_id": previous["id"]});
            let (status, next) = create(&fixture, &body).await;
            assert_eq!(status, 200, "{next}");
            let prompt = last_prompt(&fixture);
            assert!(prompt.contains("say it"), "{prompt}");
            assert!(!prompt.contains("forget"), "{prompt}");
        }
    };
    prompts_without_texts().await;
    // The item is gone for references too.
    let reference = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let (status, missing) = create(&fixture, &json!({"input": [reference]})).await;
    assert_eq!(
        (status, &missing["error"]["param"]),
        (404, &json!("input.0.id")),
        "{missing}"
    );
    // The same holds after the conversation itself is deleted.
    conversation(&fixture, &path, None).await;
    prompts_without_texts().await;
    let body = json!({"input": "and?", "conversation": id});
    assert_eq!(create(&fixture, &body).await.0, 404);
}
