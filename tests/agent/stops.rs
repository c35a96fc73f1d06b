//! Tests of a system that stops while a chat runs.

use std::sync::Arc;

use dray_http::fake_server::{FakeServer, ReceivedRequest, Reply, SharedState, json_reply};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::chat_answer::AgentAnswer;
use super::fixture::{AgentSetup, DIAL_KEY, user};

/// A tool whose operation `prepare` responds when it is released.
#[derive(Default)]
struct HeldTool {
    /// Calls of `prepare`.
    calls: usize,
    release: Arc<Notify>,
    /// Arguments of `order`.
    documents: Vec<String>,
}

async fn respond(shared: Arc<SharedState<HeldTool>>, request: ReceivedRequest) -> Reply {
    if request.path.ends_with("/order") {
        let arguments = request.json().await.unwrap();
        let document = arguments["doc"].as_str().unwrap().to_owned();
        shared.lock().documents.push(document);
        return json_reply(200, &json!({"state": "ordered"}));
    }
    let release = {
        let mut tool = shared.lock();
        tool.calls += 1;
        Arc::clone(&tool.release)
    };
    release.notified().await;
    json_reply(200, &json!({"state": "prepared"}))
}

async fn held_tool() -> (FakeServer<HeldTool>, Value) {
    let server = FakeServer::start(HeldTool::default(), |shared, request| {
        async move { Ok(respond(shared, request).await) }.boxed()
    });
    let server = server.await.unwrap();
    let url = server.shared().url();
    let operation = |name: &str, properties: Value| {
        json!({
            "type": "restapi-tool",
            "open_ai_tool": {"type": "function", "function": {
                "name": name, "parameters": {"type": "object", "properties": properties}}},
            "rest_api_method_info": {"method_url": format!("{url}/{name}"), "method_type": "post"},
        })
    };
    let operations = [
        operation("prepare", json!({})),
        operation(
            "order",
            json!({"doc": {"type": "string", "parameter_info": {"type": "body", "key": "doc"}}}),
        ),
    ];
    let tools = json!({"type": "rest-api", "name": "shop", "tools": operations});
    (server, tools)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_runs_when_the_system_stops_still_calls_services_and_ends() {
    let (tool, tools) = held_tool().await;
    let rules = json!([
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "{result}"}},
        {"when": {"tool_result_of": "shop_prepare"},
         "reply": {"call": [{"name": "shop_order", "arguments": {"doc": "file:text::files/acme/note.txt"}}]}},
        {"reply": {"call": [{"name": "shop_prepare", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).on_dial();
    let fixture = setup.start().await;
    fixture
        .dial
        .put("acme/note.txt", "All cranes work.", "text/plain");
    let body = json!({"model": "agent", "messages": [user("Order.")], "stream": true});
    let request = fixture.post("/openai/deployments/agent/chat/completions");
    let request = request.header("api-key", DIAL_KEY).json(&body);
    let mut asking = JoinSet::new();
    asking.spawn(AgentAnswer::of(request));
    let is_held = async || (tool.shared().lock().calls == 1).then_some(());
    eventually("a call of the tool", is_held).await;

    let health = fixture.running.health().clone();
    let mut stopping = JoinSet::new();
    stopping.spawn(fixture.running.stop());
    health.wait_unready().await;
    tool.shared().lock().release.notify_one();
    let answer = asking.join_next().await.unwrap().unwrap();
    // The file-resolver of this process was called after the signal.
    assert_eq!(tool.shared().lock().documents, ["All cranes work."]);
    assert!(answer.text().contains("ordered"), "{answer:?}");
    assert!(!stopping.join_next().await.unwrap().unwrap().cut_short);
}
