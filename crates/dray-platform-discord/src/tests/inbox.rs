//! Messages of users, over the gateway.

use std::time::Duration;

use bytes::Bytes;
use dray_platform::conformance::RecordingSink;
use dray_platform::{ErrorKind, InboundMessage, InboundSource as _, PlatformError, WebhookRequest};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{NOW_MS, bot, options};
use crate::double::{BOT_TOKEN, DisconnectAll, FakeDiscord, GatewayFault};
use crate::gateway::ReconnectDelays;
use crate::{DiscordOptions, DiscordPlatform};

/// A bot that does not wait long.
pub(super) fn hasty(options: DiscordOptions) -> DiscordPlatform {
    let mut bot = bot(options);
    bot.pauses = ReconnectDelays {
        first: Duration::from_millis(5),
        longest: Duration::from_millis(20),
        invalid: Duration::from_millis(1),
    };
    bot
}

/// What a test sees of a bot that receives.
pub(super) struct InboxFixture {
    pub(super) taken: UnboundedReceiver<InboundMessage>,
}

impl InboxFixture {
    /// The next message.
    pub(super) async fn next(&mut self) -> InboundMessage {
        let next = tokio::time::timeout(Duration::from_secs(30), self.taken.recv());
        next.await.expect("a message comes").unwrap()
    }

    async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(self.next().await.text);
        }
        all
    }
}

/// Receives while `test` looks; what the receiver ended with, and what came that nobody looked at.
pub(super) async fn receive<F>(
    bot: &DiscordPlatform,
    refuses: u32,
    test: impl FnOnce(InboxFixture) -> F,
) -> (Result<(), PlatformError>, F::Output)
where
    F: Future,
{
    let (taker, taken) = RecordingSink::new(refuses);
    let stop = CancellationToken::new();
    let scene = InboxFixture { taken };
    let polling = bot.poll(&taker, stop.clone());
    let (polled, seen) = tokio::join!(polling, async {
        let seen = test(scene).await;
        stop.cancel();
        seen
    });
    (polled, seen)
}

/// Waits until clients began in so many ways, and gives them.
pub(super) async fn begun(double: &FakeDiscord, count: usize) -> Vec<String> {
    let waiting = async {
        while double.begun().len() < count {
            tokio::task::yield_now().await;
        }
        double.begun()
    };
    let begun = tokio::time::timeout(Duration::from_mins(2), waiting).await;
    begun.expect("clients begin")
}

#[tokio::test]
async fn messages_of_programs_and_of_other_channels_are_left() {
    let double = FakeDiscord::start().await.unwrap();
    let (channel, other) = (double.channel(0), double.channel(0));
    let thread = double.thread(&channel);
    let bot = hasty(DiscordOptions {
        channels: vec![channel.clone()],
        ..options(&double)
    });
    let (_, texts) = receive(&bot, 0, |mut scene| async move {
        begun(&double, 1).await;
        let program = json!({ "author": { "id": "5", "username": "b", "bot": true } });
        double.somebody_writes(&channel, "of a bot", &[], &program);
        double.somebody_writes(&channel, "by a webhook", &[], &json!({ "webhook_id": "7" }));
        double.somebody_writes(&channel, "joined", &[], &json!({ "type": 7 }));
        double.user_writes(&other, "elsewhere", &[]);
        double.user_writes(&channel, "first", &[]);
        double.user_writes(&thread, "second", &[]);
        scene.texts(2).await
    })
    .await;
    assert_eq!(texts, ["first", "second"]);
}

#[tokio::test]
async fn a_thread_that_no_event_told_of_is_asked_for() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    let bot = hasty(options(&double));
    let (polled, ()) = receive(&bot, 0, |mut scene| async move {
        begun(&double, 1).await;
        let thread = double.thread(&channel);
        double.user_writes(&thread, "new", &[]);
        let message = scene.next().await;
        assert_eq!(
            (message.target.chat, &message.target.thread),
            (channel, &thread)
        );
    })
    .await;
    polled.unwrap();
}

#[tokio::test]
async fn a_broken_connection_is_resumed_without_loss_or_doubles() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    let bot = hasty(options(&double));
    let (polled, ()) = receive(&bot, 0, |mut scene| async move {
        begun(&double, 1).await;
        double.user_writes(&channel, "1", &[]);
        assert_eq!(scene.texts(1).await, ["1"]);
        for (place, kick) in [
            DisconnectAll::Drop,
            DisconnectAll::Reconnect,
            DisconnectAll::Close(4000),
            DisconnectAll::Close(1001),
        ]
        .into_iter()
        .enumerate()
        {
            double.kick(kick);
            let texts = [format!("{place} meanwhile"), format!("{place} later")];
            double.user_writes(&channel, &texts[0], &[]);
            double.user_writes(&channel, &texts[1], &[]);
            assert_eq!(scene.texts(2).await, texts, "{kick:?}");
        }
        let begun = double.begun();
        assert_eq!(
            begun.iter().filter(|begun| *begun == "identify").count(),
            1,
            "{begun:?}"
        );
        assert!(scene.taken.try_recv().is_err());
    })
    .await;
    polled.unwrap();
}

#[tokio::test]
async fn what_could_not_be_stored_is_told_again_and_in_order() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    let bot = hasty(options(&double));
    let (_, texts) = receive(&bot, 3, |mut scene| async move {
        begun(&double, 1).await;
        for text in ["1", "2", "3"] {
            double.user_writes(&channel, text, &[]);
        }
        scene.texts(3).await
    })
    .await;
    assert_eq!(texts, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_heartbeat_without_an_answer_ends_the_connection() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    double.beat(Duration::from_millis(20));
    double.script_gateway(GatewayFault::NoAnswer);
    let bot = hasty(options(&double));
    let (_, begun) = receive(&bot, 0, |mut scene| async move {
        let begun = begun(&double, 2).await;
        double.user_writes(&channel, "still here", &[]);
        assert_eq!(scene.texts(1).await, ["still here"]);
        begun
    })
    .await;
    assert_eq!(begun[0], "identify");
    assert!(begun[1].starts_with("resume "), "{begun:?}");
}

#[tokio::test]
async fn an_invalid_session_is_begun_anew_and_what_was_missed_is_looked_up() {
    let double = FakeDiscord::start().await.unwrap();
    let (channel, person) = (double.channel(0), double.conversation());
    let bot = hasty(options(&double));
    let (polled, ()) = receive(&bot, 0, |mut scene| async move {
        begun(&double, 1).await;
        double.user_writes(&channel, "before", &[]);
        double.user_writes(&person, "between us", &[]);
        assert_eq!(scene.texts(2).await, ["before", "between us"]);
        double.script_gateway(GatewayFault::Invalid(false));
        double.forget_sessions();
        double.kick(DisconnectAll::Drop);
        let expected: Vec<String> = (0..130).map(|number| number.to_string()).collect();
        for text in &expected {
            double.user_writes(&channel, text, &[("n.txt", b"n")]);
        }
        double.user_writes(&person, "still between us", &[]);
        let mut texts = scene.texts(131).await;
        // Conversations come before servers; of a channel nothing is out of order or twice.
        texts.retain(|text| text != "still between us");
        assert_eq!(texts, expected);
        assert!(scene.taken.try_recv().is_err());
        let begun = double.begun();
        assert_eq!(
            begun.last().map(String::as_str),
            Some("identify"),
            "{begun:?}"
        );
    })
    .await;
    polled.unwrap();
}

#[tokio::test]
async fn a_session_that_may_be_resumed_is() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    let bot = hasty(options(&double));
    let (_, begun) = receive(&bot, 0, |mut scene| async move {
        begun(&double, 1).await;
        double.user_writes(&channel, "1", &[]);
        assert_eq!(scene.texts(1).await, ["1"]);
        double.script_gateway(GatewayFault::Invalid(true));
        double.kick(DisconnectAll::Close(4009));
        let _ = begun(&double, 2).await;
        double.user_writes(&channel, "2", &[]);
        assert_eq!(scene.texts(1).await, ["2"]);
        double.begun()
    })
    .await;
    assert_eq!(begun[1], "identify", "4009 ends a session: {begun:?}");
}

#[tokio::test]
async fn what_came_long_before_is_left_and_what_came_just_before_is_not() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    // Ids of the double have the time of one second before now.
    double.user_writes(&channel, "before", &[]);
    for (catch_up, expected) in [(2, "before"), (0, "after")] {
        let options = DiscordOptions {
            catch_up: dray_types::Period::secs(catch_up),
            ..options(&double)
        };
        let bot = hasty(options);
        let (double, channel) = (&double, &channel);
        let (_, text) = receive(&bot, 0, |mut scene| async move {
            let begins = double.begun().len() + 1;
            begun(double, begins).await;
            double.user_writes(channel, "after", &[]);
            scene.next().await.text
        })
        .await;
        assert_eq!(text, expected, "{NOW_MS}");
        double.forget_sessions();
    }
}

#[tokio::test]
async fn refusals_that_only_an_operator_can_lift_are_told() {
    let double = FakeDiscord::start().await.unwrap();
    for code in [4004, 4010, 4011, 4012, 4013, 4014] {
        double.script_gateway(GatewayFault::Close(code));
        let bot = hasty(options(&double));
        let (taker, _taken) = RecordingSink::new(0);
        let error = bot
            .poll(&taker, CancellationToken::new())
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.platform_code()),
            (ErrorKind::Auth, code.to_string().as_str())
        );
        assert!(!error.context().is_empty() && !error.context().contains(BOT_TOKEN));
    }
}

#[tokio::test]
async fn a_gateway_that_fails_is_asked_again() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    for fault in [
        GatewayFault::NotOpened,
        GatewayFault::Gibberish,
        GatewayFault::Close(4008),
    ] {
        double.script_gateway(fault);
        double.script_gateway(fault);
    }
    let bot = hasty(options(&double));
    let (_, texts) = receive(&bot, 0, |mut scene| async move {
        begun(&double, 1).await;
        double.user_writes(&channel, "1", &[]);
        scene.texts(1).await
    })
    .await;
    assert_eq!(texts, ["1"]);
}

#[tokio::test]
async fn no_session_is_begun_beyond_what_is_allowed() {
    let double = FakeDiscord::start().await.unwrap();
    let channel = double.channel(0);
    double.leave_sessions(0);
    let bot = hasty(options(&double));
    let (_, ()) = receive(&bot, 0, |mut scene| async move {
        let asked = || {
            let requests = double.requests();
            requests
                .iter()
                .filter(|request| request.contains("gateway/bot"))
                .count()
        };
        let waiting = async {
            while asked() < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .expect("it asks again");
        assert!(double.begun().is_empty());
        double.leave_sessions(1);
        begun(&double, 1).await;
        double.user_writes(&channel, "1", &[]);
        assert_eq!(scene.texts(1).await, ["1"]);
    })
    .await;
}

#[tokio::test]
async fn nobody_calls_us_and_a_bot_that_does_not_receive_asks_nothing() {
    let double = FakeDiscord::start().await.unwrap();
    let bot = bot(DiscordOptions {
        receive: false,
        ..options(&double)
    });
    let (polled, ()) = receive(&bot, 0, |_| async {}).await;
    polled.unwrap();
    assert!(double.requests().is_empty());
    let request = WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    assert_eq!(bot.webhook(&request).unwrap_err().kind(), ErrorKind::Auth);
}
