//! The plain endpoints as browsers and clients of `OpenAI`'s API see them.

use std::time::Duration;

use dray_agent::event::{AnswerEnd, Event, FinishReason};
use dray_agent::failure::RequestFailure;
use dray_agent::message::{FunctionCall, ToolCall};
use dray_http::HttpResponse;
use http::Method;
use serde_json::{Map, Value, json};

use super::scripted::{ScriptedStep, TestSurface, ask, events, keys, read, text_step};

const OPENAI_PATH: &str = "/v1/chat/completions";
const PAGE_ORIGIN: &str = "https://chat.example.org";

fn plain(stream: bool) -> Value {
    let mut body = ask(stream);
    body["model"] = json!("helper");
    body
}

async fn chat(
    fixture: &TestSurface,
    headers: &[(&'static str, &str)],
    body: &Value,
) -> HttpResponse {
    let mut request = fixture.request(Method::POST, OPENAI_PATH);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.json(body).send(&|_| ()).await.unwrap()
}

async fn preflight(fixture: &TestSurface, origin: &str, path: &str) -> HttpResponse {
    fixture
        .request(Method::OPTIONS, path)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization, x-stainless-os",
        )
        .send(&|_| ())
        .await
        .unwrap()
}

#[tokio::test]
async fn the_list_of_models_names_the_tenant_to_callers_alone() {
    let fixture = TestSurface::with(vec![text_step("hello")], |options| {
        options.clients = keys(&["one"]);
        options.tenant = dray_types::TenantId::new("acme").unwrap();
    })
    .await;
    let list = async |key: &'static str| {
        let request = fixture.request(http::Method::GET, "/v1/models");
        let request = request.header("authorization", key);
        request.send(&|_| ()).await.unwrap()
    };
    let listed = list("Bearer one").await;
    assert_eq!(listed.header("dray-tenant"), Some("acme"));
    let refused = list("Bearer two").await;
    assert_eq!(
        (refused.status(), refused.header("dray-tenant")),
        (401, None)
    );
}

#[tokio::test]
async fn a_comment_keeps_a_silent_stream_of_the_plain_endpoint_open() {
    let script = vec![ScriptedStep::Send(Event::ToolsStarted), ScriptedStep::Hang];
    let fixture = TestSurface::with(script, |options| {
        options.heartbeat = Duration::from_millis(5);
    })
    .await;
    let mut answer = chat(&fixture, &[], &plain(true)).await;
    let mut text = String::new();
    while text.matches(": keep-alive\n\n").count() < 2 {
        let piece = answer.chunk().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    // The start chunk alone was sent: the stream has no visible content yet.
    assert_eq!(text.matches("data: ").count(), 1, "{text}");
    drop(answer);
    fixture.working(0).await;
}

#[tokio::test]
async fn a_failure_after_calls_forbids_repetitions_on_both_endpoints() {
    let failure = RequestFailure {
        retry_after_seconds: Some(2),
        ..RequestFailure::new(429, "slow down")
    };
    let calls = ScriptedStep::Send(Event::CallsStarted);
    for made_calls in [true, false] {
        let begin = made_calls.then(|| calls.clone());
        let end = ScriptedStep::Fail(failure.clone());
        let fixture = TestSurface::start(begin.into_iter().chain([end]).collect()).await;
        // Without anything to show, a stream has not begun yet.
        for stream in [true, false] {
            let of_dial = fixture.chat(&ask(stream)).await;
            let of_openai = chat(&fixture, &[], &plain(stream)).await;
            for response in [of_dial, of_openai] {
                let headers = ["x-should-retry", "retry-after"].map(|name| response.header(name));
                let expected = if made_calls {
                    [Some("false"), None]
                } else {
                    [None, Some("2")]
                };
                assert_eq!((response.status(), headers), (429, expected));
            }
        }
    }
}

#[tokio::test]
async fn pages_of_listed_origins_may_call_and_those_of_others_may_not() {
    let fixture = TestSurface::with(vec![text_step("hello")], |options| {
        options.clients = keys(&["one"]);
        options.cors_origins = vec![PAGE_ORIGIN.to_owned()];
    })
    .await;
    for path in [OPENAI_PATH, "/v1/models"] {
        let allowed = preflight(&fixture, PAGE_ORIGIN, path).await;
        assert_eq!(allowed.status(), 204);
        assert_eq!(
            allowed.header("access-control-allow-origin"),
            Some(PAGE_ORIGIN)
        );
        assert_eq!(
            allowed.header("access-control-allow-headers"),
            Some("authorization, x-stainless-os")
        );
        assert_eq!(allowed.header("access-control-allow-credentials"), None);
        assert_eq!(allowed.header("vary"), Some("origin"));
    }
    let refused = preflight(&fixture, "https://evil.example", OPENAI_PATH).await;
    assert_eq!(
        (
            refused.status(),
            refused.header("access-control-allow-origin")
        ),
        (405, None)
    );
    let key = ("authorization", "Bearer one");
    for (origin, shown) in [
        (PAGE_ORIGIN, Some(PAGE_ORIGIN)),
        ("https://evil.example", None),
    ] {
        let answer = chat(&fixture, &[key, ("origin", origin)], &plain(false)).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.header("access-control-allow-origin"), shown);
    }
    // A failure is readable for the page as well.
    let failed = chat(&fixture, &[("origin", PAGE_ORIGIN)], &plain(false)).await;
    assert_eq!(
        (
            failed.status(),
            failed.header("access-control-allow-origin")
        ),
        (401, Some(PAGE_ORIGIN))
    );
    let readable = failed.header("access-control-expose-headers");
    assert!(
        readable.is_some_and(|names| names.contains("x-should-retry")),
        "{readable:?}"
    );
}

#[tokio::test]
async fn pages_of_listed_origins_learn_that_a_path_does_not_exist() {
    let fixture = TestSurface::with(Vec::new(), |options| {
        options.cors_origins = vec![PAGE_ORIGIN.to_owned()];
    })
    .await;
    for path in ["/v1/embeddings", "/v1/models/a/b"] {
        let allowed = preflight(&fixture, PAGE_ORIGIN, path).await;
        assert_eq!(allowed.status(), 204, "{path}");
        let missing = fixture
            .request(Method::POST, path)
            .header("origin", PAGE_ORIGIN);
        let missing = missing.json(&json!({})).send(&|_| ()).await.unwrap();
        let origin = missing.header("access-control-allow-origin");
        assert_eq!((missing.status(), origin), (404, Some(PAGE_ORIGIN)));
    }
}

#[tokio::test]
async fn a_listener_without_keys_serves_only_pages_of_listed_origins() {
    let fixture = TestSurface::with(vec![text_step("hello")], |options| {
        options.cors_origins = vec![PAGE_ORIGIN.to_owned()];
    })
    .await;
    let listed = chat(&fixture, &[("origin", PAGE_ORIGIN)], &plain(false)).await;
    assert_eq!(listed.status(), 200);
    let other = chat(
        &fixture,
        &[("origin", "https://evil.example")],
        &plain(false),
    )
    .await;
    assert_eq!(other.status(), 403);
    let closed = TestSurface::start(Vec::new()).await;
    assert_eq!(
        preflight(&closed, PAGE_ORIGIN, OPENAI_PATH).await.status(),
        405
    );
}

#[tokio::test]
async fn every_response_of_the_plain_endpoint_has_an_id_that_the_log_has_too() {
    let fixture = TestSurface::start(vec![text_step("hello")]).await;
    let first = chat(&fixture, &[], &plain(false)).await;
    let id = first.header("x-request-id").unwrap().to_owned();
    assert!(id.starts_with("req_"), "{id}");
    assert_eq!(fixture.agent.asked.lock().await[0].request_id, id);
    let failed = chat(&fixture, &[], &json!({"model": "none", "messages": []})).await;
    assert_ne!(failed.header("x-request-id").unwrap(), id);
}

#[tokio::test]
async fn responses_beside_the_plain_endpoints_have_an_id_too() {
    let fixture = TestSurface::start(Vec::new()).await;
    for (method, path, status) in [
        (Method::GET, "/health", 200),
        (Method::GET, "/v1/nothing", 404),
        (Method::DELETE, "/health", 405),
        (Method::GET, OPENAI_PATH, 405),
        (
            Method::POST,
            "/openai/deployments/quick_apps2/chat/completions",
            400,
        ),
    ] {
        let request = fixture.request(method, path);
        let response = request.send(&|_| ()).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let id = response.header("x-request-id").unwrap();
        assert!(id.starts_with("req_"), "{path}: {id}");
    }
}

#[tokio::test]
async fn a_rate_limit_has_its_time_in_a_header() {
    let mut failure = RequestFailure::new(429, "slow down");
    failure.retry_after_seconds = Some(7);
    let fixture = TestSurface::start(vec![ScriptedStep::Fail(failure)]).await;
    let refused = chat(&fixture, &[], &plain(true)).await;
    assert_eq!(
        (refused.status(), refused.header("retry-after")),
        (429, Some("7"))
    );
}

#[tokio::test]
async fn calls_for_the_client_are_chunks_that_typed_clients_read() {
    let call = |id: &str| ToolCall {
        id: id.to_owned(),
        kind: "function".to_owned(),
        function: FunctionCall {
            name: "t".to_owned(),
            arguments: "{}".to_owned(),
            rest: Map::new(),
        },
        rest: Map::new(),
    };
    let calls = Event::ToolCalls(vec![call("a"), call("b")]);
    let fixture = TestSurface::start(vec![ScriptedStep::Send(calls)]).await;
    *fixture.agent.ending.lock().unwrap() = AnswerEnd {
        reason: FinishReason::ToolCalls,
        ..AnswerEnd::default()
    };
    let chunks = events(chat(&fixture, &[], &plain(true)).await).await;
    assert!(chunks.iter().all(|chunk| {
        let choice = chunk["choices"][0].as_object().unwrap();
        choice.contains_key("finish_reason")
    }));
    assert_eq!(
        chunks[2]["choices"][0]["delta"]["tool_calls"],
        json!([{"index": 1, "id": "b", "type": "function", "function": {"name": "t", "arguments": "{}"}}])
    );
    let (_, whole) = read(chat(&fixture, &[], &plain(false)).await).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(choice["message"]["tool_calls"][0]["id"], "a");
}
