//! Files of users, and the fake server with the client library discord.py.

use std::time::Duration;

use bytes::Bytes;
use dray_platform::{ErrorKind, InboundSource as _, PlatformError};
use dray_types::ByteSize;
use futures_util::TryStreamExt as _;
use serde_json::json;

use super::inbox::{begun, receive, with_short_delays};
use super::{bot, options};
use crate::DiscordOptions;
use crate::fake_server::{BOT_TOKEN, DisconnectAll, FakeDiscord, FileFault, USER_ID};

#[tokio::test]
async fn files_of_users_come_with_their_text() {
    let fake = FakeDiscord::start().await.unwrap();
    let bot = with_short_delays(options(&fake));
    let (channel, person) = (fake.channel(0), fake.conversation());
    let thread = fake.thread(&channel);
    let (polled, ()) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        fake.user_writes(&channel, "look", &[("a.png", b"\x89PNG!"), ("b.txt", b"")]);
        fake.user_writes(&thread, "in the thread", &[]);
        fake.user_writes(&person, "", &[("c.txt", b"among us")]);
        let first = fixture.next().await;
        assert_eq!(
            (first.text.as_str(), first.sender.as_str()),
            ("look", USER_ID)
        );
        assert_eq!(
            (first.target.chat, first.target.thread),
            (channel.clone(), String::new())
        );
        let file = &first.attachments[0];
        assert_eq!(
            (file.name.as_str(), file.size, file.kind.as_str()),
            ("a.png", 5, "photo")
        );
        assert!(!file.reference.contains(BOT_TOKEN));
        let bytes: Vec<Bytes> = bot_fetch(&fake, file).await.unwrap();
        assert_eq!(bytes.concat(), b"\x89PNG!");
        assert!(
            bot_fetch(&fake, &first.attachments[1])
                .await
                .unwrap()
                .is_empty()
        );
        let second = fixture.next().await;
        assert_eq!(
            (second.target.chat, second.target.thread),
            (channel, thread)
        );
        let third = fixture.next().await;
        assert_eq!((third.target.chat, third.attachments.len()), (person, 1));
    })
    .await;
    polled.unwrap();
}

#[tokio::test]
async fn files_of_forwarded_messages_are_fetched_after_their_address_expired() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let receiver = with_short_delays(options(&fake));
    let (polled, ()) = receive(&receiver, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        fake.user_forwards(&channel, "read this", &[("report.txt", b"words")]);
        let message = fixture.next().await;
        assert_eq!(message.text, "Forwarded message:\nread this");
        let file = &message.attachments[0];
        assert_eq!(file.name, "report.txt");
        assert_eq!(bot_fetch(&fake, file).await.unwrap().concat(), b"words");
        fake.expire();
        assert_eq!(bot_fetch(&fake, file).await.unwrap().concat(), b"words");
    })
    .await;
    polled.unwrap();
}

async fn bot_fetch(
    fake: &FakeDiscord,
    file: &dray_platform::InboundAttachment,
) -> Result<Vec<Bytes>, PlatformError> {
    bot(options(fake)).fetch(file).await?.try_collect().await
}

#[tokio::test]
async fn files_of_another_size_than_reported_fail() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let receiver = with_short_delays(options(&fake));
    let (_, ()) = receive(&receiver, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        let id = fake.user_writes(&channel, "", &[("a.txt", &vec![7; 100_000])]);
        let message = fixture.next().await;
        let file = &message.attachments[0];
        for fault in [FileFault::Short, FileFault::Long] {
            fake.script_file(fault);
            let error = bot_fetch(&fake, file).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Transient, "{fault:?}");
        }
        fake.script_file(FileFault::Redirect);
        assert_eq!(
            bot_fetch(&fake, file).await.unwrap_err().kind(),
            ErrorKind::Unknown
        );
        // If the file is missing or its address has expired, a new address is read from its message.
        fake.script_file(FileFault::Missing);
        assert_eq!(
            bot_fetch(&fake, file).await.unwrap().concat().len(),
            100_000
        );
        fake.expire();
        assert_eq!(
            bot_fetch(&fake, file).await.unwrap().concat().len(),
            100_000
        );
        fake.script_file(FileFault::Missing);
        fake.script_file(FileFault::Missing);
        assert_eq!(
            bot_fetch(&fake, file).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        fake.delete(&channel, &id);
        assert_eq!(
            bot_fetch(&fake, file).await.unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let strict = bot(DiscordOptions {
            download_limit: Some(ByteSize::bytes(99_999)),
            ..options(&fake)
        });
        let error = strict.fetch(file).await.err().unwrap();
        assert_eq!(error.numbers(), Some((100_000, 99_999)));
    })
    .await;
}

#[tokio::test]
async fn r_9_files_are_fetched_from_known_hosts_only() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = bot(options(&fake));
    for url in [
        "http://169.254.169.254/latest",
        "https://cdn.discordapp.com.evil.example/a",
        "https://evil.example/cdn.discordapp.com",
        "file:///etc/passwd",
        "http://127.0.0.1:1/a",
    ] {
        // The channel is invalid, so the file can be fetched only by its address.
        let reference = json!({ "channel": "x", "message": "1", "url": url });
        let file = dray_platform::InboundAttachment {
            id: "1".to_owned(),
            name: "a".to_owned(),
            size: 1,
            media_type: String::new(),
            reference: reference.to_string(),
            kind: "document".to_owned(),
            unavailable: String::new(),
        };
        let error = discord.fetch(&file).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{url}");
    }
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn discord_py_accepts_the_fake_gateway() {
    let fake = FakeDiscord::start().await.unwrap();
    let (channel, person) = (fake.channel(0), fake.conversation());
    let thread = fake.thread(&channel);
    let arguments = [fake.url(), BOT_TOKEN.to_owned(), channel.clone()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let running = dray_testkit::python::run_script("discord_gateway.py", "discord", &arguments);
    let writing = async {
        begun(&fake, 1).await;
        fake.user_writes(&channel, "look", &[("a.txt", b"hello")]);
        fake.user_writes(&thread, "in the thread", &[]);
        // The message of the client is the signal for the next step.
        let waiting = async {
            while fake.visible_messages(&channel).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(2), waiting)
            .await
            .expect("the client must write");
        fake.disconnect_all(DisconnectAll::Drop);
        fake.user_writes(&person, "meanwhile", &[("b.txt", b"missed")]);
        begun(&fake, 2).await
    };
    let (output, logins) = tokio::join!(running, writing);
    assert!(logins[1].starts_with("resume "), "{logins:?}");
    assert_eq!(output["limit"], 1000);
    assert_eq!(
        output["messages"],
        json!([
            [channel, "look", USER_ID, ["a.txt", "hello"]],
            [thread, "in the thread", USER_ID, []],
            [person, "meanwhile", USER_ID, ["b.txt", "missed"]],
        ])
    );
    assert_eq!(output["resumed"], 1);
    assert_eq!(output["history"], json!(["look"]));
}
