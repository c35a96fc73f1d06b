//! Decisions of chats while other calls of their round run, and while the process of their request dies.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::Meta;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_platform_telegram::fake_server::StoredMessage;
use dray_proto::v1;
use dray_testkit::eventually;
use dray_types::{Clock, Deadline, TenantId};
use futures_util::FutureExt as _;
use futures_util::future::join;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::approvals::{APPROVER_ID, OPS_CHAT, OpsFixture};
use super::fixture::user;
use super::process::ServiceProcess;

/// Calls of the tools of a shop: `order` counts, `wait` ends once `order` was called, `note` hangs the first time, and
/// `fail` hangs the first time and fails afterwards, which ends the request.
#[derive(Debug, Default)]
pub(super) struct ShopCalls {
    pub(super) orders: usize,
    pub(super) notes: usize,
    ordered: Arc<Notify>,
}

async fn serve_shop(
    shared: Arc<SharedState<ShopCalls>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let ordered = Arc::clone(&shared.lock().ordered);
    if request.path.starts_with("/wait") {
        ordered.notified().await;
    } else if request.path.starts_with("/note") || request.path.starts_with("/fail") {
        let is_first = {
            let mut calls = shared.lock();
            calls.notes += 1;
            calls.notes == 1
        };
        if is_first {
            std::future::pending::<()>().await;
        }
        if request.path.starts_with("/fail") {
            return Ok(fake_server::json_reply(500, &json!({})));
        }
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
    let mut fail = tool("fail");
    fail["fallback_configuration"] = json!({"strategies": [{"type": "stop"}]});
    let tools = [tool("wait"), tool("order"), tool("note"), fail];
    let tools = json!({"type": "rest-api", "name": "stall", "tools": tools});
    (server, tools)
}

/// The model makes these calls, and says what `stall_order` returned.
pub(super) fn rules(calls: &[&str]) -> Value {
    let calls = calls.iter();
    let calls: Vec<_> = calls
        .map(|name| json!({"name": name, "arguments": {}}))
        .collect();
    json!([
        {"when": {"tool_result_of": "stall_order"}, "reply": {"say": "Ordered."}},
        {"when": {"tool_result_of": "stall_wait"}, "reply": {"say": "Ordered."}},
        {"when": {"tool_result_of": "stall_note"}, "reply": {"say": "Ordered."}},
        {"reply": {"call": calls}},
    ])
}

/// Two processes of the orchestrator, whose agent makes these calls. `stall_order` needs the approval of the chat, and
/// `stall_note` may be repeated.
pub(super) struct ReplicaPair {
    pub(super) shop: FakeServer<ShopCalls>,
    pub(super) ops: OpsFixture,
    pub(super) first: ServiceProcess,
    pub(super) second: ServiceProcess,
}

impl ReplicaPair {
    async fn start(lease: &str, calls: &[&str]) -> Self {
        Self::scripted(lease, rules(calls)).await
    }

    /// The same with a model that follows these rules.
    pub(super) async fn scripted(lease: &str, rules: Value) -> Self {
        let (shop, tools) = start_shop().await;
        let ops = OpsFixture::start(|setup| {
            setup
                .with_script(rules)
                .part("tool_sets", json!([tools]))
                .distributed()
                .without("orchestrator")
        })
        .await;
        let settings = [
            ("orchestrator.response_lease", lease),
            (
                "orchestrator.require_approval",
                r#"[{"tools": ["stall_order"]}]"#,
            ),
            (
                "orchestrator.repeatable_tools",
                r#"[{"tools": ["stall_note", "stall_fail"]}]"#,
            ),
            ("orchestrator.approval_chats", r#"[{"chat": "ops"}]"#),
        ];
        let settings = settings.map(|(key, value)| (key, value.to_owned()));
        let first = ops.fixture.process("orchestrator", &settings).await;
        let second = ops.fixture.process("orchestrator", &settings).await;
        Self {
            shop,
            ops,
            first,
            second,
        }
    }
}

/// Begins a response in the background; returns its path.
async fn begin_in_background(ops: &OpsFixture, process: &ServiceProcess) -> String {
    let body = json!({"model": "agent", "input": "order", "background": true});
    let request = ops.fixture.post_to(process, "/v1/responses").json(&body);
    let response = request.send(&|_| ()).await.unwrap();
    let response: Value = response.json().await.unwrap();
    format!("/v1/responses/{}", response["id"].as_str().unwrap())
}

/// Polls a response at this process until it says that the call was made.
pub(super) async fn wait_until_ordered(ops: &OpsFixture, process: &ServiceProcess, path: &str) {
    let done = eventually("the end of the response", async || {
        let found = ops.fixture.get_from(process, path).send(&|_| ()).await;
        let found: Value = found.unwrap().json().await.unwrap();
        let is_running = found["status"] == "queued" || found["status"] == "in_progress";
        (!is_running).then_some(found)
    })
    .await;
    assert_eq!(done["status"], "completed", "{done}");
    let text = &done["output"][0]["content"][0]["text"];
    assert_eq!(text, "Ordered.", "{done}");
}

/// A request about a question, without a choice: the reply has the outcome that the replicas report.
fn about(question: &StoredMessage) -> v1::DecideInChatRequest {
    // `dray:`, the id of the question, and the choice.
    let id = question.buttons[0].data.split(':').nth(1).unwrap();
    v1::DecideInChatRequest {
        question_id: id.to_owned(),
        chat: "ops".to_owned(),
        sender: APPROVER_ID.to_string(),
        sender_name: "Ada L".to_owned(),
        ..v1::DecideInChatRequest::default()
    }
}

fn meta(timeout: Duration) -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), timeout);
    Meta::new(TenantId::default(), deadline)
}

/// The outcome of a question without a press, as the replicas report it.
pub(super) async fn chat_outcome(ops: &OpsFixture, question: &StoredMessage) -> String {
    let meta = meta(Duration::from_secs(10));
    let reply = ops.fixture.bus().call(&meta, &about(question)).await;
    reply.unwrap().outcome
}

/// Sends an approval until a running process has recorded it.
async fn approve_beside_a_paused_process(ops: &OpsFixture, question: &StoredMessage) {
    let mut approval = about(question);
    approval.set_choice(v1::ApprovalChoice::Approved);
    eventually("a recorded decision", async || {
        // The bus may choose the process that is paused.
        let meta = meta(Duration::from_millis(500));
        let _ = ops.fixture.bus().call(&meta, &approval).await;
        let records = ops.fixture.bus().key_value("dray_client_state");
        let listing = records.list("approval", 10).await.unwrap();
        let mut decisions = listing.entries.iter().map(|(_, entry)| {
            let record: Value = serde_json::from_slice(&entry.value).unwrap();
            record["decision"]["decision"].clone()
        });
        decisions
            .any(|decision| decision == "approved")
            .then_some(())
    })
    .await;
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
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("2s", &["stall_order"]).await;
    let path = begin_in_background(&ops, &first).await;
    let question = ops.question().await;
    first.kill9();
    let approve = &question.buttons[0].data;
    let telegram = &ops.fixture.telegram;
    telegram.user_presses(OPS_CHAT, question.message_id, APPROVER_ID, approve);
    wait_until_ordered(&ops, &second, &path).await;
    assert_eq!(shop.shared().lock().orders, 1);
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(!ended.text.contains("not made"), "{}", ended.text);
    assert_eq!(telegram.visible_messages(OPS_CHAT).len(), 1, "asked once");
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_permitted_after_its_process_was_killed_is_made_although_no_client_polls() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("2s", &["stall_order"]).await;
    let path = begin_in_background(&ops, &first).await;
    let question = ops.question().await;
    first.kill9();
    let approve = &question.buttons[0].data;
    let telegram = &ops.fixture.telegram;
    telegram.user_presses(OPS_CHAT, question.message_id, APPROVER_ID, approve);
    eventually("the call, without any poll", async || {
        (shop.shared().lock().orders == 1).then_some(())
    })
    .await;
    wait_until_ordered(&ops, &second, &path).await;
    assert_eq!(shop.shared().lock().orders, 1);
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(!ended.text.contains("not made"), "{}", ended.text);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_a_killed_process_did_not_use_is_used_by_the_other_replica_once() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("2s", &["stall_order"]).await;
    let path = begin_in_background(&ops, &first).await;
    let question = ops.question().await;
    // From here on the process does nothing: it is killed between the decision and its use.
    first.pause();
    approve_beside_a_paused_process(&ops, &question).await;
    first.kill9();
    wait_until_ordered(&ops, &second, &path).await;
    assert_eq!(shop.shared().lock().orders, 1);
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(!ended.text.contains("not made"), "{}", ended.text);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_for_a_request_whose_process_was_killed_before_its_use_is_reported_as_not_made()
{
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("8s", &["stall_order"]).await;
    let body = json!({"model": "agent", "messages": [user("order")]});
    let request = ops
        .fixture
        .post_to(&first, "/v1/chat/completions")
        .json(&body);
    let asking = request.send(&|_| ());
    let deciding = async {
        let question = ops.question().await;
        first.pause();
        approve_beside_a_paused_process(&ops, &question).await;
        first.kill9();
        eventually("the end of the lease", async || {
            let outcome = chat_outcome(&ops, &question).await;
            outcome.contains("the call is not made").then_some(())
        })
        .await;
        let notice = ops.press(&question, APPROVER_ID, "Approve").await;
        assert!(notice.contains("decided before"), "{notice}");
        let ended = ops.shown_with("Approved by Ada L (77), 20").await;
        assert!(
            ended
                .text
                .contains("the call is not made. Ask the agent again"),
            "{}",
            ended.text
        );
        assert!(ended.buttons.is_empty(), "{ended:?}");
    };
    let (answer, ()) = join(asking, deciding).await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(shop.shared().lock().orders, 0);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_about_a_request_whose_process_was_killed_is_answered_and_the_call_is_not_made() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("2s", &["stall_order"]).await;
    let body = json!({"model": "agent", "input": "order"});
    let request = ops.fixture.post_to(&first, "/v1/responses").json(&body);
    let asking = request.send(&|_| ());
    let deciding = async {
        let question = ops.question().await;
        // Longer than the lease, which its process renews.
        let clock = Clock::system();
        let asked_ms = clock.now_ms();
        eventually("a request that waits longer than its lease", async || {
            assert_eq!(chat_outcome(&ops, &question).await, "");
            (clock.now_ms() > asked_ms + 3_000).then_some(())
        })
        .await;
        first.kill9();
        eventually("the end of the lease", async || {
            let outcome = chat_outcome(&ops, &question).await;
            outcome.starts_with("Ended, 20").then_some(())
        })
        .await;
        let notice = ops.press(&question, APPROVER_ID, "Approve").await;
        assert!(
            notice.contains("the call is not made") && notice.contains("Ask the agent again"),
            "{notice}"
        );
        let ended = ops.shown_with("the request that asked is gone").await;
        assert!(ended.buttons.is_empty(), "{ended:?}");
    };
    let (answer, ()) = join(asking, deciding).await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(shop.shared().lock().orders, 0);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replica_that_finishes_a_response_repeats_its_calls_while_the_chat_still_decides() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("2s", &["stall_note", "stall_order"]).await;
    let path = begin_in_background(&ops, &first).await;
    let question = ops.question().await;
    let until_noted = async |times: usize| {
        eventually("a call that may be repeated", async || {
            let polled = ops.fixture.get_from(&second, &path).send(&|_| ()).await;
            assert_eq!(polled.unwrap().status(), 200);
            (shop.shared().lock().notes == times).then_some(())
        })
        .await;
    };
    until_noted(1).await;
    first.kill9();
    // The chat has not decided.
    until_noted(2).await;
    assert_eq!(shop.shared().lock().orders, 0);
    ops.press(&question, APPROVER_ID, "Approve").await;
    wait_until_ordered(&ops, &second, &path).await;
    let calls = {
        let calls = shop.shared().lock();
        (calls.notes, calls.orders)
    };
    assert_eq!(calls, (2, 1));
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_that_ends_the_response_withdraws_the_question_of_the_other_call() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::start("2s", &["stall_fail", "stall_order"]).await;
    let path = begin_in_background(&ops, &first).await;
    let question = ops.question().await;
    eventually("the call that hangs", async || {
        (shop.shared().lock().notes == 1).then_some(())
    })
    .await;
    first.kill9();
    let failed = eventually("the end of the response", async || {
        let found = ops.fixture.get_from(&second, &path).send(&|_| ()).await;
        let found: Value = found.unwrap().json().await.unwrap();
        (found["status"] == "failed").then_some(found)
    })
    .await;
    assert!(failed["error"]["message"].is_string(), "{failed}");
    let notice = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(notice.contains("decided before"), "{notice}");
    let ended = ops.shown_with("Taken back, 20").await;
    assert!(ended.buttons.is_empty(), "{ended:?}");
    let calls = {
        let calls = shop.shared().lock();
        (calls.notes, calls.orders)
    };
    assert_eq!(calls, (2, 0));
    drop(second);
    ops.fixture.stop().await;
}
