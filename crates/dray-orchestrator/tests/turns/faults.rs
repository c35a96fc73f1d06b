//! Tests of failures of the model, of a tool and of the client.

use dray_testkit::eventually;
use serde_json::{Value, json};

use crate::fixture::{TurnFixture, manifest, rest};
use crate::tools::FakeEndpoint;

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_immediately_gives_an_http_status() {
    for (status, outgoing, start) in [
        (
            401,
            502,
            "Authentication failed when accessing the AI model.",
        ),
        (
            403,
            502,
            "You don't have permission to use the AI model configured in this application.",
        ),
        (
            404,
            404,
            "The AI model configured in this application could not be found.",
        ),
        (
            413,
            413,
            "The request payload is too large. Please reduce the size of your message or attachments.",
        ),
        (
            400,
            400,
            "The request was rejected as invalid by the AI model service.",
        ),
        (
            422,
            422,
            "The request was rejected as invalid by the AI model service.",
        ),
    ] {
        let script = format!(
            r#"{{"rules": [{{"reply": {{"fail": {{"status": {status}, "message": "no"}}}}}}]}}"#
        );
        let fixture = TurnFixture::plain(&manifest(json!([])), &script).await;
        let result = fixture.send_text("x").await;
        assert_eq!(result.status, outgoing);
        let display_message = result.error()["display_message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            display_message.starts_with(start),
            "{status}: {display_message}"
        );
        assert_eq!(fixture.asked().len(), 1, "{status} is not tried again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_of_the_operator_is_reported_as_an_error_of_the_server() {
    let script = r#"{"rules": [{"reply": {"fail": {"status": 401, "message": "no"}}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let result = fixture.send_text("x").await;
    let error = result.error();
    assert_eq!(result.status, 502, "{error}");
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("runtime_error"), &json!("502"))
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("key of the client is not at fault"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_of_dial_is_refused_where_there_is_no_dial() {
    let fixture = TurnFixture::plain(&manifest(json!([])), r#"{"rules": []}"#).await;
    let body = json!({"model": "agent", "messages": [{"role": "user", "content": "x"}]});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url))
        .header("x-dial-application-id", "my-app");
    let result = fixture.send(request.json(&body)).await;
    assert_eq!(result.status, 400, "{result:?}");
    let error = result.error();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`dial_url`"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_model_every_chat_fails_as_when_the_model_cannot_be_reached() {
    let fixture = TurnFixture::with(&manifest(json!([])), r#"{"rules": []}"#, |config| {
        config.model_url = None;
    })
    .await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.status, 500);
    let display_message = result.error()["display_message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        display_message.starts_with("Could not connect to the AI model service."),
        "{display_message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_busy_is_asked_again_and_then_reported() {
    let script = r#"{"rules": [{"reply": {"fail": {"status": 429, "message": "slow"}}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.status, 429);
    assert_eq!(result.error()["type"], "rate_limit_error");
    assert_eq!(result.error()["message"], result.error()["display_message"]);
    assert_eq!(
        result.error()["display_message"],
        "The request was rate-limited by the AI model service. Please try again later."
    );
    assert_eq!(fixture.asked().len(), 3);
    let script = r#"{"rules": [{"times": 1, "reply": {"fail": {"status": 503, "message": "x"}}}, {"reply": {"say": "Back."}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    assert_eq!(fixture.send_text("x").await.text(), "Back.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_in_the_middle_keeps_its_text_and_reports_it() {
    let script =
        r#"{"rules": [{"reply": {"say": "Half of a long sentence", "piece": 4, "cut_after": 4}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let result = fixture.send_text("x").await;
    assert_eq!((result.status, result.done), (200, true));
    assert!(result.text().starts_with("Half"), "{result:?}");
    assert_eq!(
        result.error()["display_message"],
        "The AI model service failed while responding. Please try again later."
    );
    let is_ended = |chunk: &Value| chunk["choices"][0]["finish_reason"].is_string();
    assert!(!result.chunks.iter().any(is_ended), "{result:?}");
    assert_eq!(result.state(), json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_model_is_reported_as_unreachable() {
    let fixture = TurnFixture::with(&manifest(json!([])), r#"{"rules": []}"#, |config| {
        config.model_url = Some("http://127.0.0.1:1/v1".to_owned());
    })
    .await;
    let result = fixture.send_text("x").await;
    assert_eq!(result.status, 500);
    assert_eq!(
        result.error()["display_message"],
        "Could not connect to the AI model service. Please check connectivity or contact your administrator."
    );
}

const ENDLESS_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_never"}, "reply": {"say": "{result}"}},
    {"reply": {"call": [{"name": "shop_never", "arguments": {}}]}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn r_13_a_tool_that_hangs_is_given_up_at_the_limit_of_its_set() {
    let endpoint = FakeEndpoint::start().await;
    let mut set = rest(&endpoint.url(), &["never"]);
    set["timeout_seconds"] = json!(0.3);
    let fixture = TurnFixture::plain(&manifest(json!([set])), ENDLESS_SCRIPT).await;
    let result = fixture.send_text("x").await;
    assert!(
        result
            .text()
            .contains("The tool call `shop_never` timed out after"),
        "{}",
        result.text()
    );
    assert_eq!(result.stages()[0].2, "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_result_of_50_mb_is_refused_and_the_chat_continues() {
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_huge"}, "reply": {"say": "Too much."}},
        {"reply": {"call": [{"name": "shop_huge", "arguments": {}}]}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let fixture =
        TurnFixture::plain(&manifest(json!([rest(&endpoint.url(), &["huge"])])), script).await;
    let chat_result = fixture.send_text("x").await;
    assert!(chat_result.text().ends_with("Too much."));
    let result = fixture.asked()[1]["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert!(result["content"].as_str().unwrap().len() < 5000);
}

#[tokio::test(flavor = "multi_thread")]
async fn r_17_a_client_that_disconnects_stops_the_tool_and_the_model() {
    let endpoint = FakeEndpoint::start().await;
    let fixture = TurnFixture::plain(
        &manifest(json!([rest(&endpoint.url(), &["never"])])),
        ENDLESS_SCRIPT,
    )
    .await;
    let body =
        json!({"model": "agent", "messages": [{"role": "user", "content": "x"}], "stream": true});
    let request = fixture
        .client
        .post(&format!("{}/v1/chat/completions", fixture.url));
    let mut answer = request.json(&body).send(&|_| ()).await.unwrap();
    while let Some(piece) = answer.chunk().await.unwrap() {
        if String::from_utf8_lossy(&piece).contains("\"stages\"") {
            break;
        }
    }
    let open = || endpoint.open();
    eventually("the call", async || (open() == 1).then_some(())).await;
    drop(answer);
    eventually("its end", async || (open() == 0).then_some(())).await;
    assert_eq!(fixture.asked().len(), 1, "the model is not asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_services_are_reported_and_the_chat_continues() {
    // No service responds on the bus, so a reference in an argument cannot be resolved.
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "{result}"}},
        {"reply": {"call": [{"name": "shop_a", "arguments": {"q": "file:text::files/B/a.txt"}}]}}]}"#;
    let endpoint = FakeEndpoint::start().await;
    let fixture =
        TurnFixture::plain(&manifest(json!([rest(&endpoint.url(), &["a"])])), script).await;
    let chat_result = fixture.send_text("x").await;
    assert_eq!(chat_result.error(), Value::Null);
    assert!(
        chat_result.text().contains("try again later"),
        "{}",
        chat_result.text()
    );
    assert_eq!(chat_result.stages()[0].2, "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_ids_and_with_one_number_are_calls_of_their_own() {
    let endpoint = FakeEndpoint::start().await;
    let set = rest(&endpoint.url(), &["a", "b"]);
    let origins = vec![endpoint.url()];
    let dial = crate::dial::DialFixture::with_origins(&manifest(json!([set])), origins).await;
    let piece = |index: u32, id: &str, name: &str| {
        json!({"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": {"q": name}}})
    };
    let calls = [
        piece(0, "x", "shop_a"),
        piece(0, "y", "shop_b"),
        piece(300, "", "shop_a"),
        piece(301, "x", "shop_b"),
    ];
    dial.core.chat(
        "lead",
        vec![
            json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        ],
    );
    dial.core.chat("lead", crate::dial::text_chunks("Four."));
    let chat_result = dial.send_text("x").await;
    assert!(chat_result.text().ends_with("Four."), "{chat_result:?}");
    let rounds = crate::tools::rounds(&chat_result);
    let calls = rounds[0]["tool_calls"].as_array().unwrap();
    let ids: std::collections::BTreeSet<_> = calls
        .iter()
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        (calls.len(), ids.len(), rounds.len()),
        (4, 4, 5),
        "{rounds:?}"
    );
    assert!(!ids.contains(""));
    let results = rounds[1..]
        .iter()
        .map(|result| result["content"].as_str().unwrap());
    assert!(
        results
            .into_iter()
            .all(|result| result.contains("\"q\":\"shop_"))
    );
}

/// The ids of the calls of a turn with equal calls in two rounds, with this id from the model.
async fn ids_of_equal_calls(dial: &crate::dial::DialFixture, id: &str) -> (String, String) {
    let call = json!({"index": 0, "id": id, "type": "function",
        "function": {"name": "shop_a", "arguments": "{\"q\": \"1\"}"}});
    for _ in 0..2 {
        dial.core.chat(
            "lead",
            vec![
                json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            ],
        );
    }
    dial.core.chat("lead", crate::dial::text_chunks("Done."));
    let rounds = crate::tools::rounds(&dial.send_text("x").await);
    let id_of = |round: usize| {
        let id = &rounds[round]["tool_calls"][0]["id"];
        assert_eq!(&rounds[round + 1]["tool_call_id"], id, "{rounds:?}");
        id.as_str().unwrap().to_owned()
    };
    (id_of(0), id_of(2))
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_calls_of_two_rounds_have_different_ids_which_a_repeated_turn_has_again() {
    let endpoint = FakeEndpoint::start().await;
    let set = rest(&endpoint.url(), &["a"]);
    let origins = vec![endpoint.url()];
    let dial = crate::dial::DialFixture::with_origins(&manifest(json!([set])), origins).await;
    for id in ["", "call_0"] {
        let ids = ids_of_equal_calls(&dial, id).await;
        assert!(!ids.0.is_empty() && !ids.1.is_empty());
        assert_ne!(ids.0, ids.1, "{id}");
        if !id.is_empty() {
            assert_eq!(ids.0, id);
        }
        assert_eq!(ids_of_equal_calls(&dial, id).await, ids);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_parts_have_different_ids_is_one_call() {
    let endpoint = FakeEndpoint::start().await;
    let set = rest(&endpoint.url(), &["a"]);
    let origins = vec![endpoint.url()];
    let dial = crate::dial::DialFixture::with_origins(&manifest(json!([set])), origins).await;
    let chunk = |call: Value| json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
    let first =
        json!({"index": 0, "id": "x", "function": {"name": "shop_a", "arguments": "{\"q\": "}});
    let second = json!({"index": 0, "id": "y", "function": {"arguments": "\"1\"}"}});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    dial.core
        .chat("lead", vec![chunk(first), chunk(second), end]);
    dial.core.chat("lead", crate::dial::text_chunks("One."));
    let chat_result = dial.send_text("x").await;
    assert!(chat_result.text().ends_with("One."), "{chat_result:?}");
    let rounds = crate::tools::rounds(&chat_result);
    let calls = rounds[0]["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), rounds.len()), (1, 2), "{rounds:?}");
    assert_eq!(calls[0]["id"], "x");
    assert_eq!(calls[0]["function"]["arguments"], "{\"q\": \"1\"}");
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_numbers_of_tokens_do_not_end_later_turns() {
    let huge = u64::MAX / 2 + 1;
    let script = json!({"rules": [{"reply": {"say": "Hi.", "usage": {"prompt": huge, "completion": huge}}}]});
    let fixture = TurnFixture::plain(&manifest(json!([])), &script.to_string()).await;
    // The sums of such numbers must not end the second turn.
    for _ in 0..3 {
        let (status, answer) = fixture
            .whole(json!({"messages": [{"role": "user", "content": "x"}]}))
            .await;
        assert_eq!((status, &answer["usage"]), (200, &Value::Null), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_never_ends_is_stopped() {
    let dial = crate::dial::DialFixture::new(&manifest(json!([]))).await;
    let much = "y".repeat(4 << 20);
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": much}}]});
    dial.core.chat(
        "lead",
        vec![
            chunk.clone(),
            chunk.clone(),
            chunk.clone(),
            chunk.clone(),
            chunk,
        ],
    );
    let result = dial.send_text("x").await;
    assert_eq!(
        result.error()["message"],
        "The AI model's answer was too long, or asked for too many tools in one step."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_chats_are_all_answered() {
    let script = r#"{"rules": [{"reply": {"say": "Hello.", "piece": 1}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([])), script).await;
    let all = (0..200).map(|number| {
        let fixture = &fixture;
        async move { fixture.send_text(&number.to_string()).await }
    });
    let all = futures_util::future::join_all(all).await;
    assert!(
        all.iter()
            .all(|seen| seen.status == 200 && seen.text() == "Hello.")
    );
}
