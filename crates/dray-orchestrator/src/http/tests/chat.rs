//! Tests of chats over HTTP with a scripted agent.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderValue};
use dray_agent::event::{Event, StageStatus};
use dray_agent::failure::RequestFailure;
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::scripted::{ScriptedStep, TestSurface, ask, events, read, text_step};

fn open() -> ScriptedStep {
    ScriptedStep::Send(Event::StageOpened {
        stage: 0,
        name: Some("Call".to_owned()),
    })
}

fn state() -> ScriptedStep {
    ScriptedStep::Send(Event::State(json!({})))
}

fn failure() -> RequestFailure {
    RequestFailure::new(429, "slow down").display("Please try again later.")
}

#[tokio::test]
async fn a_stream_is_start_events_end_and_done() {
    let fixture = TestSurface::start(vec![open(), text_step("Hé"), state()]).await;
    let answer = fixture.chat(&ask(true)).await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let events = events(answer).await;
    let id = events[0]["id"].clone();
    assert!(
        events
            .iter()
            .all(|event| event["id"] == id && event["created"] == 1_700_000_000)
    );
    assert!(events.iter().all(|event| event.get("model").is_none()));
    let choices: Vec<_> = events
        .iter()
        .map(|event| event["choices"][0].clone())
        .collect();
    let delta = |delta: Value| json!({"index": 0, "finish_reason": null, "delta": delta});
    assert_eq!(
        choices,
        [
            delta(json!({"role": "assistant"})),
            delta(
                json!({"custom_content": {"stages": [{"index": 0, "name": "Call", "status": null}]}})
            ),
            delta(json!({"content": "Hé"})),
            delta(json!({"custom_content": {"state": {}}})),
            delta(json!({"custom_content": {"stages": [{"index": 0, "status": "completed"}]}})),
            json!({"index": 0, "finish_reason": "stop", "delta": {}}),
        ]
    );
}

#[tokio::test]
async fn a_whole_answer_comes_as_one_message() {
    let close = ScriptedStep::Send(Event::StageClosed {
        stage: 0,
        status: StageStatus::Completed,
    });
    let fixture =
        TestSurface::start(vec![open(), text_step("a"), text_step("b"), close, state()]).await;
    let (status, answer) = read(fixture.chat(&ask(false)).await).await;
    assert_eq!(
        (status, &answer["object"]),
        (200, &json!("chat.completion"))
    );
    assert_eq!(
        answer["choices"],
        json!([{"index": 0, "finish_reason": "stop", "message": {
            "role": "assistant",
            "custom_content": {"stages": [{"name": "Call", "status": "completed"}], "state": {}},
            "content": "ab",
        }}])
    );
}

#[tokio::test]
async fn an_answer_without_events_is_still_an_answer() {
    let fixture = TestSurface::start(Vec::new()).await;
    let events = events(fixture.chat(&ask(true)).await).await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_failure_before_anything_is_shown_has_a_status() {
    // The state is not visible to the user, so it does not open the stream.
    for script in [vec![], vec![state()]] {
        let script = script
            .into_iter()
            .chain([ScriptedStep::Fail(failure())])
            .collect();
        let fixture = TestSurface::start(script).await;
        for stream in [true, false] {
            let (status, body) = read(fixture.chat(&ask(stream)).await).await;
            assert_eq!((status, &body), (429, &failure().body()));
        }
    }
}

#[tokio::test]
async fn a_failure_after_the_first_event_ends_the_stream_with_an_error() {
    let fixture = TestSurface::start(vec![
        open(),
        text_step("par"),
        state(),
        ScriptedStep::Fail(failure()),
    ])
    .await;
    let answer = fixture.chat(&ask(true)).await;
    assert_eq!(answer.status(), 200);
    let events = events(answer).await;
    let tail = &events[events.len() - 4..];
    assert_eq!(
        tail[0]["choices"][0]["delta"]["custom_content"]["state"],
        json!({})
    );
    // R12: a stage that was still open counts as failed.
    assert_eq!(
        tail[1]["choices"][0]["delta"]["custom_content"]["stages"],
        json!([{"index": 0, "status": "failed"}])
    );
    assert_eq!(tail[2]["choices"][0]["finish_reason"], "stop");
    assert_eq!(tail[3], failure().body());
    let (status, body) = read(fixture.chat(&ask(false)).await).await;
    assert_eq!((status, body), (429, failure().body()));
}

#[tokio::test]
async fn a_panic_is_an_unexpected_failure() {
    let fixture = TestSurface::start(vec![ScriptedStep::Panic]).await;
    let (status, body) = read(fixture.chat(&ask(true)).await).await;
    assert_eq!((status, body), (500, RequestFailure::unexpected().body()));
    let fixture = TestSurface::start(vec![text_step("a"), ScriptedStep::Panic]).await;
    let events = events(fixture.chat(&ask(true)).await).await;
    assert_eq!(events.last(), Some(&RequestFailure::unexpected().body()));
}

#[tokio::test]
async fn r_17_work_ends_when_the_client_leaves_before_the_first_event() {
    let fixture = TestSurface::start(vec![ScriptedStep::Hang]).await;
    for stream in [true, false] {
        let body = ask(stream);
        let asking = fixture.chat(&body);
        tokio::select! {
            _ = asking => panic!("the request must wait"),
            () = fixture.working(1) => {}
        }
        fixture.working(0).await;
    }
}

#[tokio::test]
async fn r_17_work_ends_when_the_client_leaves_the_stream() {
    let fixture = TestSurface::start(vec![text_step("a"), ScriptedStep::Hang]).await;
    let mut answer = fixture.chat(&ask(true)).await;
    answer.chunk().await.unwrap().unwrap();
    assert_eq!(fixture.agent.working.load(Ordering::SeqCst), 1);
    drop(answer);
    fixture.working(0).await;
}

#[tokio::test]
async fn a_slow_client_makes_the_agent_wait() {
    const CHUNK_COUNT: usize = 4000;
    let fixture = TestSurface::start(vec![ScriptedStep::Flood(CHUNK_COUNT, 64 << 10)]).await;
    let mut socket = TcpStream::connect_to(fixture.address).await;
    let body = ask(true).to_string();
    let head = format!(
        "POST /openai/deployments/quick_apps2/chat/completions HTTP/1.1\r\nHost: localhost\r\nApi-Key: k\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 16];
    socket.read_exact(&mut first).await.unwrap();
    // The agent stops long before its end, because the client does not read the response.
    let (mut before, mut same) = (0, 0);
    eventually("the agent waits", async || {
        let sent = fixture.agent.sent.load(Ordering::SeqCst);
        same = if sent == before { same + 1 } else { 0 };
        before = sent;
        (same == 30).then_some(())
    })
    .await;
    assert!(
        (1..CHUNK_COUNT / 2).contains(&before),
        "{before} pieces went out"
    );
    drop(socket);
    fixture.working(0).await;
}

trait ConnectTo {
    async fn connect_to(address: std::net::SocketAddr) -> TcpStream;
}

impl ConnectTo for TcpStream {
    #[expect(
        clippy::disallowed_methods,
        reason = "a client of the test's own surface"
    )]
    async fn connect_to(address: std::net::SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.unwrap()
    }
}

#[tokio::test]
async fn r_7_chats_beyond_the_limit_wait_and_are_refused_in_the_end() {
    let fixture = TestSurface::with(vec![text_step("a"), ScriptedStep::Hang], |options| {
        options.max_chats = 1;
        options.chat_wait = std::time::Duration::from_millis(1);
    })
    .await;
    let running = fixture.chat(&ask(true)).await;
    let refused = fixture.chat(&ask(true)).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let (status, body) = read(refused).await;
    assert_eq!(
        (status, &body["error"]["message"]),
        (503, &json!("Too many concurrent chats"))
    );
    drop(running);
    fixture.working(0).await;
}

#[tokio::test]
async fn running_chats_hold_the_memory_of_their_bodies_and_further_ones_are_refused() {
    let fixture = TestSurface::with(vec![text_step("a"), ScriptedStep::Hang], |options| {
        options.max_body_total = dray_types::ByteSize::kib(64);
        options.chat_wait = std::time::Duration::from_millis(1);
    })
    .await;
    let large = json!({"stream": true, "messages": [
        {"role": "user", "content": "x".repeat(40_000)},
    ]});
    let running = fixture.chat(&large).await;
    assert_eq!(running.status(), 200);
    let refused = fixture.chat(&large).await;
    assert_eq!(refused.header("retry-after"), Some("1"));
    let (status, body) = read(refused).await;
    assert_eq!(
        (status, &body["error"]["message"]),
        (503, &json!("Too many bytes in concurrent requests"))
    );
    let small = fixture.chat(&ask(true)).await;
    assert_eq!(small.status(), 200);
    drop((running, small));
    fixture.working(0).await;
    let next = fixture.chat(&large).await;
    assert_eq!(next.status(), 200);
}

#[tokio::test]
async fn a_body_that_waited_for_memory_is_read_while_others_wait_for_the_rest() {
    let fixture = TestSurface::with(Vec::new(), |options| {
        options.max_body_total = dray_types::ByteSize::kib(64);
    })
    .await;
    let (surface, wait) = (&fixture.surface, std::time::Duration::from_mins(1));
    let total = surface.body_memory.max_bytes();
    let running = surface.body_memory.acquire(total, wait).await.unwrap();
    let text = ask(true).to_string();
    let length = HeaderValue::from(text.len());
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, length)]);
    let limit = surface.options.max_body;
    let mut reading = Box::pin(surface.read_json(&headers, Body::from(text), limit));
    assert!(reading.as_mut().now_or_never().is_none());
    let mut next = Box::pin(surface.body_memory.acquire(total, wait));
    assert!(next.as_mut().now_or_never().is_none());
    drop(running);
    let (body, _memory) = reading.await.unwrap();
    assert_eq!(body, ask(true));
}

#[tokio::test]
async fn a_body_whose_values_need_more_memory_than_all_bodies_may_is_refused() {
    let fixture = TestSurface::with(vec![text_step("a")], |options| {
        options.max_body_total = dray_types::ByteSize::kib(64);
    })
    .await;
    let mut body = ask(false);
    body["metadata"] = json!(vec![0; 1_000]);
    let (status, answer) = read(fixture.chat(&body).await).await;
    assert_eq!(status, 413, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("too many JSON values"), "{message}");
}

#[tokio::test]
async fn the_end_of_the_service_ends_chats_after_their_time() {
    let mut fixture = TestSurface::start(vec![text_step("a"), ScriptedStep::Hang]).await;
    let mut answer = fixture.chat(&ask(true)).await;
    answer.chunk().await.unwrap().unwrap();
    fixture.stop.cancel();
    fixture.serving.join_next().await.unwrap().unwrap();
    fixture.working(0).await;
    assert!(answer.chunk().await.is_err());
}
