//! Tests of responses that another replica takes over: their first process, clients that leave meanwhile, and requests
//! that only read.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use dray_testkit::eventually;
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::responses::{RESPONSES_PATH, get, in_background, post, replica, request, start};
use super::resumed_streams::events;
use super::scripted::{ScriptedStep, TestSurface, text_step};
use super::sweeps::{id_of, record, replica_that_hangs, set_checkpoint, status};
use crate::http::responses::get_response;
use crate::permissions::CallerIdentity;
use crate::progress::ResponseRun;
use crate::records::{FaultPlan, RecordFault, RecordKind};

/// A lease and a second.
const LEASE_ENDED_AFTER: Duration = Duration::from_secs(31);

fn faults(fixture: &TestSurface) -> &FaultPlan {
    fixture.surface.state.files.records().faults()
}

async fn takeovers(fixture: &TestSurface, path: &str) -> Value {
    let stored = record(fixture, path).await;
    let record: Value = serde_json::from_slice(&stored.value).unwrap();
    record["takeovers"].clone()
}

/// Polls a response whose lease has ended, until this replica has taken it over.
async fn take_over(fixture: &TestSurface, path: &str) {
    eventually("a takeover", async || {
        // The process of the response may renew the lease between the two.
        fixture.shared.clock.advance(LEASE_ENDED_AFTER);
        get(fixture, path).await;
        (takeovers(fixture, path).await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_process_that_still_runs_ends_its_turn_after_a_takeover() {
    let fixture = start(vec![ScriptedStep::Hang]).await;
    let other = replica_that_hangs(&fixture).await;
    let path = in_background(&other).await;
    other.working(1).await;
    set_checkpoint(&fixture, &path).await;
    take_over(&fixture, &path).await;
    fixture.working(1).await;
    other.working(0).await;
    fixture.working(1).await;
    assert_eq!(status(&fixture, &path).await, "in_progress");
}

#[tokio::test]
async fn a_process_that_was_replaced_cannot_remove_the_checkpoint() {
    let fixture = start(vec![ScriptedStep::Hang]).await;
    let other = replica_that_hangs(&fixture).await;
    let path = in_background(&other).await;
    other.working(1).await;
    set_checkpoint(&fixture, &path).await;
    take_over(&fixture, &path).await;
    let run = ResponseRun {
        id: id_of(&path).to_owned(),
        ..ResponseRun::default()
    };
    let principal = CallerIdentity::Client("owner-of-one".to_owned()).key();
    let progress = &other.surface.state.progress;
    let removed = progress.set(&principal, &run, None).await;
    assert_eq!(removed.unwrap_err().status, 409);
    let checkpoint = progress.checkpoint(&principal, &run.id).await.unwrap();
    assert_eq!(checkpoint.as_deref(), Some("token"));
}

#[tokio::test]
async fn a_process_without_the_bus_ends_its_turn_with_its_lease() {
    let fixture = start(Vec::new()).await;
    let other = replica_that_hangs(&fixture).await;
    in_background(&other).await;
    other.working(1).await;
    let lost = RecordFault::LoseRequest;
    faults(&other).add(RecordKind::Response, usize::MAX, lost);
    fixture.shared.clock.advance(LEASE_ENDED_AFTER);
    other.working(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_continues_when_the_client_leaves_meanwhile() {
    let fixture = start(vec![text_step("lo.")]).await;
    let (runtime, doomed) = replica(vec![text_step("Hel"), ScriptedStep::Hang], &fixture.shared);
    let body = request(&json!({"background": true, "stream": true}));
    let delta = "response.output_text.delta";
    let begun = events(&doomed, RESPONSES_PATH, Some(&body), delta).await;
    let id = begun[0]["response"]["id"].as_str().unwrap().to_owned();
    let path = format!("{RESPONSES_PATH}/{id}");
    runtime.shutdown_background();
    set_checkpoint(&fixture, &path).await;
    fixture.shared.clock.advance(LEASE_ENDED_AFTER);
    let permitted = Arc::new(Notify::new());
    let hold = RecordFault::Hold(Arc::clone(&permitted));
    faults(&fixture).add(RecordKind::ResponseEvents, 1, hold);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("Bearer one"));
    // The future of the request is dropped as it is when its connection breaks.
    let state = State(Arc::clone(&fixture.surface));
    let polled = get_response(state, Path(id), Uri::from_static("/"), headers);
    let taken = eventually("a takeover", async || {
        (takeovers(&fixture, &path).await == 1).then_some(())
    });
    tokio::select! {
        _ = polled => {}
        () = taken => {}
    }
    permitted.notify_one();
    eventually("the turn", async || {
        (fixture.agent.asked.lock().await.len() == 1).then_some(())
    })
    .await;
    eventually("the end", async || {
        (status(&fixture, &path).await == "completed").then_some(())
    })
    .await;
    assert_eq!(takeovers(&fixture, &path).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_only_read_leave_an_abandoned_response_to_a_poll() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (runtime, doomed) = replica(vec![ScriptedStep::Hang], &fixture.shared);
    let path = in_background(&doomed).await;
    doomed.working(1).await;
    runtime.shutdown_background();
    set_checkpoint(&fixture, &path).await;
    fixture.shared.clock.advance(LEASE_ENDED_AFTER);
    let (status_code, items) = get(&fixture, &format!("{path}/input_items")).await;
    assert_eq!(status_code, 200, "{items}");
    assert_eq!(status(&fixture, &path).await, "in_progress");
    let id = id_of(&path);
    let next = request(&json!({"previous_response_id": id}));
    let (status_code, refused) = post(&fixture, RESPONSES_PATH, &next).await;
    assert_eq!(status_code, 400, "{refused}");
    let item = format!("msg_{}0001", id.strip_prefix("resp_").unwrap());
    let input = json!({"input": [{"type": "item_reference", "id": item}]});
    let (status_code, refused) = post(&fixture, RESPONSES_PATH, &request(&input)).await;
    assert_eq!(status_code, 404, "{refused}");
    assert_eq!(status(&fixture, &path).await, "in_progress");
    assert_eq!(takeovers(&fixture, &path).await, 0);
    get(&fixture, &path).await;
    eventually("the end", async || {
        (status(&fixture, &path).await == "completed").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_response_is_cancelled_and_not_reported_as_failed() {
    let fixture = start(Vec::new()).await;
    let (runtime, doomed) = replica(vec![ScriptedStep::Hang], &fixture.shared);
    let path = in_background(&doomed).await;
    doomed.working(1).await;
    runtime.shutdown_background();
    fixture.shared.clock.advance(LEASE_ENDED_AFTER);
    let (status_code, cancelled) = post(&fixture, &format!("{path}/cancel"), &json!({})).await;
    assert_eq!(
        (status_code, &cancelled["status"]),
        (200, &json!("cancelled")),
        "{cancelled}"
    );
    assert_eq!(status(&fixture, &path).await, "cancelled");
}
