//! Tools that the runtime calls (quickapps 43.4), and those that it alone may call (43.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dray_http::fake_server::{self, FakeServer, SharedState};
use dray_orchestrator::Config;
use dray_testkit::rehearsal::Script;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::tools::{FakeEndpoint, rounds};

const HELLO_SCRIPT: &str = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;

#[expect(clippy::needless_pass_by_value, reason = "callers make it in place")]
fn hook(event: &str, tool: &str, more: Value) -> Value {
    let mut hook = json!({"type": "tool", "event": event, "tool": tool});
    let members = hook.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    hook
}

fn start(tool: &str, more: Value) -> Value {
    hook("on_request_start", tool, more)
}

#[expect(clippy::needless_pass_by_value, reason = "callers make it in place")]
fn agent_with_hooks(set: Value, hooks: Value) -> Value {
    let mut manifest = manifest(json!([set]));
    manifest["hooks"] = hooks;
    manifest
}

async fn fixture(manifest: &Value, script: &str) -> TurnFixture {
    TurnFixture::with(manifest, script, |config: &mut Config| {
        config.preview = true;
    })
    .await
}

/// The messages of one call of the model that belong to calls of a tool.
fn about(body: &Value, tool: &str) -> Vec<Value> {
    let mut ids = Vec::new();
    let mut found = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        let call = &message["tool_calls"][0];
        if call["function"]["name"] == tool {
            ids.push(call["id"].clone());
            found.push(message.clone());
        } else if ids.contains(&message["tool_call_id"]) {
            found.push(message.clone());
        }
    }
    found
}

fn next_turn(first: &ChatResult) -> Value {
    json!([{"role": "user", "content": "x"}, first.message(), {"role": "user", "content": "y"}])
}

/// A service that answers with the number of the request, or always the same.
async fn counting(changes: bool) -> (FakeServer<Arc<AtomicUsize>>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let server = FakeServer::start(
        Arc::clone(&count),
        move |shared: Arc<SharedState<Arc<AtomicUsize>>>, _| {
            async move {
                let number = shared.lock().fetch_add(1, Ordering::SeqCst);
                let text = if changes {
                    format!("state {number}")
                } else {
                    "state".to_owned()
                };
                Ok(fake_server::bytes_reply(200, "text/plain", text.into()))
            }
            .boxed()
        },
    );
    (server.await.unwrap(), count)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_at_the_start_is_called_before_the_model_and_shown_as_a_call() {
    let endpoint = FakeEndpoint::start().await;
    let hooks = json!([start("shop_a", json!({"arguments": {"q": "7"}}))]);
    let fixture = fixture(
        &agent_with_hooks(rest(&endpoint.url(), &["a"]), hooks),
        HELLO_SCRIPT,
    )
    .await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.text(), "Hello.");
    assert_eq!(fixture.asked().len(), 1);
    let body = &fixture.asked()[0];
    let pair = about(body, "shop_a");
    assert_eq!(
        pair[0]["tool_calls"][0]["function"]["arguments"],
        r#"{"q":"7"}"#
    );
    assert!(
        pair[0]["tool_calls"][0]["id"]
            .as_str()
            .unwrap()
            .starts_with("s_shop_a_")
    );
    assert!(pair[1]["content"].as_str().unwrap().contains(r#""q":"7""#));
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.last(), pair.last(), "it is at the end");
    let stages = result.stages();
    assert_eq!(stages.len(), 1, "{stages:?}");
    assert_eq!(stages[0].2, "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_did_not_change_is_in_the_conversation_once() {
    for (changes, mode, count) in [
        (false, "append_if_changed", 1),
        (true, "append_if_changed", 2),
        (false, "always", 2),
    ] {
        let (server, calls) = counting(changes).await;
        let hooks = json!([start("shop_a", json!({"mode": mode}))]);
        let set = rest(&server.shared().url(), &["a"]);
        let fixture = fixture(&agent_with_hooks(set, hooks), HELLO_SCRIPT).await;
        let first = fixture.send_text("x").await;
        fixture.ask(next_turn(&first)).await;
        assert_eq!(calls.load(Ordering::SeqCst), 2, "it is called each time");
        let second = &fixture.asked()[1];
        assert_eq!(
            about(second, "shop_a").len(),
            2 * count,
            "{mode} {changes}: {second}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_at_the_end_is_seen_only_in_the_next_turn() {
    let endpoint = FakeEndpoint::start().await;
    let hooks = json!([hook(
        "on_completion",
        "shop_a",
        json!({"arguments": {"q": "end"}})
    )]);
    let fixture = fixture(
        &agent_with_hooks(rest(&endpoint.url(), &["a"]), hooks),
        HELLO_SCRIPT,
    )
    .await;
    let first = fixture.send_text("x").await;
    assert_eq!(
        (first.text().as_str(), first.reason().as_str()),
        ("Hello.", "stop")
    );
    assert_eq!(about(&fixture.asked()[0], "shop_a"), [json!(null); 0]);
    assert_eq!(first.stages().len(), 1);
    fixture.ask(next_turn(&first)).await;
    assert_eq!(fixture.asked().len(), 2, "no further call of the model");
    let pair = about(&fixture.asked()[1], "shop_a");
    assert_eq!(pair.len(), 2);
    assert!(
        pair[1]["content"]
            .as_str()
            .unwrap()
            .contains(r#""q":"end""#)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hook_is_called_at_the_end_of_a_turn_that_failed() {
    let (server, calls) = counting(true).await;
    let hooks = json!([hook("on_completion", "shop_a", json!({}))]);
    let script = r#"{"rules": [{"reply": {"call": [{"name": "shop_zzz", "arguments": {}}]}}]}"#;
    let mut manifest = agent_with_hooks(rest(&server.shared().url(), &["a"]), hooks);
    manifest["orchestrator"]["max_iterations"] = json!(1);
    let fixture = fixture(&manifest, script).await;
    let result = fixture.send_text("x").await;
    assert!(result.error().is_object(), "{result:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_use_up_no_iteration() {
    let endpoint = FakeEndpoint::start().await;
    let hooks = json!([
        start("shop_a", json!({"arguments": {"q": "1"}})),
        start("shop_a", json!({"arguments": {"q": "2"}})),
        hook("on_completion", "shop_a", json!({})),
    ]);
    let mut manifest = agent_with_hooks(rest(&endpoint.url(), &["a"]), hooks);
    manifest["orchestrator"]["max_iterations"] = json!(1);
    let fixture = fixture(&manifest, HELLO_SCRIPT).await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.text(), "Hello.");
    let calls = about(&fixture.asked()[0], "shop_a");
    let arguments: Vec<_> = calls
        .iter()
        .filter_map(|message| message["tool_calls"][0]["function"]["arguments"].as_str())
        .collect();
    assert_eq!(
        arguments,
        [r#"{"q":"1"}"#, r#"{"q":"2"}"#],
        "in the order of the manifest"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_or_hangs_does_not_end_the_request() {
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["broken", "never"]);
    for tool in set["tools"].as_array_mut().unwrap() {
        tool["fallback_configuration"] = json!({"strategies": [{"type": "hard_stop"}]});
        tool["timeout_seconds"] = json!(0.2);
    }
    set["tools"][0]["timeout_seconds"] = json!(30);
    let hooks = json!([
        start("shop_broken", json!({})),
        start("shop_never", json!({})),
        hook("on_completion", "shop_broken", json!({})),
    ]);
    let fixture = fixture(&agent_with_hooks(set, hooks), HELLO_SCRIPT).await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.text(), "Hello.");
    assert!(result.done && result.error().is_null(), "{result:?}");
    let body = &fixture.asked()[0];
    let told = |tool| about(body, tool)[1]["content"].as_str().unwrap().to_owned();
    assert!(told("shop_broken").starts_with("The tool call failed with an error: "));
    assert!(
        told("shop_never").contains("timed out"),
        "{}",
        told("shop_never")
    );
    assert!(result.stages().iter().all(|stage| stage.2 == "failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_of_a_tool_that_is_not_there_is_an_issue() {
    let endpoint = FakeEndpoint::start().await;
    let hooks = json!([
        start("shop_zzz", json!({})),
        start("gone", json!({"enabled": false}))
    ]);
    let fixture = fixture(
        &agent_with_hooks(rest(&endpoint.url(), &["a"]), hooks),
        HELLO_SCRIPT,
    )
    .await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.text(), "Hello.");
    assert_eq!(
        result.stages(),
        [(
            "Initialization issues".to_owned(),
            "#### Hook initialization\n- **shop_zzz (on_request_start)**: No tool has this name; the hook is \
             not called."
                .to_owned(),
            "completed".to_owned()
        )]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_tool_is_for_hooks_and_unknown_to_the_model() {
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["a", "b"]);
    set["tools"][0]["hidden_from_model"] = json!(true);
    let script = r#"{"rules": [
        {"times": 1, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "mine"}}]}},
        {"reply": {"say": "Hello."}}]}"#;
    let hooks = json!([start("shop_a", json!({"arguments": {"q": "7"}}))]);
    let fixture = fixture(&agent_with_hooks(set, hooks), script).await;
    let result = fixture.send_text("x").await;
    assert!(result.text().ends_with("Hello."), "{result:?}");
    let requests = fixture.asked();
    let declared = requests[0]["tools"].to_string();
    assert!(declared.contains("shop_b") && !declared.contains("shop_a"));
    assert!(
        about(&requests[0], "shop_a")[1]["content"]
            .as_str()
            .unwrap()
            .contains(r#""q":"7""#)
    );
    let answer = rounds(&result)[1]["content"].as_str().unwrap().to_owned();
    assert!(
        answer.starts_with("The tool `shop_a` does not exist. Valid tools: "),
        "{answer}"
    );
    assert!(!answer.contains("shop_a,") && answer.contains("shop_b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_of_tools_needs_one_that_the_model_knows() {
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["a"]);
    set["tools"][0]["hidden_from_model"] = json!(true);
    let fixture = TurnFixture::plain(&manifest(json!([set])), HELLO_SCRIPT).await;
    let body = json!({"model": "agent", "messages": [{"role": "user", "content": "x"}], "stream": true,
        "tool_choice": "required"});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url));
    let result = fixture.send(request.json(&body)).await;
    assert_eq!(result.status, 400, "{result:?}");
    assert_eq!(fixture.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_preview_there_are_no_hooks_and_hidden_tools_stay_hidden() {
    let (server, calls) = counting(true).await;
    let hooks = json!([start("shop_a", json!({})), start("zzz", json!({}))]);
    let mut set = rest(&server.shared().url(), &["a"]);
    set["tools"][0]["hidden_from_model"] = json!(true);
    let fixture = TurnFixture::plain(&agent_with_hooks(set, hooks), HELLO_SCRIPT).await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.text(), "Hello.");
    assert_eq!(result.stages(), []);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(!fixture.asked()[0].to_string().contains("shop_a"));
    fixture.model.set_script(Script::saying("Again."));
    assert_eq!(fixture.send_text("y").await.text(), "Again.");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_added_calls_are_short_enough_for_every_service() {
    let endpoint = FakeEndpoint::start().await;
    let name = "a".repeat(55);
    let tool = format!("shop_{name}");
    let hooks = json!([start(&tool, json!({"arguments": {"q": "7"}}))]);
    let set = rest(&endpoint.url(), &[&name]);
    let fixture = fixture(&agent_with_hooks(set, hooks), HELLO_SCRIPT).await;
    let first = fixture.send_text("x").await;
    fixture.ask(next_turn(&first)).await;
    for body in fixture.asked() {
        for message in body["messages"].as_array().unwrap() {
            let ids = [&message["tool_call_id"], &message["tool_calls"][0]["id"]];
            for id in ids.into_iter().filter_map(Value::as_str) {
                assert!(id.len() <= 40, "{id}");
            }
        }
        let pair = about(&body, &tool);
        assert_eq!(pair[0]["tool_calls"][0]["id"], pair[1]["tool_call_id"]);
    }
}
