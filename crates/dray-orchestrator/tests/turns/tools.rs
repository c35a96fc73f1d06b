//! The loop: calls, their results, and the next turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::bank::Bank;
use crate::dial::{DialFixture, text_chunks};
use crate::fixture::{TurnFixture, manifest, rest};

#[tokio::test(flavor = "multi_thread")]
async fn the_state_and_the_next_prompt_name_files_of_tools_without_links_to_them() {
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["a"]);
    set["response_as_attachment"] = json!({"enabled": true, "content_types": ["application/json"]});
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Done."}},
        {"when": {"last_user_contains": "again"}, "reply": {"say": "Again."}},
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "x"}}]}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([set])), script).await;
    let first = fixture.send_text("x").await;
    let state = first.state().to_string();
    assert!(
        state.contains("artifact/") && !state.contains("X-Amz"),
        "{state}"
    );
    fixture
        .ask(json!([{"role": "user", "content": "x"}, first.message(), {"role": "user", "content": "again"}]))
        .await;
    let requests = fixture.asked();
    let prompt = |number: usize| requests[number]["messages"].as_array().unwrap().clone();
    let (before, after) = (prompt(1), prompt(2));
    assert_eq!(before[..], after[..before.len()], "prompt caches hit");
    assert!(!requests[2].to_string().contains("X-Amz"));
}

/// An HTTP service with a few endpoints.
pub(crate) struct FakeEndpoint(FakeServer<Arc<AtomicUsize>>);

/// A request that is being answered.
struct OpenRequest(Arc<AtomicUsize>);

impl OpenRequest {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(
    shared: Arc<SharedState<Arc<AtomicUsize>>>,
    received: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let query = received.parameter("q").unwrap_or_default();
    Ok(match received.path.as_str() {
        "/never" => {
            let open = OpenRequest::new(&shared.lock());
            std::future::pending::<()>().await;
            drop(open);
            return Err(ConnectionClosed);
        }
        "/broken" => fake_server::bytes_reply(500, "text/plain", "kaput".into()),
        "/huge" => fake_server::bytes_reply(200, "text/plain", vec![b'x'; 50 << 20].into()),
        "/large" => fake_server::bytes_reply(200, "text/plain", vec![b'z'; 9_200_000].into()),
        "/long" => fake_server::bytes_reply(200, "text/plain", vec![b'y'; 60_000].into()),
        path => fake_server::json_reply(200, &json!({"path": path, "q": query})),
    })
}

impl FakeEndpoint {
    pub(crate) async fn start() -> Self {
        let server = FakeServer::start(Arc::default(), |shared, received| {
            answer(shared, received).boxed()
        });
        Self(server.await.unwrap())
    }

    /// Number of requests that wait without a response.
    pub(crate) fn open(&self) -> usize {
        self.0.shared().lock().load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        self.0.shared().url()
    }
}

const TWO_CALLS_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_b"}, "reply": {"say": "Both are here."}},
    {"reply": {"say": "Looking.", "call": [
        {"name": "shop_a", "arguments": {"q": "1"}}, {"name": "shop_b", "arguments": {"q": "2"}}]}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_are_answered_in_order_and_kept_in_the_state() {
    let endpoint = FakeEndpoint::start().await;
    let fixture = TurnFixture::plain(
        &manifest(json!([rest(&endpoint.url(), &["a", "b"])])),
        TWO_CALLS_SCRIPT,
    )
    .await;
    let result = fixture.send_text("go").await;
    assert_eq!(result.text(), "Looking.\n\nBoth are here.");
    let requests = fixture.asked();
    let second = requests[1]["messages"].as_array().unwrap();
    let tail: Vec<_> = second.iter().rev().take(3).rev().collect();
    assert_eq!(tail[0]["content"], "Looking.");
    assert_eq!(tail[0]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(tail[1]["tool_call_id"], tail[0]["tool_calls"][0]["id"]);
    assert!(tail[1]["content"].as_str().unwrap().contains("\"q\":\"1\""));
    assert!(tail[2]["content"].as_str().unwrap().contains("\"q\":\"2\""));
    let roles = rounds(&result);
    let roles: Vec<_> = roles
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["assistant", "tool", "tool"]);
    let stages = result.stages();
    assert_eq!(stages.len(), 2);
    assert!(
        stages
            .iter()
            .all(|stage| stage.2 == "completed" && stage.0.ends_with("s]")),
        "{stages:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_brings_the_rounds_into_the_next_turn() {
    let endpoint = FakeEndpoint::start().await;
    let fixture = TurnFixture::plain(
        &manifest(json!([rest(&endpoint.url(), &["a", "b"])])),
        TWO_CALLS_SCRIPT,
    )
    .await;
    let first = fixture.send_text("go").await;
    fixture
        .model
        .set_script(dray_testkit::rehearsal::Script::saying("I remember."));
    let before = fixture.asked().len();
    let second = fixture
        .ask(json!([{"role": "user", "content": "go"}, first.message(), {"role": "user", "content": "and?"}]))
        .await;
    assert_eq!(second.text(), "I remember.");
    let messages = &fixture.asked()[before]["messages"];
    let shape: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| !is_synthetic(message))
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        shape,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "user"
        ]
    );
    assert!(
        messages.to_string().contains("\\\"q\\\":\\\"2\\\""),
        "results are there"
    );
    assert!(!messages.to_string().contains("tool_execution_history"));
}

/// The messages that the state keeps, without pairs that the model did not ask for.
pub(crate) fn rounds(seen: &crate::fixture::ChatResult) -> Vec<Value> {
    let state = seen.state();
    let history = state["tool_execution_history"].as_array().cloned();
    let mut history = history.unwrap_or_default();
    history.retain(|message| !is_synthetic(message));
    history
}

fn is_synthetic(message: &Value) -> bool {
    let id = message["tool_call_id"]
        .as_str()
        .or_else(|| message["tool_calls"][0]["id"].as_str());
    id.is_some_and(|id| id.starts_with("s_"))
}

#[tokio::test(flavor = "multi_thread")]
async fn r_10_an_unknown_tool_and_broken_arguments_do_not_end_the_turn() {
    let script = r#"{"rules": [
        {"times": 1, "reply": {"call": [{"name": "shop_zzz", "arguments": {}}]}},
        {"times": 1, "reply": {"call": [{"name": "shop_a", "arguments": "{not json"}]}},
        {"reply": {"say": "Recovered."}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let fixture =
        TurnFixture::plain(&manifest(json!([rest(&endpoint.url(), &["a"])])), script).await;
    let result = fixture.send_text("go").await;
    assert!(result.text().ends_with("Recovered."), "{result:?}");
    let last = fixture.asked()[2]["messages"].to_string();
    assert!(
        last.contains("The tool `shop_zzz` does not exist. Valid tools: shop_a"),
        "{last}"
    );
    assert_eq!(endpoint.0.shared().received(), 0);
    // Endpoints refuse a request whose history has arguments that are not an object.
    let asked = fixture.asked();
    let messages = asked[2]["messages"].as_array().unwrap();
    let mut calls = messages
        .iter()
        .filter_map(|message| message["tool_calls"][0]["function"].as_object());
    let broken = calls.rfind(|call| call["name"] == "shop_a").unwrap();
    assert_eq!(
        broken["arguments"],
        json!({"invalid_arguments": "{not json"}).to_string()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r_10_of_two_tools_with_one_name_the_first_is_kept() {
    let endpoint = FakeEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a"]), rest(&endpoint.url(), &["a"])]);
    let fixture =
        TurnFixture::plain(&manifest(sets), r#"{"rules": [{"reply": {"say": "Hi."}}]}"#).await;
    let result = fixture.send_text("go").await;
    assert_eq!(result.stages()[0].0, "Initialization issues");
    assert_eq!(result.text(), "Hi.");
    let tools = fixture.asked()[0]["tools"].as_array().unwrap().clone();
    let same = tools
        .iter()
        .filter(|tool| tool["function"]["name"] == "shop_a");
    assert_eq!(same.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_stages_problems_of_the_set_up_have_none_either() {
    let script = r#"{"rules": [{"reply": {"say": "Hi."}}]}"#;
    for (level, stages) in [("none", 0), ("error", 1)] {
        let mut manifest = manifest(json!([{"type": "predefined", "template_name": "nowhere"}]));
        manifest["features"] = json!({"stage_display": {"level": level}});
        let fixture = TurnFixture::plain(&manifest, script).await;
        let result = fixture.send_text("go").await;
        assert_eq!(result.stages().len(), stages, "{level}");
        assert!(result.text().ends_with("Hi."));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_of_the_model_are_shown_from_level_info_on() {
    for (level, stages) in [("error", 0), ("info", 1)] {
        let mut manifest = manifest(json!([]));
        manifest["features"] = json!({"stage_display": {"level": level}});
        let dial = DialFixture::new(&manifest).await;
        let stage = json!({"index": 0, "name": "Thinking", "status": "completed"});
        let delta = json!({"custom_content": {"stages": [stage]}});
        let mut chunks = text_chunks("Hi.");
        chunks.insert(
            0,
            json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
        );
        dial.core.chat("lead", chunks);
        let result = dial.send_text("go").await;
        assert_eq!(result.stages().len(), stages, "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_ends_at_its_limit_and_keeps_its_state() {
    let script =
        r#"{"rules": [{"reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let mut manifest = manifest(json!([rest(&endpoint.url(), &["a"])]));
    manifest["orchestrator"]["max_iterations"] = json!(2);
    let fixture = TurnFixture::plain(&manifest, script).await;
    let result = fixture.send_text("go").await;
    assert_eq!((result.status, result.done), (200, true));
    assert_eq!(
        fixture.asked().len(),
        2,
        "two calls are allowed, the third is refused"
    );
    assert_eq!(
        result.error()["message"],
        "Agent stopped due to max iterations."
    );
    // An end with a reason would look like a complete answer.
    assert_eq!(result.reason(), "");
    assert_eq!(rounds(&result).len(), 4);
    let at = |description: &str| {
        result
            .chunks
            .iter()
            .position(|chunk| chunk.to_string().contains(description))
            .unwrap()
    };
    assert!(at("\"state\"") < at("\"error\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn r_12_a_failed_tool_closes_its_stage_as_failed_and_the_model_continues() {
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_broken"}, "reply": {"say": "It failed: {result}"}},
        {"reply": {"call": [{"name": "shop_broken", "arguments": {}}]}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let fixture = TurnFixture::plain(
        &manifest(json!([rest(&endpoint.url(), &["broken"])])),
        script,
    )
    .await;
    let chat_result = fixture.send_text("go").await;
    assert_eq!(chat_result.stages()[0].2, "failed");
    assert!(
        chat_result.text().contains("It failed: "),
        "{}",
        chat_result.text()
    );
    assert_eq!(chat_result.error(), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_strategy_ends_the_request_with_its_text() {
    let script = r#"{"rules": [{"reply": {"call": [{"name": "shop_broken", "arguments": {}}]}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["broken"]);
    set["tools"][0]["fallback_configuration"] = json!({"strategies": [{"type": "stop"}]});
    let fixture = TurnFixture::plain(&manifest(json!([set])), script).await;
    let result = fixture.send_text("go").await;
    assert_eq!(
        result.error()["display_message"],
        "A tool encountered an error and the agent was stopped. Please try again or contact your administrator if the issue persists."
    );
    assert_eq!(fixture.asked().len(), 1);
    assert_eq!(
        rounds(&result),
        [] as [Value; 0],
        "a round without its results is not kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_is_written_to_a_file_unless_operator_or_manifest_forbid_it() {
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_long"}, "reply": {"say": "Long."}},
        {"reply": {"call": [{"name": "shop_long", "arguments": {}}]}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["long"])]);
    let mut whole = manifest(sets.clone());
    whole["features"]["result_offload"] = json!({"enabled": false});
    let sent = manifest(sets);
    for (agent, offload, is_whole) in [
        (&sent, true, false),
        (&sent, false, true),
        (&whole, true, true),
    ] {
        let fixture = TurnFixture::with(agent, script, |config| {
            config.files.offload = offload;
        })
        .await;
        let chat_result = fixture.send_text("go").await;
        assert_eq!(chat_result.text().trim(), "Long.");
        let requests = fixture.asked();
        let result = requests[1]["messages"].as_array().unwrap().last().unwrap();
        let content = result["content"].as_str().unwrap();
        assert_eq!(content.len() == 60_000, is_whole, "{}", content.len());
        let is_short = content.contains("60000 bytes") && content.len() < 10_000;
        assert_eq!(is_short, !is_whole);
        let reader = |tool: &Value| tool["function"]["name"] == "read_attachment";
        let tools = requests[0]["tools"].as_array().unwrap();
        assert_eq!(tools.iter().any(reader), !is_whole, "as it is needed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_long_text_of_a_failed_call_is_written_to_a_file() {
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "bank_lose"}, "reply": {"say": "Lost."}},
        {"reply": {"call": [{"name": "bank_lose", "arguments": {"times": 5000}}]}}]}"#;
    let bank = Bank::start().await;
    let fixture = TurnFixture::plain(&manifest(json!([bank.set()])), script).await;
    assert_eq!(fixture.send_text("go").await.text().trim(), "Lost.");
    let requests = fixture.asked();
    let result = requests[1]["messages"].as_array().unwrap().last().unwrap();
    let content = result["content"].as_str().unwrap();
    assert!(content.len() < 10_000, "{}", content.len());
    assert!(content.contains("too long to show here"), "{content}");
    assert!(content.contains("nothing is left"), "{content}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r_16_the_same_request_gives_the_same_messages() {
    let endpoint = FakeEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a"])]);
    let fixture =
        TurnFixture::plain(&manifest(sets), r#"{"rules": [{"reply": {"say": "Hi."}}]}"#).await;
    fixture.send_text("go").await;
    fixture.send_text("go").await;
    let requests = fixture.asked();
    assert_eq!(requests[0].to_string(), requests[1].to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_has_more_tools_than_services_accept() {
    let endpoint = FakeEndpoint::start().await;
    let paths: Vec<_> = (0..128).map(|number| format!("p{number}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let agent = manifest(json!([rest(&endpoint.url(), &paths)]));
    let script = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;
    let fixture = TurnFixture::plain(&agent, script).await;
    let theirs = (0..100)
        .map(|number| json!({"type": "function", "function": {"name": format!("t{number}")}}));
    let theirs: Vec<_> = theirs.collect();
    let messages = json!([{"role": "user", "content": "x"}]);
    for tools in [Vec::new(), theirs] {
        let mut body = json!({"messages": messages});
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        assert_eq!(fixture.chat(body).await.text(), "Hello.");
        let model_request = fixture.asked().pop().unwrap();
        let declared = model_request["tools"].as_array().unwrap();
        assert!(declared.len() <= 128, "{} tools", declared.len());
    }
}
