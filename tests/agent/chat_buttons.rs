//! Approvals by buttons in Discord and Slack: the same rules as in Telegram, each over its own wire.

use dray_platform_discord::fake_server::{DisconnectAll, FakeDiscord};
use dray_platform_slack::fake_server::{FakeSlack, SIGNING_SECRET, signature_headers};
use dray_testkit::eventually;
use dray_types::Clock;
use futures_util::future::join;
use serde_json::json;

use super::approvals::ops_setup;
use super::asking_server::AskingServer;
use super::chat_answer::AgentAnswer;
use super::fixture::{AgentFixture, AgentSetup, user};
use super::rest_endpoint::FakeEndpoint;

/// Discord id of a person who may answer.
const DISCORD_APPROVER: &str = "77";
/// Slack id of a person who may answer.
const SLACK_APPROVER: &str = "U77";
/// Discord id of a person who may not answer.
const DISCORD_STRANGER: &str = "78";
/// Slack id of a person who may not answer.
const SLACK_STRANGER: &str = "U78";

/// The body of a tool's result in the answer of the scripted model.
const TOOL_RESULT_ANSWER: &str = r#"Got {"taken":true}."#;

async fn ask(fixture: &AgentFixture) -> AgentAnswer {
    let body = json!({"model": "agent", "messages": [user("order")], "stream": true});
    let request = fixture.post("/v1/chat/completions");
    AgentAnswer::of(request.json(&body)).await
}

/// An agent that asks in a channel of Discord.
struct DiscordOps {
    fixture: AgentFixture,
    endpoint: FakeEndpoint,
    discord: FakeDiscord,
    channel: String,
}

impl DiscordOps {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let (endpoint, discord) = (
            FakeEndpoint::start().await,
            FakeDiscord::start().await.unwrap(),
        );
        let channel = discord.channel(0);
        let mut setup = ops_setup(&endpoint, &format!("discord:{channel}"), DISCORD_APPROVER);
        for (key, value) in settings {
            setup = setup.set(key, *value);
        }
        Self::of(setup, endpoint, discord, channel).await
    }

    /// Starts the fixture with an agent whose server asks during its calls.
    async fn start_asking(server: &AskingServer) -> Self {
        let (endpoint, discord) = (
            FakeEndpoint::start().await,
            FakeDiscord::start().await.unwrap(),
        );
        let channel = discord.channel(0);
        let setup = server.setup_in(&format!("discord:{channel}"), DISCORD_APPROVER);
        Self::of(setup, endpoint, discord, channel).await
    }

    async fn of(
        setup: AgentSetup,
        endpoint: FakeEndpoint,
        discord: FakeDiscord,
        channel: String,
    ) -> Self {
        let account = "platform-delivery.accounts.bot.discord";
        let setup = setup
            .set(&format!("{account}.base_url"), discord.url())
            .set(&format!("{account}.token"), discord.token().expose());
        Self {
            fixture: setup.start().await,
            endpoint,
            discord,
            channel,
        }
    }

    /// Id and text of the question, and the data of its first button, once the channel shows it.
    async fn question(&self) -> (String, String, String) {
        eventually("a question with buttons", async || {
            let message = self.discord.visible_messages(&self.channel).pop()?;
            let button = message.buttons().into_iter().next()?;
            Some((message.id, message.text, button.data))
        })
        .await
    }

    /// A person presses a button in a channel. Returns the notice to the person, without its escapes.
    async fn press(&self, channel: &str, message: &str, person: &str, data: &str) -> String {
        let before = self.discord.notices().len();
        self.discord.user_presses(channel, message, person, data);
        self.notice(before).await
    }

    async fn notice(&self, number: usize) -> String {
        eventually("a notice after the press", async || {
            let notices = self.discord.notices();
            notices.get(number).map(|notice| notice.replace('\\', ""))
        })
        .await
    }

    /// The text of the question once it shows this outcome, and how many buttons it has then.
    async fn shown_with(&self, outcome: &str) -> (String, usize) {
        eventually(outcome, async || {
            let message = self.discord.visible_messages(&self.channel).pop()?;
            let text = message.text.replace('\\', "");
            let buttons = message.buttons().len();
            text.contains(outcome).then_some((text, buttons))
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_discord_approves_one_call_and_presses_of_others_and_forged_ones_change_nothing()
{
    let ops = DiscordOps::start(&[]).await;
    let (discord, channel) = (&ops.discord, ops.channel.as_str());
    let other_channel = discord.channel(0);
    let deciding = async {
        let (id, text, approve) = ops.question().await;
        assert!(
            text.replace('\\', "").contains("shop_order of shop"),
            "{text}"
        );
        assert!(
            text.contains("```json\n{\"doc\":\"a *big*\\u202e one\"}\n```"),
            "{text}"
        );
        let notice_text = ops.press(channel, &id, DISCORD_STRANGER, &approve).await;
        assert!(
            notice_text.contains("not one of the people"),
            "{notice_text}"
        );
        let notice_text = ops
            .press(channel, &id, DISCORD_APPROVER, "dray:apr_0:y")
            .await;
        assert!(notice_text.contains("does not exist"), "{notice_text}");
        // The data is that of the button, and the channel is another one.
        let notice_text = ops
            .press(&other_channel, &id, DISCORD_APPROVER, &approve)
            .await;
        assert!(
            notice_text.contains("not answered in this chat"),
            "{notice_text}"
        );
        assert!(ops.endpoint.bodies().is_empty());
        // The press arrives while the bot is not connected, and twice.
        discord.disconnect_all(DisconnectAll::Drop);
        let notice_count = discord.notices().len();
        let event = discord.user_presses(channel, &id, DISCORD_APPROVER, &approve);
        discord.repeat_event("INTERACTION_CREATE", &event);
        let first = ops.notice(notice_count).await;
        let second = ops.notice(notice_count + 1).await;
        // Both presses are handled concurrently, so either may decide.
        let notices = [first, second];
        assert!(
            notices
                .iter()
                .any(|text| text == "Your answer is recorded."),
            "{notices:?}"
        );
        assert!(
            notices.iter().any(|text| text.contains("decided before")),
            "{notices:?}"
        );
        (id, approve)
    };
    let (answer, (id, approve)) = join(ask(&ops.fixture), deciding).await;
    assert_eq!(answer.text(), TOOL_RESULT_ANSWER, "{answer:?}");
    let (_, buttons) = ops.shown_with("\n\nApproved by Ada L (77), 20").await;
    assert_eq!(buttons, 0);
    let refuse = approve.replace(":y", ":n");
    let notice_text = ops.press(channel, &id, DISCORD_APPROVER, &refuse).await;
    assert!(notice_text.contains("decided before"), "{notice_text}");
    assert_eq!(ops.endpoint.bodies().len(), 1);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_discord_counts_after_the_end_of_the_interaction_and_not_after_the_expiry() {
    let ops = DiscordOps::start(&[("orchestrator.approval_timeout", "5s")]).await;
    let (answer, (id, _, approve)) = join(ask(&ops.fixture), ops.question()).await;
    assert!(
        answer.text().contains("was not approved in time"),
        "{answer:?}"
    );
    // No button of this question is pressed.
    let (_, buttons) = ops.shown_with("Expired, 20").await;
    assert_eq!(buttons, 0);
    let notice_text = ops
        .press(&ops.channel, &id, DISCORD_APPROVER, &approve)
        .await;
    assert!(notice_text.contains("has expired"), "{notice_text}");
    assert!(ops.endpoint.bodies().is_empty());
    ops.fixture.stop().await;
    // Discord no longer accepts a response to this press; the person's answer still counts.
    let ops = DiscordOps::start(&[]).await;
    ops.discord.end_interactions();
    let deciding = async {
        let (id, _, approve) = ops.question().await;
        let channel = &ops.channel;
        ops.discord
            .user_presses(channel, &id, DISCORD_APPROVER, &approve);
        ops.shown_with("Approved by Ada L (77), 20").await
    };
    let (answer, (_, buttons)) = join(ask(&ops.fixture), deciding).await;
    assert_eq!((answer.text().as_str(), buttons), (TOOL_RESULT_ANSWER, 0));
    ops.fixture.stop().await;
}

/// An agent that asks in a channel of Slack.
struct SlackOps {
    fixture: AgentFixture,
    endpoint: FakeEndpoint,
    slack: FakeSlack,
    channel: String,
}

impl SlackOps {
    async fn start() -> Self {
        let endpoint = FakeEndpoint::start().await;
        Self::of(endpoint, |endpoint, chat| {
            ops_setup(endpoint, chat, SLACK_APPROVER)
        })
        .await
    }

    async fn of(
        endpoint: FakeEndpoint,
        setup: impl FnOnce(&FakeEndpoint, &str) -> AgentSetup,
    ) -> Self {
        let slack = FakeSlack::start().await.unwrap();
        let channel = slack.channel();
        let account = "platform-delivery.accounts.app.slack";
        let setup = setup(&endpoint, &format!("slack:{channel}"))
            .set("platform-delivery.listen", "127.0.0.1:0")
            .set(&format!("{account}.base_url"), slack.url())
            .set(&format!("{account}.token"), slack.token().expose())
            .set(&format!("{account}.signing_secret"), SIGNING_SECRET);
        Self {
            fixture: setup.start().await,
            endpoint,
            slack,
            channel,
        }
    }

    /// Time stamp and text of the question, and the value of its first button, once the channel shows it.
    async fn question(&self) -> (String, String, String) {
        eventually("a question with buttons", async || {
            let message = self.slack.visible_messages(&self.channel).pop()?;
            let button = message.buttons.into_iter().next()?;
            Some((message.ts, message.code, button.value))
        })
        .await
    }

    /// Posts the request that Slack sends when a person presses a button, signed with this secret. Returns the status.
    async fn post_press(&self, body: &str, secret: &str) -> u16 {
        let now = Clock::system().now_ms() / 1000;
        let mut request = self.fixture.post_event("/platforms/app/webhook");
        for (name, value) in signature_headers(body, now, secret) {
            request = request.header(name, &value);
        }
        let body = body.to_owned().into();
        let request = request.bytes("application/x-www-form-urlencoded", body);
        request.send(&|_| ()).await.unwrap().status()
    }

    /// A person presses a button. Returns the notice that this person got.
    async fn press(&self, message: &str, person: &str, value: &str) -> String {
        let before = self.slack.notices().len();
        let body = self.slack.press(&self.channel, message, person, value);
        assert_eq!(self.post_press(&body, SIGNING_SECRET).await, 200);
        // The platform has its confirmation before the press is decided.
        let (notified_person, text) = eventually("a notice after the press", async || {
            self.slack.notices().get(before).cloned()
        })
        .await;
        assert_eq!(notified_person, person);
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_slack_approves_one_call_and_presses_of_others_and_forged_ones_change_nothing() {
    let ops = SlackOps::start().await;
    let deciding = async {
        let (ts, code, approve) = ops.question().await;
        assert_eq!(code, r#"{"doc":"a *big*\u202e one"}"#);
        let notice_text = ops.press(&ts, SLACK_STRANGER, &approve).await;
        assert!(
            notice_text.contains("not one of the people"),
            "{notice_text}"
        );
        let notice_text = ops.press(&ts, SLACK_APPROVER, "dray:apr_0:y").await;
        assert!(notice_text.contains("does not exist"), "{notice_text}");
        // Without the app's secret, the request cannot come from Slack, so its person is not believed.
        let forged = ops.slack.press(&ops.channel, &ts, SLACK_APPROVER, &approve);
        assert_eq!(ops.post_press(&forged, "another").await, 401);
        assert!(ops.endpoint.bodies().is_empty());
        let notice_text = ops.press(&ts, SLACK_APPROVER, &approve).await;
        assert_eq!(notice_text, "Your answer is recorded.");
        (ts, approve)
    };
    let (answer, (ts, approve)) = join(ask(&ops.fixture), deciding).await;
    assert_eq!(answer.text(), TOOL_RESULT_ANSWER, "{answer:?}");
    let ended = eventually("the outcome in the message", async || {
        let newest = ops.slack.visible_messages(&ops.channel).pop()?;
        newest
            .text
            .contains("Approved by ada (U77), 20")
            .then_some(newest)
    })
    .await;
    assert!(ended.buttons.is_empty());
    let refuse = approve.replace(":y", ":n");
    let notice_text = ops.press(&ts, SLACK_APPROVER, &refuse).await;
    assert!(notice_text.contains("decided before"), "{notice_text}");
    assert_eq!(ops.endpoint.bodies().len(), 1);
    ops.fixture.stop().await;
}

/// The result of the call of `bank_pay` in the answer of the scripted model.
const CHOSEN_ANSWER: &str = r#"Got accept {"account":"second"}."#;

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_in_discord_answers_what_a_server_asks_and_presses_of_others_do_not() {
    let server = AskingServer::start().await;
    let ops = DiscordOps::start_asking(&server).await;
    let channel = ops.channel.as_str();
    let deciding = async {
        let (id, text, first) = ops.question().await;
        assert!(
            text.replace('\\', "").contains("bank_pay of bank"),
            "{text}"
        );
        let second = first.replace(":1", ":2");
        assert_ne!(first, second);
        let notice_text = ops.press(channel, &id, DISCORD_STRANGER, &second).await;
        assert!(
            notice_text.contains("not one of the people"),
            "{notice_text}"
        );
        assert_eq!(server.calls(), ["pay begin"]);
        ops.press(channel, &id, DISCORD_APPROVER, &second).await
    };
    let (answer, notice_text) = join(ask(&ops.fixture), deciding).await;
    assert_eq!(answer.text(), CHOSEN_ANSWER, "{answer:?}");
    assert_eq!(notice_text, "Your answer is recorded.");
    let (text, buttons) = ops.shown_with("Ada L (77), 20").await;
    assert!(buttons == 0 && text.contains("second"), "{text}");
    assert_eq!(server.calls(), ["pay begin", "pay accept"]);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_in_slack_answers_what_a_server_asks_and_presses_of_others_do_not() {
    let server = AskingServer::start().await;
    let endpoint = FakeEndpoint::start().await;
    let ops = SlackOps::of(endpoint, |_, chat| server.setup_in(chat, SLACK_APPROVER)).await;
    let deciding = async {
        let (ts, _, first) = ops.question().await;
        let second = first.replace(":1", ":2");
        assert_ne!(first, second);
        let notice_text = ops.press(&ts, SLACK_STRANGER, &second).await;
        assert!(
            notice_text.contains("not one of the people"),
            "{notice_text}"
        );
        assert_eq!(server.calls(), ["pay begin"]);
        ops.press(&ts, SLACK_APPROVER, &second).await
    };
    let (answer, notice_text) = join(ask(&ops.fixture), deciding).await;
    assert_eq!(answer.text(), CHOSEN_ANSWER, "{answer:?}");
    assert_eq!(notice_text, "Your answer is recorded.");
    let ended = eventually("the outcome in the message", async || {
        let newest = ops.slack.visible_messages(&ops.channel).pop()?;
        newest.text.contains("ada (U77), 20").then_some(newest)
    })
    .await;
    assert!(
        ended.buttons.is_empty() && ended.text.contains("second"),
        "{ended:?}"
    );
    assert_eq!(server.calls(), ["pay begin", "pay accept"]);
    ops.fixture.stop().await;
}
