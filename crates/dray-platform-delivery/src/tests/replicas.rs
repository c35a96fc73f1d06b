//! Tests of two replicas that send to one chat.

use std::sync::Arc;
use std::time::Duration;

use dray_proto::v1;
use dray_service::ServiceContext;
use dray_testkit::eventually;
use dray_types::OperationId;
use tokio_util::sync::CancellationToken;

use super::fake::FakeAction;
use super::fixture::{DeliveryFixture, accounts, start_work, states, tenant};
use crate::chat_positions::chat_of;
use crate::deliver::WorkEnd;
use crate::delivery_service::DeliveryService;
use crate::record::{DeliveryRecord, FileState};

/// Another replica on the same bus, store and platform.
pub(super) fn other(fixture: &DeliveryFixture) -> Arc<DeliveryService> {
    let cx = ServiceContext::new(
        fixture.bus.clone(),
        fixture.store.clone(),
        fixture.clock.clone(),
    );
    let config = fixture.replica.inbound.config.get().as_ref().clone();
    Arc::new(DeliveryService::new(config, accounts(&fixture.fake), &cx))
}

/// The key of the lease of the chat `42`.
fn lease_name(fixture: &DeliveryFixture) -> String {
    let account = fixture.replica.inbound.accounts.named("bot").unwrap();
    let chat = chat_of(&account.id(), &super::fixture::chat("42"));
    format!("chat\0{chat}")
}

#[tokio::test]
async fn a_chat_that_another_replica_sends_to_is_waited_for() {
    let fixture = DeliveryFixture::new().await;
    let other = other(&fixture);
    let life = Duration::from_hours(1);
    let name = lease_name(&fixture);
    let lease = other
        .sender
        .turns
        .leases
        .take(&name, life)
        .await
        .unwrap()
        .unwrap();
    let work = fixture.files("d", &[("a.txt", b"a")]).await;
    let releasing = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.fake.requests(), 0);
        lease.release().await;
    };
    let (report, ()) = tokio::join!(fixture.delivered(&work), releasing);
    assert_eq!(states(&report), [FileState::Delivered]);
    let repeated = other.sender.turns.leases.take(&name, life).await.unwrap();
    assert!(repeated.is_some(), "it was given back");
}

#[tokio::test]
async fn a_crashed_replica_blocks_a_chat_only_until_its_lease_ends() {
    let fixture = DeliveryFixture::new().await;
    let other = other(&fixture);
    fixture.fake.script([FakeAction::CrashBefore]);
    let crashing = fixture.files("d1", &[("a.txt", b"a")]).await;
    {
        let crashed = fixture.deliver(&crashing);
        tokio::pin!(crashed);
        tokio::select! {
            ended = &mut crashed => panic!("it did not crash: {ended:?}"),
            () = fixture.fake.crashed() => {}
        }
        let name = lease_name(&fixture);
        let lease = other
            .sender
            .turns
            .leases
            .take(&name, Duration::from_secs(1));
        assert!(lease.await.unwrap().is_none(), "it sends");
    }
    fixture.clock.advance(Duration::from_secs(15));
    let next = fixture.files("d2", &[("b.txt", b"b")]).await;
    let cancel = CancellationToken::new();
    // The other replica gets the work of the one that crashed, and sends it first.
    for (work, expected) in [(crashing, FileState::Unknown), (next, FileState::Delivered)] {
        let meta = fixture.meta(&work.delivery_id);
        let ended = other
            .sender
            .deliver(&meta, &start_work(&work), &cancel)
            .await;
        let WorkEnd::Finished(report) = ended.unwrap() else {
            panic!("the delivery must have ended");
        };
        assert_eq!(states(&report), [expected]);
    }
}

#[tokio::test]
async fn an_earlier_delivery_is_sent_first_by_any_replica() {
    let fixture = DeliveryFixture::new().await;
    let other = other(&fixture);
    let first = fixture.files("d1", &[("first.txt", b"1")]).await;
    let meta = fixture.meta("d1");
    let begun_at_ms = fixture.clock.now_ms();
    let record = DeliveryRecord::begin(&meta, first.clone(), begun_at_ms, 86_400_000);
    let key = crate::records::record_key(&tenant(), &meta.operation);
    fixture
        .replica
        .receipts
        .log
        .records
        .write(&key, record, 0)
        .await
        .unwrap();
    fixture.clock.advance(Duration::from_secs(1));
    let second = fixture.files("d2", &[("second.txt", b"2")]).await;
    fixture.replica.receipts.log.index.refresh().await.unwrap();
    let cancel = CancellationToken::new();
    // The later delivery starts before the earlier one.
    let first = start_work(&first);
    let (second_record, first_end) = tokio::join!(
        fixture.delivered(&second),
        other.sender.deliver(&meta, &first, &cancel)
    );
    assert_eq!(states(&second_record), [FileState::Delivered]);
    assert!(matches!(first_end.unwrap(), WorkEnd::Finished(_)));
    assert_eq!(
        fixture.fake.visible_texts(),
        ["document:first.txt|", "document:second.txt|"]
    );
}

/// Number of records that another replica wrote. One read of the index takes fewer.
const FOREIGN_RECORDS: u64 = 5_100;

#[tokio::test]
async fn a_list_begins_with_the_newest_delivery_even_while_the_index_is_far_behind() {
    let fixture = DeliveryFixture::new().await;
    let log = &fixture.replica.receipts.log;
    for number in 1..=FOREIGN_RECORDS {
        let id = OperationId::new(format!("d-{number:05}")).unwrap();
        let record = DeliveryRecord {
            delivery_id: id.to_string(),
            begun_at_ms: number,
            ..DeliveryRecord::default()
        };
        let key = crate::records::record_key(&tenant(), &id);
        log.records.write(&key, record, 0).await.unwrap();
    }
    let request = v1::ListReceiptsRequest {
        limit: 1,
        ..v1::ListReceiptsRequest::default()
    };
    let receipts = &fixture.replica.receipts;
    // On a slow machine the first calls end before all changes are read, and report that.
    let listed = eventually("the list", async || {
        let listed = receipts.receipts(&fixture.meta("q"), &request).await;
        listed.ok()
    });
    let newest = listed.await.reports.remove(0);
    assert_eq!(newest.delivery_id, format!("d-{FOREIGN_RECORDS:05}"));
}
