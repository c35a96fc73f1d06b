//! An upgrade during deliveries: records and work of the previous version are read and finished.
//!
//! `tests/upgrade` of this crate has a record in every state and work of all three kinds, as that version encoded them.
//! The tests add them to a bucket and a stream of a real nats-server.

use std::path::PathBuf;
use std::time::Duration;

use dray_bus::{Bus, EventFilter, NatsOptions, Topology, test_bus};
use dray_platform::{DuplicateProtection, Route};
use dray_proto::codes::DeliveryTask;
use dray_proto::v1;
use dray_testkit::eventually;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, OperationId};
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use super::fixture::{DeliveryFixture, NOW_MS, states, tenant};
use super::path::QueueWorkers;
use crate::deliver::WorkEnd;
use crate::machine::DeliveryStep;
use crate::reconciler::round_meta;
use crate::record::{DeliveryRecord, FileState, WaitingReason};
use crate::records::{RecordError, decode_record, record_key};

fn captured_bytes(kind: &str, name: &str) -> Vec<u8> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade");
    let path = directory.join(kind).join(format!("{name}.hex"));
    let digits: Vec<u8> = std::fs::read(path)
        .unwrap()
        .into_iter()
        .filter(u8::is_ascii_hexdigit)
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn old_record(id: &str) -> DeliveryRecord {
    decode_record(captured_bytes("records", id).into()).unwrap()
}

fn old_work(name: &str) -> v1::DeliverFiles {
    v1::DeliverFiles::decode(captured_bytes("work", name).as_slice()).unwrap()
}

/// A fixture on this server, with the files of the old records.
pub(super) async fn fixture_on(server: &NatsServer) -> DeliveryFixture {
    let clock = Clock::manual(NOW_MS);
    let options = NatsOptions {
        servers: vec![server.url()],
        ..NatsOptions::default()
    };
    let bus = Bus::connect(&options, clock.clone(), &test_bus::noop_meter())
        .await
        .unwrap();
    test_bus::provision(&bus, &Topology::new(1, 1 << 30)).await;
    let fixture = DeliveryFixture::start_on(bus, clock, DuplicateProtection::Unknown, |_| {}).await;
    for (name, bytes) in [
        ("a.txt", &b"abc"[..]),
        ("b.txt", b"b"),
        ("c.txt", b"carried"),
        ("d.txt", b"d"),
        ("q.txt", b"q"),
        ("report.csv", b"a,b\n1,2\n"),
    ] {
        fixture.claim(name, bytes).await;
    }
    fixture
}

/// Stores the record in the bucket, as the previous version did.
async fn put_record(fixture: &DeliveryFixture, id: &str) {
    let key = record_key(&tenant(), &OperationId::new(id).unwrap());
    let keys = fixture.replica.receipts.log.records.keys();
    keys.create(&key, captured_bytes("records", id).into())
        .await
        .unwrap();
}

/// Adds work to the stream. Without a task, it is encoded as in the previous version.
async fn put_work(fixture: &DeliveryFixture, operation: &str, work: &v1::DeliverFiles) {
    assert_eq!(work.task, None, "the present version wrote it");
    let meta = fixture.meta(operation);
    fixture.bus.publish_work(&meta, work).await.unwrap();
}

async fn wait_for_end(fixture: &DeliveryFixture, id: &str) -> DeliveryRecord {
    super::path::finished_record(fixture, id).await
}

#[test]
fn records_of_the_previous_version_keep_their_states() {
    use FileState as State;
    for (id, expected) in [
        ("delivered", vec![State::Delivered]),
        ("linked", vec![State::DeliveredAsLink]),
        ("provisional", vec![State::Delivered]),
        ("rejected", vec![State::Rejected]),
        ("failed", vec![State::Failed]),
        ("unknown", vec![State::Unknown]),
        ("refused", vec![State::Rejected]),
        ("reopened", vec![State::Queued]),
        ("queue", vec![State::Queued]),
        ("queued", vec![State::Queued, State::Rejected]),
        ("rate-limited", vec![State::Queued, State::Queued]),
        ("window-closed", vec![State::Queued, State::Queued]),
        ("sending", vec![State::Delivered, State::Sending]),
        ("sending-unseen", vec![State::Delivered, State::Sending]),
    ] {
        let record = old_record(id);
        assert_eq!(states(&record), expected, "{id}");
        assert_eq!(record.delivery_id, id);
        assert_eq!(record.tenant, "acme", "{id}");
        let written = v1::DeliveryRecord::from(&record).encode_to_vec();
        let read = decode_record(written.into()).unwrap();
        assert_eq!(read, record, "{id} changes when it is written again");
    }
    for (id, expected) in [
        ("rate-limited", Some(WaitingReason::RateLimited)),
        ("window-closed", Some(WaitingReason::WindowClosed)),
        ("reopened", Some(WaitingReason::WindowClosed)),
        ("queue", Some(WaitingReason::RateLimited)),
        ("queued", None),
    ] {
        assert_eq!(old_record(id).waiting, expected, "{id}");
    }
    let steps = old_record("sending").steps;
    assert!(matches!(&steps[0], DeliveryStep::Done(step) if !step.confirmed().is_empty()));
    assert!(matches!(&steps[1], DeliveryStep::Sending(step) if step.since_ms() > 0));
    assert_eq!(steps[1].route, Route::Document);
}

#[test]
fn a_worker_of_the_previous_version_reads_the_work_of_this_one() {
    for id in ["sending", "delivered", "window-closed", "failed"] {
        let old = v1::DeliveryReport::decode(captured_bytes("records", id).as_slice()).unwrap();
        let new = v1::DeliveryRecord::from(&old_record(id)).encode_to_vec();
        let mut new = v1::DeliveryReport::decode(new.as_slice()).unwrap();
        // That version does not know the codes and reads the names.
        new.waiting_code = 0;
        for file in &mut new.files {
            (file.state_code, file.route_code, file.error_code) = (0, 0, 0);
        }
        assert_eq!(new.files, old.files, "{id}");
        assert_eq!(new.waiting_reason(), old.waiting_reason(), "{id}");
    }
}

#[tokio::test]
async fn a_record_of_a_newer_worker_is_left_to_it_and_never_read_as_a_success() {
    let mut newer = v1::DeliveryRecord::from(&old_record("sending"));
    newer.steps[1].state_code = 99;
    newer.files[1].state_code = 99;
    let read = decode_record(newer.encode_to_vec().into()).unwrap();
    assert!(matches!(&read.steps[1], DeliveryStep::Sending(_)));
    assert_eq!(read.files[1].state, FileState::Unknown);

    let fixture = DeliveryFixture::new().await;
    newer.steps[1].route_code = 99;
    let key = record_key(&tenant(), &OperationId::new("sending").unwrap());
    let keys = fixture.replica.receipts.log.records.keys();
    keys.create(&key, newer.encode_to_vec().into())
        .await
        .unwrap();
    let stored = fixture.replica.receipts.log.records.read(&key).await;
    assert!(matches!(stored, Err(RecordError::Newer(_))), "{stored:?}");
    let work = v1::DeliverFiles {
        delivery_id: "sending".to_owned(),
        ..old_work("resume-queued")
    };
    let cancel = CancellationToken::new();
    let meta = fixture.meta("sending");
    let ended = fixture.replica.sender.deliver(&meta, &work, &cancel).await;
    assert!(ended.is_err(), "another worker may know how");
    assert_eq!(fixture.fake.requests(), 0);
}

#[tokio::test]
async fn work_under_way_is_finished_after_an_upgrade() {
    let server = NatsServer::start();
    let fixture = fixture_on(&server).await;
    for id in ["queued", "sending", "sending-unseen", "delivered"] {
        put_record(&fixture, id).await;
    }
    let _workers = QueueWorkers::start(&fixture);
    put_work(&fixture, "queued", &old_work("resume-queued")).await;
    let record = wait_for_end(&fixture, "queued").await;
    assert_eq!(states(&record), [FileState::Delivered, FileState::Rejected]);

    for id in ["sending", "sending-unseen"] {
        let work = v1::DeliverFiles {
            delivery_id: id.to_owned(),
            ..old_work("resume-queued")
        };
        put_work(&fixture, id, &work).await;
        let record = wait_for_end(&fixture, id).await;
        let expected = [FileState::Delivered, FileState::Unknown];
        assert_eq!(states(&record), expected, "{id} is not sent a second time");
    }
    let shown = fixture.fake.visible_texts();
    let files: Vec<_> = shown.iter().filter(|line| line.contains(".txt|")).collect();
    assert!(files.is_empty(), "{shown:?}");

    let carried = old_work("files-carried");
    assert!(matches!(carried.delivery_task(), DeliveryTask::New(_)));
    put_work(&fixture, "carried", &carried).await;
    let record = wait_for_end(&fixture, "carried").await;
    assert_eq!(
        states(&record),
        [FileState::Delivered, FileState::Delivered]
    );
    put_work(&fixture, "notice", &old_work("notice")).await;
    eventually("the notice", async || {
        let shown = fixture.fake.visible_texts();
        let is_shown = |line: &String| line.contains("Your files were not taken");
        shown.iter().any(is_shown).then_some(())
    })
    .await;

    let outcome = v1::DeliveryOutcomeRequest {
        delivery_id: "delivered".to_owned(),
        wait_ms: 0,
    };
    let report = fixture
        .replica
        .receipts
        .outcome(&fixture.meta("q"), &outcome)
        .await;
    let report = report.unwrap();
    assert!(report.finished && report.success);
    assert_eq!(report.files[0].file_state(), v1::FileState::Delivered);
}

#[tokio::test]
async fn a_request_that_was_not_gathered_yet_is_delivered_after_an_upgrade() {
    let server = NatsServer::start();
    let fixture = fixture_on(&server).await;
    fixture.sandbox.bind(super::fixture::chat("42"));
    let claim = fixture.claim("report.csv", b"a,b\n1,2\n").await;
    fixture.sandbox.put("/w/report.csv", "file", Some(claim));
    let request = captured_bytes("work", "request-queued");
    let request = v1::SendFileRequested::decode(request.as_slice()).unwrap();
    let _workers = QueueWorkers::start(&fixture);
    fixture
        .bus
        .publish_work(&fixture.meta("late"), &request)
        .await
        .unwrap();
    let record = wait_for_end(&fixture, "late").await;
    assert_eq!(states(&record), [FileState::Delivered, FileState::Rejected]);
}

#[tokio::test]
async fn waiting_deliveries_continue_after_an_upgrade() {
    let server = NatsServer::start();
    let fixture = fixture_on(&server).await;
    for id in ["rate-limited", "queue"] {
        put_record(&fixture, id).await;
    }
    fixture.clock.advance(Duration::from_mins(98));
    fixture.sweep().await;
    assert_eq!(
        published_operations(&fixture, 2).await,
        ["r1-queue", "r1-rate-limited"]
    );
    for id in ["rate-limited", "queue"] {
        let meta = round_meta(&fixture.record(id).await).unwrap();
        assert_eq!(meta.operation.as_str(), format!("r1-{id}"));
        let ended = fixture.resume(id).await.unwrap();
        assert!(
            matches!(&ended, WorkEnd::Finished(record) if record.success),
            "{ended:?}"
        );
    }
    put_record(&fixture, "reopened").await;
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    fixture.replica.receipts.log.index.refresh().await.unwrap();
    fixture
        .replica
        .inbound
        .statuses
        .window_opened(&account, "42")
        .await;
    let ended = fixture.resume("reopened").await.unwrap();
    assert!(
        matches!(&ended, WorkEnd::Finished(record) if record.success),
        "{ended:?}"
    );
}

/// The sorted operations of this many pieces of work in the platform's queue.
async fn published_operations(fixture: &DeliveryFixture, count: usize) -> Vec<String> {
    let filter = EventFilter::new("dray.work.delivery-telegram.>").from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let mut operations = Vec::new();
    for _ in 0..count {
        let event = events.next().await.unwrap();
        let operation = event.headers.get("Dray-Operation");
        operations.push(operation.unwrap_or_default().to_owned());
    }
    operations.sort();
    operations
}
