//! Tools that the client brings: alone, beside the manifest's own, and over several requests of one turn. The client
//! drops `custom_content`, as those of `OpenAI`'s API do.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::fixture::{ChatResult, TurnFixture, manifest, rest};

/// An endpoint that records its calls.
pub(crate) struct CountingEndpoint(FakeServer<Vec<String>>);

fn answer(shared: &SharedState<Vec<String>>, received: &ReceivedRequest) -> Reply {
    let query = received.parameter("q").unwrap_or_default();
    shared.lock().push(query.clone());
    fake_server::json_reply(200, &json!({"own": query}))
}

impl CountingEndpoint {
    pub(crate) async fn start() -> Self {
        let server = FakeServer::start(
            Vec::new(),
            |shared: Arc<SharedState<Vec<String>>>, received: ReceivedRequest| {
                async move { Ok::<_, ConnectionClosed>(answer(&shared, &received)) }.boxed()
            },
        );
        Self(server.await.unwrap())
    }

    pub(crate) fn url(&self) -> String {
        self.0.shared().url()
    }

    pub(crate) fn called(&self) -> Vec<String> {
        self.0.shared().lock().clone()
    }
}

pub(crate) fn weather() -> Value {
    json!({"type": "function", "function": {"name": "weather", "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}})
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The message of an answer as `OpenAI`'s clients keep it.
pub(crate) fn kept(seen: &ChatResult) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": seen.calls()})
}

pub(crate) fn tool_result(call: &Value, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": call["id"], "content": text})
}

/// Role, calls or call of each message that the model got, without inserted ones.
fn shape(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap();
    let calls = |message: &Value| -> Vec<String> {
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        calls
            .iter()
            .map(|call| call["id"].as_str().unwrap().to_owned())
            .collect()
    };
    messages
        .iter()
        .map(|message| {
            let role = message["role"].as_str().unwrap();
            match message["tool_call_id"].as_str() {
                Some(id) => format!("{role} {id}"),
                None => format!("{role} {}", calls(message).join("+")),
            }
        })
        .filter(|line| !line.contains(" s_"))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_client_s_tool_ends_the_answer_and_its_result_continues_it() {
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
        {"reply": {"say": "Let me see.", "call": [{"name": "weather", "arguments": {"city": "Paris"}}]}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let first = fixture
        .chat(
            json!({"messages": [user("x")], "tools": [weather()], "tool_choice": "required",
            "parallel_tool_calls": false}),
        )
        .await;
    assert_eq!((first.reason().as_str(), first.done), ("tool_calls", true));
    assert_eq!(first.text(), "Let me see.");
    let calls = first.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (&calls[0]["type"], &calls[0]["function"]["name"]),
        (&json!("function"), &json!("weather"))
    );
    assert_eq!(calls[0]["function"]["arguments"], r#"{"city":"Paris"}"#);
    // The server handled no call itself, so the id is the model's and no question was stored.
    assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
    let request = &fixture.asked()[0];
    let tools = request["tools"].as_array().unwrap();
    assert_eq!(tools.last(), Some(&weather()));
    assert_eq!(
        (&request["tool_choice"], &request["parallel_tool_calls"]),
        (&json!("required"), &json!(false))
    );
    let body = json!({"messages": [user("x"), kept(&first), tool_result(&calls[0], "sunny")], "tools": [weather()]});
    let second = fixture.chat(body.clone()).await;
    assert_eq!(
        (second.text(), second.reason()),
        ("It is sunny.".to_owned(), "stop".to_owned())
    );
    let (status, whole) = fixture.whole(body).await;
    assert_eq!(status, 200, "{whole}");
    assert_eq!(whole["choices"][0]["message"]["content"], "It is sunny.");
}

const MIXED_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "weather"}, "reply": {"say": "Done."}},
    {"reply": {"call": [
        {"name": "weather", "arguments": {"city": "Paris"}},
        {"name": "shop_a", "arguments": {"q": "1"}},
        {"name": "weather", "arguments": {"city": "Rome"}}]}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn own_calls_of_a_mixed_round_are_made_once_and_come_back_without_custom_content() {
    let endpoint = CountingEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a"])]);
    let fixture = TurnFixture::plain(&manifest(sets), MIXED_SCRIPT).await;
    let first = fixture
        .chat(json!({"messages": [user("x")], "tools": [weather()]}))
        .await;
    assert_eq!(first.reason(), "tool_calls");
    let calls = first.calls();
    let cities: Vec<_> = calls
        .iter()
        .map(|call| call["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(cities, [r#"{"city":"Paris"}"#, r#"{"city":"Rome"}"#]);
    assert_eq!(endpoint.called(), ["1"]);
    let results = [
        tool_result(&calls[1], "warm"),
        tool_result(&calls[0], "cold"),
    ];
    let messages = json!([user("x"), kept(&first), results[0], results[1]]);
    let body = json!({"messages": messages, "tools": [weather()]});
    for _ in 0..2 {
        let second = fixture.chat(body.clone()).await;
        assert_eq!(
            (second.text().as_str(), second.error()),
            ("Done.", Value::Null)
        );
    }
    assert_eq!(endpoint.called(), ["1"], "not repeated");
    let requests = fixture.asked();
    let first_shape = shape(&requests[0]);
    assert_eq!(first_shape, ["system", "user"]);
    let tail = [
        "assistant call_2_0+call_2_1+call_2_2",
        "tool call_2_1",
        "tool call_2_0",
        "tool call_2_2",
    ];
    let own_ids = |line: &String| line.replace(&ids_of(&requests[1]), "call_2");
    let shapes: Vec<_> = shape(&requests[1]).iter().map(own_ids).collect();
    assert_eq!(shapes[..2], first_shape[..]);
    assert_eq!(shapes[2..], tail);
    let contents = requests[1]["messages"].to_string();
    assert!(contents.contains(r#"\"own\":\"1\""#), "{contents}");
    assert_eq!(requests[1], requests[2], "a repeat gives the same bytes");
}

/// The prefix of the scripted model's call ids in the newest round of a request.
fn ids_of(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let ids = messages.iter().rev().find_map(|message| {
        let id = message["tool_calls"][0]["id"].as_str()?;
        id.starts_with("call_").then(|| id.to_owned())
    });
    let ids = ids.unwrap();
    ids.rsplit_once('_').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_before_the_client_s_call_come_back_over_several_requests_of_one_turn() {
    let endpoint = CountingEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a", "b"])]);
    let script = r#"{"rules": [
        {"times": 1, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}},
        {"times": 1, "reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}},
        {"times": 1, "reply": {"call": [{"name": "shop_b", "arguments": {"q": "2"}}]}},
        {"times": 1, "reply": {"call": [{"name": "weather", "arguments": {"city": "Rome"}}]}},
        {"reply": {"say": "Done."}}]}"#;
    let fixture = TurnFixture::plain(&manifest(sets), script).await;
    let chat = async |messages: &[Value]| {
        fixture
            .chat(json!({"messages": messages, "tools": [weather()]}))
            .await
    };
    let mut messages = vec![user("x")];
    for weather in ["cold", "warm"] {
        let result = chat(&messages).await;
        assert_eq!(result.reason(), "tool_calls", "{result:?}");
        messages.push(kept(&result));
        let call = &result.calls()[0];
        messages.push(tool_result(call, weather));
    }
    assert_eq!(chat(&messages).await.text(), "Done.");
    assert_eq!(endpoint.called(), ["1", "2"]);
    let requests = fixture.asked();
    let roles: Vec<_> = shape(requests.last().unwrap())
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "assistant",
            "tool"
        ]
    );
    // The conversation continues: the rounds of the finished turn are in it as well.
    messages.push(json!({"role": "assistant", "content": "Done."}));
    messages.push(user("and?"));
    assert_eq!(chat(&messages).await.text(), "Done.");
    assert_eq!(endpoint.called(), ["1", "2"]);
    let last = fixture.asked().pop().unwrap();
    let contents = last["messages"].to_string();
    for own in [r#"\"own\":\"1\""#, r#"\"own\":\"2\""#, "cold", "warm"] {
        assert_eq!(contents.matches(own).count(), 1, "{own}: {contents}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_a_client_has_no_name_that_the_agent_uses() {
    let endpoint = CountingEndpoint::start().await;
    let sets = json!([rest(&endpoint.url(), &["a"])]);
    let fixture = TurnFixture::plain(&manifest(sets), MIXED_SCRIPT).await;
    let taken = json!({"type": "function", "function": {"name": "shop_a"}});
    let result = fixture
        .chat(json!({"messages": [user("x")], "tools": [weather(), taken]}))
        .await;
    assert_eq!(result.status, 400);
    assert_eq!(result.error()["param"], "tools.1.function.name");
    assert!(
        result.error()["message"]
            .as_str()
            .unwrap()
            .contains("'shop_a'")
    );
    let choice = json!({"type": "function", "function": {"name": "other"}});
    let result = fixture
        .chat(json!({"messages": [user("x")], "tools": [weather()], "tool_choice": choice}))
        .await;
    assert_eq!(
        (result.status, &result.error()["param"]),
        (400, &json!("tool_choice"))
    );
    assert_eq!(fixture.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_calls_that_no_one_waits_for_are_refused() {
    let fixture = TurnFixture::plain(&manifest(json!([])), MIXED_SCRIPT).await;
    let forged = json!({"id": format!("dray_{}_0", "A".repeat(70)), "type": "function",
        "function": {"name": "weather", "arguments": "{}"}});
    let asks = json!({"role": "assistant", "tool_calls": [forged]});
    let result = fixture
        .chat(
            json!({"messages": [user("x"), asks, tool_result(&forged, "r")], "tools": [weather()]}),
        )
        .await;
    assert_eq!(
        (result.status, &result.error()["code"]),
        (400, &json!("tool_calls_expired"))
    );
    assert_eq!(fixture.asked().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_once_in_a_turn_that_waits_for_its_client() {
    let endpoint = CountingEndpoint::start().await;
    let mut manifest = manifest(json!([rest(&endpoint.url(), &["a"])]));
    manifest["hooks"] = json!([
        {"type": "tool", "event": "on_request_start", "tool": "shop_a", "arguments": {"q": "start"}},
        {"type": "tool", "event": "on_completion", "tool": "shop_a", "arguments": {"q": "end"}},
    ]);
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "weather"}, "reply": {"say": "Done."}},
        {"reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}}]}"#;
    let fixture = TurnFixture::with(&manifest, script, |config| config.preview = true).await;
    let first = fixture
        .chat(json!({"messages": [user("x")], "tools": [weather()]}))
        .await;
    assert_eq!(first.reason(), "tool_calls", "{first:?}");
    assert_eq!(endpoint.called(), ["start"]);
    let messages = json!([
        user("x"),
        kept(&first),
        tool_result(&first.calls()[0], "sunny")
    ]);
    let second = fixture
        .chat(json!({"messages": messages, "tools": [weather()]}))
        .await;
    assert_eq!(second.text(), "Done.");
    assert_eq!(endpoint.called(), ["start", "end"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_requires_a_call_gets_one_of_its_own_after_those_of_the_agent() {
    let endpoint = CountingEndpoint::start().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
        {"when": {"tool_result_of": "shop_a"}, "reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}},
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}}]}"#;
    let sets = json!([rest(&endpoint.url(), &["a"])]);
    let fixture = TurnFixture::plain(&manifest(sets), script).await;
    let body = json!({"messages": [user("x")], "tools": [weather()], "tool_choice": "required"});
    let first = fixture.chat(body).await;
    assert_eq!(first.reason(), "tool_calls");
    let call = &first.calls()[0];
    assert_eq!(call["function"]["name"], "weather");
    // A call of the agent's own tool does not meet the choice: without it in the second request, the model may answer
    // with text.
    let choices = fixture.asked().into_iter();
    let choices: Vec<_> = choices.map(|body| body["tool_choice"].clone()).collect();
    assert_eq!(choices, ["required", "required"]);
    assert_eq!(endpoint.called(), ["1"]);
    let messages = json!([user("x"), kept(&first), tool_result(call, "sunny")]);
    let body = json!({"messages": messages, "tools": [weather()], "tool_choice": "auto"});
    assert_eq!(fixture.chat(body).await.text(), "It is sunny.");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_the_client_s_choice_does_not_permit_are_not_made() {
    let allowed = |mode: &str| {
        let tools = json!([{"type": "function", "function": {"name": "shop_a"}}]);
        json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
    };
    for (choice, later, called) in [
        (allowed("required"), allowed("auto"), &["1"][..]),
        (allowed("auto"), allowed("auto"), &["1"]),
        (json!("none"), json!("none"), &[]),
    ] {
        let endpoint = CountingEndpoint::start().await;
        let script = r#"{"rules": [
            {"when": {"tool_result_of": "weather"}, "reply": {"say": "Done."}},
            {"reply": {"call": [
                {"name": "shop_a", "arguments": {"q": "1"}}, {"name": "shop_b", "arguments": {"q": "2"}},
                {"name": "weather", "arguments": {"city": "Paris"}}]}}]}"#;
        let sets = json!([rest(&endpoint.url(), &["a", "b"])]);
        let fixture = TurnFixture::plain(&manifest(sets), script).await;
        let body = json!({"messages": [user("x")], "tools": [weather()], "tool_choice": choice});
        let answer = fixture.chat(body).await;
        assert_eq!(
            (answer.reason().as_str(), answer.text().as_str()),
            ("stop", "Done."),
            "{choice}"
        );
        assert_eq!(endpoint.called(), called, "{choice}");
        let asked = fixture.asked();
        assert_eq!(
            (&asked[0]["tool_choice"], &asked[1]["tool_choice"]),
            (&choice, &later)
        );
        let results = asked[1]["messages"].to_string();
        assert_eq!(
            results.matches("does not permit this tool").count(),
            3 - called.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_requires_one_of_several_tools_gets_a_call_before_the_last_round_is_used_up()
{
    let endpoint = CountingEndpoint::start().await;
    // The model calls the agent's tool as long as the request offers it.
    let script = r#"{"rules": [
        {"when": {"has_tool": "shop_a"}, "reply": {"call": [{"name": "shop_a", "arguments": {"q": "1"}}]}},
        {"reply": {"call": [{"name": "weather", "arguments": {"city": "Paris"}}]}}]}"#;
    let mut manifest = manifest(json!([rest(&endpoint.url(), &["a"])]));
    manifest["orchestrator"]["max_iterations"] = json!(3);
    let fixture = TurnFixture::plain(&manifest, script).await;
    let mut clock = weather();
    clock["function"]["name"] = json!("clock");
    let body =
        json!({"messages": [user("x")], "tools": [weather(), clock], "tool_choice": "required"});
    let result = fixture.chat(body).await;
    assert_eq!(result.reason(), "tool_calls", "{result:?}");
    assert_eq!(result.calls()[0]["function"]["name"], "weather");
    assert_eq!(endpoint.called(), ["1", "1"]);
    let last = &fixture.asked()[2];
    assert_eq!(last["tools"], json!([weather(), clock]));
    assert_eq!(last["tool_choice"], "required");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_very_long_id_of_a_call_is_replaced_and_its_result_finds_the_call() {
    // Services that put signatures into ids have shorter ones, which stay as they are.
    for (length, is_kept) in [(16 << 10, true), (100_000, false)] {
        let id = "i".repeat(length);
        let call = json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": "{}"}});
        let message = json!({"role": "assistant", "tool_calls": [call]});
        let body = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
        let script = json!({"rules": [
            {"when": {"tool_result_of": "weather"}, "reply": {"say": "It is {result}."}},
            {"reply": {"fail": {"status": 200, "body": body}}},
        ]});
        let fixture = TurnFixture::plain(&manifest(json!([])), &script.to_string()).await;
        let ask = async |messages: Value| {
            fixture
                .chat(json!({"messages": messages, "tools": [weather()]}))
                .await
        };
        let first = ask(json!([user("x")])).await;
        let call = &first.calls()[0];
        let seen = call["id"].as_str().unwrap();
        assert!(
            seen == id || (!is_kept && seen.len() < 64),
            "{}",
            seen.len()
        );
        assert_eq!(seen == id, is_kept, "{length}");
        let next = ask(json!([user("x"), kept(&first), tool_result(call, "sunny")])).await;
        assert_eq!(next.text(), "It is sunny.");
    }
}
