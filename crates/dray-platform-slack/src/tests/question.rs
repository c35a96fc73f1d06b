//! Questions with buttons, and what users press.

use dray_platform::{
    ButtonPress, ChatQuestion, ErrorKind, InboundSource as _, PressReply, QuestionButton,
    QuestionChannel as _, ShownQuestion,
};

use super::{NOW_SECONDS, app, options, signed_request, target};
use crate::fake_server::{FakeSlack, InjectedFault, SIGNING_SECRET};

fn question(detail: &str) -> ChatQuestion {
    let button = |label: &str, data: &str| QuestionButton {
        label: label.to_owned(),
        data: data.to_owned(),
    };
    ChatQuestion {
        text: "The agent wants to call <!channel> & more:".to_owned(),
        detail: detail.to_owned(),
        buttons: vec![button("Approve", "dray:1:y"), button("Refuse", "dray:1:n")],
    }
}

#[tokio::test]
async fn a_question_has_its_detail_as_code_and_a_press_ends_it_with_the_outcome() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let channel = fake.channel();
    let detail = r#"{"q":"```<@U1>"}"#;
    let id = slack
        .ask(&target(&channel), &question(detail))
        .await
        .unwrap();
    let shown = fake.visible_messages(&channel).remove(0);
    assert_eq!((&shown.ts, shown.code.as_str()), (&id, detail));
    let labels = shown.buttons.iter().map(|button| button.text.as_str());
    assert!(labels.eq(["Approve", "Refuse"]), "{shown:?}");
    let body = fake.press(&channel, &id, "U77", &shown.buttons[0].value);
    let mut request = signed_request(&body, NOW_SECONDS, SIGNING_SECRET);
    let form = "application/x-www-form-urlencoded".to_owned();
    request.headers.push(("content-type".to_owned(), form));
    let presses = slack.webhook(&request).unwrap().presses;
    let [press] = presses.as_slice() else {
        panic!("{presses:?}");
    };
    assert_eq!(
        (press.sender.as_str(), press.sender_name.as_str()),
        ("U77", "ada")
    );
    assert_eq!(
        (press.message_id.as_str(), press.data.as_str()),
        (id.as_str(), "dray:1:y")
    );
    assert_eq!((&press.target.chat, &press.text), (&channel, &shown.text));
    // A press that changes nothing is answered to the person alone.
    let refused = PressReply {
        notice: "You may not.".to_owned(),
        outcome: None,
    };
    slack.reply(press, &refused).await.unwrap();
    let visible = fake.visible_messages(&channel);
    assert_eq!(visible, std::slice::from_ref(&shown));
    assert_eq!(
        fake.notices(),
        [("U77".to_owned(), "You may not.".to_owned())]
    );
    let reply = PressReply {
        notice: "Recorded.".to_owned(),
        outcome: Some("Approved by ada (U77).".to_owned()),
    };
    for _ in 0..2 {
        slack.reply(press, &reply).await.unwrap();
    }
    let ended = fake.visible_messages(&channel).remove(0);
    let expected = format!("{}\n\nApproved by ada (U77).", shown.text);
    assert_eq!(ended.text, expected);
    assert!(ended.buttons.is_empty());
    // A client with an outdated view can still send the press; Slack adds the current text of the message.
    let late = ButtonPress {
        text: ended.text.clone(),
        ..press.clone()
    };
    slack.reply(&late, &reply).await.unwrap();
    assert_eq!(fake.visible_messages(&channel), [ended]);
}

#[tokio::test]
async fn a_press_without_a_signature_of_slack_is_refused() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let body = fake.press("C1", "1.2", "U77", "dray:1:y");
    for (stamp, secret) in [
        (NOW_SECONDS, "another"),
        (NOW_SECONDS - 301, SIGNING_SECRET),
    ] {
        let mut request = signed_request(&body, stamp, secret);
        let form = "application/x-www-form-urlencoded".to_owned();
        request.headers.push(("content-type".to_owned(), form));
        let error = slack.webhook(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
}

#[tokio::test]
async fn a_question_that_does_not_fit_is_refused_and_never_cut() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let channel = target(&fake.channel());
    let error = slack.ask(&channel, &question(&"x".repeat(4000))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TooLong);
    fake.script(InjectedFault::Refuse("not_in_channel"));
    let error = slack.ask(&channel, &question("{}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(fake.visible_messages(&channel.chat).is_empty());
}

#[tokio::test]
async fn the_outcome_of_a_long_question_is_shown_in_place_of_its_buttons() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let channel = fake.channel();
    let asked = question(&"<".repeat(3900));
    let outcome = "Approved by ada (U77).";
    for is_pressed in [true, false] {
        let id = slack.ask(&target(&channel), &asked).await.unwrap();
        if is_pressed {
            let press = ButtonPress {
                target: target(&channel),
                message_id: id,
                text: format!("{}\n\n{}", asked.text, asked.detail),
                sender: "U77".to_owned(),
                sender_name: "ada".to_owned(),
                data: "dray:1:y".to_owned(),
                reference: String::new(),
            };
            let reply = PressReply {
                notice: "Recorded.".to_owned(),
                outcome: Some(outcome.to_owned()),
            };
            slack.reply(&press, &reply).await.unwrap();
        } else {
            let shown = ShownQuestion {
                target: target(&channel),
                message_id: id,
                text: asked.text.clone(),
                detail: asked.detail.clone(),
            };
            slack.close(&shown, outcome).await.unwrap();
        }
        let ended = fake.visible_messages(&channel).pop().unwrap();
        assert!(ended.buttons.is_empty());
        assert!(
            ended.text.ends_with(&format!("<\n\n{outcome}")),
            "{}",
            ended.text
        );
    }
}

#[tokio::test]
async fn a_question_with_many_choices_shows_all_buttons_in_their_order() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let channel = fake.channel();
    let labels: Vec<_> = (1..=12).map(|number| format!("Choice {number}")).collect();
    let button = |label: &String| QuestionButton {
        label: label.clone(),
        data: format!("dray:1:{label}"),
    };
    let chat_question = ChatQuestion {
        buttons: labels.iter().map(button).collect(),
        ..question("{}")
    };
    slack.ask(&target(&channel), &chat_question).await.unwrap();
    let shown = fake.visible_messages(&channel).remove(0);
    let seen: Vec<_> = shown
        .buttons
        .iter()
        .map(|button| button.text.clone())
        .collect();
    assert_eq!(seen, labels);
}
