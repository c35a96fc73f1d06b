//! Tests of deliveries whose work is a dead letter or ended too early.

use std::time::Duration;

use dray_bus::{EventFilter, WorkCompleted, WorkDelivery, WorkFailure, WorkHandler, WorkSettings};
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, FaultCode, OperationId};
use futures_util::FutureExt as _;
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, states, tenant};
use crate::deliver::{WorkEnd, conclude};
use crate::reconciler::{mark_unpublished, round_meta, round_work};
use crate::record::{DeliveryRecord, FileState};

/// The end that a worker gives to all work.
#[derive(Clone, Copy)]
enum ScriptedWorker {
    /// Ends with a failure that may be retried.
    Fail,
    /// Ends with success and has no effect.
    Succeed,
}

impl ScriptedWorker {
    #[expect(
        clippy::result_large_err,
        reason = "the bus requires this type of a handler"
    )]
    fn result(self) -> Result<WorkCompleted, WorkFailure> {
        match self {
            Self::Fail => {
                let fault = Fault::new(FaultCode::Unavailable, "It does not work.");
                Err(fault.retry_after(Duration::from_millis(1)).into())
            }
            Self::Succeed => Ok(WorkCompleted::event(&v1::DeliveryProgressed::default())),
        }
    }
}

impl WorkHandler<v1::DeliverFiles> for ScriptedWorker {
    async fn handle(
        &self,
        _: WorkDelivery<v1::DeliverFiles>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.result()
    }
}

impl WorkHandler<v1::SendFileRequested> for ScriptedWorker {
    async fn handle(
        &self,
        _: WorkDelivery<v1::SendFileRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.result()
    }
}

/// Runs a worker of this kind for work `W` until the ledger records the end of the work.
async fn run_worker<W: dray_proto::Work>(
    fixture: &DeliveryFixture,
    durable: &str,
    work: &W,
    id: &str,
    worker: ScriptedWorker,
) where
    ScriptedWorker: WorkHandler<W>,
{
    let operation = OperationId::new(id).unwrap();
    let settings = WorkSettings {
        attempts: 1,
        ..WorkSettings::default()
    };
    let stop = CancellationToken::new();
    let working = fixture
        .bus
        .work::<W, _>(durable, settings, worker, stop.clone());
    let key = dray_bus::LedgerKey::of_message(work, &tenant(), &operation);
    let ended = async {
        while fixture
            .bus
            .ledger()
            .read(&key)
            .await
            .unwrap()
            .is_none_or(|entry| entry.record.terminal() == TerminalState::Unspecified)
        {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (worked, ()) = tokio::join!(working, ended);
    worked.unwrap();
}

/// Publishes the work that continues a delivery, and lets the worker handle it.
async fn run_round(fixture: &DeliveryFixture, id: &str, worker: ScriptedWorker) {
    let report = fixture.record(id).await;
    let meta = round_meta(&report).unwrap();
    let next = round_work(&report);
    fixture.bus.publish_work(&meta, &next).await.unwrap();
    let durable = "platform-delivery-telegram";
    run_worker(fixture, durable, &next, meta.operation.as_str(), worker).await;
}

async fn audit_lines(fixture: &DeliveryFixture) -> Vec<(String, String)> {
    let filter = EventFilter::new("dray.audit.>").from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let mut lines = Vec::new();
    while let Some(Ok(event)) = events.next().now_or_never() {
        if let Ok(line) = v1::DeliveryAudit::decode(event.payload.clone()) {
            lines.push((line.name, line.state));
        }
    }
    lines
}

#[tokio::test]
async fn a_dead_letter_ends_its_delivery_immediately_with_the_true_state() {
    let mut fixture = DeliveryFixture::new().await;
    fixture.fake.script([FakeAction::CrashAfter]);
    let crashing = fixture
        .files("d", &[("a.txt", b"a"), ("b.txt", b"b")])
        .await;
    fixture.crash_in(&crashing).await;
    fixture.sweep().await;
    assert!(
        !fixture.record("d").await.finished,
        "a worker may still have the work"
    );

    run_round(&fixture, "d", ScriptedWorker::Fail).await;
    assert!(!fixture.record("d").await.finished);
    fixture.sweep().await;
    let report = fixture.record("d").await;
    assert!(report.finished && !report.success, "{report:?}");
    assert_eq!(states(&report), [FileState::Unknown, FileState::Failed]);
    assert!(
        report.notice.contains("Couldn't deliver: b.txt")
            && report.notice.contains("May have been delivered: a.txt"),
        "{}",
        report.notice
    );
    assert!(report.result_json.contains(r#""success":false"#));
    let audited_files = audit_lines(&fixture).await;
    assert_eq!(
        audited_files,
        [
            ("a.txt".to_owned(), "unknown".to_owned()),
            ("b.txt".to_owned(), "failed".to_owned())
        ]
    );
    fixture.sweep().await;
    assert_eq!(audit_lines(&fixture).await.len(), 2, "once");
    assert!(matches!(
        fixture.resume("d").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    assert_eq!(fixture.fake.requests(), 1, "nothing is sent any more");
}

#[tokio::test]
async fn a_round_that_a_slow_clock_considers_too_early_is_repeated() {
    let fixture = DeliveryFixture::new().await;
    fixture
        .fake
        .script([FakeAction::Wait(Duration::from_mins(97))]);
    let waiting = fixture.files("d", &[("a.txt", b"a")]).await;
    fixture.deliver(&waiting).await.unwrap();
    fixture.clock.advance(Duration::from_mins(98));
    run_round(&fixture, "d", ScriptedWorker::Succeed).await;
    fixture.sweep().await;
    assert_eq!(fixture.record("d").await.rounds, 2);
    let WorkEnd::Finished(report) = fixture.resume("d").await.unwrap() else {
        panic!("the delivery must have ended");
    };
    assert_eq!(states(&report), [FileState::Delivered]);
}

#[tokio::test]
async fn a_record_whose_writer_crashed_before_requesting_the_next_round_is_ended() {
    let fixture = DeliveryFixture::new().await;
    let claim = fixture.claim("a.txt", b"a").await;
    let request = v1::SendFileRequested {
        claims: vec![claim.into()],
        session: "s".to_owned(),
        ..v1::SendFileRequested::default()
    };
    fixture
        .bus
        .publish_work(&fixture.meta("d"), &request)
        .await
        .unwrap();
    let deliver = fixture.files("d", &[("a.txt", b"a")]).await;
    let meta = fixture.meta("d");
    let begun_at_ms = fixture.clock.now_ms();
    let report = DeliveryRecord::begin(&meta, deliver, begun_at_ms, 86_400_000);
    let key = crate::records::record_key(&tenant(), &meta.operation);
    fixture
        .replica
        .receipts
        .log
        .records
        .write(&key, report, 0)
        .await
        .unwrap();
    fixture.clock.advance(Duration::from_mins(2));
    fixture.sweep().await;
    assert!(
        !fixture.record("d").await.finished,
        "it may still be worked on"
    );
    run_worker(
        &fixture,
        "platform-delivery",
        &request,
        "d",
        ScriptedWorker::Fail,
    )
    .await;
    fixture.sweep().await;
    let report = fixture.record("d").await;
    assert_eq!(
        (report.finished, states(&report)),
        (true, vec![FileState::Failed])
    );
}

#[tokio::test]
async fn deliveries_that_wait_for_a_time_or_a_user_are_not_changed() {
    let fixture = DeliveryFixture::new().await;
    let refused = FakeAction::Refuse(dray_platform::ErrorKind::WindowClosed);
    fixture.fake.script([refused]);
    let waiting = fixture.files("d", &[("a.txt", b"a")]).await;
    fixture.deliver(&waiting).await.unwrap();
    for _ in 0..5 {
        fixture.clock.advance(Duration::from_hours(4));
        fixture.sweep().await;
    }
    let report = fixture.record("d").await;
    assert_eq!((report.finished, report.rounds), (false, 1));
}

#[tokio::test]
async fn an_end_whose_process_stopped_before_publishing_it_is_published_once() {
    let fixture = DeliveryFixture::new().await;
    let start = fixture.files("d", &[("a.txt", b"a")]).await;
    let meta = fixture.meta("d");
    let now_ms = fixture.clock.now_ms();
    let mut record = DeliveryRecord::begin(&meta, start, now_ms, 86_400_000);
    conclude(&mut record, now_ms);
    mark_unpublished(&mut record, now_ms);
    let key = crate::records::record_key(&tenant(), &meta.operation);
    let records = &fixture.replica.receipts.log.records;
    records.write(&key, record, 0).await.unwrap();
    fixture.sweep().await;
    assert!(
        audit_lines(&fixture).await.is_empty(),
        "its process may still publish it"
    );
    fixture.clock.advance(Duration::from_secs(11));
    fixture.sweep().await;
    fixture.sweep().await;
    assert_eq!(
        audit_lines(&fixture).await,
        [("a.txt".to_owned(), "failed".to_owned())]
    );
    let filter = EventFilter::of::<v1::DeliveryDone>().from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let done = events.next().await.unwrap();
    let done: v1::DeliveryDone = done.decode().unwrap();
    let report = done.report.unwrap();
    assert!(report.finished && report.due_at_ms == 0);
    assert!(events.next().now_or_never().is_none());
    assert_eq!(fixture.record("d").await.due_at_ms, 0);
}
