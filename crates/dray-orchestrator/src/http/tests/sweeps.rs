//! Tests of sweeps for responses in the background whose process has ended: how much a sweep reads, what it leaves to
//! others, and what it reports without a poll.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::responses::{RESPONSES_PATH, get, in_background, post, replica, request, start, until};
use super::resumed_streams::events;
use super::scripted::{ScriptedStep, TestSurface, read, text_step};
use crate::http::responses::KnownRuns;
use crate::permissions::CallerIdentity;
use crate::progress::ResponseRun;
use crate::records::RECORD_BUCKET;

/// A lease, a second lease in which a poll may come, and a second more.
const ABANDONED_AFTER: Duration = Duration::from_secs(61);

/// A record as it is stored.
pub(super) struct StoredRecord {
    key: String,
    pub(super) value: Bytes,
    revision: u64,
}

/// All records of a kind.
pub(super) async fn records(fixture: &TestSurface, kind: &str) -> Vec<StoredRecord> {
    let keys = fixture.shared.bus.key_value(RECORD_BUCKET);
    let listing = keys.list(kind, 100).await.unwrap();
    let mut records = Vec::new();
    for (key, entry) in listing.entries {
        records.push(StoredRecord {
            key,
            value: entry.value,
            revision: entry.revision,
        });
    }
    records
}

/// The record of a response, by the path of the response.
pub(super) async fn record(fixture: &TestSurface, path: &str) -> StoredRecord {
    let id = id_of(path);
    let mut found = records(fixture, "response").await.into_iter();
    found.find(|record| record.key.ends_with(id)).unwrap()
}

pub(super) async fn status(fixture: &TestSurface, path: &str) -> Value {
    let stored = record(fixture, path).await;
    let record: Value = serde_json::from_slice(&stored.value).unwrap();
    record["status"].clone()
}

pub(super) fn id_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Replaces the value of a record, as another version would.
pub(super) async fn write(fixture: &TestSurface, record: StoredRecord, value: &str) {
    let keys = fixture.shared.bus.key_value(RECORD_BUCKET);
    let written = keys.update(&record.key, value.to_owned().into(), record.revision);
    written.await.unwrap();
}

/// Says that the response can be finished from a checkpoint.
pub(super) async fn set_checkpoint(fixture: &TestSurface, path: &str) {
    let run = ResponseRun {
        id: id_of(path).to_owned(),
        ..ResponseRun::default()
    };
    let principal = CallerIdentity::Client("owner-of-one".to_owned()).key();
    let progress = &fixture.surface.state.progress;
    progress.set(&principal, &run, Some("token")).await.unwrap();
}

/// A replica that is about to be killed, whose turns hang.
fn start_doomed_replica(fixture: &TestSurface) -> (Runtime, TestSurface) {
    replica(vec![ScriptedStep::Hang], &fixture.shared)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_is_left_and_the_others_are_checked() {
    let fixture = start(Vec::new()).await;
    let (runtime, doomed) = start_doomed_replica(&fixture);
    let mut paths = Vec::new();
    for _ in 0..4 {
        paths.push(in_background(&doomed).await);
    }
    runtime.shutdown_background();
    let later_version = r#"{"status": "paused"}"#;
    let stored = record(&fixture, &paths[1]).await;
    write(&fixture, stored, later_version).await;
    let run = records(&fixture, "background-run").await.remove(3);
    write(&fixture, run, "no JSON").await;
    fixture.shared.clock.advance(ABANDONED_AFTER);
    let mut runs = KnownRuns::default();
    let report = runs.sweep(&fixture.surface).await;
    assert_eq!(
        (report.looks, report.unreadable, report.failed),
        (3, 2, 0),
        "{report:?}"
    );
    for path in [&paths[0], &paths[2]] {
        assert_eq!(status(&fixture, path).await, "failed", "{path}");
    }
    assert_eq!(
        record(&fixture, &paths[1]).await.value,
        later_version.as_bytes()
    );
    // The next sweep forgets the runs that have ended.
    let report = runs.sweep(&fixture.surface).await;
    assert_eq!((report.looks, report.unreadable), (2, 0), "{report:?}");
    let left = records(&fixture, "background-run").await;
    let is_left = |path: &&String| left.iter().any(|run| run.key.ends_with(id_of(path)));
    let left: Vec<_> = paths.iter().filter(is_left).collect();
    assert_eq!(left, [&paths[1], &paths[3]]);
}

#[tokio::test]
async fn a_sweep_reads_no_response_that_has_ended_before_its_events_are_due() {
    const ENDED_RUNS: usize = 12;
    let fixture = start(vec![text_step("Hello.")]).await;
    let streamed = request(&json!({"background": true, "stream": true}));
    for _ in 0..ENDED_RUNS {
        events(&fixture, RESPONSES_PATH, Some(&streamed), "none").await;
    }
    let mut runs = KnownRuns::default();
    assert_eq!(runs.sweep(&fixture.surface).await.looks, ENDED_RUNS);
    assert_eq!(runs.sweep(&fixture.surface).await.looks, 0);
    let other = replica_that_hangs(&fixture).await;
    let running = in_background(&other).await;
    assert_eq!(runs.sweep(&fixture.surface).await.looks, 1);
    fixture.shared.clock.advance(Duration::from_secs(25));
    let report = runs.sweep(&fixture.surface).await;
    assert_eq!(report.looks, 0, "its lease holds: {report:?}");
    post(&other, &format!("{running}/cancel"), &json!({})).await;
    until(&fixture, &running, "cancelled").await;
    fixture.shared.clock.advance(Duration::from_hours(1));
    // The additional run is the one that was cancelled.
    assert_eq!(runs.sweep(&fixture.surface).await.looks, ENDED_RUNS + 1);
    assert_eq!(records(&fixture, "response-events").await.len(), 0);
    assert_eq!(runs.sweep(&fixture.surface).await.looks, 0);
}

pub(super) async fn replica_that_hangs(fixture: &TestSurface) -> TestSurface {
    let change = |options: &mut crate::http::SurfaceOptions| {
        options.clients = super::scripted::keys(&["one"]);
    };
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::clone(&fixture.shared);
    TestSurface::replica(vec![ScriptedStep::Hang], change, shared, directory).await
}

#[tokio::test]
async fn deleting_a_response_deletes_its_events() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let streamed = request(&json!({"background": true, "stream": true}));
    let whole = events(&fixture, RESPONSES_PATH, Some(&streamed), "none").await;
    let path = format!(
        "{RESPONSES_PATH}/{}",
        whole[0]["response"]["id"].as_str().unwrap()
    );
    let mut runs = KnownRuns::default();
    runs.sweep(&fixture.surface).await;
    let deleted = fixture
        .request(Method::DELETE, &path)
        .header("authorization", "Bearer one");
    let (status, body) = read(deleted.send(&|_| ()).await.unwrap()).await;
    assert_eq!(status, 200, "{body}");
    for kind in ["response", "response-events", "background-run"] {
        assert_eq!(records(&fixture, kind).await.len(), 0, "{kind}");
    }
    runs.sweep(&fixture.surface).await;
    assert_eq!(runs.ids(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_continues_what_is_gone_is_reported_and_not_refused() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let (runtime, doomed) = start_doomed_replica(&fixture);
    let (_, first) = post(&fixture, RESPONSES_PATH, &request(&json!({}))).await;
    let body = request(&json!({"background": true, "previous_response_id": first["id"]}));
    let (_, second) = post(&doomed, RESPONSES_PATH, &body).await;
    let path = format!("{RESPONSES_PATH}/{}", second["id"].as_str().unwrap());
    doomed.working(1).await;
    runtime.shutdown_background();
    set_checkpoint(&fixture, &path).await;
    let stored = record(&fixture, &path).await;
    let mut value: Value = serde_json::from_slice(&stored.value).unwrap();
    value["history"][0]["content"]["sha256"] = json!("0".repeat(64));
    write(&fixture, stored, &value.to_string()).await;
    fixture.shared.clock.advance(ABANDONED_AFTER);
    let (status, response) = get(&fixture, &path).await;
    assert_eq!(
        (status, &response["status"]),
        (200, &json!("failed")),
        "{response}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_needs_its_client_is_reported_when_no_request_can_finish_it() {
    let fixture = start(Vec::new()).await;
    let (runtime, doomed) = start_doomed_replica(&fixture);
    let mut paths = Vec::new();
    for _ in 0..2 {
        let body = request(&json!({"background": true}));
        let asked = doomed.request(Method::POST, RESPONSES_PATH);
        let asked = asked.header("authorization", "Bearer one");
        let asked = asked.header("api-key", "of-dial").json(&body);
        let (_, response) = read(asked.send(&|_| ()).await.unwrap()).await;
        paths.push(format!(
            "{RESPONSES_PATH}/{}",
            response["id"].as_str().unwrap()
        ));
    }
    doomed.working(2).await;
    runtime.shutdown_background();
    set_checkpoint(&fixture, &paths[0]).await;
    fixture.shared.clock.advance(ABANDONED_AFTER);
    let mut runs = KnownRuns::default();
    runs.sweep(&fixture.surface).await;
    assert_eq!(status(&fixture, &paths[0]).await, "in_progress");
    assert_eq!(status(&fixture, &paths[1]).await, "failed");
    // One sweep finds that the other has ended; the one that waits for its client is not read each time.
    assert_eq!(runs.sweep(&fixture.surface).await.looks, 1);
    assert_eq!(runs.sweep(&fixture.surface).await.looks, 0);
}
