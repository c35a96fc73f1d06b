//! Complete deliveries: from a path in a sandbox over both queues to the platform and the receipt.

use dray_bus::{EventFilter, WorkSettings};
use dray_platform::ErrorKind;
use dray_proto::v1;
use dray_testkit::eventually;
use dray_types::{Fault, FaultCode};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fixture::{DeliveryFixture, chat, states, tenant};
use crate::PlatformDelivery;
use crate::delivery_service::DeliveryService;
use crate::record::{DeliveryRecord, FileFailureKind, FileState};
use std::sync::Arc;

/// Workers for both queues, which end when this is dropped.
pub(super) struct QueueWorkers {
    _tasks: JoinSet<()>,
}

struct SendFileWorker(Arc<PlatformDelivery>);
struct DeliverWorker(Arc<PlatformDelivery>);

impl dray_bus::WorkHandler<v1::SendFileRequested> for SendFileWorker {
    async fn handle(
        &self,
        delivery: dray_bus::WorkDelivery<v1::SendFileRequested>,
    ) -> Result<dray_bus::WorkCompleted, dray_bus::WorkFailure> {
        Arc::clone(&self.0).send(delivery).await
    }
}

impl dray_bus::WorkHandler<v1::DeliverFiles> for DeliverWorker {
    async fn handle(
        &self,
        delivery: dray_bus::WorkDelivery<v1::DeliverFiles>,
    ) -> Result<dray_bus::WorkCompleted, dray_bus::WorkFailure> {
        Arc::clone(&self.0).deliver(delivery).await
    }
}

impl QueueWorkers {
    pub(super) fn start(fixture: &DeliveryFixture) -> Self {
        Self::of(&fixture.replica)
    }

    /// The workers of one replica.
    pub(super) fn of(replica: &Arc<DeliveryService>) -> Self {
        Self::with_attempts(replica, WorkSettings::default().attempts)
    }

    /// The workers of one replica, which give work up after this many attempts.
    pub(super) fn with_attempts(replica: &Arc<DeliveryService>, attempts: u32) -> Self {
        let settings = WorkSettings {
            attempts,
            ..WorkSettings::default()
        };
        let service = Arc::new(PlatformDelivery {
            deliveries: Arc::clone(replica),
        });
        let mut tasks = JoinSet::new();
        let bus = replica.inbound.bus.clone();
        let handler = SendFileWorker(Arc::clone(&service));
        let own_settings = settings.clone();
        tasks.spawn(async move {
            let stop = CancellationToken::new();
            let settings = own_settings;
            bus.work("platform-delivery", settings, handler, stop)
                .await
                .unwrap();
        });
        let bus = replica.inbound.bus.clone();
        let handler = DeliverWorker(service);
        tasks.spawn(async move {
            let stop = CancellationToken::new();
            bus.work("platform-delivery-telegram", settings, handler, stop)
                .await
                .unwrap();
        });
        Self { _tasks: tasks }
    }
}

/// Waits for the end of the delivery and returns its record.
pub(super) async fn finished_record(fixture: &DeliveryFixture, id: &str) -> DeliveryRecord {
    let key = crate::records::record_key(&tenant(), &dray_types::OperationId::new(id).unwrap());
    eventually("the end of the delivery", async || {
        let stored = fixture
            .replica
            .receipts
            .log
            .records
            .read(&key)
            .await
            .unwrap()?;
        stored.record.finished.then_some(stored.record)
    })
    .await
}

pub(super) fn request(paths: &[&str]) -> v1::SendFileRequested {
    v1::SendFileRequested {
        session: "s".to_owned(),
        paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
        turn: "t".to_owned(),
        ..v1::SendFileRequested::default()
    }
}

#[tokio::test]
async fn a_token_in_a_file_stands_in_the_receipt_the_result_and_the_audit_event() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    fixture.sandbox.warn_about_content("token:GitHub");
    let claim = fixture.claim("notes.txt", b"ghp_...\n").await;
    fixture.sandbox.put("/w/notes.txt", "file", Some(claim));
    let filter = EventFilter::new("dray.audit.delivery.v1.recorded.>").from_start();
    let mut audit = fixture.bus.events(filter).await.unwrap();
    let _workers = QueueWorkers::start(&fixture);
    let intake = &fixture.replica.intake;
    intake
        .accept(&fixture.meta("d1"), &request(&["/w/notes.txt"]))
        .await
        .unwrap();
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(states(&report), [FileState::Delivered]);
    let file = v1::DeliveredFile::from(&report.files[0]);
    assert_eq!(file.transfer.unwrap().content_warning, "token:GitHub");
    let json: serde_json::Value = serde_json::from_str(&report.result_json).unwrap();
    assert_eq!(json["files"][0]["content_warning"], "token:GitHub");
    let line: v1::DeliveryAudit = audit.next().await.unwrap().decode().unwrap();
    assert_eq!(line.content_warning, "token:GitHub");
}

#[tokio::test]
async fn a_file_of_the_sandbox_reaches_the_chat_with_a_receipt() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let claim = fixture.claim("report.csv", b"a,b\n1,2\n").await;
    fixture.sandbox.put("/w/report.csv", "file", Some(claim));
    let _workers = QueueWorkers::start(&fixture);
    let work = v1::SendFileRequested {
        message: "here".to_owned(),
        ..request(&["/w/report.csv"])
    };
    let accepted = fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &work)
        .await
        .unwrap();
    assert_eq!(
        (accepted.delivery_id.as_str(), accepted.duplicate),
        ("d1", false)
    );
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert!(report.success);
    let messages = fixture.fake.visible_messages();
    assert_eq!(fixture.fake.visible_texts(), ["document:report.csv|here"]);
    assert_eq!(messages[0].bytes, b"a,b\n1,2\n");
    assert_eq!(report.files[0].platform_message_id, messages[0].id);
    let json: serde_json::Value = serde_json::from_str(&report.result_json).unwrap();
    assert_eq!(json["files"][0]["path"], "/w/report.csv");
    assert_eq!(json["files"][0]["state"], "delivered");

    // Without a finding the result says nothing about the content.
    assert!(json["files"][0].get("content_warning").is_none(), "{json}");

    let repeated = fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &work)
        .await
        .unwrap();
    assert!(
        repeated.duplicate,
        "the same operation is the same delivery"
    );
    fixture
        .replica
        .intake
        .accept(&fixture.meta("d2"), &work)
        .await
        .unwrap();
    finished_record(&fixture, "d2").await;
    assert_eq!(
        fixture.fake.visible_messages().len(),
        2,
        "requested twice, sent twice"
    );
}

#[tokio::test]
async fn r_1_a_failed_file_does_not_drop_the_other_files() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let claim = fixture.claim("ok.txt", b"ok").await;
    fixture.sandbox.put("/w/ok.txt", "file", Some(claim));
    let zip = fixture.claim("out.zip", b"PK\x03\x04").await;
    fixture.sandbox.put("/w/out", "dir", Some(zip));
    fixture.sandbox.put("/w/pipe", "fifo", None);
    let denied = Fault::new(FaultCode::Denied, "Not allowed.");
    fixture.sandbox.refuse("/w/.env", denied);
    let _workers = QueueWorkers::start(&fixture);
    let work = request(&["/w/none", "/w/ok.txt", "/w/.env", "/w/out", "/w/pipe"]);
    fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &work)
        .await
        .unwrap();
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(
        states(&report),
        [
            FileState::Rejected,
            FileState::Delivered,
            FileState::Rejected,
            FileState::Delivered,
            FileState::Rejected
        ]
    );
    let kinds: Vec<_> = report
        .files
        .iter()
        .map(|file| file.error_kind.map_or("", FileFailureKind::name))
        .collect();
    assert_eq!(
        kinds,
        ["not_found", "", "forbidden", "", "unsupported_kind"]
    );
    assert!(!report.success);
    let shown = fixture.fake.visible_texts();
    assert_eq!(shown[..2], ["document:ok.txt|", "document:out.zip|"]);
    assert!(
        shown[2].starts_with("text:|⚠️ Couldn't deliver: none, .env, pipe."),
        "{}",
        shown[2]
    );
    assert_eq!(shown.len(), 3);
}

#[tokio::test]
async fn a_refusal_is_repeated_when_its_work_comes_again() {
    let fixture = DeliveryFixture::new().await;
    let (meta, work) = (fixture.meta("d1"), request(&["/w/a"]));
    let cancel = CancellationToken::new();
    for attempt in 1..=2 {
        let gatherer = &fixture.replica.gatherer;
        let refused = gatherer.send(&meta, &work, 1, false, &cancel).await;
        // The event is a part of the failure: without it, the caller learns nothing after a crash.
        assert!(refused.is_err(), "attempt {attempt}");
        assert!(fixture.record("d1").await.finished);
    }
}

#[tokio::test]
async fn a_delivery_for_a_session_without_a_chat_is_rejected_with_an_event() {
    let fixture = DeliveryFixture::new().await;
    let _workers = QueueWorkers::start(&fixture);
    let work = request(&["/w/a"]);
    fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &work)
        .await
        .unwrap();
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(states(&report), [FileState::Rejected]);
    let mut events = fixture
        .bus
        .events(EventFilter::of::<v1::DeliveryRejected>().from_start())
        .await
        .unwrap();
    let event: v1::DeliveryRejected = events.next().await.unwrap().decode().unwrap();
    assert_eq!(event.operation_id, "d1");
    assert_eq!(event.report.unwrap().files.len(), 1);
}

#[tokio::test]
async fn stored_files_that_no_account_serves_are_named_in_the_receipt() {
    let fixture = DeliveryFixture::with(dray_platform::DuplicateProtection::Unknown, |config| {
        config.allow_targets = true;
    })
    .await;
    let _workers = QueueWorkers::start(&fixture);
    let claim = fixture.claim("report.pdf", b"%PDF-1.7").await;
    let work = v1::SendFileRequested {
        session: String::new(),
        paths: Vec::new(),
        claims: vec![claim.into()],
        target: Some(v1::ChatTarget {
            platform: "slack".to_owned(),
            ..chat("C1")
        }),
        ..request(&[])
    };
    fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &work)
        .await
        .unwrap();
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(states(&report), [FileState::Rejected]);
    let file = &report.files[0];
    assert_eq!((file.name.as_str(), file.size), ("report.pdf", 8));
    assert_eq!(file.error_kind, Some(FileFailureKind::NoAccount));
    assert!(
        report.notice.contains("no account is set up"),
        "{}",
        report.notice
    );
}

#[tokio::test]
async fn a_model_cannot_choose_another_chat_or_sandbox() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let claim = fixture.claim("a", b"a").await;
    fixture.sandbox.put("/w/a", "file", Some(claim));
    let _workers = QueueWorkers::start(&fixture);
    let other_chat = v1::SendFileRequested {
        target: Some(chat("666")),
        ..request(&["/w/a"])
    };
    let other_sandbox = v1::SendFileRequested {
        sandbox: "docker:db".to_owned(),
        ..request(&["/w/a"])
    };
    for (id, work) in [("d1", other_chat), ("d2", other_sandbox)] {
        fixture
            .replica
            .intake
            .accept(&fixture.meta(id), &work)
            .await
            .unwrap();
        let report = finished_record(&fixture, id).await;
        assert_eq!(
            report.files[0].error_kind,
            Some(ErrorKind::Forbidden.into()),
            "{id}"
        );
    }
    assert_eq!(fixture.fake.requests(), 0);
    let own = v1::SendFileRequested {
        target: Some(chat("42")),
        ..request(&["/w/a"])
    };
    fixture
        .replica
        .intake
        .accept(&fixture.meta("d3"), &own)
        .await
        .unwrap();
    assert!(finished_record(&fixture, "d3").await.success);
}

#[tokio::test]
async fn an_unavailable_file_fails_by_name_at_the_last_attempt_of_the_queue() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let unavailable = Fault::new(FaultCode::Unavailable, "Not now.");
    fixture.sandbox.refuse("/w/a.txt", unavailable);
    // The first attempt is the last one of this queue.
    let _workers = QueueWorkers::with_attempts(&fixture.replica, 1);
    let accepted = fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &request(&["/w/a.txt"]))
        .await;
    accepted.unwrap();
    let report = finished_record(&fixture, "d1").await;
    assert_eq!(states(&report), [FileState::Failed]);
    assert_eq!(report.files[0].path, b"/w/a.txt");
    let kind = report.files[0].error_kind;
    assert_eq!(kind, Some(ErrorKind::Transient.into()));
}

#[tokio::test]
async fn an_unavailable_sandbox_is_retried_until_the_last_attempt() {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    let unavailable = Fault::new(
        FaultCode::Unavailable,
        "A part of the file service did not answer.",
    );
    fixture.sandbox.refuse("a.txt", unavailable);
    let request = v1::SendFileRequested {
        paths: vec![b"a.txt".to_vec()],
        session: "s".to_owned(),
        ..v1::SendFileRequested::default()
    };
    let meta = fixture.meta("d");
    let cancel = CancellationToken::new();
    for attempt in 1..=2 {
        let failed = fixture
            .replica
            .gatherer
            .send(&meta, &request, 1, false, &cancel)
            .await;
        assert!(failed.unwrap_err().fault().is_retryable(), "{attempt}");
    }
    let sent = fixture
        .replica
        .gatherer
        .send(&meta, &request, 1, true, &cancel)
        .await;
    sent.unwrap();
    let report = fixture.record("d").await;
    assert_eq!(states(&report), [FileState::Failed]);
    assert_eq!(
        report.files[0].error_kind,
        Some(ErrorKind::Transient.into())
    );
}
