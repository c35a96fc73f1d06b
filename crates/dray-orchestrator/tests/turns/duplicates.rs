//! Items that a request has twice, as some versions of clients send them.

use serde_json::{Value, json};

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};
use crate::responses::{create, output_text};

/// Asks for a tool that needs approval, and says what the tool returned.
const ORDER_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Got {result}."}},
    {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "dear"}}]}}]}"#;

/// An agent whose tool needs approval, and its question.
async fn ask_for_approval(endpoint: &CountingEndpoint) -> (TurnFixture, Value, Value) {
    let mut agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    agent["require_approval"] = json!([{"tools": ["shop_a"]}]);
    let fixture = TurnFixture::plain(&agent, ORDER_SCRIPT).await;
    let (status, first) = create(&fixture, &json!({"input": "order"})).await;
    assert_eq!(status, 200, "{first}");
    let output = first["output"].as_array().unwrap();
    let question = output
        .iter()
        .find(|item| item["type"] == "mcp_approval_request")
        .unwrap();
    (fixture, first["id"].clone(), question["id"].clone())
}

fn answer(question: &Value, approve: bool) -> Value {
    json!({"type": "mcp_approval_response", "approval_request_id": question, "approve": approve})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_to_the_question_of_the_continued_response_counts_once() {
    let endpoint = CountingEndpoint::start().await;
    let (fixture, response, question) = ask_for_approval(&endpoint).await;
    // The AI SDK sends an approval in this form (vercel/ai issue 18605).
    let reference = json!({"type": "item_reference", "id": question});
    let input = json!([reference, answer(&question, true)]);
    let body = json!({"input": input, "previous_response_id": response});
    let (status, done) = create(&fixture, &body).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(output_text(&done), r#"Got {"own":"dear"}."#, "{done}");
    assert_eq!(endpoint.called(), ["dear"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_references_and_answers_count_once_and_contradictory_answers_are_refused() {
    let endpoint = CountingEndpoint::start().await;
    let (fixture, _, question) = ask_for_approval(&endpoint).await;
    let reference = json!({"type": "item_reference", "id": question});
    let order = json!({"role": "user", "content": "order"});
    let both = json!([
        order,
        reference,
        answer(&question, true),
        answer(&question, false)
    ]);
    let (status, refused) = create(&fixture, &json!({"input": both})).await;
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("input.3")),
        "{refused}"
    );
    assert!(endpoint.called().is_empty());
    let twice = json!([
        order,
        reference,
        {"id": question},
        answer(&question, true),
        answer(&question, true)
    ]);
    let (status, done) = create(&fixture, &json!({"input": twice})).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(output_text(&done), r#"Got {"own":"dear"}."#, "{done}");
    assert_eq!(endpoint.called(), ["dear"]);
}

/// Calls two functions of the client, one after the other, and says what the second one returned.
const STEPS_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "second"}, "reply": {"say": "Got {result}."}},
    {"when": {"tool_result_of": "first"}, "reply": {"call": [{"name": "second", "arguments": {}}]}},
    {"reply": {"call": [{"name": "first", "arguments": {}}]}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn outputs_that_the_continued_responses_have_may_come_again_with_a_new_one() {
    let fixture = TurnFixture::plain(&manifest(json!([])), STEPS_SCRIPT).await;
    let function = |name: &str| json!({"type": "function", "name": name, "parameters": {}});
    let tools = json!([function("first"), function("second")]);
    let output = |response: &Value, text: &str| {
        let call = &response["output"][0]["call_id"];
        json!({"type": "function_call_output", "call_id": call, "output": text})
    };
    let continue_with = async |response: &Value, input: Value| {
        let previous = &response["id"];
        let body = json!({"input": input, "tools": tools, "previous_response_id": previous});
        create(&fixture, &body).await
    };
    let (_, first) = create(&fixture, &json!({"input": "go", "tools": tools})).await;
    let known = output(&first, "one");
    let (status, second) = continue_with(&first, json!([known])).await;
    assert_eq!(status, 200, "{second}");
    assert_eq!(second["output"][0]["name"], "second", "{second}");
    // Semantic Kernel sends all outputs of the turn.
    let (status, done) = continue_with(&second, json!([known, output(&second, "two")])).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(output_text(&done), "Got two.");
    // Another output of a call that has one is not known.
    let changed = json!([output(&first, "three"), output(&second, "two")]);
    let (status, refused) = continue_with(&second, changed).await;
    assert_eq!(status, 400, "{refused}");
}
