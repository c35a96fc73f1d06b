//! Tests of single faults: a service is killed during a visible request, the bus restarts during deliveries, and a copy
//! out of the sandbox is interrupted.

use std::time::Duration;

use dray_bus::LedgerKey;
use dray_platform_discord::fake_server::InjectedFault as DiscordFault;
use dray_platform_telegram::fake_server::InjectedFault;
use dray_proto::v1::{FileState, SendFileRequested};
use dray_testkit::eventually;
use dray_testkit::s3::{FaultRule, S3Fault};
use dray_types::{OperationId, TenantId};

use super::transfer_fixture::{TransferFixture, target};

/// Longest wait: longer than all work that may follow a fault, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_of_a_killed_service_is_unknown_or_sent_once_as_the_platform_allows() {
    let fixture = TransferFixture::start().await;
    let _transfer = fixture.up("sandbox-transfer").await;
    let delivery = fixture.up("platform-delivery").await;
    let unanswered = fixture.platforms.telegram.chat();
    let stalled = fixture.platforms.telegram.chat();
    let unanswered_digest = fixture.write("a.txt", b"shown, and the response never arrives");
    let stalled_digest = fixture.write("b.txt", b"stalled before it is shown");
    fixture
        .platforms
        .telegram
        .script(InjectedFault::NeverRespond);
    fixture
        .submit("k-1", "a.txt", target("telegram", &unanswered))
        .await;
    eventually("the message", async || {
        (fixture.shown_in(unanswered, unanswered_digest) == 1).then_some(())
    })
    .await;
    fixture
        .platforms
        .telegram
        .script(InjectedFault::StallDuringBody);
    fixture
        .submit("k-2", "b.txt", target("telegram", &stalled))
        .await;
    eventually("the second request", async || {
        (fixture.count_started_sends() == 2).then_some(())
    })
    .await;
    delivery.kill9();

    fixture.expire_leases().await;
    let _delivery = fixture.up("platform-delivery").await;
    fixture.shorten_ack_wait().await;
    let file = fixture.wait_for_file("k-1", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Unknown, "{file:?}");
    assert_eq!(
        fixture.shown_in(unanswered, unanswered_digest),
        1,
        "never a second time"
    );
    let file = fixture.wait_for_file("k-2", WAIT_TIMEOUT).await;
    assert_ne!(
        file.file_state(),
        FileState::Delivered,
        "no response confirmed it: {file:?}"
    );
    assert_eq!(fixture.shown_in(stalled, stalled_digest), 0);
    let open = fixture.lines(&["receipts", "--open"]);
    assert_eq!(open.len(), 2, "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_nats_during_deliveries_loses_and_repeats_nothing() {
    let mut fixture = TransferFixture::start().await;
    let _services = fixture.all_up().await;
    let chats = [
        fixture.platforms.telegram.chat(),
        fixture.platforms.telegram.chat(),
    ];
    let channel = fixture.platforms.discord.channel(0);
    let digest = fixture.write("a.txt", b"a file that travels while the bus is away");
    fixture
        .platforms
        .telegram
        .script(InjectedFault::StallDuringBody);
    fixture.platforms.discord.script(DiscordFault::LoseResponse);
    fixture
        .submit("n-1", "a.txt", target("telegram", &chats[0]))
        .await;
    eventually("a request under way", async || {
        (fixture.count_started_sends() == 1).then_some(())
    })
    .await;
    fixture
        .submit("n-2", "a.txt", target("discord", &channel))
        .await;
    fixture
        .submit("n-3", "a.txt", target("telegram", &chats[1]))
        .await;
    fixture.nats.kill9();
    fixture.nats.restart();
    let file = fixture.wait_for_file("n-2", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    assert_eq!(
        fixture.platforms.discord.visible_messages(&channel).len(),
        1,
        "the repeated request had the same nonce"
    );
    for (id, chat) in [("n-1", chats[0]), ("n-3", chats[1])] {
        let file = fixture.wait_for_file(id, WAIT_TIMEOUT).await;
        let copies = fixture.shown_in(chat, digest);
        let is_truthful = match file.file_state() {
            FileState::Delivered => copies == 1,
            FileState::Unknown => copies <= 1,
            _ => copies == 0,
        };
        assert!(is_truthful, "{id} is shown {copies} times: {file:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_outlasts_an_object_store_that_is_away() {
    let fixture = TransferFixture::start().await;
    let _transfer = fixture.up("sandbox-transfer").await;
    let _delivery = fixture.up("platform-delivery").await;
    let chat = fixture.platforms.telegram.chat();
    let digest = fixture.write("a.txt", b"a file that waits for the store");
    fixture.store.add(FaultRule::all(S3Fault::Down));
    fixture
        .submit("s-1", "a.txt", target("telegram", &chat))
        .await;
    let operation = OperationId::new("s-1").unwrap();
    let key = LedgerKey::of::<SendFileRequested>(&TenantId::default(), &operation);
    eventually("an attempt that names the store", async || {
        let entry = fixture.bus.ledger().read(&key).await.ok()??;
        let fault = entry.record.last_error?;
        (fault.detail == "store_unreachable").then_some(())
    })
    .await;
    fixture.store.clear_faults();
    let file = fixture.wait_for_file("s-1", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    assert_eq!(fixture.shown_in(chat, digest), 1);
    assert_eq!(
        fixture.attempts("s-1").await,
        1,
        "the attempt during the outage does not count"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_out_of_the_sandbox_is_repeated_and_sent_once() {
    let fixture = TransferFixture::start().await;
    let digest = fixture.write("a.bin", &vec![0x5a; 300_000]);
    let chat = deliver_with_interrupted_copy(&fixture, "a.bin").await;
    assert_eq!(fixture.shown_in(chat, digest), 1);
}

/// A directory may take ten minutes to copy; a killed worker is noticed long before that.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_of_a_directory_is_repeated_within_minutes() {
    let fixture = TransferFixture::start().await;
    std::fs::create_dir(fixture.sandbox().join("plans")).unwrap();
    fixture.write("plans/a.txt", b"one");
    fixture.write("plans/b.txt", b"two");
    let chat = deliver_with_interrupted_copy(&fixture, "plans").await;
    assert_eq!(fixture.platforms.telegram.visible_messages(chat).len(), 1);
}

/// Delivers a path to a chat of Telegram while the service that copies it is killed during the copy.
async fn deliver_with_interrupted_copy(fixture: &TransferFixture, path: &str) -> i64 {
    let transfer = fixture.up("sandbox-transfer").await;
    let _delivery = fixture.up("platform-delivery").await;
    let chat = fixture.platforms.telegram.chat();
    let requests_before = fixture.store.received_requests().len();
    fixture.store.add(FaultRule::new(S3Fault::Stall, |parts| {
        parts.method == "PUT"
    }));
    fixture.submit("c-1", path, target("telegram", &chat)).await;
    eventually("a copy under way", async || {
        let mut requests = fixture
            .store
            .received_requests()
            .into_iter()
            .skip(requests_before);
        requests
            .any(|request| request.starts_with("PUT"))
            .then_some(())
    })
    .await;
    transfer.kill9();
    fixture.store.clear_faults();
    let _transfer = fixture.up("sandbox-transfer").await;
    let file = fixture.wait_for_file("c-1", WAIT_TIMEOUT * 2).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    chat
}
