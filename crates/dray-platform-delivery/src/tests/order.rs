//! The order of deliveries in a chat, regardless of how long their files are copied.

use std::sync::Arc;
use std::time::Duration;

use dray_proto::v1;
use dray_types::{Fault, FaultCode, OperationId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fixture::{DeliveryFixture, chat, tenant};
use super::path::{QueueWorkers, finished_record, request};
use super::replicas::other;
use crate::deliver::WorkEnd;
use crate::delivery_service::DeliveryService;
use crate::records::record_key;

const DELIVERY_IDS: [&str; 8] = ["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"];

/// A fixture with a file for each of these deliveries, in a session of the chat `42`.
async fn fixture_with_files(ids: &[&str]) -> DeliveryFixture {
    let fixture = DeliveryFixture::new().await;
    fixture.sandbox.bind(chat("42"));
    for id in ids {
        let claim = fixture.claim(&format!("{id}.txt"), id.as_bytes()).await;
        fixture
            .sandbox
            .put(&format!("/w/{id}.txt"), "file", Some(claim));
    }
    fixture
}

fn work(id: &str) -> v1::SendFileRequested {
    request(&[&format!("/w/{id}.txt")])
}

async fn accept(fixture: &DeliveryFixture, id: &str) {
    let accepted = fixture
        .replica
        .intake
        .accept(&fixture.meta(id), &work(id))
        .await;
    assert!(!accepted.unwrap().duplicate);
}

/// Copies the file of a delivery from the sandbox.
async fn gather(fixture: &DeliveryFixture, id: &str) {
    let cancel = CancellationToken::new();
    let (meta, work) = (fixture.meta(id), work(id));
    let sent = fixture
        .replica
        .gatherer
        .send(&meta, &work, 1, false, &cancel)
        .await;
    sent.unwrap();
}

fn expected_texts(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| format!("document:{id}.txt|")).collect()
}

#[tokio::test]
async fn a_delivery_waits_for_an_earlier_one_whose_files_are_still_copied() {
    let fixture = fixture_with_files(&["d1", "d2", "d3"]).await;
    for id in ["d1", "d2", "d3"] {
        accept(&fixture, id).await;
    }
    for id in ["d3", "d2"] {
        gather(&fixture, id).await;
        let ended = fixture.resume(id).await.unwrap();
        assert!(matches!(ended, WorkEnd::Waiting(_)), "{id}");
    }
    fixture.sweep().await;
    let published = fixture.published("delivery-telegram").await;
    assert_eq!(
        published,
        ["d3", "d2"],
        "no waiting delivery can continue yet"
    );
    assert_eq!(fixture.fake.requests(), 0);
    gather(&fixture, "d1").await;
    assert!(matches!(
        fixture.resume("d1").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    fixture.sweep().await;
    let published = fixture.published("delivery-telegram").await;
    assert_eq!(published[2..], ["d1", "r1-d2"], "one after the other");
    for id in ["d2", "d3"] {
        let ended = fixture.resume(id).await.unwrap();
        assert!(matches!(ended, WorkEnd::Finished(_)), "{id}");
        fixture.sweep().await;
    }
    let published = fixture.published("delivery-telegram").await;
    assert_eq!(published[4..], ["r1-d3"]);
    assert_eq!(
        fixture.fake.visible_texts(),
        expected_texts(&["d1", "d2", "d3"])
    );
}

/// Whether a place is open in the chat `42`.
async fn has_open_place(fixture: &DeliveryFixture) -> bool {
    let places = &fixture.replica.gatherer.places;
    let (_, chat) = places.chat_of(&tenant(), &chat("42")).await.unwrap();
    places.order.first(&chat).await.unwrap().is_some()
}

#[tokio::test]
async fn a_request_that_is_refused_or_dead_lettered_releases_its_place() {
    let fixture = fixture_with_files(&["d1"]).await;
    let preview = v1::DeliveryFlags {
        as_preview: true,
        ..v1::DeliveryFlags::default()
    };
    // The operator permits no previews, which only the worker checks.
    let refused = v1::SendFileRequested {
        flags: Some(preview),
        ..work("d1")
    };
    let later = Fault::new(FaultCode::Unavailable, "Not now.").retry_after(Duration::from_secs(1));
    let dead_lettered = v1::SendFileRequested {
        target: Some(chat("42")),
        ..work("d1")
    };
    let cancel = CancellationToken::new();
    for (id, work) in [("d1", refused), ("d2", dead_lettered)] {
        let meta = fixture.meta(id);
        fixture.replica.intake.accept(&meta, &work).await.unwrap();
        assert!(has_open_place(&fixture).await, "{id}");
        if id == "d2" {
            fixture.sandbox.refuse_session(later.clone());
            let gatherer = &fixture.replica.gatherer;
            let early = gatherer.send(&meta, &work, 1, false, &cancel);
            assert!(early.await.is_err());
            assert!(has_open_place(&fixture).await, "another attempt follows");
        }
        let gatherer = &fixture.replica.gatherer;
        let ended = gatherer.send(&meta, &work, 1, true, &cancel);
        assert!(ended.await.is_err(), "{id}");
        assert!(!has_open_place(&fixture).await, "{id}");
    }
}

/// Requests eight deliveries in sequence, runs their work on these replicas, and checks the order of the messages.
async fn check_order_of_eight(fixture: &DeliveryFixture, replicas: &[Arc<DeliveryService>]) {
    let stop = CancellationToken::new();
    let workers: Vec<_> = replicas.iter().map(QueueWorkers::of).collect();
    let mut reconcilers = JoinSet::new();
    for replica in replicas {
        reconcilers.spawn(Arc::clone(&replica.reconciler).run(stop.clone()));
    }
    for (id, replica) in DELIVERY_IDS.iter().zip(replicas.iter().cycle()) {
        replica
            .intake
            .accept(&fixture.meta(id), &work(id))
            .await
            .unwrap();
    }
    for id in DELIVERY_IDS {
        assert!(finished_record(fixture, id).await.success, "{id}");
    }
    assert_eq!(fixture.fake.visible_texts(), expected_texts(&DELIVERY_IDS));
    stop.cancel();
    while let Some(ended) = reconcilers.join_next().await {
        ended.unwrap();
    }
    drop(workers);
}

#[tokio::test]
async fn deliveries_are_shown_in_the_order_of_their_requests() {
    let fixture = fixture_with_files(&DELIVERY_IDS).await;
    check_order_of_eight(&fixture, &[Arc::clone(&fixture.replica)]).await;
}

#[tokio::test]
async fn two_replicas_show_deliveries_in_the_order_of_their_requests() {
    let fixture = fixture_with_files(&DELIVERY_IDS).await;
    let replicas = [Arc::clone(&fixture.replica), other(&fixture)];
    check_order_of_eight(&fixture, &replicas).await;
}

#[tokio::test]
async fn a_delivery_that_hangs_blocks_its_chat_for_at_most_the_timeout() {
    let fixture = fixture_with_files(&["d1", "d2"]).await;
    accept(&fixture, "d1").await;
    accept(&fixture, "d2").await;
    gather(&fixture, "d2").await;
    assert!(matches!(
        fixture.resume("d2").await.unwrap(),
        WorkEnd::Waiting(_)
    ));
    fixture.clock.advance(Duration::from_mins(5));
    fixture.sweep().await;
    assert_eq!(
        fixture.published("delivery-telegram").await,
        ["d2", "r1-d2"]
    );
    assert!(matches!(
        fixture.resume("d2").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    gather(&fixture, "d1").await;
    assert!(matches!(
        fixture.resume("d1").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    assert_eq!(fixture.fake.visible_texts(), expected_texts(&["d2", "d1"]));
}

#[tokio::test]
async fn a_worker_that_died_after_its_last_write_does_not_block_its_chat() {
    let fixture = DeliveryFixture::new().await;
    let work = fixture.files("d1", &[("a.txt", b"a")]).await;
    fixture.delivered(&work).await;
    // A worker that dies before it releases its place leaves this state.
    let places = &fixture.replica.sender.turns.places;
    let target = work.target.clone().unwrap();
    let (_, chat) = places.chat_of(&tenant(), &target).await.unwrap();
    let key = record_key(&tenant(), &OperationId::new("d1").unwrap());
    let position = fixture.record("d1").await.begun_at_ms;
    places.order.hold(&chat, &key, position).await.unwrap();
    // The bus delivers its work again.
    fixture.delivered(&work).await;
    assert_eq!(places.order.first(&chat).await.unwrap(), None);
}

#[tokio::test]
async fn a_delivery_to_another_chat_does_not_wait() {
    let fixture = fixture_with_files(&["d1", "d2"]).await;
    accept(&fixture, "d1").await;
    let mut other_chat = fixture.files("e", &[("e.txt", b"e")]).await;
    other_chat.target = Some(chat("43"));
    assert!(fixture.delivered(&other_chat).await.success);
}

#[tokio::test]
async fn repeated_and_refused_requests_do_not_block_the_order() {
    let fixture = fixture_with_files(&["d1"]).await;
    accept(&fixture, "d1").await;
    gather(&fixture, "d1").await;
    assert!(matches!(
        fixture.resume("d1").await.unwrap(),
        WorkEnd::Finished(_)
    ));
    let repeated = fixture
        .replica
        .intake
        .accept(&fixture.meta("d1"), &work("d1"))
        .await;
    assert!(repeated.unwrap().duplicate);
    let other_chat = v1::SendFileRequested {
        target: Some(chat("666")),
        ..work("d1")
    };
    let refused = fixture
        .replica
        .intake
        .accept(&fixture.meta("d2"), &other_chat)
        .await;
    refused.unwrap();
    for chat_id in ["42", "666"] {
        let target = chat(chat_id);
        let (_, chat) = fixture
            .replica
            .reconciler
            .places
            .chat_of(&super::fixture::tenant(), &target)
            .await
            .unwrap();
        assert_eq!(
            fixture
                .replica
                .reconciler
                .places
                .order
                .first(&chat)
                .await
                .unwrap(),
            None
        );
    }
}
