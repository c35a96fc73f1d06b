//! The plain endpoint follows `OpenAI`'s API: order of messages, parameters, parts, usage, reasoning, and errors.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::fixture::{TurnFixture, manifest, rest};
use crate::responses::{create, output_text};

const HELLO_SCRIPT: &str = r#"{"rules": [{"reply": {"say": "Hello."}}]}"#;

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn hello() -> TurnFixture {
    TurnFixture::plain(&manifest(json!([])), HELLO_SCRIPT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_follow_those_of_the_manifest_and_speakers_keep_their_order() {
    let fixture = hello().await;
    let messages = json!([
        user("one"), user("two"),
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": [{"type": "text", "text": "Speak French."}]},
        user("three"),
        {"role": "assistant", "content": "It is"},
    ]);
    let result = fixture.chat(json!({"messages": messages})).await;
    assert_eq!(result.text(), "Hello.", "{result:?}");
    let request_messages = &fixture.asked()[0]["messages"];
    let system = request_messages[0]["content"].as_str().unwrap();
    assert!(
        system.starts_with("You help.") && system.ends_with("\n\nBe brief.\n\nSpeak French."),
        "{system}"
    );
    let others: Vec<_> = request_messages.as_array().unwrap()[1..]
        .iter()
        .filter(|message| !message.to_string().contains("\"s_"))
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(others, ["one", "two", "a", "b", "three", "It is"]);
    let last = request_messages.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["role"], &last["content"]),
        (&json!("assistant"), &json!("It is"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_the_client_reach_the_model_and_its_limit_is_never_raised() {
    let mut manifest = manifest(json!([]));
    manifest["orchestrator"]["deployment"]["parameters"] =
        json!({"temperature": 0.5, "max_tokens": 100});
    let fixture = TurnFixture::plain(&manifest, HELLO_SCRIPT).await;
    let set = json!({
        "temperature": 1.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": -1, "stop": ["END"], "seed": 7,
        "logprobs": true, "top_logprobs": 2, "reasoning_effort": "low", "user": "u-1", "metadata": {"a": "b"},
        "logit_bias": {"5": 1}, "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    });
    let mut body = set.clone();
    body["messages"] = json!([user("x")]);
    body["max_completion_tokens"] = json!(500);
    assert_eq!(fixture.chat(body).await.text(), "Hello.");
    let request = &fixture.asked()[0];
    for (name, value) in set.as_object().unwrap() {
        assert_eq!(&request[name], value, "{name}");
    }
    assert_eq!(request["max_completion_tokens"], 100);
    assert!(request.get("max_tokens").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_are_unknown_or_not_allowed_are_refused_by_name() {
    let mut manifest = manifest(json!([]));
    let allowed = json!(["stop", "top_k"]);
    manifest["orchestrator"]["client_parameters"] = allowed;
    let fixture = TurnFixture::plain(&manifest, HELLO_SCRIPT).await;
    let tool = json!({"type": "function", "function": {"name": "t"}});
    for (name, value) in [
        ("temperature", json!(1)),
        ("tools", json!([tool])),
        ("response_format", json!({"type": "json_object"})),
        ("min_p", json!(0.5)),
        ("n", json!(2)),
    ] {
        let result = fixture
            .chat(json!({"messages": [user("x")], name: value}))
            .await;
        assert_eq!(
            (result.status, &result.error()["param"]),
            (400, &json!(name))
        );
        let message = result.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("'{name}'")), "{message}");
    }
    assert_eq!(fixture.asked().len(), 0);
    let body = json!({"messages": [user("x")], "stop": "END", "top_k": 5});
    assert_eq!(fixture.chat(body).await.text(), "Hello.");
    let request = &fixture.asked()[0];
    assert_eq!(
        (&request["stop"], &request["top_k"]),
        (&json!("END"), &json!(5))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_stay_in_their_place_and_documents_become_files_of_the_conversation() {
    let fixture = hello().await;
    let (picture, text) = ("data:image/png;base64,iVBORw0KGgo=", "aGVsbG8gdGhlcmU=");
    let parts = json!([
        {"type": "text", "text": "before"},
        {"type": "image_url", "image_url": {"url": picture, "detail": "low"}},
        {"type": "text", "text": "after"},
        {"type": "file", "file": {"filename": "a.txt", "file_data": format!("data:text/plain;base64,{text}")}},
    ]);
    let result = fixture
        .chat(json!({"messages": [{"role": "user", "content": parts}]}))
        .await;
    assert_eq!(result.text(), "Hello.", "{result:?}");
    let requests = fixture.asked();
    let messages = requests[0]["messages"].as_array().unwrap();
    let message = messages
        .iter()
        .find(|message| message["role"] == "user")
        .unwrap();
    let content = message["content"].as_array().unwrap();
    assert_eq!(content[..3], parts.as_array().unwrap()[..3]);
    assert_eq!(content.len(), 4);
    let listed = content[3]["text"].as_str().unwrap();
    assert!(
        listed.contains("<title>a.txt</title>") && listed.matches("<url>artifact/").count() == 2,
        "{listed}"
    );
    assert!(!message.to_string().contains(text) && message.get("custom_content").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_reported_in_a_chunk_of_their_own_and_in_every_complete_answer() {
    let script =
        r#"{"rules": [{"reply": {"say": "Hi.", "usage": {"prompt": 12, "completion": 3}}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let body = json!({"messages": [user("x")]});
    let mut counted = body.clone();
    counted["stream_options"] = json!({"include_usage": true});
    let result = fixture.chat(counted).await;
    let (last, before) = result.chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 15);
    assert!(before.iter().all(|chunk| chunk["usage"].is_null()));
    assert_eq!(
        before.last().unwrap()["choices"][0]["finish_reason"],
        "stop"
    );
    let (_, whole) = fixture.whole(body).await;
    assert_eq!(whole["usage"]["total_tokens"], 15);
    let message = &whole["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["refusal"]),
        (&json!("Hi."), &Value::Null)
    );
}

/// A model that answers every request with the same reply.
async fn fixed_model(reply: fn() -> Reply) -> FakeServer<()> {
    let answer = move |_: Arc<SharedState<()>>, received: ReceivedRequest| {
        async move {
            received.json().await?;
            Ok::<_, ConnectionClosed>(reply())
        }
        .boxed()
    };
    FakeServer::start((), answer).await.unwrap()
}

async fn with_model(model: &FakeServer<()>) -> TurnFixture {
    let url = format!("{}/v1", model.shared().url());
    TurnFixture::with(&manifest(json!([])), HELLO_SCRIPT, |config| {
        config.model_url = Some(url);
    })
    .await
}

fn streamed_reply(chunks: &[&str]) -> Reply {
    let events: Vec<_> = chunks
        .iter()
        .map(|choice| format!("data: {{\"choices\":[{choice}]}}\n\n"))
        .collect();
    let events = events.concat();
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}"#;
    let body = format!("{events}{usage}\n\ndata: [DONE]\n\n");
    fake_server::bytes_reply(200, "text/event-stream", body.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_refusals_and_log_probabilities_are_passed_on() {
    let model = fixed_model(|| {
        streamed_reply(&[
            r#"{"index":0,"delta":{"role":"assistant","reasoning_content":"Let me "}}"#,
            r#"{"index":0,"delta":{"reasoning":"think."}}"#,
            r#"{"index":0,"delta":{"content":"a\ud83d"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}],"refusal":null}}"#,
            r#"{"index":0,"delta":{"content":"\ude00"},"logprobs":{"content":[{"token":"b","logprob":-1,"bytes":[98],"top_logprobs":[]}],"refusal":null}}"#,
            r#"{"index":0,"delta":{"refusal":"No."}}"#,
            r#"{"index":0,"delta":{},"finish_reason":"stop"}"#,
        ])
    })
    .await;
    let fixture = with_model(&model).await;
    let body = json!({"messages": [user("x")], "logprobs": true, "stream_options": {"include_usage": true}});
    let result = fixture.chat(body.clone()).await;
    assert_eq!(result.text(), "a\u{1F600}", "{result:?}");
    assert_eq!(
        result.deltas("/reasoning_content"),
        [json!("Let me "), json!("think.")]
    );
    assert_eq!(result.deltas("/refusal"), [json!("No.")]);
    let details = &result.chunks.last().unwrap()["usage"];
    assert_eq!(details["prompt_tokens_details"]["cached_tokens"], 4);
    assert_eq!(details["completion_tokens_details"]["reasoning_tokens"], 2);
    let (_, whole) = fixture.whole(body).await;
    let choice = &whole["choices"][0];
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    let tokens: Vec<_> = tokens.iter().map(|token| token["token"].clone()).collect();
    assert_eq!(tokens, ["a", "b"]);
    assert_eq!(choice["message"]["reasoning_content"], "Let me think.");
    assert_eq!(choice["message"]["refusal"], "No.");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_an_answer_agrees_with_its_calls() {
    const TEXT_CHOICE: &str =
        r#"{"index":0,"delta":{"content":"Hi."},"finish_reason":"tool_calls"}"#;
    const CUT_OFF_CHOICE: &str = r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"weather","arguments":"{\"ci"}}]},"finish_reason":"length"}"#;
    const BARE_CALL_CHOICE: &str = r#"{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"weather","arguments":""}}]},"finish_reason":"stop"}"#;
    /// Makes the response of the model, the expected reason, and the arguments of the expected calls.
    type ReplyCase = (fn() -> Reply, &'static str, &'static [&'static str]);
    let replies: [ReplyCase; 3] = [
        (|| streamed_reply(&[TEXT_CHOICE]), "stop", &[]),
        (|| streamed_reply(&[CUT_OFF_CHOICE]), "length", &[r#"{"ci"#]),
        (
            || streamed_reply(&[BARE_CALL_CHOICE]),
            "tool_calls",
            &["{}"],
        ),
    ];
    for (reply, reason, arguments) in replies {
        let model = fixed_model(reply).await;
        let fixture = with_model(&model).await;
        let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}});
        let body = json!({"messages": [user("x")], "tools": [tool]});
        let (_, whole) = fixture.whole(body).await;
        let choice = &whole["choices"][0];
        assert_eq!(choice["finish_reason"], reason);
        let calls = choice["message"]["tool_calls"].as_array();
        let found = calls.into_iter().flatten();
        let found: Vec<_> = found
            .map(|call| call["function"]["arguments"].as_str().unwrap())
            .collect();
        assert_eq!(found, arguments);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_of_the_model_is_one_of_the_agent_with_its_time() {
    let model = fixed_model(|| {
        let body = json!({"error": {"message": "slow", "code": "rate_limit_exceeded"}});
        fake_server::with_header(fake_server::json_reply(429, &body), "retry-after", "1")
    })
    .await;
    let fixture = with_model(&model).await;
    let url = format!("{}/v1/chat/completions", fixture.url);
    let body = json!({"model": "agent", "messages": [user("x")]});
    let refused = fixture
        .client
        .post(&url)
        .json(&body)
        .send(&|_| ())
        .await
        .unwrap();
    assert_eq!(
        (refused.status(), refused.header("retry-after")),
        (429, Some("1"))
    );
    let error: Value = refused.json().await.unwrap();
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("rate-limited")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_the_model_refuses_is_named_in_its_words() {
    let model = fixed_model(|| {
        let body = json!({"error": {"message": "Unsupported value: 'temperature'", "code": "unsupported_value"}});
        fake_server::json_reply(400, &body)
    })
    .await;
    let fixture = with_model(&model).await;
    let result = fixture
        .chat(json!({"messages": [user("x")], "temperature": 0.3}))
        .await;
    assert_eq!(result.status, 400);
    assert_eq!(
        result.error()["message"],
        "Unsupported value: 'temperature'"
    );
    assert_eq!(result.error()["code"], "unsupported_value");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_answer_are_links_in_its_text_for_clients_that_drop_them() {
    let endpoint = crate::tools::FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["a"]);
    set["response_as_attachment"] = json!({"enabled": true, "content_types": ["application/json"]});
    set["tools"][0]["attachment"] = json!({"propagate_types_to_choice": ["application/json"]});
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Done."}},
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "x"}}]}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([set])), script).await;
    let result = fixture.chat(json!({"messages": [user("x")]})).await;
    let sent = result.attachments();
    let url = sent[0]["url"].as_str().unwrap();
    let text = result.text();
    assert!(
        text.starts_with("Done.\n\n[") && text.ends_with(&format!("]({url})")),
        "{text}"
    );
    let known = json!({"role": "user", "content": "x", "custom_content": {}});
    assert_eq!(
        fixture.chat(json!({"messages": [known]})).await.text(),
        "Done."
    );
    let structured = json!({"messages": [user("x")], "response_format": {"type": "json_object"}});
    assert_eq!(fixture.chat(structured).await.text(), "Done.");
    let inline = TurnFixture::with(&manifest(json!([set])), script, |config| {
        config.answer_files = dray_orchestrator::config::AnswerFiles::Data;
    })
    .await;
    let text = inline.chat(json!({"messages": [user("x")]})).await.text();
    assert!(text.contains("](data:application/json;base64,"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_structured_answer_has_no_text_of_rounds_with_calls() {
    let endpoint = crate::tools::FakeEndpoint::start().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "{\"a\":1}", "piece": 3}},
        {"reply": {"say": "Let me look.", "call": [{"name": "shop_a", "arguments": {"q": "x"}}]}}]}"#;
    let agent = manifest(json!([rest(&endpoint.url(), &["a"])]));
    let fixture = TurnFixture::plain(&agent, script).await;
    let format = json!({"type": "json_object"});
    let body = json!({"messages": [user("x")], "response_format": format});
    assert_eq!(fixture.chat(body.clone()).await.text(), "{\"a\":1}");
    let (_, whole) = fixture.whole(body).await;
    assert_eq!(whole["choices"][0]["message"]["content"], "{\"a\":1}");
    let body = json!({"input": "x", "text": {"format": format}});
    let (status, response) = create(&fixture, &body).await;
    assert_eq!((status, output_text(&response)), (200, "{\"a\":1}"));
    // The model still sees its text, and other clients get it.
    let second = fixture.asked()[1]["messages"].to_string();
    assert!(second.contains("Let me look."), "{second}");
    let text = fixture.chat(json!({"messages": [user("x")]})).await.text();
    assert_eq!(text, "Let me look.\n\n{\"a\":1}");
}

#[tokio::test]
async fn a_structured_answer_of_an_agent_without_tools_arrives_in_pieces() {
    let script = r#"{"rules": [{"reply": {"say": "{\"a\":1}", "piece": 3}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let format = json!({"type": "json_object"});
    let body = json!({"messages": [user("x")], "response_format": format});
    let answer = fixture.chat(body).await;
    assert_eq!(answer.text(), "{\"a\":1}");
    let pieces = answer.deltas("/content");
    assert!(pieces.len() > 1, "{pieces:?}");
}
