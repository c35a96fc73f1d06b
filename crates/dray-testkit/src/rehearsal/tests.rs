//! The scripted model follows its script.

use serde_json::json;

use super::*;

const SCRIPT_JSON: &str = r#"{"rules": [
    {"when": {"tool_result_of": "add"}, "reply": {"say": "It is {result}."}},
    {"when": {"last_user_contains": "sum"}, "reply": {"call": [{"name": "add", "arguments": {"a": 1}}, {"name": "x", "arguments": "{"}]}},
    {"when": {"last_user_contains": "fail"}, "reply": {"fail": {"status": 429, "message": "slow"}}, "times": 1},
    {"when": {"last_user_contains": "cut"}, "reply": {"say": "abcdef", "piece": 2, "cut_after": 2}},
    {"when": {"nth": 2}, "reply": {"say": "again: {user}"}},
    {"when": {"has_tool": "t"}, "reply": {"say": "tools", "finish_reason": "length"}},
    {"when": {"model": "m"}, "reply": {"say": "Hé llo", "piece": 3, "usage": {"prompt": 5, "completion": 2},
        "stages": [{"name": "s", "content": "c", "status": "failed"}], "attachments": [{"url": "u"}], "state": {"k": 1}}}
]}"#;

async fn start() -> RehearsalServer {
    RehearsalServer::start(Script::from_json(SCRIPT_JSON).unwrap())
        .await
        .unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client of the test's own server"
)]
async fn connect(address: SocketAddr) -> tokio::net::TcpStream {
    tokio::net::TcpStream::connect(address).await.unwrap()
}

/// Status and body; `None` if the connection broke.
async fn post(model: &RehearsalServer, path: &str, body: &Value) -> Option<(u16, String)> {
    let stream = connect(model.server.address()).await;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    let request = http::Request::post(path)
        .header("host", "localhost")
        .body(http_body_util::Full::new(bytes::Bytes::from(
            body.to_string(),
        )))
        .unwrap();
    let response = sender.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .ok()?;
    Some((status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
}

async fn plain(model: &RehearsalServer, body: &Value) -> (u16, Value) {
    let (status, text) = post(model, "/v1/chat/completions", body).await.unwrap();
    (status, serde_json::from_str(&text).unwrap())
}

fn ask(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn the_first_matching_rule_answers() {
    let model = start().await;
    let (_, answer) = plain(&model, &ask("the sum")).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(
        message["tool_calls"][0]["function"],
        json!({"name": "add", "arguments": "{\"a\":1}"})
    );
    assert_eq!(message["tool_calls"][1]["function"]["arguments"], "{");
    let mut body = ask("the sum");
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    for id in [0, 1] {
        let id = message["tool_calls"][id]["id"].clone();
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "3"}));
    }
    let (_, answer) = plain(&model, &body).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "It is 3.");
}

#[tokio::test]
async fn rules_match_turns_tools_and_models() {
    let model = start().await;
    let two = json!({"model": "m", "messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c"}]},
    ]});
    assert_eq!(
        plain(&model, &two).await.1["choices"][0]["message"]["content"],
        "again: c"
    );
    let mut tools = ask("x");
    tools["tools"] = json!([{"type": "function", "function": {"name": "t"}}]);
    let choice = plain(&model, &tools).await.1["choices"][0].clone();
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("tools"), &json!("length"))
    );
    let mut other = ask("x");
    other["model"] = json!("other");
    assert_eq!(plain(&model, &other).await.0, 400);
    assert_eq!(post(&model, "/v1/other", &json!({})).await.unwrap().0, 404);
}

#[tokio::test]
async fn a_streamed_and_a_whole_answer_have_the_same_content() {
    let model = start().await;
    let (_, whole) = plain(&model, &ask("x")).await;
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], "Hé llo");
    assert_eq!(message["custom_content"]["stages"][0]["status"], "failed");
    assert_eq!(message["custom_content"]["attachments"][0]["url"], "u");
    assert_eq!(message["custom_content"]["state"], json!({"k": 1}));
    let mut body = ask("x");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    for (path, apart) in [
        ("/v1/chat/completions", true),
        (
            "/openai/deployments/m/chat/completions?api-version=1",
            false,
        ),
    ] {
        let (_, text) = post(&model, path, &body).await.unwrap();
        let mut events: Vec<_> = text.trim_end().split("\n\n").collect();
        assert_eq!(events.pop(), Some("data: [DONE]"));
        let chunks: Vec<Value> = events
            .iter()
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect();
        let streamed: String = chunks
            .iter()
            .filter_map(|chunk| chunk.pointer("/choices/0/delta/content")?.as_str())
            .collect();
        assert_eq!(streamed, "Hé llo");
        let last = chunks.last().unwrap();
        assert_eq!(last["usage"], whole["usage"]);
        assert_eq!(last["choices"] == json!([]), apart);
    }
}

#[tokio::test]
async fn failures_and_broken_streams_follow_the_script() {
    let model = start().await;
    let (status, body) = plain(&model, &ask("fail")).await;
    assert_eq!((status, &body["error"]["message"]), (429, &json!("slow")));
    assert_eq!(plain(&model, &ask("fail")).await.0, 200);
    let mut cut = ask("cut");
    assert_eq!(post(&model, "/v1/chat/completions", &cut).await, None);
    cut["stream"] = json!(true);
    assert_eq!(post(&model, "/v1/chat/completions", &cut).await, None);
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes_and_is_recorded() {
    let model = start().await;
    let mut body = ask("the sum");
    body["stream"] = json!(true);
    let first = post(&model, "/v1/chat/completions", &body).await;
    assert_eq!(post(&model, "/v1/chat/completions", &body).await, first);
    let requests = model.received_requests();
    assert_eq!((requests.len(), &requests[1].body), (2, &body));
    model.set_script(Script::saying("new"));
    assert_eq!(
        plain(&model, &ask("sum")).await.1["choices"][0]["message"]["content"],
        "new"
    );
}

#[test]
fn a_script_with_unknown_or_missing_members_is_refused() {
    for wrong in [
        "{}",
        r#"{"rules": [{"replay": {}}]}"#,
        r#"{"rules": [{"reply": {"sya": "x"}}]}"#,
    ] {
        assert!(Script::from_json(wrong).is_err(), "{wrong}");
    }
}
