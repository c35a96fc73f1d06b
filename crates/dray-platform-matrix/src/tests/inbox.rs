//! Tests of messages of users that polling receives.

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::RecordingSink;
use dray_platform::{
    ErrorKind, InboundMessage, InboundSink, InboundSource as _, PlatformError, WebhookRequest,
};
use dray_types::{Period, Secret};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{NOW_MS, deliver, delivery, options, start, user};
use crate::fake_server::{FakeHomeserver, InjectedFault, OTHER_USER};
use crate::{MatrixOptions, MatrixPlatform};

/// Polls until this many messages were received.
async fn receive_messages(
    matrix: &MatrixPlatform,
    refuses: u32,
    count: usize,
) -> Vec<InboundMessage> {
    let (sink, mut receiver) = RecordingSink::new(refuses);
    let stop = CancellationToken::new();
    let polling = matrix.poll(&sink, stop.clone());
    let taking = async {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(receiver.recv().await.unwrap());
        }
        stop.cancel();
        all
    };
    let (polled, all) = tokio::join!(polling, taking);
    polled.unwrap();
    all
}

fn text_content(text: &str) -> Value {
    json!({ "msgtype": "m.text", "body": text })
}

fn bodies(messages: &[InboundMessage]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message.text.as_str())
        .collect()
}

#[tokio::test]
async fn files_of_users_have_the_text_of_their_message() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    let uri = fake.keep(b"hello".to_vec());
    fake.user_writes(
        &room,
        &json!({
            "msgtype": "m.image", "body": "look", "filename": "a.png", "url": uri,
            "info": { "size": 5, "mimetype": "image/png" },
            "m.relates_to": { "rel_type": "m.thread", "event_id": "$root" },
        }),
    );
    fake.user_writes(
        &room,
        &json!({ "msgtype": "m.file", "body": "b.txt", "url": uri }),
    );
    fake.user_writes(
        &room,
        &json!({ "msgtype": "m.file", "body": "c.txt", "file": { "url": uri } }),
    );
    fake.user_writes(
        &room,
        &json!({ "msgtype": "m.file", "body": "d.txt", "url": "https://evil.example/d" }),
    );
    let messages = receive_messages(&matrix, 0, 4).await;
    let first = &messages[0];
    assert_eq!(
        (first.text.as_str(), first.target.thread.as_str()),
        ("look", "$root")
    );
    assert_eq!(
        (first.sender.as_str(), first.target.chat.as_str()),
        (OTHER_USER, room.as_str())
    );
    let file = &first.attachments[0];
    assert_eq!(
        (file.name.as_str(), file.size, file.kind.as_str()),
        ("a.png", 5, "photo")
    );
    let chunks: Vec<Bytes> = matrix
        .fetch(file)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(chunks.concat(), b"hello");
    assert_eq!(
        (
            messages[1].text.as_str(),
            messages[1].attachments[0].name.as_str()
        ),
        ("", "b.txt")
    );
    for broken in &messages[2..] {
        assert_ne!(broken.attachments[0].unavailable, "");
    }
    assert!(matrix.fetch(&messages[3].attachments[0]).await.is_err());
    fake.script(InjectedFault::OldVersion);
    assert!(matrix.fetch(file).await.is_ok());
}

#[tokio::test]
async fn only_messages_of_other_users_are_received() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    deliver(&matrix, &delivery(&room, "my own", Vec::new()), "key")
        .await
        .unwrap();
    fake.something_happens(&room, "m.reaction");
    fake.user_writes(&room, &json!({ "msgtype": "m.notice", "body": "of a bot" }));
    let replacement = json!({ "rel_type": "m.replace", "event_id": "$1" });
    let correction =
        json!({ "msgtype": "m.text", "body": "* better", "m.relates_to": replacement });
    fake.user_writes(&room, &correction);
    fake.user_writes(&room, &json!({ "nothing": 1 }));
    fake.user_writes(&room, &text_content("first"));
    assert_eq!(bodies(&receive_messages(&matrix, 0, 1).await), ["first"]);
}

#[tokio::test]
async fn old_messages_are_skipped_and_those_just_before_the_start_are_not() {
    let fake = start().await;
    let matrix = user(MatrixOptions {
        catch_up: Period::secs(60),
        ..options(&fake)
    });
    let room = fake.room();
    fake.set_time(NOW_MS - 61_000);
    fake.user_writes(&room, &text_content("old"));
    fake.set_time(NOW_MS - 59_000);
    fake.user_writes(&room, &text_content("new"));
    assert_eq!(bodies(&receive_messages(&matrix, 0, 1).await), ["new"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn events_are_received_again_after_a_failed_store_or_sync() {
    let fake = start().await;
    let matrix = user(options(&fake));
    let room = fake.room();
    for text in ["first", "second", "third"] {
        fake.user_writes(&room, &text_content(text));
    }
    fake.script(InjectedFault::FailSync);
    let messages = receive_messages(&matrix, 2, 3).await;
    assert_eq!(bodies(&messages), ["first", "second", "third"]);
}

/// Lets a user write after a message was received.
#[derive(Debug)]
struct DelayedWriter<'a> {
    fake: &'a FakeHomeserver,
    room: &'a str,
    /// Number of messages of the user.
    count: usize,
    received: mpsc::UnboundedSender<InboundMessage>,
}

#[async_trait]
impl InboundSink for DelayedWriter<'_> {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        if message.text == "begin" {
            for number in 0..self.count {
                self.fake
                    .user_writes(self.room, &text_content(&number.to_string()));
            }
        }
        self.received.send(message).unwrap();
        Ok(())
    }
}

/// Receives a message, lets the user write this many more, and returns those that are received.
async fn receive_after_first(fake: &FakeHomeserver, room: &str, count: usize) -> Vec<String> {
    let matrix = user(options(fake));
    fake.user_writes(room, &text_content("begin"));
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let writer = DelayedWriter {
        fake,
        room,
        count,
        received: sender,
    };
    let stop = CancellationToken::new();
    let polling = matrix.poll(&writer, stop.clone());
    let taking = async {
        let mut all = Vec::new();
        while all.len() <= count {
            all.push(receiver.recv().await.unwrap().text);
        }
        stop.cancel();
        all.split_off(1)
    };
    let (polled, received) = tokio::join!(polling, taking);
    polled.unwrap();
    received
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn events_beyond_one_response_are_delivered_in_order() {
    let fake = start().await;
    let room = fake.room();
    assert_eq!(receive_after_first(&fake, &room, 250).await, numbers(250));
}

#[tokio::test]
async fn an_empty_page_does_not_end_the_read_of_missed_messages() {
    let fake = start().await;
    let room = fake.room();
    fake.script(InjectedFault::EmptyPage);
    assert_eq!(receive_after_first(&fake, &room, 250).await, numbers(250));
}

#[tokio::test]
async fn new_messages_of_a_server_with_a_slow_clock_are_received() {
    let fake = start().await;
    let room = fake.room();
    fake.user_writes(&room, &text_content("before"));
    let (sink, mut receiver) = RecordingSink::new(0);
    let matrix = user(options(&fake));
    let stop = CancellationToken::new();
    let polling = matrix.poll(&sink, stop.clone());
    let taking = async {
        assert_eq!(receiver.recv().await.unwrap().text, "before");
        // The clock of the server that accepts the next message is a day behind.
        fake.set_time(NOW_MS - 86_400_000);
        // The second request is made only after the messages of the first response are stored.
        while requests_of(&fake, "/sync") < 2 {
            tokio::task::yield_now().await;
        }
        fake.user_writes(&room, &text_content("after"));
        assert_eq!(receiver.recv().await.unwrap().text, "after");
        stop.cancel();
    };
    let (polled, ()) = tokio::join!(polling, taking);
    polled.unwrap();
}

#[tokio::test]
async fn history_of_a_room_that_was_joined_again_is_not_new() {
    skips_history_after_rejoin(0).await;
}

#[tokio::test]
async fn a_join_before_more_messages_than_one_response_has_is_seen() {
    skips_history_after_rejoin(150).await;
}

/// Lets the bot join a room again, whose history is not received, and the user write this many messages afterwards.
async fn skips_history_after_rejoin(messages: usize) {
    let fake = start().await;
    let room = fake.room();
    fake.user_writes(&room, &text_content("before"));
    let (sink, mut receiver) = RecordingSink::new(0);
    let matrix = user(options(&fake));
    let stop = CancellationToken::new();
    let polling = matrix.poll(&sink, stop.clone());
    let taking = async {
        assert_eq!(receiver.recv().await.unwrap().text, "before");
        while requests_of(&fake, "/sync") < 2 {
            tokio::task::yield_now().await;
        }
        fake.bot_rejoins(&room, &text_content("history"), NOW_MS - 86_400_000);
        for text in numbers(messages) {
            fake.user_writes(&room, &text_content(&text));
        }
        fake.user_writes(&room, &text_content("after"));
        for expected in numbers(messages) {
            assert_eq!(receiver.recv().await.unwrap().text, expected);
        }
        assert_eq!(receiver.recv().await.unwrap().text, "after");
        stop.cancel();
    };
    let (polled, ()) = tokio::join!(polling, taking);
    polled.unwrap();
}

#[tokio::test]
async fn a_stop_ends_the_read_of_missed_messages() {
    let fake = start().await;
    let room = fake.room();
    let matrix = user(options(&fake));
    fake.user_writes(&room, &text_content("begin"));
    let (sender, _receiver) = mpsc::unbounded_channel();
    let writer = DelayedWriter {
        fake: &fake,
        room: &room,
        // 29 pages.
        count: 3000,
        received: sender,
    };
    let stop = CancellationToken::new();
    let polling = matrix.poll(&writer, stop.clone());
    let stopping = async {
        while requests_of(&fake, "/messages") == 0 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (polled, ()) = tokio::join!(polling, stopping);
    polled.unwrap();
    assert!(requests_of(&fake, "/messages") < 10);
}

/// Requests with this in their path.
fn requests_of(fake: &FakeHomeserver, path: &str) -> usize {
    let requests = fake.requests();
    requests.iter().filter(|line| line.contains(path)).count()
}

#[tokio::test]
async fn a_refused_token_ends_the_polling_and_there_is_no_webhook() {
    let fake = start().await;
    let matrix = user(MatrixOptions {
        token: Secret::new("syt_wrong"),
        ..options(&fake)
    });
    let (sink, _receiver) = RecordingSink::new(0);
    let error = matrix
        .poll(&sink, CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    let request = WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    assert!(matrix.webhook(&request).is_err());
}
