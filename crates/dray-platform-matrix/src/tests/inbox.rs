//! Messages of users.

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
use crate::double::{FakeHomeserver, InjectedFault, OTHER_USER};
use crate::{MatrixOptions, MatrixPlatform};

/// Polls until so many messages were taken.
async fn take(matrix: &MatrixPlatform, refuses: u32, count: usize) -> Vec<InboundMessage> {
    let (taker, mut receiver) = RecordingSink::new(refuses);
    let stop = CancellationToken::new();
    let polling = matrix.poll(&taker, stop.clone());
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

fn words(text: &str) -> Value {
    json!({ "msgtype": "m.text", "body": text })
}

fn bodies(messages: &[InboundMessage]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message.text.as_str())
        .collect()
}

#[tokio::test]
async fn files_of_users_come_with_their_words() {
    let double = start().await;
    let matrix = user(options(&double));
    let room = double.room();
    let uri = double.keep(b"hello".to_vec());
    double.user_writes(
        &room,
        &json!({
            "msgtype": "m.image", "body": "look", "filename": "a.png", "url": uri,
            "info": { "size": 5, "mimetype": "image/png" },
            "m.relates_to": { "rel_type": "m.thread", "event_id": "$root" },
        }),
    );
    double.user_writes(
        &room,
        &json!({ "msgtype": "m.file", "body": "b.txt", "url": uri }),
    );
    double.user_writes(
        &room,
        &json!({ "msgtype": "m.file", "body": "c.txt", "file": { "url": uri } }),
    );
    double.user_writes(
        &room,
        &json!({ "msgtype": "m.file", "body": "d.txt", "url": "https://evil.example/d" }),
    );
    let messages = take(&matrix, 0, 4).await;
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
    let pieces: Vec<Bytes> = matrix
        .fetch(file)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(pieces.concat(), b"hello");
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
    double.script(InjectedFault::Old);
    assert!(matrix.fetch(file).await.is_ok());
}

#[tokio::test]
async fn only_messages_of_others_are_taken() {
    let double = start().await;
    let matrix = user(options(&double));
    let room = double.room();
    deliver(&matrix, &delivery(&room, "my own", Vec::new()), "key")
        .await
        .unwrap();
    double.something_happens(&room, "m.reaction");
    double.user_writes(&room, &json!({ "msgtype": "m.notice", "body": "of a bot" }));
    double.user_writes(&room, &json!({ "msgtype": "m.text", "body": "* better", "m.relates_to": { "rel_type": "m.replace", "event_id": "$1" } }),
    );
    double.user_writes(&room, &json!({ "nothing": 1 }));
    double.user_writes(&room, &words("first"));
    assert_eq!(bodies(&take(&matrix, 0, 1).await), ["first"]);
}

#[tokio::test]
async fn what_came_long_before_is_left_and_what_came_just_before_is_not() {
    let double = start().await;
    let matrix = user(MatrixOptions {
        catch_up: Period::secs(60),
        ..options(&double)
    });
    let room = double.room();
    double.set_time(NOW_MS - 61_000);
    double.user_writes(&room, &words("old"));
    double.set_time(NOW_MS - 59_000);
    double.user_writes(&room, &words("new"));
    assert_eq!(bodies(&take(&matrix, 0, 1).await), ["new"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn what_could_not_be_stored_is_told_again_and_so_is_what_failed() {
    let double = start().await;
    let matrix = user(options(&double));
    let room = double.room();
    for text in ["first", "second", "third"] {
        double.user_writes(&room, &words(text));
    }
    double.script(InjectedFault::FailSync);
    let messages = take(&matrix, 2, 3).await;
    assert_eq!(bodies(&messages), ["first", "second", "third"]);
}

/// Lets somebody write once something was taken.
#[derive(Debug)]
struct DelayedWriter<'a> {
    double: &'a FakeHomeserver,
    room: &'a str,
    taken: mpsc::UnboundedSender<InboundMessage>,
}

#[async_trait]
impl InboundSink for DelayedWriter<'_> {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        if message.text == "begin" {
            for number in 0..250 {
                self.double
                    .user_writes(self.room, &words(&number.to_string()));
            }
        }
        self.taken.send(message).unwrap();
        Ok(())
    }
}

#[tokio::test]
async fn more_than_one_answer_holds_is_taken_in_order() {
    let double = start().await;
    let matrix = user(options(&double));
    let room = double.room();
    double.user_writes(&room, &words("begin"));
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let writer = DelayedWriter {
        double: &double,
        room: &room,
        taken: sender,
    };
    let stop = CancellationToken::new();
    let polling = matrix.poll(&writer, stop.clone());
    let taking = async {
        let mut all = Vec::new();
        while all.len() < 251 {
            all.push(receiver.recv().await.unwrap());
        }
        stop.cancel();
        all
    };
    let (_, all) = tokio::join!(polling, taking);
    let expected: Vec<String> = (0..250).map(|number| number.to_string()).collect();
    assert_eq!(bodies(&all[1..]), expected);
}

#[tokio::test]
async fn a_refused_token_ends_the_asking_and_nobody_calls_us() {
    let double = start().await;
    let matrix = user(MatrixOptions {
        token: Secret::new("syt_wrong"),
        ..options(&double)
    });
    let (taker, _receiver) = RecordingSink::new(0);
    let error = matrix
        .poll(&taker, CancellationToken::new())
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
