//! Tests of single faults at the worst moment: a service is killed during a visible request, the bus restarts, a copy
//! out of the sandbox is cut.

use std::time::Duration;

use dray_platform_discord::fake_server::InjectedFault as DiscordFault;
use dray_platform_telegram::fake_server::InjectedFault;
use dray_proto::v1::FileState;
use dray_testkit::eventually;
use dray_testkit::s3::{FaultRule, S3Fault};

use super::rig::{TransferFixture, target};

/// Longer than everything that may follow a fault, on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_of_a_killed_service_is_unknown_or_sent_once_as_the_platform_allows() {
    let rig = TransferFixture::start().await;
    let _transfer = rig.up("sandbox-transfer").await;
    let delivery = rig.up("platform-delivery").await;
    let stalled = rig.platforms.telegram.chat();
    let unseen = rig.platforms.telegram.chat();
    let digest = rig.write("a.txt", b"shown, and the answer never comes");
    let other = rig.write("b.txt", b"stalled before it is shown");
    rig.platforms.telegram.script(InjectedFault::NeverAnswer);
    rig.submit("k-1", "a.txt", target("telegram", &stalled))
        .await;
    eventually("the message", async || {
        (rig.shown_in(stalled, digest) == 1).then_some(())
    })
    .await;
    rig.platforms
        .telegram
        .script(InjectedFault::StallDuringBody);
    rig.submit("k-2", "b.txt", target("telegram", &unseen))
        .await;
    eventually("the second request", async || {
        (rig.begun() == 2).then_some(())
    })
    .await;
    delivery.kill9();

    rig.leases_run_out().await;
    let _delivery = rig.up("platform-delivery").await;
    rig.hand_out_again().await;
    let file = rig.ended("k-1", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Unknown, "{file:?}");
    assert_eq!(rig.shown_in(stalled, digest), 1, "never a second time");
    let file = rig.ended("k-2", WAIT_TIMEOUT).await;
    assert_ne!(
        file.file_state(),
        FileState::Delivered,
        "nobody confirmed it: {file:?}"
    );
    assert_eq!(rig.shown_in(unseen, other), 0);
    let open = rig.lines(&["receipts", "--open"]);
    assert_eq!(open.len(), 2, "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_nats_in_the_middle_loses_and_repeats_nothing() {
    let mut rig = TransferFixture::start().await;
    let _services = rig.all_up().await;
    let chats = [rig.platforms.telegram.chat(), rig.platforms.telegram.chat()];
    let channel = rig.platforms.discord.channel(0);
    let digest = rig.write("a.txt", b"a file that travels while the bus is away");
    rig.platforms
        .telegram
        .script(InjectedFault::StallDuringBody);
    rig.platforms.discord.script(DiscordFault::LoseAnswer);
    rig.submit("n-1", "a.txt", target("telegram", &chats[0]))
        .await;
    eventually("a request under way", async || {
        (rig.begun() == 1).then_some(())
    })
    .await;
    rig.submit("n-2", "a.txt", target("discord", &channel))
        .await;
    rig.submit("n-3", "a.txt", target("telegram", &chats[1]))
        .await;
    rig.nats.kill9();
    rig.nats.restart();
    let file = rig.ended("n-2", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    assert_eq!(
        rig.platforms.discord.visible_messages(&channel).len(),
        1,
        "the nonce was kept"
    );
    for (id, chat) in [("n-1", chats[0]), ("n-3", chats[1])] {
        let file = rig.ended(id, WAIT_TIMEOUT).await;
        let copies = rig.shown_in(chat, digest);
        let truthful = match file.file_state() {
            FileState::Delivered => copies == 1,
            FileState::Unknown => copies <= 1,
            _ => copies == 0,
        };
        assert!(truthful, "{id} is shown {copies} times: {file:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_out_of_the_sandbox_is_repeated_and_sent_once() {
    let rig = TransferFixture::start().await;
    let digest = rig.write("a.bin", &vec![0x5a; 300_000]);
    let chat = cut_copy_of(&rig, "a.bin").await;
    assert_eq!(rig.shown_in(chat, digest), 1);
}

/// A directory may take ten minutes to copy; a dead worker is noticed long before that.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_of_a_directory_is_repeated_within_minutes() {
    let rig = TransferFixture::start().await;
    std::fs::create_dir(rig.sandbox().join("plans")).unwrap();
    rig.write("plans/a.txt", b"one");
    rig.write("plans/b.txt", b"two");
    let chat = cut_copy_of(&rig, "plans").await;
    assert_eq!(rig.platforms.telegram.visible_messages(chat).len(), 1);
}

/// Delivers a path to a chat of Telegram while the service that copies it is killed during the copy.
async fn cut_copy_of(rig: &TransferFixture, path: &str) -> i64 {
    let transfer = rig.up("sandbox-transfer").await;
    let _delivery = rig.up("platform-delivery").await;
    let chat = rig.platforms.telegram.chat();
    let requests_before = rig.store.received_requests().len();
    rig.store.add(FaultRule::new(S3Fault::Stall, |parts| {
        parts.method == "PUT"
    }));
    rig.submit("c-1", path, target("telegram", &chat)).await;
    eventually("a copy under way", async || {
        let mut news = rig
            .store
            .received_requests()
            .into_iter()
            .skip(requests_before);
        news.any(|request| request.starts_with("PUT")).then_some(())
    })
    .await;
    transfer.kill9();
    rig.store.clear_faults();
    let _transfer = rig.up("sandbox-transfer").await;
    let file = rig.ended("c-1", WAIT_TIMEOUT * 2).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    chat
}
