//! Tests of changes of the configuration while services run: accounts are added, changed and removed without a restart,
//! and work under way ends with the account with which it began.

use std::time::Duration;

use dray_platform_telegram::fake_server::FakeTelegram;
use dray_platform_webhook::fake_server::FakeReceiver;
use dray_proto::v1::{self, FileState};
use dray_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::transfer_fixture::{TransferFixture, target};

const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const FILE_TEXT: &str = "a file that travels while its account changes";

/// The section of an account with one receiver, `ci`.
fn receiver_section(url: &str, secret: &str) -> String {
    format!(
        "[platform-delivery.accounts.builds.webhook.hooks.ci]\n\
         url = '{url}'\nsecret = '{secret}'\nallow_http = true\n"
    )
}

fn bot_section(bot: &FakeTelegram, token: &str) -> String {
    format!(
        "[platform-delivery.accounts.second.telegram]\n\
         token = '{token}'\nbase_url = '{}'\npoll_wait = '2s'\n",
        bot.url()
    )
}

fn builds() -> v1::ChatTarget {
    v1::ChatTarget {
        account: "builds".to_owned(),
        ..target("webhook", "ci")
    }
}

fn second_bot(chat: i64) -> v1::ChatTarget {
    v1::ChatTarget {
        account: "second".to_owned(),
        ..target("telegram", &chat)
    }
}

/// Reads a request until it contains the file's text, and the end of its body.
async fn read_request(connection: &mut TcpStream) {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(FILE_TEXT) {
        let count = connection.read_buf(&mut received).await.unwrap();
        assert_ne!(count, 0, "the request ended early");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_change_while_deliveries_run_and_nothing_is_lost() {
    let fixture = TransferFixture::start().await;
    let digest = fixture.write("a.txt", FILE_TEXT.as_bytes());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let first_url = format!("http://{}/files", listener.local_addr().unwrap());
    fixture.configure(&receiver_section(&first_url, "first-secret"));
    let _transfer = fixture.up("sandbox-transfer").await;
    let delivery = fixture.up("platform-delivery").await;

    // A request is under way when its account gets another receiver, and a bot is added.
    fixture.submit("r-1", "a.txt", builds()).await;
    let (mut connection, _) = listener.accept().await.unwrap();
    read_request(&mut connection).await;
    let (receiver, bot) = (
        FakeReceiver::start().await.unwrap(),
        FakeTelegram::start().await.unwrap(),
    );
    let hook = receiver.hook("/hooks/ci");
    let builds_section = receiver_section(hook.url.expose(), hook.secret.expose());
    let with_bot = |token: &str| format!("{builds_section}{}", bot_section(&bot, token));
    fixture.configure(&with_bot("1:wrong"));
    let reloads = "dray_delivery_config_reloads_total{";
    delivery.wait_for_metric(reloads, "1").await;
    connection
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    let file = fixture.wait_for_file("r-1", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    assert!(receiver.received_events("/hooks/ci").is_empty());

    // What begins later has the new receiver, and a corrected token counts without a restart.
    fixture.submit("r-2", "a.txt", builds()).await;
    let file = fixture.wait_for_file("r-2", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    assert_eq!(receiver.received_events("/hooks/ci").len(), 1);
    fixture.configure(&with_bot(bot.token().expose()));
    delivery.wait_for_metric(reloads, "2").await;
    let chat = bot.chat();
    fixture.submit("r-3", "a.txt", second_bot(chat)).await;
    let file = fixture.wait_for_file("r-3", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");

    bot.user_writes(chat, "hello", None);
    eventually("a poll of the added bot", async || {
        (bot.waiting() == 0).then_some(())
    })
    .await;

    // A configuration that is not valid changes nothing, and is reported.
    fixture.configure("[platform-delivery.accounts.second.telegram]\ntokn = 'x'\n");
    delivery
        .wait_for_metric("dray_delivery_config_stale", "1")
        .await;
    fixture.submit("r-4", "a.txt", second_bot(chat)).await;
    let file = fixture.wait_for_file("r-4", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Delivered, "{file:?}");
    let shown = bot.visible_messages(chat).into_iter();
    let shown = shown.filter_map(|message| message.file);
    assert_eq!(shown.filter(|file| file.sha256 == digest).count(), 2);

    // A removed account is no longer polled, and its name is refused.
    fixture.configure(&builds_section);
    delivery
        .wait_for_metric("dray_delivery_config_stale", "0")
        .await;
    fixture.submit("r-5", "a.txt", second_bot(chat)).await;
    let file = fixture.wait_for_file("r-5", WAIT_TIMEOUT).await;
    assert_eq!(file.file_state(), FileState::Rejected, "{file:?}");
    assert_eq!(file.failure(), Some(v1::DeliveryErrorKind::NoAccount));
}
