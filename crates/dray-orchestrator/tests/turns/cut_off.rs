//! Answers whose calls are not complete, because a limit or a filter of the model ended them.

use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, user, weather};
use crate::fixture::{TurnFixture, manifest, rest};
use crate::responses::{create, stream};

/// The model's first answer has a call of `tool` with these arguments, and ends for this reason.
async fn shop(
    endpoint: &CountingEndpoint,
    (tool, arguments): (&str, &str),
    reason: &str,
) -> TurnFixture {
    let script = json!({"rules": [
        {"when": {"tool_result_of": tool}, "reply": {"say": "Got {result}"}},
        {"reply": {"say": "Let me see.", "call": [{"name": tool, "arguments": arguments}], "finish_reason": reason}},
    ]});
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    TurnFixture::plain(&agent, &script.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_before_its_arguments_is_not_made() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = shop(&endpoint, ("shop_a", ""), "length").await;
    let result = fixture.send_text("go").await;
    assert!(result.text().contains("was not made"), "{result:?}");
    assert_eq!(endpoint.called(), [""; 0]);
    let second = &fixture.asked()[1];
    let messages = second["messages"].as_array().unwrap().iter();
    let mut functions = messages.map(|message| &message["tool_calls"][0]["function"]);
    let shown = functions.find(|function| function["name"] == "shop_a");
    // Services refuse arguments that are not JSON.
    assert_eq!(shown.unwrap()["arguments"], "{}");
    // A complete call is made, although the limit ended the answer after it.
    let fixture = shop(&endpoint, ("shop_a", r#"{"q": "1"}"#), "length").await;
    fixture.send_text("go").await;
    assert_eq!(endpoint.called(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_a_filtered_answer_is_made_or_given_to_the_client() {
    let endpoint = CountingEndpoint::start().await;
    for (tool, arguments) in [
        ("shop_a", r#"{"q": "1"}"#),
        ("weather", ""),
        ("weather", r#"{"city": "Paris"}"#),
    ] {
        let fixture = shop(&endpoint, (tool, arguments), "content_filter").await;
        let body = json!({"messages": [user("go")], "tools": [weather()]});
        let result = fixture.chat(body).await;
        assert_eq!(
            (result.reason().as_str(), result.text().as_str()),
            ("content_filter", "Let me see.")
        );
        assert!(result.calls().is_empty(), "{result:?}");
        assert_eq!(fixture.asked().len(), 1);
    }
    assert_eq!(endpoint.called(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_marks_the_call_that_was_cut_off() {
    let script = json!({"rules": [{"reply": {"finish_reason": "length", "call": [
        {"name": "weather", "arguments": {"city": "Paris"}}, {"name": "weather", "arguments": "{\"ci"}]}}]});
    let fixture = TurnFixture::plain(&manifest(json!([])), &script.to_string()).await;
    let tool = json!({"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": false});
    let body = json!({"input": "x", "tools": [tool]});
    let (_, response) = create(&fixture, &body).await;
    assert_eq!(response["status"], "incomplete");
    let items = response["output"].as_array().unwrap().iter();
    let items = items.map(|item| (item["status"].clone(), item["arguments"].clone()));
    let items: Vec<_> = items.collect();
    let expected = [
        ("completed", "{\"city\":\"Paris\"}"),
        ("incomplete", "{\"ci"),
    ];
    assert_eq!(
        items,
        expected.map(|(status, text)| (json!(status), json!(text)))
    );
    let events = stream(&fixture, body).await;
    let is_end = |event: &&Value| event["type"] == "response.function_call_arguments.done";
    let ended = events.iter().filter(is_end).count();
    assert_eq!(ended, 1, "{events:?}");
}
