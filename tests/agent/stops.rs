//! Tests of a system that stops while a chat runs.

use std::sync::Arc;

use dray_http::fake_server::{FakeServer, ReceivedRequest, SharedState, json_reply};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::fixture::{AgentSetup, user};
use super::seen::AgentAnswer;

const SESSION_NAME: &str = "crane";

/// The calls of a tool that responds when it is released.
#[derive(Default)]
struct HeldTool {
    calls: usize,
    release: Arc<Notify>,
}

async fn held_tool() -> (FakeServer<HeldTool>, Value) {
    let server = FakeServer::start(
        HeldTool::default(),
        |shared: Arc<SharedState<HeldTool>>, _: ReceivedRequest| {
            async move {
                let release = {
                    let mut tool = shared.lock();
                    tool.calls += 1;
                    Arc::clone(&tool.release)
                };
                release.notified().await;
                Ok(json_reply(200, &json!({"ordered": true})))
            }
            .boxed()
        },
    );
    let server = server.await.unwrap();
    let url = server.shared().url();
    let tools = json!({"type": "rest-api", "name": "shop", "tools": [{
        "type": "restapi-tool",
        "open_ai_tool": {"type": "function", "function": {"name": "order", "parameters": {"type": "object", "properties": {}}}},
        "rest_api_method_info": {"method_url": format!("{url}/order"), "method_type": "post"},
    }]});
    (server, tools)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_runs_when_the_system_stops_still_delivers_its_file_and_ends() {
    let (tool, tools) = held_tool().await;
    let rules = json!([
        {"when": {"tool_result_of": "send_file"}, "reply": {"say": "Done."}},
        {"when": {"tool_result_of": "shop_order"},
         "reply": {"call": [{"name": "send_file", "arguments": {"paths": ["report.txt"]}}]}},
        {"reply": {"call": [{"name": "shop_order", "arguments": {}}]}},
    ]);
    let fixture = AgentSetup::new(json!([tools]), rules).start().await;
    std::fs::write(fixture.sandbox.join("report.txt"), "All cranes work.").unwrap();
    let chat = fixture.telegram.chat();
    fixture.bind(SESSION_NAME, chat).await;
    let body = json!({"model": "agent", "messages": [user("Order and report.")], "stream": true});
    let request = fixture.post("/v1/chat/completions");
    let request = request.header("x-dray-session", SESSION_NAME).json(&body);
    let mut asking = JoinSet::new();
    asking.spawn(AgentAnswer::of(request));
    let is_called = async || (tool.shared().lock().calls == 1).then_some(());
    eventually("a call of the tool", is_called).await;

    let health = fixture.running.health().clone();
    let mut stopping = JoinSet::new();
    stopping.spawn(fixture.running.stop());
    health.wait_unready().await;
    tool.shared().lock().release.notify_one();
    let answer = asking.join_next().await.unwrap().unwrap();
    assert!(answer.text().ends_with("Done."), "{answer:?}");
    assert_eq!(fixture.telegram.visible_messages(chat).len(), 1);
    assert!(!stopping.join_next().await.unwrap().unwrap().cut_short);
}
