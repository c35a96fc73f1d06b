//! Tests of the end of a response and its place in its conversation: lost responses of the bus, concurrent responses,
//! and a process that is killed between the two.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::responses::{RESPONSES_PATH, get, post, replica, request, start, until};
use super::scripted::{TestSurface, text_step};
use crate::http::responses::KnownRuns;
use crate::permissions::CallerIdentity;
use crate::records::{FaultPlan, RecordFault, RecordKind};

fn faults(fixture: &TestSurface) -> &FaultPlan {
    fixture.surface.state.files.records().faults()
}

async fn new_conversation(fixture: &TestSurface) -> Value {
    post(fixture, "/v1/conversations", &json!({})).await.1["id"].clone()
}

/// Number of items of a conversation.
async fn item_count(fixture: &TestSurface, conversation: &Value) -> usize {
    let id = conversation.as_str().unwrap();
    let path = format!("/v1/conversations/{id}/items?limit=100");
    let (status, items) = get(fixture, &path).await;
    assert_eq!(status, 200, "{items}");
    items["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_response_whose_end_was_stored_without_a_reply_of_the_bus_has_completed() {
    let fixture = start(vec![text_step("Hello.")]).await;
    for kind in [RecordKind::Response, RecordKind::Conversation] {
        for fault in [RecordFault::LoseResponse, RecordFault::LoseRequest] {
            let conversation = new_conversation(&fixture).await;
            // The first write of a response is its beginning.
            let body = request(&json!({"conversation": conversation, "background": true}));
            if kind == RecordKind::Response {
                faults(&fixture).add(kind, 1, RecordFault::None);
            }
            faults(&fixture).add(kind, 1, fault.clone());
            let (status, response) = post(&fixture, RESPONSES_PATH, &body).await;
            assert_eq!(status, 200, "{response}");
            let path = format!("{RESPONSES_PATH}/{}", response["id"].as_str().unwrap());
            let found = dray_testkit::eventually("the end", async || {
                let (_, found) = get(&fixture, &path).await;
                let is_running = found["status"] == "queued" || found["status"] == "in_progress";
                (!is_running).then_some(found)
            })
            .await;
            assert_eq!(found["status"], "completed", "{kind:?} {fault:?}: {found}");
            let count = item_count(&fixture, &conversation).await;
            assert_eq!(count, 2, "{kind:?} {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_enters_its_conversation_after_its_process_was_killed() {
    let fixture = start(Vec::new()).await;
    let (runtime, doomed) = replica(vec![text_step("Hello.")], &fixture.shared);
    let conversation = new_conversation(&fixture).await;
    let never = RecordFault::Hold(Arc::new(Notify::new()));
    faults(&doomed).add(RecordKind::Conversation, 1, never);
    let body = request(&json!({"conversation": conversation, "background": true}));
    let (_, response) = post(&doomed, RESPONSES_PATH, &body).await;
    let path = format!("{RESPONSES_PATH}/{}", response["id"].as_str().unwrap());
    // The other process reads only the record, and the conversation has no answer yet.
    let record = async || super::sweeps::status(&fixture, &path).await;
    dray_testkit::eventually("the end", async || {
        (record().await == "completed").then_some(())
    })
    .await;
    runtime.shutdown_background();
    for _ in 0..2 {
        let (_, found) = get(&fixture, &path).await;
        assert_eq!(found["status"], "completed", "{found}");
        assert_eq!(item_count(&fixture, &conversation).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_adds_an_answer_to_its_conversation_after_its_process_was_killed() {
    let fixture = start(Vec::new()).await;
    let (runtime, doomed) = replica(vec![text_step("Hello.")], &fixture.shared);
    let conversation = new_conversation(&fixture).await;
    let never = RecordFault::Hold(Arc::new(Notify::new()));
    faults(&doomed).add(RecordKind::Conversation, 1, never);
    let body = request(&json!({"conversation": conversation, "background": true}));
    let (_, response) = post(&doomed, RESPONSES_PATH, &body).await;
    let path = format!("{RESPONSES_PATH}/{}", response["id"].as_str().unwrap());
    dray_testkit::eventually("the end", async || {
        let status = super::sweeps::status(&fixture, &path).await;
        (status == "completed").then_some(())
    })
    .await;
    runtime.shutdown_background();
    assert_eq!(item_count(&fixture, &conversation).await, 0);
    let mut runs = KnownRuns::default();
    runs.sweep(&fixture.surface).await;
    assert_eq!(item_count(&fixture, &conversation).await, 2);
}

#[tokio::test]
async fn concurrent_responses_of_one_conversation_are_all_added() {
    const RESPONSES: usize = 40;
    let fixture = start(vec![text_step("Hello.")]).await;
    faults(&fixture).interleave();
    let conversation = new_conversation(&fixture).await;
    let body = request(&json!({"conversation": conversation}));
    let created = join_all((0..RESPONSES).map(|_| post(&fixture, RESPONSES_PATH, &body))).await;
    for (status, response) in created {
        assert_eq!(
            (status, &response["status"]),
            (200, &json!("completed")),
            "{response}"
        );
    }
    assert_eq!(item_count(&fixture, &conversation).await, 2 * RESPONSES);
}

#[tokio::test]
async fn concurrent_changes_of_one_conversation_wait_for_each_other() {
    let fixture = start(Vec::new()).await;
    let conversation = new_conversation(&fixture).await;
    faults(&fixture).interleave();
    let principal = CallerIdentity::Client("owner-of-one".to_owned()).key();
    let responses = &fixture.surface.state.responses;
    let metadata = json!({"a": "b"});
    let id = conversation.as_str().unwrap();
    let changes = (0..40).map(|_| responses.set_metadata(&principal, id, &metadata));
    for changed in join_all(changes).await {
        changed.unwrap();
    }
}

#[tokio::test]
async fn an_end_that_cannot_be_stored_is_reported_as_failed() {
    let fixture = start(vec![text_step("Hello.")]).await;
    let path = {
        let body = request(&json!({"background": true}));
        let lost = RecordFault::LoseRequest;
        faults(&fixture).add(RecordKind::Response, 1, RecordFault::None);
        faults(&fixture).add(RecordKind::Response, usize::MAX, lost);
        let (_, response) = post(&fixture, RESPONSES_PATH, &body).await;
        format!("{RESPONSES_PATH}/{}", response["id"].as_str().unwrap())
    };
    fixture.working(0).await;
    let other = super::sweeps::replica_that_hangs(&fixture).await;
    fixture
        .shared
        .clock
        .advance(std::time::Duration::from_secs(31));
    until(&other, &path, "failed").await;
}
