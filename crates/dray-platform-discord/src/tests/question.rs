//! Questions with buttons, and what users press.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use dray_platform::{
    ButtonPress, ChatQuestion, ErrorKind, InboundMessage, InboundSink, InboundSource as _,
    Platform as _, PlatformError, PressReply, QuestionButton, QuestionChannel as _,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::inbox::{begun, with_short_delays};
use super::{bot, options, target};
use crate::fake_server::{BOT_TOKEN, FakeDiscord};
use crate::question::button_press;
use crate::{DiscordOptions, DiscordPlatform};

fn question(detail: &str) -> ChatQuestion {
    let button = |label: &str, data: &str| QuestionButton {
        label: label.to_owned(),
        data: data.to_owned(),
    };
    ChatQuestion {
        text: "The agent wants to call <@1> *now* @everyone:".to_owned(),
        detail: detail.to_owned(),
        buttons: vec![button("Approve", "dray:1:y"), button("Refuse", "dray:1:n")],
    }
}

/// Records presses. With `holds_first`, handling of the first press waits for `release`.
#[derive(Debug)]
struct PressSink {
    presses: UnboundedSender<ButtonPress>,
    holds_first: Mutex<bool>,
    release: Notify,
}

impl PressSink {
    fn new(holds_first: bool) -> (Self, UnboundedReceiver<ButtonPress>) {
        let (presses, received) = unbounded_channel();
        let sink = Self {
            presses,
            holds_first: Mutex::new(holds_first),
            release: Notify::new(),
        };
        (sink, received)
    }
}

#[async_trait]
impl InboundSink for PressSink {
    async fn message(&self, _: InboundMessage) -> Result<(), PlatformError> {
        Ok(())
    }

    async fn press(&self, press: ButtonPress) {
        self.presses.send(press).unwrap();
        let is_held = std::mem::take(&mut *self.holds_first.lock().unwrap());
        if is_held {
            self.release.notified().await;
        }
    }
}

async fn next(presses: &mut UnboundedReceiver<ButtonPress>) -> ButtonPress {
    let next = tokio::time::timeout(Duration::from_secs(30), presses.recv());
    next.await.expect("a press comes").unwrap()
}

/// Receives from the gateway while `test` runs.
async fn receive<T>(bot: &DiscordPlatform, sink: &PressSink, test: impl Future<Output = T>) -> T {
    let stop = CancellationToken::new();
    let polling = bot.poll(sink, stop.clone());
    let (polled, result) = tokio::join!(polling, async {
        let result = test.await;
        stop.cancel();
        result
    });
    polled.unwrap();
    result
}

#[tokio::test]
async fn a_question_shows_its_detail_as_code_and_a_press_ends_it_with_the_outcome() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = with_short_delays(options(&fake));
    let channel = fake.channel(0);
    let chat = target(&channel);
    let chat_question = question(r#"{"q":"```<@1>"}"#);
    let id = discord.ask(&chat, &chat_question).await.unwrap();
    let shown = fake.visible_messages(&channel).remove(0);
    assert_eq!(
        shown.text,
        "The agent wants to call \\<\\@1\\> \\*now\\* \\@everyone\\:\n```json\n{\"q\":\"\\u0060\\u0060\\u0060<@1>\"}\n```"
    );
    assert_eq!(shown.payload["allowed_mentions"], json!({ "parse": [] }));
    let labels = shown.buttons().into_iter().map(|button| button.text);
    assert!(labels.eq(["Approve", "Refuse"]), "{shown:?}");
    let (sink, mut presses) = PressSink::new(false);
    let press = receive(&discord, &sink, async {
        begun(&fake, 1).await;
        fake.user_presses(&channel, &id, "77", "dray:1:y");
        next(&mut presses).await
    })
    .await;
    let person = (press.sender.as_str(), press.sender_name.as_str());
    assert_eq!(person, ("77", "Ada L"));
    assert_eq!((&press.message_id, press.data.as_str()), (&id, "dray:1:y"));
    assert_eq!((&press.target.chat, &press.text), (&channel, &shown.text));
    discord.acknowledge(&press).await.unwrap();
    // A notice alone changes nothing in the channel.
    let refused = PressReply {
        notice: "You may not.".to_owned(),
        outcome: None,
    };
    discord.reply(&press, &refused).await.unwrap();
    assert_eq!(
        fake.visible_messages(&channel),
        std::slice::from_ref(&shown)
    );
    assert_eq!(fake.notices(), ["You may not\\."]);
    let reply = PressReply {
        notice: "Recorded.".to_owned(),
        outcome: Some("Approved by *ada* (77).".to_owned()),
    };
    for _ in 0..2 {
        discord.reply(&press, &reply).await.unwrap();
    }
    let ended = fake.visible_messages(&channel).remove(0);
    let expected = format!("{}\n\nApproved by \\*ada\\* \\(77\\)\\.", shown.text);
    assert_eq!(
        (ended.text.as_str(), ended.buttons()),
        (expected.as_str(), Vec::new())
    );
    // A client that still shows the buttons reports the message as it is now.
    let late = ButtonPress {
        text: ended.text.clone(),
        ..press.clone()
    };
    discord.reply(&late, &reply).await.unwrap();
    assert_eq!(fake.visible_messages(&channel), [ended]);
    let requests = fake.requests();
    let is_interaction = |request: &String| request.starts_with("POST interactions/");
    assert!(requests.iter().any(is_interaction), "{requests:?}");
}

#[tokio::test]
async fn the_outcome_is_shown_when_discord_no_longer_accepts_a_response_to_the_press() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = bot(options(&fake));
    let channel = fake.channel(0);
    let id = discord
        .ask(&target(&channel), &question("{}"))
        .await
        .unwrap();
    fake.end_interactions();
    let press = button_press(&fake.user_presses(&channel, &id, "77", "dray:1:y")).unwrap();
    let late = discord.acknowledge(&press).await.unwrap_err();
    assert_eq!(late.platform_code(), "10062");
    let reply = PressReply {
        notice: "Recorded.".to_owned(),
        outcome: Some("Approved".to_owned()),
    };
    let error = discord.reply(&press, &reply).await.unwrap_err();
    assert_eq!(error.platform_code(), "10015");
    let ended = fake.visible_messages(&channel).remove(0);
    assert!(ended.text.ends_with("\n\nApproved") && ended.buttons().is_empty());
}

#[tokio::test]
async fn a_waiting_press_does_not_delay_the_next_one_and_is_completed_when_polling_stops() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = with_short_delays(options(&fake));
    let channel = fake.channel(0);
    let thread = fake.thread(&channel);
    let (sink, mut presses) = PressSink::new(true);
    let stop = CancellationToken::new();
    let polling = discord.poll(&sink, stop.clone());
    let (polled, ()) = tokio::join!(polling, async {
        begun(&fake, 1).await;
        fake.user_presses(&channel, "5", "77", "a");
        assert_eq!(next(&mut presses).await.data, "a");
        fake.user_presses(&thread, "6", "78", "b");
        let second = next(&mut presses).await;
        // A thread is below its channel, as in the target of a question.
        let place = (second.target.chat.as_str(), second.target.thread.as_str());
        assert_eq!(place, (channel.as_str(), thread.as_str()));
        stop.cancel();
        sink.release.notify_one();
    });
    polled.unwrap();
}

#[tokio::test]
async fn a_repeated_event_is_a_second_press_and_its_acknowledgement_is_refused() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = with_short_delays(options(&fake));
    let channel = fake.channel(0);
    let (sink, mut presses) = PressSink::new(false);
    receive(&discord, &sink, async {
        begun(&fake, 1).await;
        let event = fake.user_presses(&channel, "5", "77", "a");
        fake.repeat_event("INTERACTION_CREATE", &event);
        let (first, second) = (next(&mut presses).await, next(&mut presses).await);
        assert_eq!(first, second);
        discord.acknowledge(&first).await.unwrap();
        let error = discord.acknowledge(&second).await.unwrap_err();
        assert_eq!(error.platform_code(), "40060");
    })
    .await;
}

#[tokio::test]
async fn interactions_that_are_not_presses_of_buttons_are_skipped() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let good = fake.user_presses(&channel, "5", "77", "a");
    assert!(button_press(&good).is_some());
    let changes: [(&str, Value); 9] = [
        ("/type", json!(2)),
        ("/data/component_type", json!(3)),
        ("/data/custom_id", Value::Null),
        ("/token", json!("../../../users/@me")),
        ("/token", json!("")),
        ("/id", json!("1/2")),
        ("/application_id", json!("me")),
        ("/channel_id", Value::Null),
        ("/member/user/id", json!("<@1>")),
    ];
    for (pointer, value) in changes {
        let mut wrong = good.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        assert_eq!(button_press(&wrong), None, "{pointer}");
    }
    // The user of a conversation does not stand in for a member of a server.
    let mut both = good;
    both["user"] = json!({ "id": "78" });
    assert_eq!(button_press(&both).unwrap().sender, "77");
}

#[tokio::test]
async fn a_question_that_does_not_fit_is_refused_and_never_cut() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = bot(options(&fake));
    let chat = target(&fake.channel(0));
    for detail in ["x".repeat(1700), "`".repeat(300)] {
        let error = discord.ask(&chat, &question(&detail)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLong);
    }
    assert!(fake.visible_messages(&chat.chat).is_empty());
    // A short outcome fits beside a question of any length. If both do not fit, the outcome is shown alone.
    let id = discord
        .ask(&chat, &question(&"x".repeat(1600)))
        .await
        .unwrap();
    let press = button_press(&fake.user_presses(&chat.chat, &id, "77", "a")).unwrap();
    let reply = PressReply {
        notice: "Recorded.".to_owned(),
        outcome: Some("o".repeat(400)),
    };
    discord.acknowledge(&press).await.unwrap();
    discord.reply(&press, &reply).await.unwrap();
    assert_eq!(fake.visible_messages(&chat.chat)[0].text, "o".repeat(400));
}

#[tokio::test]
async fn a_bot_that_receives_no_messages_offers_no_buttons() {
    let fake = FakeDiscord::start().await.unwrap();
    let silent = bot(DiscordOptions {
        receive: false,
        ..options(&fake)
    });
    assert!(silent.questions().is_none());
    assert!(bot(options(&fake)).questions().is_some());
}

#[tokio::test]
async fn discord_py_understands_the_buttons_and_interactions_of_the_fake() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let arguments = [fake.url(), BOT_TOKEN.to_owned(), channel.clone()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let running = dray_testkit::python::run_script("discord_buttons.py", "discord", &arguments);
    let pressing = async {
        let waiting = async {
            while fake.visible_messages(&channel).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(2), waiting);
        waited.await.expect("it asks");
        let shown = fake.visible_messages(&channel).remove(0);
        fake.user_presses(&channel, &shown.id, "77", &shown.buttons()[0].data);
        shown
    };
    let (output, shown) = tokio::join!(running, pressing);
    // The library sends the same custom id for a button as this crate.
    assert_eq!(
        shown.payload["components"][0]["components"][0]["custom_id"],
        "dray:1:y"
    );
    assert_eq!(
        output["presses"],
        json!([["dray:1:y", "77", "Ada L", channel, shown.id, "component"]])
    );
    assert_eq!(output["again"], 40_060);
    assert_eq!(fake.notices(), ["only for you"]);
    let ended = fake.visible_messages(&channel).remove(0);
    assert_eq!((ended.text.as_str(), ended.buttons()), ("done", Vec::new()));
}

#[tokio::test]
async fn a_question_with_many_choices_shows_all_buttons_in_their_order() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = with_short_delays(options(&fake));
    let channel = fake.channel(0);
    let labels: Vec<_> = (1..=12).map(|number| format!("Choice {number}")).collect();
    let button = |label: &String| QuestionButton {
        label: label.clone(),
        data: format!("dray:1:{label}"),
    };
    let chat_question = ChatQuestion {
        buttons: labels.iter().map(button).collect(),
        ..question("{}")
    };
    discord
        .ask(&target(&channel), &chat_question)
        .await
        .unwrap();
    let shown = fake.visible_messages(&channel).remove(0);
    let shown_labels: Vec<_> = shown
        .buttons()
        .into_iter()
        .map(|button| button.text)
        .collect();
    assert_eq!(shown_labels, labels);
}
