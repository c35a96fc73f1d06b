//! Deliveries that a caller ends: before their files are stored, while they wait, and in the middle of a request.

use std::time::Duration;

use dray_proto::v1;
use dray_testkit::eventually;
use dray_types::Fault;

use super::fake::FakeAction;
use super::path::QueueWorkers;
use super::world::{DeliveryFixture, chat, states};
use crate::deliver::WorkEnd;
use crate::error::DeliveryError;
use crate::record::FileState;

async fn cancel(
    world: &DeliveryFixture,
    id: &str,
    session: &str,
) -> Result<v1::DeliveryReport, DeliveryError> {
    let request = v1::CancelDeliveryRequest {
        delivery_id: id.to_owned(),
        session: session.to_owned(),
    };
    let context = &world.desk.intake.context;
    let meta = world.meta("cancel");
    world.desk.reconciler.cancel(context, &meta, &request).await
}

fn is_not_found(result: Result<v1::DeliveryReport, DeliveryError>) -> bool {
    matches!(result, Err(DeliveryError::NotFound(_)))
}

#[tokio::test]
async fn a_waiting_delivery_that_is_cancelled_is_never_sent() {
    let world = DeliveryFixture::new().await;
    world
        .fake
        .script([FakeAction::Wait(Duration::from_mins(97))]);
    let work = world.files("d1", &[("a.txt", b"a"), ("b.txt", b"b")]).await;
    let waiting = world.deliver(&work).await.unwrap();
    assert!(matches!(waiting, WorkEnd::Waiting(_)));
    assert!(is_not_found(cancel(&world, "d1", "another").await));
    assert!(is_not_found(cancel(&world, "d2", "s").await));
    let report = cancel(&world, "d1", "s").await.unwrap();
    assert!(report.finished && report.cancelled && !report.success);
    let record = world.record("d1").await;
    assert_eq!(states(&record), [FileState::Failed, FileState::Failed]);
    world.clock.advance(Duration::from_mins(98));
    world.sweep().await;
    assert!(world.published("delivery-telegram").await.is_empty());
    assert!(world.fake.shown().is_empty());
    // Once more changes nothing.
    assert_eq!(cancel(&world, "d1", "s").await.unwrap(), report);
}

#[tokio::test]
async fn a_delivery_that_is_over_stays_as_it_is() {
    let world = DeliveryFixture::new().await;
    world.fake.script([FakeAction::Accept]);
    let work = world.files("d1", &[("a.txt", b"a")]).await;
    assert!(world.delivered(&work).await.success);
    let report = cancel(&world, "d1", "s").await.unwrap();
    assert!(report.success && !report.cancelled);
}

#[tokio::test]
async fn a_file_whose_request_is_under_way_is_unknown_after_a_cancellation() {
    let mut world = DeliveryFixture::new().await;
    world.fake.script([FakeAction::DieAfter]);
    let work = world.files("d1", &[("a.txt", b"a"), ("b.txt", b"b")]).await;
    world.die_in(&work).await;
    assert!(cancel(&world, "d1", "s").await.unwrap().cancelled);
    let record = world.record("d1").await;
    assert_eq!(states(&record), [FileState::Unknown, FileState::Failed]);
    // The next worker finds it over, and sends nothing.
    let requests = world.fake.requests();
    assert!(matches!(
        world.deliver(&work).await.unwrap(),
        WorkEnd::Finished(_)
    ));
    assert_eq!(world.fake.requests(), requests);
}

#[tokio::test]
async fn a_delivery_is_cancelled_while_its_files_are_not_stored() {
    let world = DeliveryFixture::new().await;
    world.sandbox.bind(chat("42"));
    let away = Fault::new(dray_types::FaultCode::Unavailable, "The sandbox is away.");
    world
        .sandbox
        .refuse("/work/a.txt", away.retry_after(Duration::from_mins(1)));
    let _workers = QueueWorkers::start(&world);
    let request = v1::SendFileRequested {
        session: "s".to_owned(),
        paths: vec![b"/work/a.txt".to_vec()],
        ..v1::SendFileRequested::default()
    };
    let meta = world.meta("d1");
    world.desk.intake.accept(&meta, &request).await.unwrap();
    let report = eventually("the work to begin", async || {
        cancel(&world, "d1", "s").await.ok()
    })
    .await;
    assert!(report.finished && report.cancelled && report.files.is_empty());
    assert_eq!(report.session, "s");
    assert!(world.fake.shown().is_empty());
}
