//! Deliveries that a caller cancels: before their files are stored, while they wait, and during a request.

use std::time::Duration;

use dray_proto::v1;
use dray_testkit::eventually;
use dray_types::Fault;
use tokio_util::sync::CancellationToken;

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, chat, states, tenant};
use super::path::{self, QueueWorkers};
use crate::deliver::WorkEnd;
use crate::error::DeliveryError;
use crate::record::{DeliveryRecord, DeliveryStart, FileState};
use crate::records::record_key;

async fn cancel(
    fixture: &DeliveryFixture,
    id: &str,
    session: &str,
) -> Result<v1::DeliveryReport, DeliveryError> {
    let request = v1::CancelDeliveryRequest {
        delivery_id: id.to_owned(),
        session: session.to_owned(),
    };
    let context = &fixture.replica.intake.context;
    let meta = fixture.meta("cancel");
    fixture
        .replica
        .reconciler
        .cancel(context, &meta, &request)
        .await
}

fn is_not_found(result: &Result<v1::DeliveryReport, DeliveryError>) -> bool {
    matches!(result, Err(DeliveryError::NotFound(_)))
}

#[tokio::test]
async fn a_waiting_delivery_that_is_cancelled_is_never_sent() {
    let fixture = DeliveryFixture::new().await;
    fixture
        .fake
        .script([FakeAction::Wait(Duration::from_mins(97))]);
    let work = fixture
        .files("d1", &[("a.txt", b"a"), ("b.txt", b"b")])
        .await;
    let waiting = fixture.deliver(&work).await.unwrap();
    assert!(matches!(waiting, WorkEnd::Waiting(_)));
    assert!(is_not_found(&cancel(&fixture, "d1", "another").await));
    assert!(is_not_found(&cancel(&fixture, "d2", "s").await));
    let report = cancel(&fixture, "d1", "s").await.unwrap();
    assert!(report.finished && report.cancelled && !report.success);
    let record = fixture.record("d1").await;
    assert_eq!(states(&record), [FileState::Failed, FileState::Failed]);
    fixture.clock.advance(Duration::from_mins(98));
    fixture.sweep().await;
    assert!(fixture.published("delivery-telegram").await.is_empty());
    assert!(fixture.fake.visible_texts().is_empty());
    // A second cancellation changes nothing.
    assert_eq!(cancel(&fixture, "d1", "s").await.unwrap(), report);
}

#[tokio::test]
async fn a_finished_delivery_is_not_changed() {
    let fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::Accept]);
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    assert!(fixture.delivered(&work).await.success);
    let report = cancel(&fixture, "d1", "s").await.unwrap();
    assert!(report.success && !report.cancelled);
}

#[tokio::test]
async fn a_file_whose_request_is_under_way_is_unknown_after_a_cancellation() {
    let mut fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::CrashAfter]);
    let work = fixture
        .files("d1", &[("a.txt", b"a"), ("b.txt", b"b")])
        .await;
    fixture.crash_in(&work).await;
    assert!(cancel(&fixture, "d1", "s").await.unwrap().cancelled);
    let record = fixture.record("d1").await;
    assert_eq!(states(&record), [FileState::Unknown, FileState::Failed]);
    // The next worker finds that it has ended, and sends nothing.
    let requests = fixture.fake.requests();
    assert!(matches!(
        fixture.deliver(&work).await.unwrap(),
        WorkEnd::Finished(_)
    ));
    assert_eq!(fixture.fake.requests(), requests);
}

#[tokio::test]
async fn a_delivery_is_cancelled_while_its_files_are_not_stored() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let away = Fault::new(dray_types::FaultCode::Unavailable, "The sandbox is away.");
    fixture
        .sandbox
        .refuse("/work/a.txt", away.retry_after(Duration::from_mins(1)));
    let _workers = QueueWorkers::start(&fixture);
    let request = v1::SendFileRequested {
        session: "s".to_owned(),
        paths: vec![b"/work/a.txt".to_vec()],
        ..v1::SendFileRequested::default()
    };
    let meta = fixture.meta("d1");
    fixture
        .replica
        .intake
        .accept(&meta, &request)
        .await
        .unwrap();
    let report = eventually("the work to begin", async || {
        cancel(&fixture, "d1", "s").await.ok()
    })
    .await;
    assert!(report.finished && report.cancelled && report.files.is_empty());
    assert_eq!(report.session, "s");
    assert!(fixture.fake.visible_texts().is_empty());
}

/// Cancels a delivery of the session `s` before its files are stored, then runs its work.
async fn gather_after_cancellation_by(session: &str) -> DeliveryRecord {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let claim = fixture.claim("a.txt", b"a").await;
    fixture.sandbox.put("/work/a.txt", "file", Some(claim));
    let meta = fixture.meta("d1");
    let start = DeliveryStart {
        delivery_id: "d1".to_owned(),
        session: session.to_owned(),
        ..DeliveryStart::default()
    };
    let mut mark = DeliveryRecord::begin(&meta, start, fixture.clock.now_ms(), 0);
    mark.cancelled = true;
    mark.finished = true;
    let gatherer = &fixture.replica.gatherer;
    let key = record_key(&tenant(), &meta.operation);
    gatherer.log.records.write(&key, mark, 0).await.unwrap();
    let work = path::request(&["/work/a.txt"]);
    let cancel = CancellationToken::new();
    gatherer
        .send(&meta, &work, 1, false, &cancel)
        .await
        .unwrap();
    let record = fixture.record("d1").await;
    let published = fixture.published("delivery-telegram").await;
    assert_eq!(published.is_empty(), record.finished);
    record
}

#[tokio::test]
async fn a_cancellation_by_another_session_before_the_files_are_stored_has_no_effect() {
    let record = gather_after_cancellation_by("another").await;
    assert!(!record.cancelled && !record.finished);
    assert_eq!(record.session, "s");
    assert_eq!(states(&record), [FileState::Queued]);
}

#[tokio::test]
async fn a_cancellation_by_the_session_before_the_files_are_stored_ends_the_work() {
    let record = gather_after_cancellation_by("s").await;
    assert!(record.cancelled && record.finished && record.files.is_empty());
}
