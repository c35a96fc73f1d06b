//! Streamed responses that wait for a chat while the process of their request dies, or their client leaves.

use dray_testkit::eventually;
use serde_json::{Value, json};

use super::approvals::{APPROVER_ID, OPS_CHAT, OpsFixture};
use super::chat_decisions::{ReplicaPair, chat_outcome, rules, wait_until_ordered};
use super::process::ServiceProcess;

/// Begins a streamed response, and reads its first event. Returns its path, and the stream.
async fn begin_stream(
    ops: &OpsFixture,
    process: &ServiceProcess,
    is_stored: bool,
) -> (String, dray_http::HttpResponse) {
    let body = json!({"model": "agent", "input": "order", "stream": true, "store": is_stored});
    let request = ops.fixture.post_to(process, "/v1/responses").json(&body);
    let mut response = request.send(&|_| ()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut text = String::new();
    while !text.contains("\n\n") {
        let chunk = response.chunk().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    let created: Value = serde_json::from_str(data.unwrap()).unwrap();
    assert_eq!(created["type"], "response.created");
    let id = created["response"]["id"].as_str().unwrap();
    (format!("/v1/responses/{id}"), response)
}

/// The response as this process shows it.
async fn polled(ops: &OpsFixture, process: &ServiceProcess, path: &str) -> Value {
    let found = ops.fixture.get_from(process, path).send(&|_| ()).await;
    found.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_response_whose_process_was_killed_is_finished_after_the_press() {
    let pair = ReplicaPair::scripted("2s", rules(&["stall_order"])).await;
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = pair;
    let (path, mut stream) = begin_stream(&ops, &first, true).await;
    let question = ops.question().await;
    first.kill9();
    while let Ok(Some(_)) = stream.chunk().await {}
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
    assert_eq!(telegram.visible_messages(OPS_CHAT).len(), 1, "asked once");
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_response_that_asked_a_chat_is_finished_from_its_newest_round() {
    let script = json!([
        {"when": {"tool_result_of": "stall_note"}, "reply": {"say": "Ordered."}},
        {"when": {"tool_result_of": "stall_order"}, "reply": {"call": [{"name": "stall_note", "arguments": {}}]}},
        {"reply": {"call": [{"name": "stall_order", "arguments": {}}]}},
    ]);
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::scripted("2s", script).await;
    let (path, _stream) = begin_stream(&ops, &first, true).await;
    let question = ops.question().await;
    ops.press(&question, APPROVER_ID, "Approve").await;
    eventually("the call that hangs", async || {
        (shop.shared().lock().notes == 1).then_some(())
    })
    .await;
    first.kill9();
    wait_until_ordered(&ops, &second, &path).await;
    let calls = {
        let calls = shop.shared().lock();
        (calls.orders, calls.notes)
    };
    assert_eq!(calls, (1, 2), "only the call that may be repeated is");
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_response_that_is_not_stored_ends_with_its_process() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::scripted("2s", rules(&["stall_order"])).await;
    let (path, _stream) = begin_stream(&ops, &first, false).await;
    let question = ops.question().await;
    first.kill9();
    eventually("the end of the lease", async || {
        let outcome = chat_outcome(&ops, &question).await;
        outcome.starts_with("Ended, 20").then_some(())
    })
    .await;
    let notice = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(notice.contains("the call is not made"), "{notice}");
    let missing = polled(&ops, &second, &path).await;
    assert!(missing["error"]["message"].is_string(), "{missing}");
    assert_eq!(shop.shared().lock().orders, 0);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_a_streamed_response_ends_it_and_its_question() {
    let ReplicaPair {
        shop,
        ops,
        first,
        second,
    } = ReplicaPair::scripted("2s", rules(&["stall_order"])).await;
    let (path, stream) = begin_stream(&ops, &first, true).await;
    let question = ops.question().await;
    drop(stream);
    eventually("the end of the response", async || {
        let found = polled(&ops, &second, &path).await;
        (found["status"] == "cancelled").then_some(())
    })
    .await;
    let ended = ops.shown_with("Taken back, 20").await;
    assert!(ended.buttons.is_empty(), "{ended:?}");
    let notice = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(notice.contains("decided before"), "{notice}");
    assert_eq!(shop.shared().lock().orders, 0);
    drop((first, second));
    ops.fixture.stop().await;
}
