//! Decisions of chats while other calls of their round run, and while the process of their request dies.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use futures_util::future::join;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::approvals::{APPROVER_ID, OPS_CHAT, OpsFixture};
use super::fixture::user;

/// Calls of the tools of a shop: `order` counts, and `wait` ends once `order` was called.
#[derive(Debug, Default)]
struct ShopCalls {
    orders: usize,
    ordered: Arc<Notify>,
}

async fn serve_shop(
    shared: Arc<SharedState<ShopCalls>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let ordered = Arc::clone(&shared.lock().ordered);
    if request.path.starts_with("/wait") {
        ordered.notified().await;
    } else {
        shared.lock().orders += 1;
        ordered.notify_one();
    }
    Ok(fake_server::json_reply(200, &json!({"done": true})))
}

/// The shop, and the tool set that calls it.
async fn start_shop() -> (FakeServer<ShopCalls>, Value) {
    let server = FakeServer::start(ShopCalls::default(), |shared, request| {
        serve_shop(shared, request).boxed()
    });
    let server = server.await.unwrap();
    let url = server.shared().url();
    let tool = |name: &str| {
        json!({
            "type": "restapi-tool",
            "open_ai_tool": {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}},
            "rest_api_method_info": {"method_url": format!("{url}/{name}"), "method_type": "post"},
        })
    };
    let tools =
        json!({"type": "rest-api", "name": "stall", "tools": [tool("wait"), tool("order")]});
    (server, tools)
}

/// The model makes these calls, and says what `stall_order` returned.
fn rules(calls: &[&str]) -> Value {
    let calls = calls.iter();
    let calls: Vec<_> = calls
        .map(|name| json!({"name": name, "arguments": {}}))
        .collect();
    json!([
        {"when": {"tool_result_of": "stall_order"}, "reply": {"say": "Ordered."}},
        {"when": {"tool_result_of": "stall_wait"}, "reply": {"say": "Ordered."}},
        {"reply": {"call": calls}},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permitted_call_is_made_while_another_call_of_its_round_runs() {
    let (shop, tools) = start_shop().await;
    let ops = OpsFixture::start(|setup| {
        setup
            .with_script(rules(&["stall_wait", "stall_order"]))
            .part("tool_sets", json!([tools]))
            .set(
                "orchestrator.require_approval",
                r#"[{"tools": ["stall_order"]}]"#,
            )
    })
    .await;
    let deciding = async {
        let question = ops.question().await;
        ops.press(&question, APPROVER_ID, "Approve").await;
    };
    let (answer, ()) = join(ops.ask(json!([user("order")])), deciding).await;
    assert_eq!(answer.text(), "Ordered.", "{answer:?}");
    assert_eq!(shop.shared().lock().orders, 1);
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(!ended.text.contains("not made"), "{}", ended.text);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_permitted_after_its_process_was_killed_is_made_by_the_other_replica_once() {
    let (shop, tools) = start_shop().await;
    let ops = OpsFixture::start(|setup| {
        setup
            .with_script(rules(&["stall_order"]))
            .part("tool_sets", json!([tools]))
            .distributed()
            .without("orchestrator")
    })
    .await;
    let settings = [
        ("orchestrator.response_lease", "2s".to_owned()),
        (
            "orchestrator.require_approval",
            r#"[{"tools": ["stall_order"]}]"#.to_owned(),
        ),
        (
            "orchestrator.approval_chats",
            r#"[{"chat": "ops"}]"#.to_owned(),
        ),
    ];
    let first = ops.fixture.process("orchestrator", &settings).await;
    let second = ops.fixture.process("orchestrator", &settings).await;
    let body = json!({"model": "agent", "input": "order", "background": true});
    let request = ops.fixture.post_to(&first, "/v1/responses").json(&body);
    let response = request.send(&|_| ()).await.unwrap();
    let response: Value = response.json().await.unwrap();
    let question = ops.question().await;
    first.kill9();
    let approve = &question.buttons[0].data;
    let telegram = &ops.fixture.telegram;
    telegram.user_presses(OPS_CHAT, question.message_id, APPROVER_ID, approve);
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    let done = eventually("the end of the response", async || {
        let found = ops.fixture.get_from(&second, &path).send(&|_| ()).await;
        let found: Value = found.unwrap().json().await.unwrap();
        let is_running = found["status"] == "queued" || found["status"] == "in_progress";
        (!is_running).then_some(found)
    })
    .await;
    assert_eq!(done["status"], "completed", "{done}");
    let text = &done["output"][0]["content"][0]["text"];
    assert_eq!(text, "Ordered.", "{done}");
    assert_eq!(shop.shared().lock().orders, 1);
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(!ended.text.contains("not made"), "{}", ended.text);
    assert_eq!(telegram.visible_messages(OPS_CHAT).len(), 1, "asked once");
    drop(second);
    ops.fixture.stop().await;
}
