//! A fixture in which a worker runs, and the operations of tests on it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_proto::contract::{message_id, schema_name, work_subject};
use dray_proto::v1::{self, LedgerState};
use dray_testkit::eventually;
use prost::Message as _;

use super::{BusFixture, ScriptedHandler, TestWorker, outgoing_message, tool_call, wait_soon};
use crate::backend::OutgoingMessage;
use crate::topology::WORK_STREAM;
use crate::{EventStream, Meta, WorkSettings};

pub(super) const EVENT_SUBJECTS: &str = "dray.event.toolcall.>";

pub(super) fn work_settings() -> WorkSettings {
    WorkSettings {
        attempts: 2,
        grace: Duration::from_millis(300),
        ..WorkSettings::default()
    }
}

/// A provisioned fixture with a worker.
pub(super) async fn at_work(fixture: &BusFixture) -> (ScriptedHandler, TestWorker) {
    fixture.provision(Duration::from_secs(30)).await;
    let script = ScriptedHandler::default();
    let worker = TestWorker::start(&fixture.bus, work_settings(), script.clone());
    (script, worker)
}

pub(super) async fn submit_work(fixture: &BusFixture, operation: &str, tool: &str) -> Meta {
    let meta = fixture.meta(operation);
    let published = fixture
        .bus
        .publish_work(&meta, &tool_call(tool))
        .await
        .unwrap();
    assert!(!published.duplicate);
    meta
}

pub(super) async fn ledger_record(fixture: &BusFixture, meta: &Meta) -> Option<v1::LedgerRecord> {
    fixture
        .bus
        .ledger()
        .find::<v1::ToolCallRequested>(&meta.tenant, &meta.operation)
        .await
        .unwrap()
}

pub(super) async fn wait_until_reported(fixture: &BusFixture, meta: &Meta) -> v1::LedgerRecord {
    eventually("the end to be reported", async || {
        ledger_record(fixture, meta)
            .await
            .filter(|record| record.state() == LedgerState::Reported)
    })
    .await
}

pub(super) async fn nothing_pending(fixture: &BusFixture) {
    eventually("everything to be acknowledged", async || {
        let state = fixture
            .backend()
            .consumer(WORK_STREAM, "file-resolver")
            .await
            .unwrap()?;
        (state.pending + state.ack_pending == 0).then_some(())
    })
    .await;
}

/// The message as a publisher without this crate would send it.
pub(super) fn foreign_message(
    meta: &Meta,
    work: &v1::ToolCallRequested,
    redrives: u32,
) -> OutgoingMessage {
    let subject = work_subject(&v1::ToolCallRequested::default(), &meta.tenant);
    let id = message_id(&meta.operation, "toolcall.resolve", redrives);
    let mut message = outgoing_message(&subject, &id, work.encode_to_vec());
    for (name, value) in meta.headers(&schema_name::<v1::ToolCallRequested>()).iter() {
        message.headers.append(name, value);
    }
    message
}

/// A call of the tool `works`, published as a `CloudEvent` in the binary content mode.
pub(super) fn binary_cloud_event(meta: &Meta) -> OutgoingMessage {
    let mut message = foreign_message(meta, &tool_call("works"), 0);
    message.headers = [
        ("ce-specversion", "1.0".to_owned()),
        ("ce-type", "dray.v1.ToolCallRequested".to_owned()),
        ("ce-source", "/shop".to_owned()),
        ("ce-id", meta.operation.to_string()),
        ("ce-draydeadline", meta.deadline.unix_ms().to_string()),
    ]
    .into_iter()
    .collect();
    message
}

/// The same in the structured content mode.
pub(super) fn structured_cloud_event(meta: &Meta) -> OutgoingMessage {
    let mut message = foreign_message(meta, &tool_call("works"), 0);
    message.headers = [("content-type", "application/cloudevents+json")]
        .into_iter()
        .collect();
    let event = serde_json::json!({
        "specversion": "1.0",
        "type": "dray.v1.ToolCallRequested",
        "source": "/shop",
        "id": meta.operation.as_str(),
        "draydeadline": meta.deadline.unix_ms().to_string(),
        "data_base64": STANDARD.encode(&message.payload),
    });
    message.payload = event.to_string().into();
    message
}

pub(super) async fn next_rejection(events: &mut EventStream) -> v1::ToolCallRejected {
    let event = wait_soon("the rejection", events.next()).await.unwrap();
    assert_eq!(event.subject, "dray.event.toolcall.v1.rejected.acme");
    event.decode().unwrap()
}
