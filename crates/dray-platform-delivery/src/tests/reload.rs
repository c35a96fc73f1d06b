//! Changes of the accounts while the service runs.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{LedgerKey, Meta};
use dray_platform::DuplicateProtection;
use dray_service::ServiceContext;
use dray_types::{Clock, Deadline, OperationId};
use tokio_util::sync::CancellationToken;

use super::fake::FakePlatform;
use super::fixture::{DeliveryFixture, start_work, states, tenant};
use super::path::{QueueWorkers, finished_record};
use crate::accounts::PlatformAccount;
use crate::config::{AccountConfig, Config};
use crate::deliver::WorkEnd;
use crate::inbound::DurableInboundSink;
use crate::inbound::pollers::PollTasks;
use crate::record::{FileFailureKind, FileState};

fn telegram(token: &str) -> AccountConfig {
    let options = serde_json::json!({"token": token});
    AccountConfig {
        telegram: Some(serde_json::from_value(options).unwrap()),
        ..AccountConfig::default()
    }
}

fn config(accounts: &[(&str, &str)]) -> Config {
    let accounts = accounts.iter();
    Config {
        accounts: accounts
            .map(|(name, token)| ((*name).to_owned(), telegram(token)))
            .collect(),
        cli: true,
        ..Config::default()
    }
}

#[test]
fn accounts_whose_settings_are_the_same_stay_open() {
    let clock = Clock::manual(1);
    let earlier = config(&[("a", "1:a"), ("b", "2:b"), ("c", "3:c")]);
    let opened = earlier.accounts(&clock).unwrap();
    let later = config(&[("a", "1:a"), ("b", "2:new"), ("d", "4:d")]);
    let accounts = later.accounts_after(&earlier, &opened, &clock).unwrap();
    let kept = |account: &Arc<PlatformAccount>| {
        let is_open = opened.iter().any(|other| Arc::ptr_eq(&other, account));
        (account.name.clone(), is_open)
    };
    let kept: Vec<_> = accounts.iter().map(kept).collect();
    let expected = [("a", true), ("b", false), ("d", false), ("cli", true)];
    assert_eq!(
        kept,
        expected.map(|(name, is_open)| (name.to_owned(), is_open))
    );
}

fn account(fake: &Arc<FakePlatform>) -> Arc<PlatformAccount> {
    let account = PlatformAccount::new("bot", fake.clone()).with_inbox(fake.clone());
    Arc::new(account.with_tenant(Some(tenant())))
}

async fn wait_for_poll(fake: &FakePlatform) {
    dray_testkit::eventually("a poll", async || (fake.polls() == 1).then_some(())).await;
}

#[tokio::test]
async fn a_changed_account_is_polled_after_the_end_of_its_earlier_poll_and_a_removed_one_no_more() {
    let fixture = DeliveryFixture::new().await;
    let inbound = &fixture.replica.inbound;
    let cx = ServiceContext::new(
        fixture.bus.clone(),
        fixture.store.clone(),
        fixture.clock.clone(),
    );
    let mut pollers = PollTasks::new(Arc::clone(inbound), &cx);
    pollers.follow_accounts();
    wait_for_poll(&fixture.fake).await;
    let is_stopped = fixture.fake.hold_end_of_poll();

    let later = FakePlatform::with("telegram", DuplicateProtection::Unknown);
    inbound.accounts.replace(vec![account(&later)]);
    pollers.follow_accounts();
    // Nothing may end or begin a second time when the same accounts are followed again.
    pollers.follow_accounts();
    is_stopped.await;
    assert_eq!(
        later.polls(),
        0,
        "two polls would take each other's messages"
    );
    fixture.fake.end_poll();
    wait_for_poll(&later).await;

    let sink = DurableInboundSink {
        service: Arc::clone(inbound),
        account: account(&later),
    };
    assert!(!sink.take_lease("other replica").await);
    inbound.accounts.replace(Vec::new());
    pollers.follow_accounts();
    dray_testkit::eventually("the lease of the removed account", async || {
        sink.take_lease("other replica").await.then_some(())
    })
    .await;
    assert_eq!((fixture.fake.polls(), later.polls()), (1, 1));
}

#[tokio::test]
async fn a_delivery_waits_for_a_replica_with_its_account_and_is_refused_without_one() {
    let fixture = DeliveryFixture::new().await;
    let start = fixture.files("d1", &[("a.txt", b"a")]).await;
    let accounts = &fixture.replica.inbound.accounts;
    let present: Vec<_> = accounts.iter().collect();
    // This replica has not read the new account yet.
    accounts.replace(Vec::new());
    let later = fixture.deliver(&start).await.unwrap_err();
    assert!(later.to_string().contains("no account serves"), "{later}");
    accounts.replace(present.clone());
    assert_eq!(
        states(&fixture.delivered(&start).await),
        [FileState::Delivered]
    );

    let start = fixture.files("d2", &[("a.txt", b"a")]).await;
    accounts.replace(Vec::new());
    fixture.deliver(&start).await.unwrap_err();
    fixture.clock.advance(Duration::from_mins(3));
    let WorkEnd::Finished(refused) = fixture.deliver(&start).await.unwrap() else {
        panic!("no replica has the account");
    };
    assert_eq!(states(&refused), [FileState::Rejected]);
    assert_eq!(
        refused.files[0].error_kind,
        Some(FileFailureKind::NoAccount)
    );
}

#[tokio::test]
async fn a_delivery_left_to_other_replicas_uses_up_no_attempt() {
    let fixture = DeliveryFixture::new().await;
    let start = fixture.files("d1", &[("a.txt", b"a")]).await;
    let accounts = &fixture.replica.inbound.accounts;
    let present: Vec<_> = accounts.iter().collect();
    accounts.replace(Vec::new());
    // A second attempt that counts would be the end.
    let _workers = QueueWorkers::with_attempts(&fixture.replica, 1);
    let work = start_work(&start);
    let published = fixture.bus.publish_work(&fixture.meta("d1"), &work).await;
    published.unwrap();
    let key = LedgerKey::of_message(&work, &tenant(), &OperationId::new("d1").unwrap());
    dray_testkit::eventually("an attempt without the account", async || {
        let entry = fixture.bus.ledger().read(&key).await.unwrap()?;
        let fault = entry.record.last_error?;
        (fault.detail == "left_to_other_replica").then_some(())
    })
    .await;
    fixture.clock.advance(Duration::from_secs(100));
    accounts.replace(present);
    let delivered = finished_record(&fixture, "d1").await;
    assert_eq!(states(&delivered), [FileState::Delivered]);
}

#[tokio::test]
async fn a_message_is_tried_again_until_this_replica_has_its_account() {
    let fixture = DeliveryFixture::new().await;
    let accounts = &fixture.replica.inbound.accounts;
    accounts.replace(Vec::new());
    let receiver = &fixture.replica.inbound.receiver;
    let work = dray_proto::v1::ReceiveMessage {
        chat: Some(super::fixture::chat("42")),
        ..Default::default()
    };
    let cancel = CancellationToken::new();
    // The deadline of a message is an hour after it was accepted.
    let accepted: Meta = fixture.meta("m1");
    let meta = accepted.with_deadline(Deadline::after(
        fixture.clock.now_ms(),
        Duration::from_hours(1),
    ));
    for waited_seconds in [0, 179] {
        fixture.clock.advance(Duration::from_secs(waited_seconds));
        let early = receiver
            .receive(&meta, &work, 1, &cancel)
            .await
            .unwrap_err();
        assert!(early.fault().is_retryable());
        assert!(dray_bus::parks_work(early.fault()), "no attempt counts");
    }
    fixture.clock.advance(Duration::from_secs(1));
    let last = receiver.receive(&meta, &work, 1, &cancel).await;
    assert!(!last.unwrap_err().fault().is_retryable());
}
