//! Questions about hosts in chats: from a fetch that a rule holds back to buttons, and back to the next fetch.

use std::time::Duration;

use dray_bus::{EventFilter, Meta};
use dray_platform_discord::fake_server::FakeDiscord;
use dray_platform_slack::fake_server::{FakeSlack, SIGNING_SECRET, signature_headers};
use dray_proto::v1::{self, EgressAnswer, EgressQuestionStage};
use dray_testkit::eventually;
use dray_types::{Clock, Deadline, Fault, SessionId, TenantId};
use futures_util::FutureExt as _;
use serde_json::json;
use tempfile::TempDir;

use super::fixture::{AgentFixture, AgentSetup};
use super::public_hosts::HOST_NAME;

/// The first group of the fake server of Telegram.
const OPS_CHAT: i64 = -1_001_000_000_001;
/// The person who may answer.
const APPROVER_ID: i64 = 77;
/// A person of the chat who may not answer.
const STRANGER_ID: i64 = 5;

const POLICY_TEXT: &str = r#"
[[role]]
name = "web"
[[role.rule]]
name = "others"
outcome = "ask"
"#;

/// A system with that policy, whose questions this person answers in this chat, and the directory of the policy.
async fn start_asking(
    chat: &str,
    person: &str,
    settings: &[(&str, String)],
) -> (AgentFixture, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.toml");
    std::fs::write(&policy, POLICY_TEXT).unwrap();
    let ops = "platform-delivery.question_chats.ops";
    let rules = json!([{"reply": {"say": "Hello."}}]);
    let mut setup = AgentSetup::new(json!([]), rules)
        .set("egress-fetcher.policy_path", policy.to_str().unwrap())
        .set("egress-fetcher.questions.wait_time", "1h")
        .set(&format!("{ops}.chat"), chat)
        .set(&format!("{ops}.people"), format!(r#"["{person}"]"#))
        .set(&format!("{ops}.host_questions"), "true");
    for (key, value) in settings {
        setup = setup.set(key, value);
    }
    (setup.start().await, directory)
}

fn meta(session: &str) -> Meta {
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_secs(30));
    let meta = Meta::new(TenantId::default(), deadline);
    meta.with_session(SessionId::new(session).unwrap())
}

/// Fetches in a session; the reason of the fault where it fails.
async fn fetch(fixture: &AgentFixture, session: &str) -> Result<v1::FetchReply, String> {
    let request = v1::FetchRequest {
        url: format!("http://{HOST_NAME}/prices.csv"),
        ..v1::FetchRequest::default()
    };
    let fetched = fixture.bus().call(&meta(session), &request).await;
    fetched.map_err(|error| Fault::from(error).detail)
}

/// The answers in the audit stream: who answered, and what.
async fn audited_answers(fixture: &AgentFixture) -> Vec<(String, EgressAnswer)> {
    let filter = EventFilter::new("dray.audit.question.v1.changed.>".to_owned()).from_start();
    let mut events = fixture.bus().events(filter).await.unwrap();
    let mut answers = Vec::new();
    while let Some(Ok(event)) = events.next().now_or_never() {
        let audit: v1::EgressQuestionAudit = event.decode().unwrap();
        if audit.stage() == EgressQuestionStage::Answered {
            let question = audit.question.unwrap();
            answers.push((question.answered_by.clone(), question.answer()));
        }
    }
    answers
}

/// A person presses a button with this data. Returns the notice to the person.
async fn press_in_telegram(
    fixture: &AgentFixture,
    message: i64,
    person: i64,
    data: &str,
) -> String {
    let telegram = &fixture.telegram;
    let before = telegram.notices().len();
    telegram.user_presses(OPS_CHAT, message, person, data);
    eventually("an answer to the press", async || {
        let notices = telegram.notices();
        notices.get(before).map(|notice| notice.text.clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_telegram_lets_the_session_reach_the_host_and_every_other_press_changes_nothing()
{
    let chat = format!("telegram:{OPS_CHAT}");
    let (fixture, _policy) = start_asking(&chat, &APPROVER_ID.to_string(), &[]).await;
    assert_eq!(fixture.telegram.group(), OPS_CHAT);
    assert_eq!(
        fetch(&fixture, "chat-1").await.unwrap_err(),
        "approval_required"
    );
    let newest = || fixture.telegram.visible_messages(OPS_CHAT).pop();
    let question = eventually("a question with buttons", async || {
        newest().filter(|message| !message.buttons.is_empty())
    })
    .await;
    assert_eq!(question.code, format!("{HOST_NAME}:80"));
    assert!(
        question.text.contains("Session chat-1"),
        "{}",
        question.text
    );
    let press = async |person: i64, data: &str| {
        press_in_telegram(&fixture, question.message_id, person, data).await
    };
    let allow = question.buttons[0].data.clone();
    let press_reply = press(STRANGER_ID, &allow).await;
    assert!(
        press_reply.contains("not one of the people"),
        "{press_reply}"
    );
    let forged = format!("dray-host:egq_{}:y", "0".repeat(40));
    let press_reply = press(APPROVER_ID, &forged).await;
    assert!(press_reply.contains("does not exist"), "{press_reply}");
    assert_eq!(
        fetch(&fixture, "chat-1").await.unwrap_err(),
        "approval_required"
    );
    assert_eq!(press(APPROVER_ID, &allow).await, "Your answer is recorded.");
    // The answer is for the session whose host was shown.
    fetch(&fixture, "chat-1").await.unwrap();
    assert_eq!(
        fetch(&fixture, "chat-2").await.unwrap_err(),
        "approval_required"
    );
    let press_reply = press(APPROVER_ID, &allow.replace(":y", ":n")).await;
    assert!(
        press_reply.contains("answered before") && press_reply.contains("chat ops:77"),
        "{press_reply}"
    );
    fetch(&fixture, "chat-1").await.unwrap();
    let answers = audited_answers(&fixture).await;
    assert_eq!(answers, [("chat ops:77".to_owned(), EgressAnswer::Allow)]);
    let ended = eventually("the outcome in the message", async || {
        let messages = fixture.telegram.visible_messages(OPS_CHAT);
        let mut messages = messages.into_iter();
        messages.find(|message| message.text.contains("Allowed by Ada L (77), 20"))
    })
    .await;
    assert_eq!(ended.message_id, question.message_id);
    assert!(ended.buttons.is_empty());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_in_telegram_shows_the_answer_of_another_approver_and_the_expiry_without_a_press()
{
    let chat = format!("telegram:{OPS_CHAT}");
    let person = APPROVER_ID.to_string();
    let wait = ("egress-fetcher.questions.wait_time", "8s".to_owned());
    let (fixture, _policy) = start_asking(&chat, &person, &[wait]).await;
    assert_eq!(fixture.telegram.group(), OPS_CHAT);
    let shown = async |text: &str| {
        eventually(text, async || {
            let messages = fixture.telegram.visible_messages(OPS_CHAT);
            let mut messages = messages.into_iter();
            messages.find(|message| message.text.contains(text))
        })
        .await
    };
    assert!(fetch(&fixture, "chat-1").await.is_err());
    let question = shown("Session chat-1").await;
    let request = v1::ListEgressQuestionsRequest::default();
    let listed = fixture
        .bus()
        .call(&meta("console"), &request)
        .await
        .unwrap();
    let mut request = v1::AnswerEgressQuestionRequest {
        id: listed.questions[0].id.clone(),
        principal: "console login 1".to_owned(),
        ..v1::AnswerEgressQuestionRequest::default()
    };
    request.set_answer(EgressAnswer::Deny);
    fixture
        .bus()
        .call(&meta("console"), &request)
        .await
        .unwrap();
    let ended = shown("Refused by console login 1, 20").await;
    assert_eq!(ended.message_id, question.message_id);
    // The detail stays a block of code.
    assert_eq!((ended.buttons.len(), ended.code), (0, question.code));
    assert!(fetch(&fixture, "chat-2").await.is_err());
    let ended = shown("Expired, 20").await;
    assert!(ended.text.contains("Session chat-2") && ended.buttons.is_empty());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_discord_answers_a_question_about_a_host() {
    let discord = FakeDiscord::start().await.unwrap();
    let channel = discord.channel(0);
    let account = "platform-delivery.accounts.bot.discord";
    let settings = [
        (format!("{account}.base_url"), discord.url()),
        (
            format!("{account}.token"),
            discord.token().expose().to_owned(),
        ),
    ];
    let settings: Vec<_> = settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    let (fixture, _policy) = start_asking(&format!("discord:{channel}"), "77", &settings).await;
    assert!(fetch(&fixture, "chat-1").await.is_err());
    let newest = || discord.visible_messages(&channel).pop();
    let question = eventually("a question with buttons", async || {
        newest().filter(|message| !message.buttons().is_empty())
    })
    .await;
    let refuse = question.buttons().remove(1).data;
    discord.user_presses(&channel, &question.id, "77", &refuse);
    let ended = eventually("the outcome in the message", async || {
        newest().filter(|message| message.buttons().is_empty())
    })
    .await;
    let text = ended.text.replace('\\', "");
    assert!(text.contains("Refused by Ada L (77), 20"), "{text}");
    assert_eq!(
        fetch(&fixture, "chat-1").await.unwrap_err(),
        "policy_denied"
    );
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_slack_answers_a_question_about_a_host() {
    let slack = FakeSlack::start().await.unwrap();
    let channel = slack.channel();
    let account = "platform-delivery.accounts.app.slack";
    let settings = [
        (
            "platform-delivery.listen".to_owned(),
            "127.0.0.1:0".to_owned(),
        ),
        (format!("{account}.base_url"), slack.url()),
        (
            format!("{account}.token"),
            slack.token().expose().to_owned(),
        ),
        (
            format!("{account}.signing_secret"),
            SIGNING_SECRET.to_owned(),
        ),
    ];
    let settings: Vec<_> = settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    let (fixture, _policy) = start_asking(&format!("slack:{channel}"), "U77", &settings).await;
    assert!(fetch(&fixture, "chat-1").await.is_err());
    let newest = || slack.visible_messages(&channel).pop();
    let question = eventually("a question with buttons", async || {
        newest().filter(|message| !message.buttons.is_empty())
    })
    .await;
    assert_eq!(question.code, format!("{HOST_NAME}:80"));
    let body = slack.press(&channel, &question.ts, "U77", &question.buttons[0].value);
    let mut request = fixture.post_event("/platforms/app/webhook");
    for (name, value) in signature_headers(&body, Clock::system().now_ms() / 1000, SIGNING_SECRET) {
        request = request.header(name, &value);
    }
    let request = request.bytes("application/x-www-form-urlencoded", body.into());
    assert_eq!(request.send(&|_| ()).await.unwrap().status(), 200);
    let ended = eventually("the outcome in the message", async || {
        newest().filter(|message| message.buttons.is_empty())
    })
    .await;
    assert!(ended.text.contains("Allowed by ada (U77), 20"), "{ended:?}");
    fetch(&fixture, "chat-1").await.unwrap();
    fixture.stop().await;
}
