//! Tests of orchestrator processes that are killed during a turn, over a real nats-server, and of the replica that
//! remains.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::fixture::{AgentFixture, AgentSetup, user};
use super::process::ServiceProcess;
use super::rest_endpoint::order_tool_set;

/// A tool that never ends, and counts its calls.
async fn endless_tool() -> (FakeServer<usize>, Value) {
    let server = FakeServer::start(0, |shared: Arc<SharedState<usize>>, _: ReceivedRequest| {
        async move {
            *shared.lock() += 1;
            std::future::pending::<Result<Reply, ConnectionClosed>>().await
        }
        .boxed()
    });
    let server = server.await.unwrap();
    let tools = order_tool_set(&server.shared().url(), "post");
    (server, tools)
}

struct Replicas {
    fixture: AgentFixture,
    tool: FakeServer<usize>,
    first: ServiceProcess,
    second: ServiceProcess,
}

/// Two processes of the orchestrator, whose agent calls the endless tool.
async fn replicas(change: impl FnOnce(AgentSetup) -> AgentSetup) -> Replicas {
    let (tool, tools) = endless_tool().await;
    let rules = json!([
        {"when": {"last_user_contains": "again"}, "reply": {"say": "Still here."}},
        {"reply": {"call": [{"name": "shop_order", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let fixture = change(setup).without("orchestrator").start().await;
    let lease = ("orchestrator.response_lease", "2s".to_owned());
    let first = fixture
        .process("orchestrator", std::slice::from_ref(&lease))
        .await;
    let second = fixture.process("orchestrator", &[lease]).await;
    Replicas {
        fixture,
        tool,
        first,
        second,
    }
}

impl Replicas {
    async fn wait_until_called(&self) {
        let what = "a call of the tool";
        eventually(what, async || {
            (*self.tool.shared().lock() == 1).then_some(())
        })
        .await;
    }
}

pub(super) fn is_running(response: &Value) -> bool {
    response["status"] == "queued" || response["status"] == "in_progress"
}

pub(super) async fn send(request: dray_http::RequestBuilder) -> (u16, Value) {
    let response = request.send(&|_| ()).await.unwrap();
    (response.status(), response.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_whose_process_is_killed_is_reported_by_the_other_replica_and_no_tool_runs_again()
 {
    let replicas = replicas(|setup| setup).await;
    let fixture = &replicas.fixture;
    let body = json!({"model": "agent", "input": "go", "background": true});
    let request = fixture
        .post_to(&replicas.first, "/v1/responses")
        .json(&body);
    let (status, response) = send(request).await;
    assert!(status == 200 && is_running(&response), "{response}");
    let id = response["id"].as_str().unwrap();
    replicas.wait_until_called().await;
    let Replicas {
        fixture,
        tool,
        first,
        second,
    } = replicas;
    first.kill9();
    let path = format!("/v1/responses/{id}");
    let failed = eventually("the report of the other replica", async || {
        let (status, response) = send(fixture.get_from(&second, &path)).await;
        assert_eq!(status, 200, "{response}");
        (!is_running(&response)).then_some(response)
    })
    .await;
    assert_eq!(failed["status"], "failed", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("no tool was called again"), "{message}");
    assert_eq!(*tool.shared().lock(), 1);
    // The conversation continues at the other replica.
    let body = json!({"model": "agent", "input": "again"});
    let (_, next) = send(fixture.post_to(&second, "/v1/responses").json(&body)).await;
    assert_eq!(next["status"], "completed", "{next}");
    assert_eq!(*tool.shared().lock(), 1);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_process_is_killed_breaks_off_without_looking_complete() {
    let replicas = replicas(|setup| setup).await;
    let body = json!({"model": "agent", "messages": [user("go")], "stream": true});
    let request = replicas
        .fixture
        .post_to(&replicas.first, "/v1/chat/completions");
    let mut stream = request.json(&body).send(&|_| ()).await.unwrap();
    replicas.wait_until_called().await;
    let Replicas {
        fixture,
        tool,
        first,
        second,
    } = replicas;
    first.kill9();
    let mut text = Vec::new();
    let broken = loop {
        match stream.chunk().await {
            Ok(Some(chunk)) => text.extend_from_slice(&chunk),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    let text = String::from_utf8(text).unwrap();
    assert!(
        broken && !text.contains("[DONE]") && !text.contains("finish_reason\":\"stop"),
        "{text}"
    );
    assert_eq!(*tool.shared().lock(), 1);
    drop(second);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_that_ran_when_its_process_was_killed_is_not_made_again() {
    let rule = json!([{"tools": ["shop_order"]}]);
    let replicas = replicas(|setup| setup.part("require_approval", rule)).await;
    let body = json!({"model": "agent", "input": "go"});
    let request = replicas
        .fixture
        .post_to(&replicas.first, "/v1/responses")
        .json(&body);
    let (_, paused) = send(request).await;
    let output = paused["output"].as_array().unwrap();
    let question = output
        .iter()
        .find(|item| item["type"] == "mcp_approval_request");
    let approval = json!({
        "model": "agent", "previous_response_id": paused["id"], "background": true,
        "input": [{"type": "mcp_approval_response", "approval_request_id": question.unwrap()["id"], "approve": true}],
    });
    let request = replicas
        .fixture
        .post_to(&replicas.first, "/v1/responses")
        .json(&approval);
    let (status, approved) = send(request).await;
    assert_eq!(status, 200, "{approved}");
    replicas.wait_until_called().await;
    let Replicas {
        fixture,
        tool,
        first,
        second,
    } = replicas;
    first.kill9();
    let path = format!("/v1/responses/{}", approved["id"].as_str().unwrap());
    let failed = eventually("the report of the other replica", async || {
        let (_, found) = send(fixture.get_from(&second, &path)).await;
        (!is_running(&found)).then_some(found)
    })
    .await;
    assert_eq!(failed["status"], "failed", "{failed}");
    let mut repeated = approval.clone();
    repeated["background"] = json!(false);
    let (status, refused) = send(fixture.post_to(&second, "/v1/responses").json(&repeated)).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("approval_used")),
        "{refused}"
    );
    assert_eq!(*tool.shared().lock(), 1);
    fixture.stop().await;
}

/// A shop whose tool `order` hangs the first `hangs` times. Counts the calls of its tools.
async fn hanging_shop(hangs: usize) -> (FakeServer<ShopCalls>, Value) {
    let state = ShopCalls {
        hangs,
        ..ShopCalls::default()
    };
    let server = FakeServer::start(
        state,
        |shared: Arc<SharedState<ShopCalls>>, request: ReceivedRequest| {
            async move {
                let hangs = {
                    let mut calls = shared.lock();
                    if request.path.starts_with("/note") {
                        calls.notes += 1;
                        false
                    } else {
                        calls.orders += 1;
                        calls.orders <= calls.hangs
                    }
                };
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok::<_, ConnectionClosed>(fake_server::json_reply(200, &json!({"done": true})))
            }
            .boxed()
        },
    );
    let server = server.await.unwrap();
    let url = server.shared().url();
    let tool = |name: &str| {
        json!({
            "type": "restapi-tool",
            "open_ai_tool": {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}},
            "rest_api_method_info": {"method_url": format!("{url}/{name}"), "method_type": "post"},
        })
    };
    let tools = json!({"type": "rest-api", "name": "shop", "tools": [tool("note"), tool("order")]});
    (server, tools)
}

#[derive(Debug, Default)]
struct ShopCalls {
    hangs: usize,
    notes: usize,
    orders: usize,
}

pub(super) async fn wait_until_finished(
    fixture: &AgentFixture,
    process: &ServiceProcess,
    path: &str,
) -> Value {
    eventually("the end of the response", async || {
        let (status, found) = send(fixture.get_from(process, path)).await;
        assert_eq!(status, 200, "{found}");
        (!is_running(&found)).then_some(found)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_whose_running_tools_are_repeatable_is_finished_by_one_of_the_other_replicas() {
    let (shop, tools) = hanging_shop(2).await;
    // The work is done by an agent to which the requested agent hands the turn.
    let rules = json!([
        {"when": {"model": "lead"}, "reply": {"call": [{"name": "transfer_to_worker"}]}},
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "Ordered."}},
        {"when": {"tool_result_of": "shop_note"}, "reply": {"call": [{"name": "shop_order", "arguments": {}}]}},
        {"reply": {"call": [{"name": "shop_note", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let setup = setup.part("repeatable_tools", json!([{"tools": ["shop_order"]}]));
    let setup = setup.handing_over_to("worker");
    let fixture = setup.without("orchestrator").start().await;
    let lease = [("orchestrator.response_lease", "2s".to_owned())];
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(fixture.process("orchestrator", &lease).await);
    }
    let body = json!({"model": "agent", "input": "go", "background": true});
    let (status, response) = send(fixture.post_to(&replicas[0], "/v1/responses").json(&body)).await;
    assert!(status == 200 && is_running(&response), "{response}");
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    let wait_until_ordered = async |orders: usize| {
        eventually("a call of the tool", async || {
            (shop.shared().lock().orders == orders).then_some(())
        })
        .await;
    };
    wait_until_ordered(1).await;
    replicas.remove(0).kill9();
    // The next replica takes the response over, and is killed in the same call of the tool.
    eventually("a replica that takes over", async || {
        let (_, found) = send(fixture.get_from(&replicas[0], &path)).await;
        assert!(is_running(&found), "{found}");
        (shop.shared().lock().orders == 2).then_some(())
    })
    .await;
    replicas.remove(0).kill9();
    // Two replicas are polled concurrently, and one of them finishes the response.
    let (one, other) = tokio::join!(
        wait_until_finished(&fixture, &replicas[0], &path),
        wait_until_finished(&fixture, &replicas[1], &path)
    );
    for found in [&one, &other] {
        assert_eq!(found["status"], "completed", "{found}");
        let text = &found["output"][0]["content"][0]["text"];
        assert_eq!(text, "Ordered.", "{found}");
    }
    {
        let calls = shop.shared().lock();
        // A call that ended before the repeated one is not made again, even after two crashes.
        assert_eq!((calls.notes, calls.orders), (1, 3));
    }
    // The conversation has all rounds, and stays with the agent to which it was handed over.
    let body =
        json!({"model": "agent", "input": "and now?", "previous_response_id": response["id"]});
    let (status, next) = send(fixture.post_to(&replicas[0], "/v1/responses").json(&body)).await;
    assert_eq!(status, 200, "{next}");
    let requests = fixture.model.received_requests();
    let models: Vec<_> = requests
        .iter()
        .map(|request| &request.body["model"])
        .collect();
    assert_eq!(models.iter().filter(|model| **model == "lead").count(), 1);
    assert_eq!(models.last().unwrap(), &"worker");
    fixture.stop().await;
}

/// The events of a stream, until it ends or an event contains this text.
async fn stream_until(request: dray_http::RequestBuilder, text: &str) -> Vec<Value> {
    let mut response = request.send(&|_| ()).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut received = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        received.push_str(std::str::from_utf8(&chunk).unwrap());
        if received.contains(text) && received.ends_with("\n\n") {
            break;
        }
    }
    let data = received
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_in_the_background_is_resumed_at_the_replica_that_finishes_its_response() {
    let (shop, tools) = hanging_shop(1).await;
    let rules = json!([
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "Ordered."}},
        {"reply": {"say": "I order.", "call": [{"name": "shop_order", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let setup = setup.part("repeatable_tools", json!([{"tools": ["shop_order"]}]));
    let fixture = setup.without("orchestrator").start().await;
    let lease = [("orchestrator.response_lease", "2s".to_owned())];
    let first = fixture.process("orchestrator", &lease).await;
    let second = fixture.process("orchestrator", &lease).await;
    let body = json!({"model": "agent", "input": "go", "background": true, "stream": true});
    let request = fixture.post_to(&first, "/v1/responses").json(&body);
    let begun = stream_until(request, "I order.").await;
    let number = |event: &Value| event["sequence_number"].as_u64().unwrap();
    let (id, last) = (
        begun[0]["response"]["id"].as_str().unwrap(),
        number(begun.last().unwrap()),
    );
    eventually("a call of the tool", async || {
        (shop.shared().lock().orders == 1).then_some(())
    })
    .await;
    first.kill9();
    let path = format!("/v1/responses/{id}?stream=true&starting_after={last}");
    let rest = stream_until(fixture.get_from(&second, &path), "response.completed").await;
    let numbers: Vec<_> = [last].into_iter().chain(rest.iter().map(number)).collect();
    assert!(
        numbers.is_sorted_by(|earlier, later| earlier < later),
        "{numbers:?}"
    );
    let end = rest.last().unwrap();
    assert_eq!(end["type"], "response.completed", "{end}");
    let output = end["response"]["output"].as_array().unwrap();
    assert_eq!(
        output.last().unwrap()["content"][0]["text"],
        "Ordered.",
        "{end}"
    );
    // The whole stream has each item of the response at its place.
    let path = format!("/v1/responses/{id}?stream=true");
    let whole = stream_until(fixture.get_from(&second, &path), "response.completed").await;
    let done = whole
        .iter()
        .filter(|event| event["type"] == "response.output_item.done");
    for event in done {
        let index = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(event["item"], output[index], "{event}");
    }
    // No item that the client saw before the kill has lost its place to another one.
    let begins = begun.iter().chain(&rest);
    for event in begins.filter(|event| event["type"] == "response.output_item.added") {
        let index = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        assert_eq!(event["item"]["id"], output[index]["id"], "{event}");
    }
    assert_eq!(shop.shared().lock().orders, 2);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_during_which_every_process_is_killed_is_reported_as_failed() {
    let (shop, tools) = hanging_shop(usize::MAX).await;
    let rules = json!([{"reply": {"call": [{"name": "shop_order", "arguments": {}}]}}]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let fixture = setup.without("orchestrator").start().await;
    // The operator declares the tools repeatable, so the manifest does not need to.
    let settings = [
        ("orchestrator.response_lease", "2s".to_owned()),
        (
            "orchestrator.repeatable_tools",
            json!([{"tool_sets": ["shop"]}]).to_string(),
        ),
    ];
    let mut current = fixture.process("orchestrator", &settings).await;
    let body = json!({"model": "agent", "input": "go", "background": true});
    let (_, response) = send(fixture.post_to(&current, "/v1/responses").json(&body)).await;
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    for orders in 1..=3 {
        eventually("a call of the tool", async || {
            send(fixture.get_from(&current, &path)).await;
            (shop.shared().lock().orders == orders).then_some(())
        })
        .await;
        current.kill9();
        current = fixture.process("orchestrator", &settings).await;
    }
    let failed = wait_until_finished(&fixture, &current, &path).await;
    assert_eq!(failed["status"], "failed", "{failed}");
    assert_eq!(shop.shared().lock().orders, 3);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_suspended_does_not_repeat_a_call_of_the_replica_that_took_over() {
    let (shop, tools) = hanging_shop(1).await;
    let rules = json!([
        {"when": {"last_user_contains": "hello"}, "reply": {"say": "Hi."}},
        {
            "when": {"tool_result_of": "shop_note"},
            "reply": {"call": [{"name": "shop_order", "arguments": {}}], "delay_ms": 3000},
        },
        {"reply": {"call": [{"name": "shop_note", "arguments": {}}]}},
    ]);
    let setup = AgentSetup::new(json!([tools]), rules).distributed();
    let fixture = setup.without("orchestrator").start().await;
    let lease = [("orchestrator.response_lease", "2s".to_owned())];
    let first = fixture.process("orchestrator", &lease).await;
    let second = fixture.process("orchestrator", &lease).await;
    let body = json!({"model": "agent", "input": "go", "background": true});
    let (_, response) = send(fixture.post_to(&first, "/v1/responses").json(&body)).await;
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    // The model is asked with the results of the first round, after its checkpoint.
    eventually("the second call of the model", async || {
        (fixture.model.received_requests().len() == 2).then_some(())
    })
    .await;
    first.pause();
    eventually("a call of the replica that takes over", async || {
        send(fixture.get_from(&second, &path)).await;
        (shop.shared().lock().orders == 1).then_some(())
    })
    .await;
    // The response of the model, which asks for the same call, has arrived meanwhile.
    first.resume();
    for _ in 0..3 {
        let body = json!({"model": "agent", "input": "hello"});
        let (_, other) = send(fixture.post_to(&first, "/v1/responses").json(&body)).await;
        assert_eq!(other["status"], "completed", "{other}");
    }
    let (_, found) = send(fixture.get_from(&second, &path)).await;
    assert!(is_running(&found), "{found}");
    {
        let calls = shop.shared().lock();
        assert_eq!((calls.notes, calls.orders), (1, 1));
    }
    fixture.stop().await;
}
