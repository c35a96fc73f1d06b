//! Updates that we ask for.

use std::sync::Mutex;

use async_trait::async_trait;
use dray_platform::{ErrorKind, InboundMessage, InboundSink, InboundSource as _, PlatformError};
use dray_testkit::eventually;
use dray_types::Secret;
use futures_util::future::join;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::BotFixture;
use crate::double::InjectedFault;

/// Keeps what it is told, and fails so many times first.
#[derive(Debug, Default)]
struct RecordingSink {
    failures: Mutex<usize>,
    tried: Mutex<Vec<String>>,
    kept: Mutex<Vec<String>>,
}

impl RecordingSink {
    fn failing(failures: usize) -> Self {
        Self {
            failures: Mutex::new(failures),
            ..Self::default()
        }
    }

    fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap().clone()
    }
}

#[async_trait]
impl InboundSink for RecordingSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        self.tried.lock().unwrap().push(message.text.clone());
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(PlatformError::new(ErrorKind::Transient, "the disk is full"));
        }
        self.kept.lock().unwrap().push(message.text);
        Ok(())
    }
}

/// Polls until this many messages are kept and the server has nothing left.
async fn until(world: &BotFixture, desk: &RecordingSink, count: usize) {
    let stop = CancellationToken::new();
    let stopping = async {
        eventually("the messages", async || {
            (desk.kept().len() >= count && world.double.waiting() == 0).then_some(())
        })
        .await;
        stop.cancel();
    };
    let (polled, ()) = join(world.bot.poll(desk, stop.clone()), stopping).await;
    polled.unwrap();
}

#[tokio::test]
async fn messages_come_in_their_order_and_once() {
    let world = BotFixture::new().await;
    for text in ["one", "two", "three"] {
        world.double.user_writes(world.chat, text, None);
    }
    let desk = RecordingSink::default();
    until(&world, &desk, 3).await;
    assert_eq!(desk.kept(), ["one", "two", "three"]);
    world.double.user_writes(world.chat, "four", None);
    until(&world, &desk, 4).await;
    assert_eq!(desk.kept(), ["one", "two", "three", "four"]);
}

#[tokio::test]
async fn what_comes_while_we_wait_comes_at_once() {
    let world = BotFixture::new().await;
    let desk = RecordingSink::default();
    let writing = async {
        eventually("a waiting bot", async || {
            world.double.requests().first().cloned()
        })
        .await;
        world.double.user_writes(world.chat, "late", None);
    };
    join(until(&world, &desk, 1), writing).await;
    assert_eq!(desk.kept(), ["late"]);
}

#[tokio::test]
async fn what_could_not_be_stored_is_told_again() {
    let world = BotFixture::new().await;
    for text in ["one", "two"] {
        world.double.user_writes(world.chat, text, None);
    }
    let desk = RecordingSink::failing(1);
    until(&world, &desk, 2).await;
    assert_eq!(desk.kept(), ["one", "two"]);
    assert_eq!(*desk.tried.lock().unwrap(), ["one", "one", "two"]);
}

#[tokio::test]
async fn an_update_of_an_unknown_shape_stops_nobody() {
    let world = BotFixture::new().await;
    world
        .double
        .update(json!({ "message": { "message_id": "x" } }));
    world.double.update(json!({ "poll_answer": {} }));
    world.double.user_writes(world.chat, "after", None);
    let desk = RecordingSink::default();
    until(&world, &desk, 1).await;
    assert_eq!(desk.kept(), ["after"]);
}

#[tokio::test]
async fn failures_of_the_server_and_conflicts_pass() {
    for (code, why) in [
        (502, "Bad Gateway"),
        (409, "Conflict: terminated by other getUpdates request"),
        (429, "Too Many Requests: retry after 1"),
    ] {
        let world = BotFixture::new().await;
        world.double.user_writes(world.chat, "hello", None);
        world
            .double
            .script(InjectedFault::RefuseUpdates(code, why.to_owned()));
        let desk = RecordingSink::default();
        until(&world, &desk, 1).await;
        assert_eq!(desk.kept(), ["hello"], "{why}");
    }
}

#[tokio::test]
async fn a_refused_token_ends_it() {
    let world = BotFixture::with(|options| options.token = Secret::new("4242:other")).await;
    let stop = CancellationToken::new();
    let error = world
        .bot
        .poll(&RecordingSink::default(), stop)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
}

#[tokio::test]
async fn it_stops_while_it_waits() {
    let world = BotFixture::new().await;
    let desk = RecordingSink::default();
    until(&world, &desk, 0).await;
    let stop = CancellationToken::new();
    stop.cancel();
    world.bot.poll(&desk, stop).await.unwrap();
}
