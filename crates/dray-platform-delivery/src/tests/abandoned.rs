//! Deliveries whose work is dead, or ended too soon.

use std::time::Duration;

use dray_bus::{EventFilter, WorkCompleted, WorkDelivery, WorkFailure, WorkHandler, WorkSettings};
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, FaultCode, OperationId};
use futures_util::FutureExt as _;
use prost::Message as _;
use tokio_util::sync::CancellationToken;

use super::fake::FakeAction;
use super::world::{DeliveryFixture, states, tenant};
use crate::deliver::WorkEnd;
use crate::reconciler::{round_meta, round_work};
use crate::record::{DeliveryRecord, FileState};

/// Ends every piece of work as it is told.
#[derive(Clone, Copy)]
enum ScriptedWorker {
    /// It fails, again and again.
    Fails,
    /// It says that it did what there was to do.
    Does,
}

impl ScriptedWorker {
    #[expect(
        clippy::result_large_err,
        reason = "it is what the bus takes from a handler"
    )]
    fn ends(self) -> Result<WorkCompleted, WorkFailure> {
        match self {
            Self::Fails => {
                let fault = Fault::new(FaultCode::Unavailable, "It does not work.");
                Err(fault.retry_after(Duration::from_millis(1)).into())
            }
            Self::Does => Ok(WorkCompleted::event(&v1::DeliveryProgressed::default())),
        }
    }
}

impl WorkHandler<v1::DeliverFiles> for ScriptedWorker {
    async fn handle(
        &self,
        _: WorkDelivery<v1::DeliverFiles>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.ends()
    }
}

impl WorkHandler<v1::SendFileRequested> for ScriptedWorker {
    async fn handle(
        &self,
        _: WorkDelivery<v1::SendFileRequested>,
    ) -> Result<WorkCompleted, WorkFailure> {
        self.ends()
    }
}

/// Lets a worker of this kind have work `W` until the ledger says that it is over.
async fn work<W: dray_proto::Work>(
    world: &DeliveryFixture,
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
    let working = world
        .bus
        .work::<W, _>(durable, settings, worker, stop.clone());
    let key = dray_bus::LedgerKey::of_message(work, &tenant(), &operation);
    let ended = async {
        while world
            .bus
            .ledger()
            .read(&key)
            .await
            .unwrap()
            .is_none_or(|held| held.record.terminal() == TerminalState::Unspecified)
        {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (worked, ()) = tokio::join!(working, ended);
    worked.unwrap();
}

/// Publishes what goes on with a delivery and lets the worker have it.
async fn round(world: &DeliveryFixture, id: &str, worker: ScriptedWorker) {
    let report = world.record(id).await;
    let meta = round_meta(&report).unwrap();
    let next = round_work(&report);
    world.bus.publish_work(&meta, &next).await.unwrap();
    let durable = "platform-delivery-telegram";
    work(world, durable, &next, meta.operation.as_str(), worker).await;
}

async fn audited(world: &DeliveryFixture) -> Vec<(String, String)> {
    let filter = EventFilter::new("dray.audit.>").from_start();
    let mut events = world.bus.events(filter).await.unwrap();
    let mut lines = Vec::new();
    while let Some(Ok(event)) = events.next().now_or_never() {
        if let Ok(line) = v1::DeliveryAudit::decode(event.payload.clone()) {
            lines.push((line.name, line.state));
        }
    }
    lines
}

#[tokio::test]
async fn a_dead_letter_ends_its_delivery_at_once_and_truthfully() {
    let mut world = DeliveryFixture::new().await;
    world.fake.script([FakeAction::DieAfter]);
    let dying = world.files("d", &[("a.txt", b"a"), ("b.txt", b"b")]).await;
    world.die_in(&dying).await;
    world.sweep().await;
    assert!(!world.record("d").await.finished, "somebody may have it");

    round(&world, "d", ScriptedWorker::Fails).await;
    assert!(!world.record("d").await.finished);
    world.sweep().await;
    let report = world.record("d").await;
    assert!(report.finished && !report.success, "{report:?}");
    assert_eq!(states(&report), [FileState::Unknown, FileState::Failed]);
    assert!(
        report.notice.contains("Couldn't deliver: b.txt")
            && report.notice.contains("May have been delivered: a.txt"),
        "{}",
        report.notice
    );
    assert!(report.result_json.contains(r#""success":false"#));
    let told = audited(&world).await;
    assert_eq!(
        told,
        [
            ("a.txt".to_owned(), "unknown".to_owned()),
            ("b.txt".to_owned(), "failed".to_owned())
        ]
    );
    world.sweep().await;
    assert_eq!(audited(&world).await.len(), 2, "once");
    assert!(matches!(
        world.go_on("d").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    assert_eq!(world.fake.requests(), 1, "nothing is sent any more");
}

#[tokio::test]
async fn a_round_that_a_slow_clock_thought_too_early_is_followed_by_another() {
    let world = DeliveryFixture::new().await;
    world
        .fake
        .script([FakeAction::Wait(Duration::from_mins(97))]);
    let waiting = world.files("d", &[("a.txt", b"a")]).await;
    world.deliver(&waiting).await.unwrap();
    world.clock.advance(Duration::from_mins(98));
    round(&world, "d", ScriptedWorker::Does).await;
    world.sweep().await;
    assert_eq!(world.record("d").await.rounds, 2);
    let WorkEnd::Finished(report) = world.go_on("d").await.unwrap() else {
        panic!("it still waits");
    };
    assert_eq!(states(&report), [FileState::Delivered]);
}

#[tokio::test]
async fn a_record_whose_writer_died_before_it_asked_for_more_is_ended() {
    let world = DeliveryFixture::new().await;
    let claim = world.claim("a.txt", b"a").await;
    let request = v1::SendFileRequested {
        claims: vec![claim.into()],
        session: "s".to_owned(),
        ..v1::SendFileRequested::default()
    };
    world
        .bus
        .publish_work(&world.meta("d"), &request)
        .await
        .unwrap();
    let deliver = world.files("d", &[("a.txt", b"a")]).await;
    let meta = world.meta("d");
    let begun_at_ms = world.clock.now_ms();
    let report = DeliveryRecord::begin(&meta, deliver, begun_at_ms, 86_400_000);
    let key = crate::records::record_key(&tenant(), &meta.operation);
    world
        .desk
        .receipts
        .log
        .records
        .write(&key, report, 0)
        .await
        .unwrap();
    world.clock.advance(Duration::from_mins(2));
    world.sweep().await;
    assert!(
        !world.record("d").await.finished,
        "it may still be worked on"
    );
    work(
        &world,
        "platform-delivery",
        &request,
        "d",
        ScriptedWorker::Fails,
    )
    .await;
    world.sweep().await;
    let report = world.record("d").await;
    assert_eq!(
        (report.finished, states(&report)),
        (true, vec![FileState::Failed])
    );
}

#[tokio::test]
async fn what_waits_for_its_time_or_its_user_is_left_alone() {
    let world = DeliveryFixture::new().await;
    let refused = FakeAction::Refuse(dray_platform::ErrorKind::WindowClosed);
    world.fake.script([refused]);
    let waiting = world.files("d", &[("a.txt", b"a")]).await;
    world.deliver(&waiting).await.unwrap();
    for _ in 0..5 {
        world.clock.advance(Duration::from_hours(4));
        world.sweep().await;
    }
    let report = world.record("d").await;
    assert_eq!((report.finished, report.rounds), (false, 1));
}
