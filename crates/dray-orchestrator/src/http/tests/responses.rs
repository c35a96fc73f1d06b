//! Tests of the state of `/v1/responses`: who may read it, and what happens to responses whose client, process or store
//! is gone.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::scripted::{ScriptedStep, SharedState, TestSurface, keys, read, text_step};

pub(super) const RESPONSES_PATH: &str = "/v1/responses";

async fn ask(
    fixture: &TestSurface,
    key: &str,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let request = fixture.request(method, path);
    let mut request = request.header("authorization", &format!("Bearer {key}"));
    if let Some(body) = body {
        request = request.json(body);
    }
    read(request.send(&|_| ()).await.unwrap()).await
}

pub(super) async fn get(fixture: &TestSurface, path: &str) -> (u16, Value) {
    ask(fixture, "one", Method::GET, path, None).await
}

pub(super) async fn post(fixture: &TestSurface, path: &str, body: &Value) -> (u16, Value) {
    ask(fixture, "one", Method::POST, path, Some(body)).await
}

pub(super) fn request(more: &Value) -> Value {
    let mut body = json!({"model": "helper", "input": "hi"});
    let members = body.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    body
}

pub(super) async fn start(script: Vec<ScriptedStep>) -> TestSurface {
    TestSurface::with(script, |options| options.clients = keys(&["one", "two"])).await
}

/// Begins a response in the background; returns its path.
pub(super) async fn in_background(fixture: &TestSurface) -> String {
    let (status, response) = post(
        fixture,
        RESPONSES_PATH,
        &request(&json!({"background": true})),
    )
    .await;
    assert_eq!(
        (status, &response["status"]),
        (200, &json!("queued")),
        "{response}"
    );
    format!("{RESPONSES_PATH}/{}", response["id"].as_str().unwrap())
}

/// Waits until a response has this status.
pub(super) async fn until(fixture: &TestSurface, path: &str, status: &str) -> Value {
    let look = async || {
        let (_, response) = get(fixture, path).await;
        (response["status"] == status).then_some(response)
    };
    dray_testkit::eventually("the response has its status", look).await
}

#[tokio::test]
async fn a_response_and_a_conversation_are_their_caller_s_alone() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (_, response) = post(&fixture, RESPONSES_PATH, &request(&json!({}))).await;
    let (_, conversation) = post(&fixture, "/v1/conversations", &json!({})).await;
    let id = response["id"].as_str().unwrap();
    let conversation = conversation["id"].as_str().unwrap();
    let path = format!("{RESPONSES_PATH}/{id}");
    let items = format!("{path}/input_items");
    let conversation_path = format!("/v1/conversations/{conversation}");
    let conversation_items = format!("{conversation_path}/items");
    let cancel = format!("{path}/cancel");
    let item = json!({"items": [{"role": "user", "content": "x"}]});
    for (method, path, body) in [
        (Method::GET, &path, None),
        (Method::GET, &items, None),
        (Method::POST, &cancel, None),
        (Method::DELETE, &path, None),
        (Method::GET, &conversation_path, None),
        (
            Method::POST,
            &conversation_path,
            Some(json!({"metadata": {}})),
        ),
        (Method::GET, &conversation_items, None),
        (Method::POST, &conversation_items, Some(item)),
        (Method::DELETE, &conversation_path, None),
    ] {
        let (status, failure) = ask(&fixture, "two", method.clone(), path, body.as_ref()).await;
        assert_eq!(status, 404, "{method} {path}: {failure}");
        let (status, _) = ask(&fixture, "none", method.clone(), path, body.as_ref()).await;
        assert_eq!(status, 401, "{method} {path}");
    }
    for (name, value) in [("previous_response_id", id), ("conversation", conversation)] {
        let body = request(&json!({ name: value }));
        let (status, failure) =
            ask(&fixture, "two", Method::POST, RESPONSES_PATH, Some(&body)).await;
        assert_eq!((status, &failure["error"]["param"]), (404, &json!(name)));
    }
    assert_eq!(get(&fixture, &path).await, (200, response));
}

#[tokio::test]
async fn a_response_expires_and_a_conversation_lives_from_its_last_change() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (_, conversation) = post(&fixture, "/v1/conversations", &json!({})).await;
    let conversation_path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
    let in_conversation = request(&json!({"conversation": conversation["id"]}));
    let (_, first) = post(&fixture, RESPONSES_PATH, &in_conversation).await;
    let path = format!("{RESPONSES_PATH}/{}", first["id"].as_str().unwrap());
    let day = Duration::from_hours(24);
    fixture.shared.clock.advance(day * 13);
    let (status, second) = post(&fixture, RESPONSES_PATH, &in_conversation).await;
    assert_eq!(status, 200, "{second}");
    fixture.shared.clock.advance(day);
    assert_eq!(get(&fixture, &path).await.0, 404);
    let (_, items) = get(&fixture, &format!("{conversation_path}/items")).await;
    assert_eq!(items["data"].as_array().unwrap().len(), 4);
    fixture.shared.clock.advance(day * 13);
    assert_eq!(get(&fixture, &conversation_path).await.0, 404);
}

#[tokio::test]
async fn a_cancelled_response_stops_the_agent_and_stays_cancelled() {
    let fixture = start(vec![text_step("Hel"), ScriptedStep::Hang]).await;
    let path = in_background(&fixture).await;
    fixture.working(1).await;
    let (status, response) = post(&fixture, &format!("{path}/cancel"), &json!({})).await;
    assert_eq!((status, &response["status"]), (200, &json!("cancelled")));
    fixture.working(0).await;
    let found = get(&fixture, &path).await.1;
    assert_eq!(
        (&found["status"], &found["error"]),
        (&json!("cancelled"), &Value::Null)
    );
    let repeated = post(&fixture, &format!("{path}/cancel"), &json!({})).await;
    assert_eq!(
        (repeated.0, &repeated.1["status"]),
        (200, &json!("cancelled"))
    );
    let next = request(&json!({"previous_response_id": response["id"]}));
    let (status, failure) = post(&fixture, RESPONSES_PATH, &next).await;
    assert_eq!(
        (status, &failure["error"]["code"]),
        (400, &json!("invalid_state"))
    );
}

#[tokio::test]
async fn a_response_with_its_client_is_not_cancelled_by_a_request() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (_, response) = post(&fixture, RESPONSES_PATH, &request(&json!({}))).await;
    let path = format!(
        "{RESPONSES_PATH}/{}/cancel",
        response["id"].as_str().unwrap()
    );
    assert_eq!(post(&fixture, &path, &json!({})).await.0, 400);
}

#[tokio::test]
async fn a_deleted_response_stops_the_agent() {
    let fixture = start(vec![ScriptedStep::Hang]).await;
    let path = in_background(&fixture).await;
    fixture.working(1).await;
    assert_eq!(
        ask(&fixture, "one", Method::DELETE, &path, None).await.0,
        200
    );
    fixture.working(0).await;
    assert_eq!(get(&fixture, &path).await.0, 404);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_response_and_not_one_in_the_background() {
    let fixture = start(vec![text_step("Hel"), ScriptedStep::Hang]).await;
    for (more, still_works) in [
        (json!({"stream": true}), 0),
        (json!({"stream": true, "background": true}), 1),
    ] {
        let sent = fixture.request(Method::POST, RESPONSES_PATH);
        let sent = sent.header("authorization", "Bearer one");
        let mut answer = sent.json(&request(&more)).send(&|_| ()).await.unwrap();
        let head = answer.chunk().await.unwrap().unwrap();
        let head = String::from_utf8(head.to_vec()).unwrap();
        let id = head
            .split("\"id\":\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        fixture.working(1).await;
        drop(answer);
        fixture.working(still_works).await;
        let status = if still_works == 0 {
            "cancelled"
        } else {
            "in_progress"
        };
        until(&fixture, &format!("{RESPONSES_PATH}/{id}"), status).await;
    }
}

/// A surface in a separate runtime, which can end without notice, like a process that is killed.
pub(super) fn replica(
    script: Vec<ScriptedStep>,
    shared: &Arc<SharedState>,
) -> (Runtime, TestSurface) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let shared = Arc::clone(shared);
    let directory = tempfile::tempdir().unwrap();
    let change = |options: &mut crate::http::SurfaceOptions| options.clients = keys(&["one"]);
    // `block_on` needs a thread outside the test's runtime.
    let started = std::thread::spawn(move || {
        let surface = runtime.block_on(TestSurface::replica(script, change, shared, directory));
        (runtime, surface)
    });
    // The store of the replica is served by the test's runtime.
    tokio::task::block_in_place(|| started.join()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_whose_process_was_killed_is_reported_by_another_and_not_run_again() {
    let fixture = start(Vec::new()).await;
    let (runtime, doomed) = replica(vec![text_step("Hel"), ScriptedStep::Hang], &fixture.shared);
    let path = in_background(&doomed).await;
    doomed.working(1).await;
    runtime.shutdown_background();
    assert_eq!(
        get(&fixture, &path).await.1["status"],
        "in_progress",
        "its lease still holds"
    );
    fixture.shared.clock.advance(Duration::from_secs(31));
    let (status, response) = get(&fixture, &path).await;
    assert_eq!(
        (status, &response["status"]),
        (200, &json!("failed")),
        "{response}"
    );
    assert_eq!(response["error"]["code"], "server_error");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("no tool was called again"), "{message}");
    assert_eq!(fixture.agent.asked.lock().await.len(), 0);
    let (_, items) = get(&fixture, &format!("{path}/input_items")).await;
    assert_eq!(items["data"][0]["content"][0]["text"], "hi");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_continues_a_response_and_cancels_one_that_runs_elsewhere() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (runtime, other) = replica(vec![ScriptedStep::Hang], &fixture.shared);
    let path = in_background(&other).await;
    other.working(1).await;
    let cancelled = post(&fixture, &format!("{path}/cancel"), &json!({})).await;
    assert_eq!(cancelled.1["status"], "cancelled");
    // The process notices it when it renews the lease.
    other.working(0).await;
    let (_, first) = post(&fixture, RESPONSES_PATH, &request(&json!({}))).await;
    let next = request(&json!({"previous_response_id": first["id"], "background": true}));
    let (status, _) = post(&other, RESPONSES_PATH, &next).await;
    assert_eq!(status, 200);
    other.working(1).await;
    let chat_request = other.agent.asked.lock().await.pop().unwrap();
    assert_eq!(chat_request.request.messages.len(), 3);
    runtime.shutdown_background();
}

#[tokio::test]
async fn a_response_is_completed_only_when_it_is_stored() {
    let fixture = start(vec![text_step("Hello.")]).await;
    fixture.shared.stop_store();
    let (status, body) = post(&fixture, RESPONSES_PATH, &request(&json!({}))).await;
    assert_eq!(status, 503, "{body}");
    let (status, body) = post(&fixture, RESPONSES_PATH, &request(&json!({"store": false}))).await;
    assert_eq!((status, &body["status"]), (200, &json!("completed")));
}

#[tokio::test]
async fn a_response_that_runs_when_the_service_ends_is_reported_as_failed() {
    let fixture = start(vec![text_step("Hel"), ScriptedStep::Hang]).await;
    let path = in_background(&fixture).await;
    fixture.working(1).await;
    fixture.stop.cancel();
    fixture.working(0).await;
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::clone(&fixture.shared);
    let change = |options: &mut crate::http::SurfaceOptions| options.clients = keys(&["one"]);
    let next = TestSurface::replica(Vec::new(), change, shared, directory).await;
    let response = until(&next, &path, "failed").await;
    assert_eq!(
        response["error"]["message"],
        "The service ended before the response did."
    );
}

#[tokio::test]
async fn items_are_listed_in_pages_and_unknown_members_are_refused() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (_, conversation) = post(&fixture, "/v1/conversations", &json!({})).await;
    let path = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
    let items: Vec<_> = (0..3)
        .map(|number| json!({"role": "user", "content": number.to_string()}))
        .collect();
    let (_, added) = post(&fixture, &format!("{path}/items"), &json!({"items": items})).await;
    assert_eq!(added["data"].as_array().unwrap().len(), 3);
    let (_, page) = get(&fixture, &format!("{path}/items?limit=2&order=asc")).await;
    assert_eq!(
        (&page["has_more"], &page["data"][1]["content"][0]["text"]),
        (&json!(true), &json!("1"))
    );
    let after = page["last_id"].as_str().unwrap();
    let (_, page) = get(
        &fixture,
        &format!("{path}/items?limit=2&order=asc&after={after}"),
    )
    .await;
    assert_eq!(
        (&page["has_more"], &page["data"][0]["content"][0]["text"]),
        (&json!(false), &json!("2"))
    );
    for (path, body, param) in [
        (path.clone(), json!({"color": "red"}), "color"),
        (
            format!("{path}/items"),
            json!({"items": [{"role": "user"}]}),
            "items.0.content",
        ),
        (format!("{path}/items"), json!({}), "items"),
    ] {
        let (status, failure) = post(&fixture, &path, &body).await;
        assert_eq!(
            (status, &failure["error"]["param"]),
            (400, &json!(param)),
            "{failure}"
        );
    }
    let (status, updated) = post(&fixture, &path, &json!({"metadata": {"a": "b"}})).await;
    assert_eq!((status, &updated["metadata"]), (200, &json!({"a": "b"})));
    let (_, response) = post(&fixture, RESPONSES_PATH, &request(&json!({}))).await;
    let path = format!("{RESPONSES_PATH}/{}", response["id"].as_str().unwrap());
    let streamed = get(&fixture, &format!("{path}?stream=true")).await;
    assert_eq!(
        (streamed.0, &streamed.1["error"]["param"]),
        (400, &json!("stream"))
    );
    let missing = get(&fixture, &format!("{RESPONSES_PATH}/resp_1?stream=true")).await;
    assert_eq!(missing.0, 404);
}
