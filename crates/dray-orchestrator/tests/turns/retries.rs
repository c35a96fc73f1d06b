//! Requests that clients repeat after a failure. The packages of `OpenAI` repeat 408, 409, 429 and 5xx twice by
//! themselves, unless the header `x-should-retry` forbids it.

use dray_testkit::rehearsal::Script;
use serde_json::{Value, json};

use crate::client_tools::{CountingEndpoint, user};
use crate::fixture::{TurnFixture, manifest, rest};
use crate::responses::{create, output_text};

/// The model calls `shop_a`, and then fails in the way that the user names.
const FAILING_SCRIPT: &str = r#"{"rules": [
    {"when": {"last_user_contains": "without calls"}, "reply": {"fail": {"status": 429, "message": "slow"}}},
    {"when": {"tool_result_of": "shop_a", "last_user_contains": "limited"},
     "reply": {"fail": {"status": 429, "message": "slow"}}},
    {"when": {"tool_result_of": "shop_a", "last_user_contains": "broken"},
     "reply": {"say": "Half of a long sentence", "piece": 4, "cut_after": 4}},
    {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "order"}}]}}]}"#;

/// An agent with one tool, whose model is called three times at most.
async fn shop(endpoint: &CountingEndpoint, repeatable: &Value) -> TurnFixture {
    let mut agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    agent["orchestrator"]["max_iterations"] = json!(3);
    agent["repeatable_tools"] = repeatable.clone();
    TurnFixture::plain(&agent, FAILING_SCRIPT).await
}

/// Status, `x-should-retry` and `retry-after` of the response to a message, without a stream.
async fn failed(
    fixture: &TurnFixture,
    path: &str,
    text: &str,
) -> (u16, Option<String>, Option<String>) {
    let body = if path == "/v1/responses" {
        json!({"model": "agent", "input": text})
    } else {
        json!({"model": "agent", "messages": [user(text)]})
    };
    let request = fixture.client.post(&format!("{}{path}", fixture.url));
    let response = request.json(&body).send(&|_| ()).await.unwrap();
    let header = |name| response.header(name).map(str::to_owned);
    (
        response.status(),
        header("x-should-retry"),
        header("retry-after"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_must_not_repeat_a_request_whose_calls_were_made() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = shop(&endpoint, &json!([])).await;
    let no = Some("false".to_owned());
    for path in ["/v1/chat/completions", "/v1/responses"] {
        for (text, status) in [("limited", 429), ("broken", 500), ("endless", 500)] {
            let seen = failed(&fixture, path, text).await;
            assert_eq!(seen, (status, no.clone(), None), "{path} {text}");
        }
        let (status, should_retry, _) = failed(&fixture, path, "without calls").await;
        assert_eq!((status, should_retry), (429, None), "{path}");
    }
    assert_eq!(endpoint.called().len(), 2 * (1 + 1 + 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_makes_each_call_once_when_the_model_fails_after_it() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = shop(&endpoint, &json!([])).await;
    let arguments = [fixture.url.as_str()];
    let report = dray_testkit::python::run_script("retry_client.py", "openai", &arguments).await;
    assert_eq!(report, json!({"chat": 500, "responses": 500}));
    assert_eq!(endpoint.called(), ["order", "order"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_may_repeat_a_request_all_of_whose_calls_may_be_repeated() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = shop(&endpoint, &json!([{"tools": ["shop_a"]}])).await;
    for path in ["/v1/chat/completions", "/v1/responses"] {
        let (status, should_retry, _) = failed(&fixture, path, "limited").await;
        assert_eq!((status, should_retry), (429, None), "{path}");
        // The model would call tools without end in each attempt.
        let (status, should_retry, _) = failed(&fixture, path, "endless").await;
        assert_eq!((status, should_retry.as_deref()), (500, Some("false")));
    }
}

/// The model asks for a call that needs approval, and fails once after it.
const APPROVED_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_b"}, "times": 1,
     "reply": {"say": "Half of a long sentence", "piece": 4, "cut_after": 4}},
    {"when": {"tool_result_of": "shop_b"}, "reply": {"say": "Got {result}."}},
    {"reply": {"call": [{"name": "shop_b", "arguments": {"q": "dear"}}]}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_approval_continues_with_the_result_of_the_call_that_was_made() {
    let endpoint = CountingEndpoint::start().await;
    let mut agent = manifest(json!([rest(&endpoint.url(), &["b"])]));
    agent["require_approval"] = json!([{"tools": ["shop_b"]}]);
    let fixture = TurnFixture::plain(&agent, APPROVED_SCRIPT).await;
    let done = r#"Got {"own":"dear"}."#;
    let question = fixture.send_text("order").await;
    let said = json!({"role": "assistant", "content": question.text()});
    let body = json!({"messages": [user("order"), said, user("yes")]});
    let (status, failed) = fixture.whole(body.clone()).await;
    assert_eq!(status, 500, "{failed}");
    let (status, repeated) = fixture.whole(body).await;
    let text = &repeated["choices"][0]["message"]["content"];
    assert_eq!((status, text), (200, &json!(done)), "{repeated}");
    assert_eq!(endpoint.called(), ["dear"]);
    let script = Script::from_json(APPROVED_SCRIPT).unwrap();
    fixture.model.set_script(script);
    let (_, first) = create(&fixture, &json!({"input": "order"})).await;
    let question = first["output"].as_array().unwrap().last().unwrap();
    let approval = json!({"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": true});
    let next = json!({"input": [approval], "previous_response_id": first["id"]});
    let (status, failed) = create(&fixture, &next).await;
    assert_eq!(status, 500, "{failed}");
    let (status, repeated) = create(&fixture, &next).await;
    assert_eq!((status, output_text(&repeated)), (200, done), "{repeated}");
    assert_eq!(endpoint.called(), ["dear", "dear"]);
}
