//! Messages of users, over the gateway.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::RecordingSink;
use dray_platform::{
    ErrorKind, InboundMessage, InboundSink, InboundSource as _, PlatformError, WebhookRequest,
};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::{NOW_MS, bot, options};
use crate::fake_server::{BOT_TOKEN, DisconnectAll, FakeDiscord, GatewayFault};
use crate::gateway::ReconnectDelays;
use crate::{DiscordOptions, DiscordPlatform};

/// A bot with short delays between connections.
pub(super) fn with_short_delays(options: DiscordOptions) -> DiscordPlatform {
    let mut bot = bot(options);
    bot.reconnect_delays = ReconnectDelays {
        first: Duration::from_millis(5),
        longest: Duration::from_millis(20),
        invalid: Duration::from_millis(1),
    };
    bot
}

/// The messages of a bot that receives.
pub(super) struct InboxFixture {
    pub(super) received: UnboundedReceiver<InboundMessage>,
}

impl InboxFixture {
    /// The next message.
    pub(super) async fn next(&mut self) -> InboundMessage {
        let next = tokio::time::timeout(Duration::from_secs(30), self.received.recv());
        next.await.expect("a message arrives").unwrap()
    }

    async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        while all.len() < count {
            all.push(self.next().await.text);
        }
        all
    }
}

/// Receives while `test` runs. Returns the results of both.
pub(super) async fn receive<F>(
    bot: &DiscordPlatform,
    refuses: u32,
    test: impl FnOnce(InboxFixture) -> F,
) -> (Result<(), PlatformError>, F::Output)
where
    F: Future,
{
    let (sink, received) = RecordingSink::new(refuses);
    let stop = CancellationToken::new();
    let fixture = InboxFixture { received };
    let polling = bot.poll(&sink, stop.clone());
    let (polled, result) = tokio::join!(polling, async {
        let result = test(fixture).await;
        stop.cancel();
        result
    });
    (polled, result)
}

/// Waits until there are this many logins, and returns them.
pub(super) async fn begun(fake: &FakeDiscord, count: usize) -> Vec<String> {
    let waiting = async {
        while fake.logins().len() < count {
            tokio::task::yield_now().await;
        }
        fake.logins()
    };
    let logins = tokio::time::timeout(Duration::from_mins(2), waiting).await;
    logins.expect("clients begin")
}

#[tokio::test]
async fn messages_of_bots_and_of_other_channels_are_skipped() {
    let fake = FakeDiscord::start().await.unwrap();
    let (channel, other) = (fake.channel(0), fake.channel(0));
    let thread = fake.thread(&channel);
    let bot = with_short_delays(DiscordOptions {
        channels: vec![channel.clone()],
        ..options(&fake)
    });
    let (_, texts) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        let program = json!({ "author": { "id": "5", "username": "b", "bot": true } });
        fake.write_message(&channel, "of a bot", &[], &program);
        fake.write_message(&channel, "by a webhook", &[], &json!({ "webhook_id": "7" }));
        fake.write_message(&channel, "joined", &[], &json!({ "type": 7 }));
        fake.user_writes(&other, "elsewhere", &[]);
        fake.user_writes(&channel, "first", &[]);
        fake.user_writes(&thread, "second", &[]);
        fixture.texts(2).await
    })
    .await;
    assert_eq!(texts, ["first", "second"]);
}

#[tokio::test]
async fn a_thread_that_no_event_announced_is_requested() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let bot = with_short_delays(options(&fake));
    let (polled, ()) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        let thread = fake.thread(&channel);
        fake.user_writes(&thread, "new", &[]);
        let message = fixture.next().await;
        assert_eq!(
            (message.target.chat, &message.target.thread),
            (channel, &thread)
        );
    })
    .await;
    polled.unwrap();
}

#[tokio::test]
async fn a_broken_connection_is_resumed_without_loss_or_duplicates() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let bot = with_short_delays(options(&fake));
    let (polled, ()) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        fake.user_writes(&channel, "1", &[]);
        assert_eq!(fixture.texts(1).await, ["1"]);
        for (index, disconnect) in [
            DisconnectAll::Drop,
            DisconnectAll::Reconnect,
            DisconnectAll::Close(4000),
            DisconnectAll::Close(1001),
        ]
        .into_iter()
        .enumerate()
        {
            fake.disconnect_all(disconnect);
            let texts = [format!("{index} meanwhile"), format!("{index} later")];
            fake.user_writes(&channel, &texts[0], &[]);
            fake.user_writes(&channel, &texts[1], &[]);
            assert_eq!(fixture.texts(2).await, texts, "{disconnect:?}");
        }
        let logins = fake.logins();
        assert_eq!(
            logins.iter().filter(|login| *login == "identify").count(),
            1,
            "{logins:?}"
        );
        assert!(fixture.received.try_recv().is_err());
    })
    .await;
    polled.unwrap();
}

#[tokio::test]
async fn messages_that_could_not_be_stored_are_received_again_in_order() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let bot = with_short_delays(options(&fake));
    let (_, texts) = receive(&bot, 3, |mut fixture| async move {
        begun(&fake, 1).await;
        for text in ["1", "2", "3"] {
            fake.user_writes(&channel, text, &[]);
        }
        fixture.texts(3).await
    })
    .await;
    assert_eq!(texts, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_heartbeat_without_a_response_ends_the_connection() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    fake.set_heartbeat_interval(Duration::from_millis(20));
    fake.script_gateway(GatewayFault::NoHeartbeatResponse);
    let bot = with_short_delays(options(&fake));
    let (_, logins) = receive(&bot, 0, |mut fixture| async move {
        let logins = begun(&fake, 2).await;
        fake.user_writes(&channel, "still here", &[]);
        assert_eq!(fixture.texts(1).await, ["still here"]);
        logins
    })
    .await;
    assert_eq!(logins[0], "identify");
    assert!(logins[1].starts_with("resume "), "{logins:?}");
}

#[tokio::test]
async fn an_invalid_session_is_replaced_and_missed_messages_are_fetched() {
    let fake = FakeDiscord::start().await.unwrap();
    let (channel, person) = (fake.channel(0), fake.conversation());
    let bot = with_short_delays(options(&fake));
    let (polled, ()) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        fake.user_writes(&channel, "before", &[]);
        fake.user_writes(&person, "between us", &[]);
        assert_eq!(fixture.texts(2).await, ["before", "between us"]);
        fake.script_gateway(GatewayFault::Invalid(false));
        fake.forget_sessions();
        fake.disconnect_all(DisconnectAll::Drop);
        let expected: Vec<String> = (0..130).map(|number| number.to_string()).collect();
        for text in &expected {
            fake.user_writes(&channel, text, &[("n.txt", b"n")]);
        }
        fake.user_writes(&person, "still between us", &[]);
        let mut texts = fixture.texts(131).await;
        // Conversations come before servers. The messages of the channel are in order, without duplicates.
        texts.retain(|text| text != "still between us");
        assert_eq!(texts, expected);
        assert!(fixture.received.try_recv().is_err());
        let logins = fake.logins();
        assert_eq!(
            logins.last().map(String::as_str),
            Some("identify"),
            "{logins:?}"
        );
    })
    .await;
    polled.unwrap();
}

/// Stores messages, but refuses one once.
#[derive(Debug)]
struct RefusingSink {
    inner: RecordingSink,
    /// The text of the message to refuse; `None` after it was refused.
    refused: Mutex<Option<&'static str>>,
}

#[async_trait]
impl InboundSink for RefusingSink {
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError> {
        let is_refused = {
            let mut refused = self.refused.lock().unwrap();
            refused.take_if(|text| *text == message.text).is_some()
        };
        if is_refused {
            return Err(PlatformError::new(ErrorKind::Transient, "not stored"));
        }
        self.inner.message(message).await
    }
}

#[tokio::test]
async fn a_missed_direct_message_that_could_not_be_stored_is_received_after_a_resumption() {
    let fake = FakeDiscord::start().await.unwrap();
    let person = fake.conversation();
    let bot = with_short_delays(options(&fake));
    let (inner, received) = RecordingSink::new(0);
    let sink = RefusingSink {
        inner,
        refused: Mutex::new(Some("missed")),
    };
    let stop = CancellationToken::new();
    let mut fixture = InboxFixture { received };
    let (polled, ()) = tokio::join!(bot.poll(&sink, stop.clone()), async {
        begun(&fake, 1).await;
        fake.user_writes(&person, "before", &[]);
        assert_eq!(fixture.texts(1).await, ["before"]);
        // No session has this message: it only arrives by the catch-up of the next session.
        fake.forget_sessions();
        fake.user_writes(&person, "missed", &[]);
        fake.disconnect_all(DisconnectAll::Drop);
        while sink.refused.lock().unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        fake.user_writes(&person, "after", &[]);
        assert_eq!(fixture.texts(2).await, ["missed", "after"]);
        let logins = fake.logins();
        assert!(logins.last().unwrap().starts_with("resume "), "{logins:?}");
        stop.cancel();
    });
    polled.unwrap();
}

#[tokio::test]
async fn a_resumable_session_is_resumed() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let bot = with_short_delays(options(&fake));
    let (_, logins) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        fake.user_writes(&channel, "1", &[]);
        assert_eq!(fixture.texts(1).await, ["1"]);
        fake.script_gateway(GatewayFault::Invalid(true));
        fake.disconnect_all(DisconnectAll::Close(4009));
        let _ = begun(&fake, 2).await;
        fake.user_writes(&channel, "2", &[]);
        assert_eq!(fixture.texts(1).await, ["2"]);
        fake.logins()
    })
    .await;
    assert_eq!(logins[1], "identify", "4009 ends a session: {logins:?}");
}

#[tokio::test]
async fn old_messages_are_skipped_and_those_just_before_the_start_are_not() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    // Ids of the fake server have the time of one second before now.
    fake.user_writes(&channel, "before", &[]);
    for (catch_up, expected) in [(2, "before"), (0, "after")] {
        let options = DiscordOptions {
            catch_up: dray_types::Period::secs(catch_up),
            ..options(&fake)
        };
        let bot = with_short_delays(options);
        let (fake, channel) = (&fake, &channel);
        let (_, text) = receive(&bot, 0, |mut fixture| async move {
            let login_count = fake.logins().len() + 1;
            begun(fake, login_count).await;
            fake.user_writes(channel, "after", &[]);
            fixture.next().await.text
        })
        .await;
        assert_eq!(text, expected, "{NOW_MS}");
        fake.forget_sessions();
    }
}

#[tokio::test]
async fn thousands_of_missed_messages_are_stored_and_other_channels_do_not_wait_for_them() {
    let fake = FakeDiscord::start().await.unwrap();
    let busy = fake.channel(0);
    let other = fake.thread(&busy);
    let expected: Vec<String> = (0..5_101).map(|number| number.to_string()).collect();
    for text in &expected {
        fake.user_writes(&busy, text, &[]);
    }
    fake.user_writes(&other, "elsewhere", &[]);
    let bot = with_short_delays(DiscordOptions {
        catch_up: dray_types::Period::secs(60),
        ..options(&fake)
    });
    let count = expected.len() + 1;
    let (polled, mut texts) = receive(
        &bot,
        0,
        |mut fixture| async move { fixture.texts(count).await },
    )
    .await;
    polled.unwrap();
    let elsewhere = texts.iter().position(|text| text == "elsewhere").unwrap();
    assert!(elsewhere < expected.len(), "{elsewhere}");
    texts.remove(elsewhere);
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn permanent_refusals_are_reported() {
    let fake = FakeDiscord::start().await.unwrap();
    for code in [4004, 4010, 4011, 4012, 4013, 4014] {
        fake.script_gateway(GatewayFault::Close(code));
        let bot = with_short_delays(options(&fake));
        let (sink, _received) = RecordingSink::new(0);
        let error = bot.poll(&sink, CancellationToken::new()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.platform_code()),
            (ErrorKind::Auth, code.to_string().as_str())
        );
        assert!(!error.context().is_empty() && !error.context().contains(BOT_TOKEN));
    }
}

#[tokio::test]
async fn a_failing_gateway_is_retried() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    for fault in [
        GatewayFault::NotOpened,
        GatewayFault::Gibberish,
        GatewayFault::Close(4008),
    ] {
        fake.script_gateway(fault);
        fake.script_gateway(fault);
    }
    let bot = with_short_delays(options(&fake));
    let (_, texts) = receive(&bot, 0, |mut fixture| async move {
        begun(&fake, 1).await;
        fake.user_writes(&channel, "1", &[]);
        fixture.texts(1).await
    })
    .await;
    assert_eq!(texts, ["1"]);
}

#[tokio::test]
async fn no_session_is_started_beyond_the_start_limit() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    fake.set_remaining_sessions(0);
    let bot = with_short_delays(options(&fake));
    let (_, ()) = receive(&bot, 0, |mut fixture| async move {
        let gateway_requests = || {
            let requests = fake.requests();
            requests
                .iter()
                .filter(|request| request.contains("gateway/bot"))
                .count()
        };
        let waiting = async {
            while gateway_requests() < 3 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .expect("the bot requests the gateway again");
        assert!(fake.logins().is_empty());
        fake.set_remaining_sessions(1);
        begun(&fake, 1).await;
        fake.user_writes(&channel, "1", &[]);
        assert_eq!(fixture.texts(1).await, ["1"]);
    })
    .await;
}

#[tokio::test]
async fn a_bot_without_an_inbox_sends_no_request_and_has_no_webhook() {
    let fake = FakeDiscord::start().await.unwrap();
    let bot = bot(DiscordOptions {
        receive: false,
        ..options(&fake)
    });
    let (polled, ()) = receive(&bot, 0, |_| async {}).await;
    polled.unwrap();
    assert!(fake.requests().is_empty());
    let request = WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    assert_eq!(bot.webhook(&request).unwrap_err().kind(), ErrorKind::Auth);
}
