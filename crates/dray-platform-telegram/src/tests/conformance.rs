//! The conformance tests of all platforms.

use async_trait::async_trait;
use dray_platform::conformance::{
    self, PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage,
};
use dray_platform::{DeliveryTarget, Platform};
use dray_presentation::caption::CaptionUnit;
use dray_types::Secret;
use tokio::net::TcpListener;

use super::{Arc, FakeTelegram, TelegramOptions, TelegramPlatform, options, target};
use crate::fake_server;

#[derive(Debug)]
struct TelegramFixture {
    fake: FakeTelegram,
    unreachable_url: String,
    local_mode: bool,
}

impl TelegramFixture {
    async fn new(fake: FakeTelegram, local_mode: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let unreachable_url = format!("http://{}", listener.local_addr().unwrap());
        Self {
            fake,
            unreachable_url,
            local_mode,
        }
    }

    fn options(&self) -> TelegramOptions {
        TelegramOptions {
            local_mode: self.local_mode,
            ..options(&self.fake)
        }
    }
}

#[async_trait]
impl PlatformFixture for TelegramFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(TelegramPlatform::new("", self.options()).unwrap())
    }

    async fn chat(&self) -> DeliveryTarget {
        target(self.fake.group())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let text = |number: i64| match number {
            0 => String::new(),
            number => number.to_string(),
        };
        let messages = self.fake.visible_messages(target.chat.parse().unwrap());
        let visible = messages.into_iter().map(|message| VisibleMessage {
            message_id: message.message_id.to_string(),
            text: message.text,
            files: Vec::from_iter(message.file.map(|file| SeenFile {
                name: file.name,
                size: file.size,
                sha256: file.sha256,
            })),
            thread: text(message.thread),
            reply_to: text(message.reply_to),
        });
        visible.collect()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => fake_server::InjectedFault::RateLimit(wait.as_secs()),
            PlatformFault::FailAfterBody => fake_server::InjectedFault::FailAfterBody(502),
            PlatformFault::LoseResponse => fake_server::InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => fake_server::InjectedFault::CloseDuringBody,
            PlatformFault::TooLarge => {
                fake_server::InjectedFault::Refuse(413, "Request Entity Too Large".to_owned())
            }
            PlatformFault::ForgetFiles => fake_server::InjectedFault::ForgetFiles,
            PlatformFault::Gibberish => fake_server::InjectedFault::TruncateResponse,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target(31_337))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        let options = TelegramOptions {
            token: Secret::new("4242:another-token"),
            ..self.options()
        };
        Some(Arc::new(TelegramPlatform::new("", options).unwrap()))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        let options = TelegramOptions {
            base_url: self.unreachable_url.clone(),
            ..self.options()
        };
        Some(Arc::new(TelegramPlatform::new("", options).unwrap()))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![
            fake_server::BOT_TOKEN.to_owned(),
            "4242:another-token".to_owned(),
        ]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits {
            unit: CaptionUnit::Utf16,
            thread: Some("7"),
            ..PlatformTraits::default()
        }
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = TelegramFixture::new(FakeTelegram::start().await.unwrap(), false).await;
    let report = conformance::run_all(&fixture).await.unwrap();
    assert_eq!(report.skipped, Vec::<&str>::new());
    assert_eq!(report.passed.len(), conformance::CONFORMANCE_CASES.len());
}

#[tokio::test]
async fn r_18_sixty_megabytes_for_a_self_hosted_server_are_not_held_in_memory() {
    let fake = FakeTelegram::start_with(2_000_000_000).await.unwrap();
    let fixture = TelegramFixture::new(fake, true).await;
    let large: Vec<_> = conformance::CONFORMANCE_CASES
        .iter()
        .copied()
        .filter(|(name, _)| *name == "a_large_file_is_not_held_in_memory")
        .collect();
    let report = conformance::run_cases(&fixture, &large).await.unwrap();
    assert_eq!(report.passed.len(), 1);
}
