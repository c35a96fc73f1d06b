//! Tests of `/v1/responses`, `/v1/conversations` and `/v1/files` with whole turns: with `OpenAI`'s package, and in the
//! details that it does not show.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::bank::Bank;
use crate::client_tools::CountingEndpoint;
use crate::files::upload;
use crate::fixture::{TurnFixture, manifest, rest};

const RESPONSE_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
    {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Made."}},
    {"when": {"tool_result_of": "bank_balance"}, "reply": {"say": "You have it."}},
    {"when": {"last_user_contains": "balance"}, "reply": {"say": "I look.", "call": [
        {"name": "bank_balance", "arguments": {"of": "x"}}, {"name": "bank_lose", "arguments": {}}]}},
    {"when": {"last_user_contains": "as JSON"}, "reply": {"say": "{\"name\":\"Paris\",\"degrees\":21}"}},
    {"when": {"last_user_contains": "slowly"}, "reply": {"say": "a b c", "piece": 1, "delay_ms": 600000}},
    {"when": {"last_user_contains": "the weather"}, "reply": {"call": [
        {"name": "weather", "arguments": {"city": "Paris"}}, {"name": "shop_a", "arguments": {"q": "1"}}]}},
    {"when": {"last_user_contains": "make a file"}, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "2"}}]}},
    {"when": {"nth": 3}, "reply": {"say": "Third."}},
    {"when": {"nth": 2}, "reply": {"say": "Second."}},
    {"reply": {"say": "Hello there.", "piece": 6}}]}"#;

/// An agent whose tool makes files.
async fn file_maker(endpoint: &CountingEndpoint) -> TurnFixture {
    let mut set = rest(&endpoint.url(), &["a"]);
    set["response_as_attachment"] = json!({"enabled": true, "content_types": ["application/json"]});
    set["tools"][0]["attachment"] = json!({"propagate_types_to_choice": ["application/json"]});
    TurnFixture::plain(&manifest(json!([set])), RESPONSE_SCRIPT).await
}

/// Adds an agent `bank` with the tools of an MCP server, and one of a server that is gone.
fn add_bank(fixture: &TurnFixture, bank: &Bank) {
    let unreachable_set = json!({"type": "mcp", "name": "gone", "mcp_server_info": {
        "url": "http://127.0.0.1:9/mcp", "protocol": "streamable_http"}});
    let manifest = manifest(json!([bank.set(), unreachable_set]));
    let path = fixture.directory().join("manifests/bank.json");
    std::fs::write(path, manifest.to_string()).unwrap();
}

/// Sends a body to `/v1/responses`; returns the status and the body.
pub(crate) async fn create(fixture: &TurnFixture, body: &Value) -> (u16, Value) {
    let mut whole = json!({"model": "agent"});
    whole
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    let request = fixture
        .client
        .post(&format!("{}/v1/responses", fixture.url));
    let answer = request.json(&whole).send(&|_| ()).await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// The events of a stream.
pub(crate) async fn stream(fixture: &TurnFixture, mut body: Value) -> Vec<Value> {
    body["model"] = json!("agent");
    body["stream"] = json!(true);
    let request = fixture
        .client
        .post(&format!("{}/v1/responses", fixture.url));
    let answer = request.json(&body).send(&|_| ()).await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    let events = text.strip_suffix("data: [DONE]\n\n").expect(&text);
    let events = events
        .split("\n\n")
        .filter(|event| !event.is_empty() && !event.starts_with(':'));
    let parse = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
        data
    };
    events.map(parse).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<_> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    kinds.dedup();
    kinds
}

pub(crate) fn output_text(response: &Value) -> &str {
    let output = response["output"].as_array().unwrap();
    let message = output.iter().find(|item| item["type"] == "message");
    message.map_or("", |message| {
        message["content"][0]["text"].as_str().unwrap()
    })
}

/// The report of the client about the calls of an MCP server.
fn mcp_report() -> Value {
    json!({
        "kinds": [
            "response.mcp_call.completed", "response.mcp_call.failed", "response.mcp_call.in_progress",
            "response.mcp_call_arguments.delta", "response.mcp_call_arguments.done",
            "response.mcp_list_tools.completed", "response.mcp_list_tools.failed",
            "response.mcp_list_tools.in_progress",
        ],
        "items": ["mcp_list_tools", "mcp_list_tools", "message", "mcp_call", "mcp_call", "message"],
        "places": true,
        "tools": ["bank_pay", "bank_sign", "bank_nag", "bank_insist", "bank_balance", "bank_lose"],
        "gone": ["gone", true],
        "calls": [
            ["bank", "bank_balance", {"of": "x"}, "12 pounds", null, "completed"],
            ["bank", "bank_lose", {}, null, true, "failed"],
        ],
        "text": "I look.\n\nYou have it.", "same": true,
        "next": ["message"], "sent_back": "Second.",
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_uses_responses_files_and_conversations() {
    let endpoint = CountingEndpoint::start().await;
    let (fixture, bank) = (file_maker(&endpoint).await, Bank::start().await);
    add_bank(&fixture, &bank);
    let arguments = [fixture.url.as_str()];
    let report =
        dray_testkit::python::run_script("responses_client.py", "openai", &arguments).await;
    assert_eq!(
        report,
        json!({
            "creates": {
                "text": "Hello there.", "status": "completed", "same": true, "counted": true, "metadata": {"a": "b"},
                "items": ["hello"], "next": "Second.", "deleted": true,
                "named": ["Second.", "Hello there.", true],
            },
            "streams": {
                "kinds": [
                    "response.created", "response.in_progress", "response.output_item.added",
                    "response.content_part.added", "response.output_text.delta", "response.output_text.done",
                    "response.content_part.done", "response.output_item.done", "response.completed",
                ],
                "text": "Hello there.", "numbered": true,
            },
            "parses": {"name": "Paris", "degrees": 21},
            "loops": {"rounds": 1, "text": "It is sunny in Paris.", "streamed": true},
            "resumes": {"numbered": true, "last": "response.completed", "same": true, "text": "Hello there."},
            "polls": {"begun": "queued", "text": "Hello there.", "cancelled": ["cancelled", "cancelled"]},
            "reads_files": {
                "text": "Made.", "citation": "container_file_citation", "made": {"own": "2"}, "same": true,
                "listed": true, "content": "x,y\n1,2\n", "deleted": true,
            },
            "uploads": {
                "status": "completed", "file": ["big.bin", 10_240], "same": true,
                "other": ["pending", "upload.part", true], "digest": "md5", "cancelled": "cancelled",
            },
            "converses": {
                "texts": ["Second.", "Third."],
                "items": [
                    "user: before", "user: hello", "assistant: Second.", "user: and?", "assistant: Third.",
                ],
                "item": ["Third.", true, true], "metadata": {"topic": "demo"}, "deleted": true,
            },
            "counts": {
                "object": "response.input_tokens", "grows": 599, "continues": true, "counts_tools": true, "unknown": true,
            },
            "calls_mcp": mcp_report(),
        })
    );
    // Once for the loop, once for its stream, once for the file.
    assert_eq!(endpoint.called(), ["1", "1", "2"]);
}

/// A model that reasons, answers, refuses, and reaches its limit.
pub(crate) async fn thinking_model() -> FakeServer<()> {
    let chunks = [
        r#"{"index":0,"delta":{"reasoning_content":"Let me "}}"#,
        r#"{"index":0,"delta":{"reasoning_content":"think."}}"#,
        r#"{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[{"token":"Hi","logprob":-0.5,"bytes":[72],"top_logprobs":[]}]}}"#,
        r#"{"index":0,"delta":{"refusal":"No."}}"#,
        r#"{"index":0,"delta":{},"finish_reason":"length"}"#,
    ];
    let events = chunks
        .map(|choice| format!("data: {{\"choices\":[{choice}]}}\n\n"))
        .concat();
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let body = format!("{events}{usage}\n\ndata: [DONE]\n\n");
    let answer = move |_: Arc<SharedState<()>>, received: ReceivedRequest| {
        let body = body.clone();
        async move {
            received.json().await?;
            let reply: Reply = fake_server::bytes_reply(200, "text/event-stream", body.into());
            Ok::<_, ConnectionClosed>(reply)
        }
        .boxed()
    };
    FakeServer::start((), answer).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_refusals_and_limits_have_their_items_and_events() {
    let model = thinking_model().await;
    let url = format!("{}/v1", model.shared().url());
    let fixture = TurnFixture::with(&manifest(json!([])), RESPONSE_SCRIPT, |config| {
        config.model_url = Some(url);
    })
    .await;
    let body = json!({"input": "x", "include": ["message.output_text.logprobs"]});
    let events = stream(&fixture, body).await;
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.content_part.added",
            "response.refusal.delta",
            "response.refusal.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    let response = &events.last().unwrap()["response"];
    assert_eq!(
        (
            &response["status"],
            &response["incomplete_details"]["reason"]
        ),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let output = &response["output"];
    assert_eq!(
        output[0]["summary"],
        json!([{"type": "summary_text", "text": "Let me think."}])
    );
    let content = &output[1]["content"];
    assert_eq!(content[0]["logprobs"][0]["token"], "Hi");
    assert_eq!(content[1], json!({"type": "refusal", "refusal": "No."}));
    assert_eq!(
        response["usage"],
        json!({
            "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 14,
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn own_rounds_come_back_with_the_previous_response_and_the_prompt_stays_the_same() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = file_maker(&endpoint).await;
    let file = upload(&fixture, "a.csv", b"x,y\n").await;
    let content = json!([{"type": "input_text", "text": "make a file"}, {"type": "input_file", "file_id": file}]);
    let (_, first) = create(
        &fixture,
        &json!({"input": [{"role": "user", "content": content}]}),
    )
    .await;
    assert_eq!(output_text(&first), "Made.", "{first}");
    let next = json!({"input": "and?", "previous_response_id": first["id"]});
    let (_, second) = create(&fixture, &next).await;
    assert_eq!(output_text(&second), "Second.", "{second}");
    let model_requests = fixture.asked();
    let prompt = |number: usize| {
        model_requests[number]["messages"]
            .as_array()
            .unwrap()
            .clone()
    };
    let (before, after) = (prompt(1), prompt(2));
    assert_eq!(before[..], after[..before.len()], "prompt caches hit");
    let text = model_requests[2].to_string();
    assert!(
        text.contains("<title>a.csv</title>") && !text.contains("X-Amz"),
        "{text}"
    );
    assert_eq!(endpoint.called(), ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_not_stored_leaves_nothing_and_its_items_continue_it() {
    let endpoint = CountingEndpoint::start().await;
    let fixture = file_maker(&endpoint).await;
    let tool = json!({"type": "function", "name": "weather", "parameters": {"type": "object"}});
    let body = json!({"input": "the weather", "store": false, "tools": [tool]});
    let (_, first) = create(&fixture, &body).await;
    let mut items = vec![json!({"role": "user", "content": "the weather"})];
    let output = first["output"].as_array().unwrap();
    items.extend(output.iter().cloned());
    let call = output
        .iter()
        .find(|item| item["type"] == "function_call")
        .unwrap();
    let result =
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "cold"});
    items.push(result);
    let (_, second) = create(
        &fixture,
        &json!({"input": items, "store": false, "tools": [tool]}),
    )
    .await;
    assert_eq!(output_text(&second), "It is cold.", "{second}");
    assert_eq!(endpoint.called(), ["1"], "not repeated");
    let gone = json!({"input": "x", "previous_response_id": first["id"]});
    let (status, body) = create(&fixture, &gone).await;
    assert_eq!(
        (status, &body["error"]["param"]),
        (404, &json!("previous_response_id"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_the_agent_does_not_allow_are_refused_by_path() {
    let mut manifest = manifest(json!([]));
    manifest["orchestrator"]["client_parameters"] = json!(["tools", "max_completion_tokens"]);
    let fixture = TurnFixture::plain(&manifest, RESPONSE_SCRIPT).await;
    for (name, value, param) in [
        ("reasoning", json!({"effort": "low"}), "reasoning.effort"),
        (
            "text",
            json!({"format": {"type": "json_object"}}),
            "text.format",
        ),
        ("top_k", json!(3), "top_k"),
        (
            "tools",
            json!([{"type": "function", "name": "a b"}]),
            "tools.0.name",
        ),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_file", "file_id": "file-x"}]}]),
            "input.0.content.0.file_id",
        ),
    ] {
        for streams in [false, true] {
            let mut body = json!({"input": "x", "stream": streams});
            body[name] = value.clone();
            let (status, body) = create(&fixture, &body).await;
            assert_eq!(body["error"]["param"], param, "{body}");
            assert!((400..=404).contains(&status), "{status}");
        }
    }
    assert_eq!(fixture.asked().len(), 0);
    let (status, body) = create(&fixture, &json!({"input": "x", "max_output_tokens": 7})).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(fixture.asked()[0]["max_completion_tokens"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_ends_the_response_and_the_stream_says_so() {
    let script = r#"{"rules": [{"when": {"last_user_contains": "now"}, "reply": {"fail": {"status": 400}}},
        {"reply": {"say": "Hello there.", "piece": 3, "cut_after": 3}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let events = stream(&fixture, json!({"input": "x"})).await;
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.failed"), &json!("failed"))
    );
    assert_eq!(last["response"]["error"]["code"], "server_error");
    let message = &last["response"]["output"][0];
    assert_eq!(message["status"], "incomplete", "{last}");
    let id = last["response"]["id"].as_str().unwrap();
    let url = format!("{}/v1/responses/{id}", fixture.url);
    let found = fixture.client.get(&url).send(&|_| ()).await.unwrap();
    let found: Value = found.json().await.unwrap();
    assert_eq!(found, last["response"]);
    let next = json!({"input": "and?", "previous_response_id": id});
    let (status, body) = create(&fixture, &next).await;
    assert_eq!(
        (status, &body["error"]["param"]),
        (400, &json!("previous_response_id"))
    );
    // Before anything was shown, a failure has its own HTTP status.
    let (status, body) = create(&fixture, &json!({"input": "now", "stream": true})).await;
    assert!(status >= 400, "{body}");
    // The codes of the API are a closed set, which has none for a status or a model's own code.
    let events = stream(&fixture, json!({"input": "now", "background": true})).await;
    let error = &events.last().unwrap()["response"]["error"];
    assert_eq!(error["code"], "invalid_prompt", "{error}");
}
