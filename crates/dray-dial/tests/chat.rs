//! Tests of chat completions with the fake server, faults included.

#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::event::TokenUsage;
use dray_dial::chat::{ChatClient, ChatError, ChatKind, ChunkDelta, StageEnd};
use dray_dial::{DialClient, DialOptions};
use dray_http::HttpTimeouts;
use dray_testkit::dial::{ApiFault, DialCore};
use dray_types::Secret;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CHAT_PATH: &str = "/openai/deployments/gpt/chat/completions";

async fn start() -> (DialCore, ChatClient, Caller) {
    start_with(HttpTimeouts::default()).await
}

async fn start_with(timeouts: HttpTimeouts) -> (DialCore, ChatClient, Caller) {
    let fake_server = DialCore::start().await.unwrap();
    fake_server.add_key("k", "b");
    let mut options = DialOptions::new(fake_server.url(), "2025-01-01");
    options.backoff = Duration::from_millis(1);
    options.chat = timeouts;
    let chat = DialClient::new(options).unwrap().chat();
    let caller = Caller {
        api_key: Some(Secret::new("k")),
        forwarded: vec![
            ("x-a".to_owned(), "1".to_owned()),
            ("x-b".to_owned(), "2".to_owned()),
        ],
        ..Caller::default()
    };
    (fake_server, chat, caller)
}

async fn all(chat: &ChatClient, caller: &Caller) -> (Vec<ChunkDelta>, Option<ChatError>) {
    let mut deltas = Vec::new();
    let mut stream = match chat.stream(caller, "gpt", json!({"stream": true})).await {
        Ok(stream) => stream,
        Err(error) => return (deltas, Some(error)),
    };
    loop {
        match stream.next().await {
            Ok(Some(delta)) => deltas.push(delta),
            Ok(None) => return (deltas, None),
            Err(error) => {
                assert_eq!(stream.next().await.unwrap(), None);
                return (deltas, Some(error));
            }
        }
    }
}

#[tokio::test]
async fn every_part_of_a_chunk_arrives() {
    let (fake_server, chat, caller) = start().await;
    fake_server.chat("gpt", vec![
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]}),
        json!({"choices": [{"index": 0, "delta": {"custom_content": {
            "attachments": [{"index": 0, "title": "t", "url": "files/b/a"}],
            "stages": [{"index": 3, "name": "n", "content": "c", "status": null}, {"index": 4, "status": "failed"}],
            "state": {"x": 1},
        }}}]}),
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 1, "id": "i", "function": {"name": "f", "arguments": "{"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 2, "completion_tokens": 3},
            "statistics": {"usage_per_model": [{"index": 0, "model": "m", "prompt_tokens": 1}]}}),
    ]);
    let (deltas, error) = all(&chat, &caller).await;
    assert!(error.is_none());
    assert_eq!(deltas[0].content.as_deref(), Some("Hi"));
    let attachment = &deltas[1].attachments[0];
    assert_eq!(
        (attachment.title.as_deref(), attachment.rest.len()),
        (Some("t"), 0)
    );
    assert_eq!(
        (deltas[1].stages[0].index, deltas[1].stages[0].status),
        (3, None)
    );
    assert_eq!(
        (deltas[1].stages[1].index, deltas[1].stages[1].status),
        (4, Some(StageEnd::Failed))
    );
    assert_eq!(deltas[1].state, Some(json!({"x": 1})));
    let call = &deltas[2].tool_calls[0];
    assert_eq!(
        (call.index, call.id.as_deref(), call.arguments.as_deref()),
        (1, Some("i"), Some("{"))
    );
    assert_eq!(
        deltas[3].usage,
        Some(TokenUsage {
            prompt: 2,
            completion: 3,
            ..TokenUsage::default()
        })
    );
    assert_eq!(deltas[3].statistics[0].model, "m");
    assert_eq!(deltas[3].finish_reason.as_deref(), Some("stop"));
    let requests = fake_server.received_requests();
    assert_eq!(
        requests[0].target,
        format!("{CHAT_PATH}?api-version=2025-01-01")
    );
    assert_eq!(
        (
            requests[0].header("api-key"),
            requests[0].header("x-a"),
            requests[0].header("x-b")
        ),
        ("k", "1", "2")
    );
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn a_stream_ends_completely_or_with_an_error() {
    let (fake_server, chat, caller) = start().await;
    let hi = r#"data: {"choices":[{"delta":{"content":"Hi"}}]}"#;
    let end = r#"data: {"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let error = r#"data: {"error":{"message":"no","code":"429","display_message":" Later. "}}"#;
    let filter = r#"data: {"error":{"message":"no","code":"content_filter"}}"#;
    let typed = r#"data: {"error":{"message":"no","type":"rate_limit_error"}}"#;
    let whole = r#" {"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    for (trouble, pieces, kind) in [
        (
            ApiFault::Body(format!("{hi}\r\n\r\n: c\r\n\r\n{end}\r\n\r\n")),
            2,
            None,
        ),
        (ApiFault::Body(format!("{hi}\n\n{end}")), 2, None),
        (ApiFault::Body(whole.to_owned()), 1, None),
        (ApiFault::Cut(format!("{hi}\n\n{end}\n\n")), 2, None),
        (
            ApiFault::Body(format!("{hi}\n\n")),
            1,
            Some(ChatKind::Broken),
        ),
        (ApiFault::Body(String::new()), 0, Some(ChatKind::Broken)),
        (
            ApiFault::Cut(format!("{hi}\n\ndata: {{")),
            1,
            Some(ChatKind::Broken),
        ),
        (
            ApiFault::Body(format!("{hi}\n\n{error}\n\n{hi}\n\n")),
            1,
            Some(ChatKind::Status(429)),
        ),
        (
            ApiFault::Body(format!("{typed}\n\n")),
            0,
            Some(ChatKind::Status(429)),
        ),
        (
            ApiFault::Body(format!("{hi}\n\n{filter}\n\n")),
            1,
            Some(ChatKind::Broken),
        ),
        (
            ApiFault::Body(format!("{hi}\n\ndata: oops\n\n")),
            1,
            Some(ChatKind::Malformed),
        ),
        (
            ApiFault::Body(format!("data: {}", "a".repeat(33 << 20))),
            0,
            Some(ChatKind::Malformed),
        ),
    ] {
        fake_server.inject_fault(CHAT_PATH, Some(trouble.clone()));
        let (deltas, error) = all(&chat, &caller).await;
        let shown: String = format!("{trouble:?}").chars().take(200).collect();
        assert_eq!(
            (deltas.len(), error.map(|error| error.kind)),
            (pieces, kind),
            "{shown}"
        );
    }
    fake_server.inject_fault(CHAT_PATH, Some(ApiFault::Body(format!("{error}\n\n"))));
    assert_eq!(
        all(&chat, &caller)
            .await
            .1
            .unwrap()
            .display_message
            .as_deref(),
        Some("Later.")
    );
}

#[tokio::test]
async fn a_stream_that_stalls_ends_with_a_timeout() {
    let (fake_server, chat, caller) = start_with(HttpTimeouts {
        // Long enough that the first event arrives in time on a busy machine.
        idle: Duration::from_secs(3),
        response: Duration::from_secs(3),
        ..HttpTimeouts::default()
    })
    .await;
    let hi = r#"data: {"choices":[{"delta":{"content":"Hi"}}]}"#;
    for (fault, pieces) in [
        (ApiFault::Stalled(format!("{hi}\n\n")), 1),
        (ApiFault::Silent, 0),
    ] {
        fake_server.inject_fault(CHAT_PATH, Some(fault.clone()));
        let (deltas, error) = all(&chat, &caller).await;
        let kind = error.map(|error| error.kind);
        let expected = (pieces, Some(ChatKind::Timeout));
        assert_eq!((deltas.len(), kind), expected, "{fault:?}");
    }
}

/// Responses with the status 200 that contain no answer, and the message of each failure.
#[tokio::test]
async fn a_failure_with_the_status_of_success_is_a_failure_with_its_message() {
    let (fake_server, chat, caller) = start().await;
    let hi = r#"data: {"choices":[{"delta":{"content":"Hi"}}]}"#;
    let done = "data: [DONE]";
    let old_form =
        r#"{"object":"error","message":"no memory","type":"BadRequestError","code":400}"#;
    let no_choice = (ChatKind::Broken, "the response has no choice");
    let text = (ChatKind::Broken, "no memory");
    for (body, pieces, expected) in [
        (r#"{"error":"no memory"}"#.to_owned(), 0, text),
        (r#"data: {"error":"no memory"}"#.to_owned(), 0, text),
        (
            format!("{hi}\n\ndata: {{\"error\":\"no memory\"}}\n\n{done}"),
            1,
            text,
        ),
        (old_form.to_owned(), 0, (ChatKind::Status(400), "no memory")),
        (
            format!("{hi}\n\ndata: {old_form}"),
            1,
            (ChatKind::Status(400), "no memory"),
        ),
        (r#"{"detail":"no memory"}"#.to_owned(), 0, text),
        (
            r#"{"detail":[{"loc":["body"]}]}"#.to_owned(),
            0,
            (ChatKind::Broken, "an error without a message"),
        ),
        (r#"{"id":"x","choices":[]}"#.to_owned(), 0, no_choice),
        (r#"{"id":"x","choices":null}"#.to_owned(), 0, no_choice),
        ("{}".to_owned(), 0, no_choice),
        (format!("{done}\n\n"), 0, no_choice),
        (done.to_owned(), 0, no_choice),
        (
            format!("data: {{\"choices\":[]}}\n\n{done}\n\n"),
            1,
            no_choice,
        ),
    ] {
        fake_server.inject_fault(CHAT_PATH, Some(ApiFault::Body(body.clone())));
        let (deltas, error) = all(&chat, &caller).await;
        let error = error.unwrap_or_else(|| panic!("an answer: {body}"));
        let seen = (deltas.len(), error.kind, error.message.as_str());
        assert_eq!(seen, (pieces, expected.0, expected.1), "{body}");
    }
    // A chunk without choices is part of many answers, and one with an empty choice is an answer.
    let azure = format!(
        "data: {{\"choices\":[]}}\n\ndata: {{\"choices\":[{{\"delta\":{{}}}}]}}\n\n{done}\n\n"
    );
    fake_server.inject_fault(CHAT_PATH, Some(ApiFault::Body(azure)));
    let (deltas, error) = all(&chat, &caller).await;
    assert_eq!((deltas.len(), error.map(|error| error.kind)), (2, None));
}

#[tokio::test]
async fn a_busy_model_is_asked_three_times_and_a_refusing_one_once() {
    let (fake_server, chat, caller) = start().await;
    for (status, asked) in [(429, 3), (500, 3), (400, 1), (401, 1), (403, 1), (404, 1)] {
        let before = fake_server.received_requests().len();
        fake_server.inject_fault(CHAT_PATH, Some(ApiFault::Status(status)));
        let (_, error) = all(&chat, &caller).await;
        assert_eq!(error.unwrap().status(), Some(status));
        assert_eq!(
            fake_server.received_requests().len() - before,
            asked,
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_model_that_is_gone_is_a_failed_connection() {
    let url = format!("http://{}", dray_testkit::port::unassigned_address());
    let mut options = DialOptions::new(url, "2025-01-01");
    options.backoff = Duration::from_millis(1);
    let chat = DialClient::new(options).unwrap().chat();
    let caller = Caller::default();
    assert_eq!(all(&chat, &caller).await.1.unwrap().kind, ChatKind::Connect);
}

#[tokio::test]
async fn r_2_another_model_gets_its_own_key_and_nothing_of_the_caller() {
    let (fake_server, _, caller) = start().await;
    let base = format!("{}/v1/", fake_server.url());
    let wait = Duration::from_millis(1);
    let chat = ChatClient::open(
        &base,
        Some(Secret::new("own")),
        HttpTimeouts::default(),
        None,
        wait,
    )
    .unwrap();
    assert_eq!(all(&chat, &caller).await.1.unwrap().status(), Some(401));
    let requests = fake_server.received_requests();
    assert_eq!(requests[0].target, "/v1/chat/completions");
    assert_eq!(
        (
            requests[0].header("authorization"),
            requests[0].header("api-key"),
            requests[0].header("x-a")
        ),
        ("Bearer own", "", "")
    );
}

#[tokio::test]
async fn only_named_headers_go_along_when_they_are_named() {
    let (fake_server, chat, caller) = start().await;
    fake_server.chat(
        "a b",
        vec![json!({"choices": [{"delta": {}, "finish_reason": "stop"}]})],
    );
    let named = ["X-B".to_owned()];
    chat.stream_with(&caller, Some(&named), "a%20b", json!({}))
        .await
        .unwrap();
    let requests = fake_server.received_requests();
    assert_eq!(
        (requests[0].header("x-a"), requests[0].header("x-b")),
        ("", "2")
    );
    let refused = chat.stream(&caller, "../x", json!({})).await.unwrap_err();
    assert_eq!(
        (refused.status(), fake_server.received_requests().len()),
        (Some(404), 1)
    );
}

/// The head of a response in chunks, and all of its events.
const DONE_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
    26\r\ndata: {\"choices\":[{}]}\n\ndata: [DONE]\n\n\r\n";

/// The failure of a call whose service responds with these bytes.
async fn refusal(response: String) -> ChatError {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let mut servers = JoinSet::new();
    servers.spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"{}") {
            let count = connection.read_buf(&mut received).await.unwrap();
            assert!(count > 0, "the client ended its request early");
        }
        connection.write_all(response.as_bytes()).await.unwrap();
    });
    let limits = HttpTimeouts::default();
    let chat = ChatClient::open(&base, None, limits, None, Duration::from_millis(1)).unwrap();
    let refused = chat.once().stream(&Caller::default(), "m", json!({})).await;
    servers.join_next().await.unwrap().unwrap();
    refused.unwrap_err()
}

#[tokio::test]
async fn the_delay_of_a_busy_service_counts_from_its_own_clock_where_it_is_a_date() {
    const RESPONSE_DATE: &str = "Sat, 21 Nov 2026 10:00:00 GMT";
    for (date, delay, expected) in [
        (RESPONSE_DATE, "7", Some(7)),
        (RESPONSE_DATE, "Sat, 21 Nov 2026 10:00:30 GMT", Some(30)),
        (RESPONSE_DATE, "Sat, 21 Nov 2026 09:00:00 GMT", Some(0)),
        ("", "Sat, 21 Nov 2026 10:00:30 GMT", None),
        (RESPONSE_DATE, "soon", None),
    ] {
        let response = format!(
            "HTTP/1.1 429 Busy\r\ndate: {date}\r\nretry-after: {delay}\r\ncontent-length: 0\r\n\r\n"
        );
        let refused = refusal(response).await;
        assert_eq!(refused.kind, ChatKind::Status(429));
        let expected = expected.map(Duration::from_secs);
        assert_eq!(refused.retry_after, expected, "{date} {delay}");
    }
}

#[tokio::test]
async fn the_delay_in_milliseconds_counts_before_the_one_in_seconds() {
    for (headers, expected) in [
        ("retry-after-ms: 65000", Some(65_000)),
        ("retry-after-ms: 1500.5\r\nretry-after: 2", Some(1_500)),
        ("retry-after-ms: 0\r\nretry-after: 2", Some(2_000)),
        ("retry-after-ms: 1e300", Some(604_800_000)),
        ("retry-after-ms: -1\r\nretry-after: 2", Some(2_000)),
        ("retry-after-ms: NaN", None),
        ("retry-after-ms: soon", None),
    ] {
        let response = format!("HTTP/1.1 429 Busy\r\n{headers}\r\ncontent-length: 0\r\n\r\n");
        let delay = refusal(response).await.retry_after;
        assert_eq!(delay.map(|delay| delay.as_millis()), expected, "{headers}");
    }
}

#[tokio::test]
async fn the_message_of_a_refusal_is_found_in_the_forms_of_several_services() {
    for body in [
        json!({"detail": "the prompt is too long"}),
        // Gemini's API has its errors in a list.
        json!([{"error": {"code": 400, "message": "the prompt is too long"}}]),
    ] {
        let body = body.to_string();
        let length = body.len();
        let response = format!("HTTP/1.1 400 Bad\r\ncontent-length: {length}\r\n\r\n{body}");
        assert_eq!(refusal(response).await.message, "the prompt is too long");
    }
}

/// Answers the requests of one connection. Ends each body once the client has all events.
async fn serve_held_ends(listener: TcpListener, has_events: Arc<Notify>) {
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    while connection.read_buf(&mut received).await.unwrap_or(0) > 0 {
        if received.ends_with(b"{}") {
            received.clear();
            connection.write_all(DONE_RESPONSE).await.unwrap();
            has_events.notified().await;
            connection.write_all(b"0\r\n\r\n").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_response_that_its_service_keeps_open_delays_no_call_and_leaves_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let has_events = Arc::new(Notify::new());
    let mut servers = JoinSet::new();
    servers.spawn(serve_held_ends(listener, Arc::clone(&has_events)));
    let limits = HttpTimeouts::default();
    let chat = ChatClient::open(&base, None, limits, None, Duration::from_millis(1)).unwrap();
    // No second connection is accepted, so the second call ends only on that of the first.
    for _ in 0..2 {
        let answer = chat.stream(&Caller::default(), "m", json!({})).await;
        // The end of the body comes after this.
        let mut answer = answer.unwrap();
        assert_eq!(answer.next().await.unwrap(), Some(ChunkDelta::default()));
        assert_eq!(answer.next().await.unwrap(), None);
        has_events.notify_one();
        // The connection returns to its pool in a task of the client.
        for _ in 0..65_536 {
            tokio::task::yield_now().await;
        }
    }
}
