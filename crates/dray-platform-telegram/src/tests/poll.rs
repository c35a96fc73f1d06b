//! Updates from `getUpdates`.

use std::sync::Mutex;

use async_trait::async_trait;
use dray_platform::{ErrorKind, InboundMessage, InboundSink, InboundSource as _, PlatformError};
use dray_testkit::eventually;
use dray_types::Secret;
use futures_util::future::join;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::BotFixture;
use crate::fake_server::InjectedFault;

/// Stores messages, after this many failures.
#[derive(Debug, Default)]
struct RecordingSink {
    failures: Mutex<usize>,
    attempted: Mutex<Vec<String>>,
    stored: Mutex<Vec<String>>,
}

impl RecordingSink {
    fn failing(failures: usize) -> Self {
        Self {
            failures: Mutex::new(failures),
            ..Self::default()
        }
    }

    fn stored(&self) -> Vec<String> {
        self.stored.lock().unwrap().clone()
    }
}

#[async_trait]
impl InboundSink for RecordingSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        self.attempted.lock().unwrap().push(message.text.clone());
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(PlatformError::new(ErrorKind::Transient, "the disk is full"));
        }
        self.stored.lock().unwrap().push(message.text);
        Ok(())
    }
}

/// Polls until this many messages are stored and the server has no more updates.
async fn poll_until_stored(fixture: &BotFixture, sink: &RecordingSink, count: usize) {
    let stop = CancellationToken::new();
    let stopping = async {
        eventually("the messages", async || {
            (sink.stored().len() >= count && fixture.fake.waiting() == 0).then_some(())
        })
        .await;
        stop.cancel();
    };
    let (polled, ()) = join(fixture.bot.poll(sink, stop.clone()), stopping).await;
    polled.unwrap();
}

#[tokio::test]
async fn messages_are_received_once_and_in_order() {
    let fixture = BotFixture::new().await;
    for text in ["one", "two", "three"] {
        fixture.fake.user_writes(fixture.chat, text, None);
    }
    let sink = RecordingSink::default();
    poll_until_stored(&fixture, &sink, 3).await;
    assert_eq!(sink.stored(), ["one", "two", "three"]);
    fixture.fake.user_writes(fixture.chat, "four", None);
    poll_until_stored(&fixture, &sink, 4).await;
    assert_eq!(sink.stored(), ["one", "two", "three", "four"]);
}

#[tokio::test]
async fn an_update_that_arrives_during_the_wait_is_delivered_immediately() {
    let fixture = BotFixture::new().await;
    let sink = RecordingSink::default();
    let writing = async {
        eventually("a waiting bot", async || {
            fixture.fake.requests().first().cloned()
        })
        .await;
        fixture.fake.user_writes(fixture.chat, "late", None);
    };
    join(poll_until_stored(&fixture, &sink, 1), writing).await;
    assert_eq!(sink.stored(), ["late"]);
}

#[tokio::test]
async fn an_update_that_could_not_be_stored_is_received_again() {
    let fixture = BotFixture::new().await;
    for text in ["one", "two"] {
        fixture.fake.user_writes(fixture.chat, text, None);
    }
    let sink = RecordingSink::failing(1);
    poll_until_stored(&fixture, &sink, 2).await;
    assert_eq!(sink.stored(), ["one", "two"]);
    assert_eq!(*sink.attempted.lock().unwrap(), ["one", "one", "two"]);
}

#[tokio::test]
async fn an_update_of_an_unknown_shape_is_skipped() {
    let fixture = BotFixture::new().await;
    fixture
        .fake
        .update(json!({ "message": { "message_id": "x" } }));
    fixture.fake.update(json!({ "poll_answer": {} }));
    fixture.fake.user_writes(fixture.chat, "after", None);
    let sink = RecordingSink::default();
    poll_until_stored(&fixture, &sink, 1).await;
    assert_eq!(sink.stored(), ["after"]);
}

#[tokio::test]
async fn polling_continues_after_server_failures_and_conflicts() {
    for (code, reason) in [
        (502, "Bad Gateway"),
        (409, "Conflict: terminated by other getUpdates request"),
        (429, "Too Many Requests: retry after 1"),
    ] {
        let fixture = BotFixture::new().await;
        fixture.fake.user_writes(fixture.chat, "hello", None);
        fixture
            .fake
            .script(InjectedFault::RefuseUpdates(code, reason.to_owned()));
        let sink = RecordingSink::default();
        poll_until_stored(&fixture, &sink, 1).await;
        assert_eq!(sink.stored(), ["hello"], "{reason}");
    }
}

#[tokio::test]
async fn a_refused_token_ends_the_polling() {
    let fixture = BotFixture::with(|options| options.token = Secret::new("4242:other")).await;
    let stop = CancellationToken::new();
    let error = fixture
        .bot
        .poll(&RecordingSink::default(), stop)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
}

#[tokio::test]
async fn polling_stops_during_a_wait() {
    let fixture = BotFixture::new().await;
    let sink = RecordingSink::default();
    poll_until_stored(&fixture, &sink, 0).await;
    let stop = CancellationToken::new();
    stop.cancel();
    fixture.bot.poll(&sink, stop).await.unwrap();
}
