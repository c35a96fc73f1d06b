//! Questions with buttons, and what users press.

use std::sync::Mutex;

use async_trait::async_trait;
use dray_platform::{
    ButtonPress, ChatQuestion, ErrorKind, InboundMessage, InboundSink, InboundSource as _,
    PlatformError, PressReply, QuestionButton, QuestionChannel as _, WebhookRequest,
};
use dray_testkit::eventually;
use futures_util::future::join;
use tokio_util::sync::CancellationToken;

use super::{BotFixture, target};
use crate::fake_server::{InjectedFault, ShownButton};

fn question(detail: &str) -> ChatQuestion {
    let button = |label: &str, data: &str| QuestionButton {
        label: label.to_owned(),
        data: data.to_owned(),
    };
    ChatQuestion {
        text: "🙂 The agent wants to call <b>shop_b</b>:".to_owned(),
        detail: detail.to_owned(),
        buttons: vec![button("Approve", "dray:1:y"), button("Refuse", "dray:1:n")],
    }
}

/// Keeps presses.
#[derive(Debug, Default)]
struct PressSink(Mutex<Vec<ButtonPress>>);

#[async_trait]
impl InboundSink for PressSink {
    async fn message(&self, _: InboundMessage) -> Result<(), PlatformError> {
        Ok(())
    }

    async fn press(&self, press: ButtonPress) {
        self.0.lock().unwrap().push(press);
    }
}

impl BotFixture {
    /// Polls until a press arrives.
    async fn next_press(&self) -> ButtonPress {
        let (sink, stop) = (PressSink::default(), CancellationToken::new());
        let stopping = async {
            let press = eventually("a press", async || sink.0.lock().unwrap().pop()).await;
            stop.cancel();
            press
        };
        let (polled, press) = join(self.bot.poll(&sink, stop.clone()), stopping).await;
        polled.unwrap();
        press
    }
}

#[tokio::test]
async fn a_question_has_its_detail_as_code_and_a_press_ends_it_with_the_outcome() {
    let fixture = BotFixture::new().await;
    let target = target(fixture.chat);
    let detail = r#"{"q":"*dear* <i>"}"#;
    let id = fixture.bot.ask(&target, &question(detail)).await.unwrap();
    let shown = fixture.visible_messages().remove(0);
    assert_eq!(shown.message_id.to_string(), id);
    assert_eq!((shown.code.as_str(), shown.preview), (detail, false));
    let labels: Vec<_> = shown
        .buttons
        .iter()
        .map(|button| button.text.as_str())
        .collect();
    assert_eq!(labels, ["Approve", "Refuse"]);
    let data = &shown.buttons[0].data;
    let (fake, chat) = (&fixture.fake, fixture.chat);
    let press_button = || fake.user_presses(chat, shown.message_id, 77, data);
    press_button();
    let press = fixture.next_press().await;
    assert_eq!(
        (press.sender.as_str(), press.sender_name.as_str()),
        ("77", "Ada L")
    );
    assert_eq!(
        (press.message_id.as_str(), &press.data),
        (id.as_str(), data)
    );
    assert_eq!(
        press.target.to_string(),
        format!("telegram:{}", fixture.chat)
    );
    // A press that changes nothing gets a dialog, and the buttons stay.
    let refused = PressReply {
        notice: "You may not.".to_owned(),
        outcome: None,
    };
    fixture.bot.reply(&press, &refused).await.unwrap();
    assert_eq!(fixture.visible_messages(), std::slice::from_ref(&shown));
    assert!(fixture.fake.notices()[0].is_alert);
    press_button();
    let press = fixture.next_press().await;
    let reply = PressReply {
        notice: "n".repeat(300),
        outcome: Some("Approved by Ada L.".to_owned()),
    };
    fixture.bot.reply(&press, &reply).await.unwrap();
    let ended = fixture.visible_messages().remove(0);
    assert_eq!(ended.text, format!("{}\n\nApproved by Ada L.", shown.text));
    assert_eq!(ended.buttons, Vec::<ShownButton>::new());
    // The same outcome again is shown already; the query was answered.
    let repeated = fixture.bot.reply(&press, &reply).await.unwrap_err();
    assert!(
        repeated.to_string().contains("query is too old"),
        "{repeated}"
    );
    assert_eq!(fixture.visible_messages(), std::slice::from_ref(&ended));
    // A client that still shows the buttons reports the message as it is now.
    press_button();
    let late = fixture.next_press().await;
    assert_eq!(late.text, ended.text);
    fixture.bot.reply(&late, &reply).await.unwrap();
    assert_eq!(fixture.visible_messages(), [ended]);
}

#[tokio::test]
async fn a_press_arrives_by_the_webhook_and_under_a_message_that_is_too_old() {
    let fixture = BotFixture::new().await;
    let update = fixture
        .fake
        .user_presses(fixture.chat, 4000, 77, "dray:1:n");
    let request = WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: vec![(
            "x-telegram-bot-api-secret-token".to_owned(),
            "hook-secret".to_owned(),
        )],
        body: update.to_string().into(),
    };
    let reply = fixture.bot.webhook(&request).unwrap();
    assert!(reply.messages.is_empty());
    let [press] = reply.presses.as_slice() else {
        panic!("{reply:?}");
    };
    assert_eq!((press.data.as_str(), press.text.as_str()), ("dray:1:n", ""));
}

#[tokio::test]
async fn a_question_that_does_not_fit_is_refused_and_never_cut() {
    let fixture = BotFixture::new().await;
    let target = target(fixture.chat);
    let long = question(&"🙂".repeat(2048));
    let error = fixture.bot.ask(&target, &long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLong);
    assert!(fixture.visible_messages().is_empty());
    fixture
        .fake
        .script(InjectedFault::Refuse(403, "bot was kicked".to_owned()));
    let error = fixture.bot.ask(&target, &question("{}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_question_with_many_choices_shows_all_buttons_in_their_order() {
    let fixture = BotFixture::new().await;
    let labels: Vec<_> = (1..=12).map(|number| format!("Choice {number}")).collect();
    let button = |label: &String| QuestionButton {
        label: label.clone(),
        data: format!("dray:1:{label}"),
    };
    let chat_question = ChatQuestion {
        buttons: labels.iter().map(button).collect(),
        ..question("{}")
    };
    fixture
        .bot
        .ask(&target(fixture.chat), &chat_question)
        .await
        .unwrap();
    let shown = fixture.visible_messages().remove(0);
    let seen: Vec<_> = shown
        .buttons
        .iter()
        .map(|button| button.text.clone())
        .collect();
    assert_eq!(seen, labels);
}
