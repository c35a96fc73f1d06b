//! The fake servers of the platforms: their configuration, the messages that their users see, and injected faults.

use std::fmt::Write as _;

use dray_http::fake_server::ContentDigest;
use dray_platform_discord::fake_server::{FakeDiscord as Discord, InjectedFault as DiscordFault};
use dray_platform_email::fake_server::{FakeMailServer as Email, InjectedFault as EmailFault};
use dray_platform_matrix::fake_server::{FakeHomeserver as Matrix, InjectedFault as MatrixFault};
use dray_platform_slack::fake_server::{
    FakeSlack as Slack, InjectedFault as SlackFault, SIGNING_SECRET,
};
use dray_platform_telegram::fake_server::{
    FakeTelegram as Telegram, InjectedFault as TelegramFault,
};
use dray_platform_webhook::fake_server::{
    FakeReceiver as Webhook, InjectedFault as WebhookFault, SHARED_SECRET,
};
use dray_platform_whatsapp::fake_server::{
    FakeCloudApi as WhatsApp, InjectedFault as WhatsAppFault, PHONE_NUMBER_ID,
};
use dray_proto::v1;
use dray_types::{PlatformKind, Sha256Digest};
use rand::{Rng as _, RngCore};

/// Number of chats of the fake webhook receiver. There are several, because a backlog of one chat is delivered at a
/// rate of one file per second.
const WEBHOOK_CHATS: usize = 8;

/// Names of the platforms that have a fake server.
pub(crate) const ALL_PLATFORMS: [&str; 7] = [
    "telegram", "discord", "slack", "webhook", "whatsapp", "matrix", "email",
];

#[test]
fn every_platform_has_a_fake_server() {
    let fakes = std::collections::BTreeSet::from(ALL_PLATFORMS);
    // Deliveries of the platform `cli` go to a directory, so it has no server.
    let platforms = PlatformKind::ALL.iter().map(|kind| kind.as_str());
    assert_eq!(fakes, platforms.filter(|name| *name != "cli").collect());
}

/// Platforms on which a repeat is harmless, so that every file arrives.
pub(crate) const IDEMPOTENT_PLATFORMS: [&str; 2] = ["webhook", "matrix"];

/// Largest file of the homeserver and the mail server, in bytes.
const MAX_FILE_BYTES: u64 = 20 << 20;

/// A section of the configuration: its name below `platform-delivery.accounts`, and its keys and values.
type Section = (String, Vec<(&'static str, String)>);

/// The path of the fake webhook receiver for events of a chat.
fn path(chat: &str) -> String {
    format!("/hooks/{chat}")
}

fn quote_text(text: &str) -> String {
    format!("'{text}'")
}

/// A timeout longer than a kill and a restart, so that the next process finds requests that have not ended.
fn response_timeout() -> (&'static str, String) {
    ("response_timeout", quote_text("6s"))
}

/// A fake server of every platform.
pub(crate) struct FakePlatforms {
    pub(crate) telegram: Telegram,
    pub(crate) discord: Discord,
    pub(crate) slack: Slack,
    pub(crate) webhook: Webhook,
    whatsapp: WhatsApp,
    matrix: Matrix,
    email: Email,
}

impl FakePlatforms {
    pub(crate) async fn start() -> Self {
        Self {
            telegram: Telegram::start().await.unwrap(),
            discord: Discord::start().await.unwrap(),
            slack: Slack::start().await.unwrap(),
            webhook: Webhook::start().await.unwrap(),
            whatsapp: WhatsApp::start().await.unwrap(),
            matrix: Matrix::start(MAX_FILE_BYTES).await.unwrap(),
            email: Email::start(MAX_FILE_BYTES, None).await.unwrap(),
        }
    }

    /// The accounts, in the syntax of the configuration.
    pub(crate) fn configuration(&self) -> String {
        let mut text = String::new();
        let sections = self.bots().into_iter().chain(self.others());
        for (name, lines) in sections.chain((0..WEBHOOK_CHATS).map(|number| self.hook(number))) {
            writeln!(text, "[platform-delivery.accounts.{name}]").unwrap();
            for (key, value) in lines {
                writeln!(text, "{key} = {value}").unwrap();
            }
        }
        text
    }

    fn bots(&self) -> Vec<Section> {
        vec![
            (
                "tg.telegram".to_owned(),
                vec![
                    ("token", quote_text(self.telegram.token().expose())),
                    ("base_url", quote_text(&self.telegram.url())),
                    ("poll_wait", quote_text("2s")),
                    ("idle_timeout", quote_text("6s")),
                    response_timeout(),
                ],
            ),
            (
                "dc.discord".to_owned(),
                vec![
                    ("token", quote_text(self.discord.token().expose())),
                    ("base_url", quote_text(&self.discord.url())),
                    response_timeout(),
                ],
            ),
            (
                "sl.slack".to_owned(),
                vec![
                    ("token", quote_text(self.slack.token().expose())),
                    ("signing_secret", quote_text(SIGNING_SECRET)),
                    ("base_url", quote_text(&self.slack.url())),
                    ("share_wait", quote_text("3s")),
                    response_timeout(),
                ],
            ),
            (
                "wa.whatsapp".to_owned(),
                vec![
                    ("token", quote_text(self.whatsapp.token().expose())),
                    ("phone_number_id", quote_text(PHONE_NUMBER_ID)),
                    ("base_url", quote_text(&self.whatsapp.url())),
                    response_timeout(),
                ],
            ),
        ]
    }

    fn hook(&self, number: usize) -> Section {
        let hook = self.webhook.hook(&path(&format!("box{number}")));
        (
            format!("wh.webhook.hooks.box{number}"),
            vec![
                ("url", quote_text(hook.url.expose())),
                ("secret", quote_text(hook.secret.expose())),
                ("allow_http", "true".to_owned()),
            ],
        )
    }

    fn others(&self) -> Vec<Section> {
        let email = self.email.options();
        vec![
            (
                "wh.webhook".to_owned(),
                vec![
                    ("inbound_secret", quote_text(SHARED_SECRET)),
                    response_timeout(),
                ],
            ),
            (
                "mx.matrix".to_owned(),
                vec![
                    ("token", quote_text(self.matrix.token().expose())),
                    ("homeserver", quote_text(&self.matrix.url())),
                    ("poll_wait", quote_text("2s")),
                    response_timeout(),
                ],
            ),
            (
                "em.email".to_owned(),
                vec![
                    ("host", quote_text(&email.host)),
                    ("port", email.port.to_string()),
                    ("security", quote_text("none")),
                    ("username", quote_text(&email.username)),
                    ("password", quote_text(email.password.expose())),
                    ("from", quote_text(&email.from)),
                    response_timeout(),
                ],
            ),
        ]
    }

    /// A chat on this platform: a new one if the platform can have many, so that no limit of a chat delays a file.
    /// `name` must be new in each call.
    pub(crate) fn chat(&self, platform: &str, name: &str) -> v1::ChatTarget {
        let chat = match platform {
            "telegram" => self.telegram.chat().to_string(),
            "discord" => self.discord.channel(0),
            "slack" => self.slack.channel(),
            "whatsapp" => self.whatsapp.chat(),
            "matrix" => self.matrix.room(),
            "email" => format!("{name}@example.org"),
            _ => format!(
                "box{}",
                name.bytes().map(usize::from).sum::<usize>() % WEBHOOK_CHATS
            ),
        };
        v1::ChatTarget {
            platform: platform.to_owned(),
            chat,
            ..v1::ChatTarget::default()
        }
    }

    /// How often a chat shows a file.
    pub(crate) fn count_shown(&self, target: &v1::ChatTarget, digest: Sha256Digest) -> usize {
        let chat = target.chat.as_str();
        let count_equal = |files: &[(String, ContentDigest)]| {
            let equal = files.iter().filter(|(_, file)| file.sha256 == digest);
            equal.count()
        };
        match target.platform.as_str() {
            "telegram" => {
                let messages = self
                    .telegram
                    .visible_messages(chat.parse().unwrap())
                    .into_iter();
                let files = messages.filter_map(|message| message.file);
                files.filter(|file| file.sha256 == digest).count()
            }
            "discord" => {
                let messages = self.discord.visible_messages(chat);
                messages
                    .iter()
                    .map(|message| count_equal(&message.files))
                    .sum()
            }
            "slack" => {
                let messages = self.slack.visible_messages(chat);
                messages
                    .iter()
                    .map(|message| count_equal(&message.files))
                    .sum()
            }
            "whatsapp" => {
                let messages = self.whatsapp.visible_messages(chat).into_iter();
                let files = messages.filter_map(|message| message.file);
                files.filter(|(_, file)| file.sha256 == digest).count()
            }
            "matrix" => {
                let messages = self.matrix.visible_messages(chat).into_iter();
                let files = messages.filter_map(|message| message.file);
                files.filter(|file| file.sha256 == digest).count()
            }
            "email" => {
                let mails = self.email.mails(chat).into_iter();
                let files = mails.flat_map(|mail| mail.files);
                files.filter(|file| file.sha256 == digest).count()
            }
            _ => {
                let events = self.webhook.received_events(&path(chat));
                events.iter().map(|event| count_equal(&event.files)).sum()
            }
        }
    }

    /// Scripts a random fault, or none, on every platform: a lost response or a lost request.
    pub(crate) fn inject_random_fault(&self, random: &mut impl RngCore) {
        match random.random_range(0..4) {
            0 => self.telegram.script(TelegramFault::NeverRespond),
            1 => self.telegram.script(TelegramFault::LoseResponse),
            2 => self.telegram.script(TelegramFault::CloseDuringBody),
            _ => {}
        }
        match random.random_range(0..4) {
            0 => self.discord.script(DiscordFault::LoseResponse),
            1 => self.discord.script(DiscordFault::CloseDuringBody),
            _ => {}
        }
        match random.random_range(0..4) {
            0 => self.slack.script(SlackFault::LoseResponse),
            1 => self.slack.script(SlackFault::LoseRequest),
            _ => {}
        }
        match random.random_range(0..4) {
            0 => self.webhook.script(WebhookFault::LoseResponse),
            1 => self.webhook.script(WebhookFault::CloseDuringBody),
            _ => {}
        }
        match random.random_range(0..4) {
            0 => self.whatsapp.script(WhatsAppFault::LoseResponse),
            1 => self.whatsapp.script(WhatsAppFault::CloseDuringBody),
            _ => {}
        }
        match random.random_range(0..4) {
            0 => self.matrix.script(MatrixFault::LoseResponse),
            1 => self.matrix.script(MatrixFault::CloseDuringUpload),
            2 => self.matrix.script(MatrixFault::Fail),
            _ => {}
        }
        match random.random_range(0..4) {
            0 => self.email.script(EmailFault::LoseResponse),
            1 => self.email.script(EmailFault::CloseDuringBody),
            2 => self.email.script(EmailFault::Stall),
            _ => {}
        }
    }
}
