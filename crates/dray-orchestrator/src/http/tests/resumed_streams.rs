//! Tests of resumed streams of responses in the background, and of the removal of their events.

use std::sync::Arc;
use std::time::Duration;

use dray_testkit::eventually;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::responses::{RESPONSES_PATH, get, in_background, post, replica, request, start, until};
use super::scripted::{ScriptedStep, TestSurface, keys, text_step};
use crate::http::responses::KnownRuns;

/// Longest wait for a stream that is not woken.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The events of a stream until it ends, or until one of this type.
pub(super) async fn events(
    fixture: &TestSurface,
    path: &str,
    body: Option<&Value>,
    last: &str,
) -> Vec<Value> {
    let method = if body.is_some() {
        Method::POST
    } else {
        Method::GET
    };
    let mut request = fixture
        .request(method, path)
        .header("authorization", "Bearer one");
    if let Some(body) = body {
        request = request.json(body);
    }
    let mut response = request.send(&|_| ()).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        if text.contains(&format!("event: {last}\n")) && text.ends_with("\n\n") {
            break;
        }
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let kind = events.last().and_then(|event| event["type"].as_str());
    let is_whole = matches!(kind, Some("response.completed" | "response.failed"));
    if is_whole && last == "none" {
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    events
}

fn numbers(events: &[Value]) -> Vec<u64> {
    let number = |event: &Value| event["sequence_number"].as_u64().unwrap();
    events.iter().map(number).collect()
}

async fn other_replica(fixture: &TestSurface) -> TestSurface {
    let change = |options: &mut crate::http::SurfaceOptions| options.clients = keys(&["one"]);
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::clone(&fixture.shared);
    TestSurface::replica(Vec::new(), change, shared, directory).await
}

#[tokio::test]
async fn a_stream_is_resumed_after_any_event_at_any_replica_and_is_the_same() {
    let fixture = start(vec![text_step("Hel"), text_step("lo.")]).await;
    let body = request(&json!({"background": true, "stream": true}));
    let whole = events(&fixture, RESPONSES_PATH, Some(&body), "none").await;
    let id = whole[0]["response"]["id"].as_str().unwrap();
    assert_eq!(whole.last().unwrap()["type"], "response.completed");
    let other = other_replica(&fixture).await;
    for after in [None, Some(0), Some(3), Some(whole.len() - 1)] {
        let query = after.map_or(String::new(), |after| format!("&starting_after={after}"));
        let path = format!("{RESPONSES_PATH}/{id}?stream=true{query}");
        let resumed = events(&other, &path, None, "none").await;
        let first = after.map_or(0, |after| after + 1);
        assert_eq!(resumed, whole[first..], "{path}");
    }
}

#[tokio::test]
async fn a_client_that_lost_its_stream_gets_the_rest_while_the_response_is_made() {
    let fixture = start(vec![text_step("Hel"), ScriptedStep::Hang]).await;
    let body = request(&json!({"background": true, "stream": true}));
    let delta = "response.output_text.delta";
    let begun = events(&fixture, RESPONSES_PATH, Some(&body), delta).await;
    let id = begun[0]["response"]["id"].as_str().unwrap();
    let path = format!("{RESPONSES_PATH}/{id}");
    let other = other_replica(&fixture).await;
    let last = begun.last().unwrap()["sequence_number"].as_u64().unwrap();
    let rest_path = format!("{path}?stream=true&starting_after={last}");
    let rest = events(&other, &rest_path, None, "none");
    let cancelled = async {
        let (status, _) = post(&other, &format!("{path}/cancel"), &json!({})).await;
        assert_eq!(status, 200);
        until(&fixture, &path, "cancelled").await;
        // The process of the response notices the cancellation at the next renewal of its lease. A request to that
        // process makes it notice immediately.
        post(&fixture, &format!("{path}/cancel"), &json!({})).await;
    };
    let (rest, ()) = futures_util::future::join(rest, cancelled).await;
    assert!(numbers(&rest).first() > Some(&last), "{rest:?}");
    let end = rest.last().unwrap();
    assert_eq!(
        (&end["type"], &end["response"]["status"]),
        (&json!("response.failed"), &json!("cancelled"))
    );
}

#[tokio::test]
async fn a_resumed_stream_gets_what_its_own_process_records_before_the_next_interval() {
    let change = |options: &mut crate::http::SurfaceOptions| {
        options.clients = keys(&["one"]);
        options.poll_interval = Duration::from_hours(1);
    };
    let script = vec![text_step("Hel"), ScriptedStep::Hang];
    let fixture = TestSurface::with(script, change).await;
    let body = request(&json!({"background": true, "stream": true}));
    let delta = "response.output_text.delta";
    let begun = events(&fixture, RESPONSES_PATH, Some(&body), delta).await;
    let path = format!(
        "{RESPONSES_PATH}/{}",
        begun[0]["response"]["id"].as_str().unwrap()
    );
    let resumed = format!("{path}?stream=true");
    let cancelled = async {
        // The reader has all events that were recorded so far, and waits.
        let read = events(&fixture, &resumed, None, delta).await;
        assert!(!read.is_empty());
        post(&fixture, &format!("{path}/cancel"), &json!({})).await;
    };
    let whole = events(&fixture, &resumed, None, "none");
    let both = futures_util::future::join(whole, cancelled);
    let (whole, ()) = tokio::time::timeout(TEST_TIMEOUT, both).await.unwrap();
    assert_eq!(
        whole.last().unwrap()["type"],
        "response.failed",
        "{whole:?}"
    );
}

#[tokio::test]
async fn a_resumed_stream_gets_what_another_process_records_before_the_next_interval() {
    let permitted = Arc::new(Notify::new());
    let script = vec![
        text_step("Hel"),
        ScriptedStep::Wait(Arc::clone(&permitted)),
        text_step("lo."),
        ScriptedStep::Hang,
    ];
    let fixture = start(script).await;
    let change = |options: &mut crate::http::SurfaceOptions| {
        options.clients = keys(&["one"]);
        options.poll_interval = Duration::from_hours(1);
        options.heartbeat = Duration::from_hours(1);
    };
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::clone(&fixture.shared);
    let other = TestSurface::replica(Vec::new(), change, shared, directory).await;
    let body = request(&json!({"background": true, "stream": true}));
    let delta = "response.output_text.delta";
    let begun = events(&fixture, RESPONSES_PATH, Some(&body), delta).await;
    let id = begun[0]["response"]["id"].as_str().unwrap();
    let last = numbers(&begun).pop().unwrap();
    let path = format!("{RESPONSES_PATH}/{id}?stream=true&starting_after={last}");
    let rest = events(&other, &path, None, delta);
    // The second text is recorded later than it is sent, so the reader waits for it.
    let (rest, ()) = futures_util::future::join(tokio::time::timeout(TEST_TIMEOUT, rest), async {
        permitted.notify_one();
    })
    .await;
    let rest = rest.unwrap();
    assert_eq!(rest.last().unwrap()["delta"], "lo.", "{rest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_a_client_knows_is_known_after_a_kill() {
    let fixture = start(Vec::new()).await;
    let script = vec![text_step("Hel"), ScriptedStep::Hang];
    let (runtime, doomed) = replica(script, &fixture.shared);
    let body = request(&json!({"background": true, "stream": true}));
    let added = "response.output_item.added";
    let begun = events(&doomed, RESPONSES_PATH, Some(&body), added).await;
    runtime.shutdown_background();
    fixture.shared.clock.advance(Duration::from_secs(31));
    let id = begun[0]["response"]["id"].as_str().unwrap();
    let path = format!("{RESPONSES_PATH}/{id}?stream=true");
    let whole = events(&fixture, &path, None, "none").await;
    let item = |events: &[Value]| {
        let mut events = events.iter();
        let added = events.find(|event| event["type"] == added);
        added.map(|event| {
            (
                event["sequence_number"].clone(),
                event["item"]["id"].clone(),
            )
        })
    };
    assert!(item(&begun).is_some(), "{begun:?}");
    assert_eq!(item(&whole), item(&begun), "{whole:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_stream_of_a_killed_process_ends_with_its_failure() {
    let fixture = start(Vec::new()).await;
    let script = vec![text_step("Hel"), ScriptedStep::Hang];
    let (runtime, doomed) = replica(script, &fixture.shared);
    let body = request(&json!({"background": true, "stream": true}));
    let delta = "response.output_text.delta";
    let begun = events(&doomed, RESPONSES_PATH, Some(&body), delta).await;
    runtime.shutdown_background();
    fixture.shared.clock.advance(Duration::from_secs(31));
    let (id, last) = (begun[0]["response"]["id"].as_str(), numbers(&begun).pop());
    let (id, last) = (id.unwrap(), last.unwrap());
    let path = format!("{RESPONSES_PATH}/{id}?stream=true&starting_after={last}");
    let rest = events(&fixture, &path, None, "none").await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert!(numbers(&rest)[0] > last, "{rest:?}");
    assert_eq!(rest[0]["type"], "response.failed");
    let message = rest[0]["response"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("no tool was called again"), "{message}");
}

#[tokio::test]
async fn events_are_forgotten_an_hour_after_the_end_and_runs_immediately() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let body = request(&json!({"background": true, "stream": true}));
    let whole = events(&fixture, RESPONSES_PATH, Some(&body), "none").await;
    let id = whole[0]["response"]["id"].as_str().unwrap();
    let polled = in_background(&fixture).await;
    until(&fixture, &polled, "completed").await;
    let mut runs = KnownRuns::default();
    // The record of a run is deleted beside the end of its response.
    eventually("one run that is known", async || {
        runs.sweep(&fixture.surface).await;
        (runs.ids() == [id]).then_some(())
    })
    .await;
    let path = format!("{RESPONSES_PATH}/{id}");
    let stream = format!("{path}?stream=true");
    fixture.shared.clock.advance(Duration::from_secs(3_500));
    runs.sweep(&fixture.surface).await;
    assert_eq!(events(&fixture, &stream, None, "none").await, whole);
    fixture.shared.clock.advance(Duration::from_secs(101));
    runs.sweep(&fixture.surface).await;
    assert_eq!(runs.ids(), [""; 0]);
    let (status, gone) = get(&fixture, &stream).await;
    assert_eq!((status, &gone["error"]["param"]), (400, &json!("stream")));
    // The response itself is still there.
    assert_eq!(get(&fixture, &path).await.0, 200);
}
