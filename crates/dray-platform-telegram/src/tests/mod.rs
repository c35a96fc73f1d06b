//! Tests of the bot with its fake server.

mod account;
mod conformance;
mod fetch;
mod inbox;
mod plan;
mod poll;
mod python;
mod question;
mod refused;
mod send;
mod setup;

use std::sync::Arc;

use dray_platform::conformance::{NoProgress, plain_delivery};
use dray_platform::{
    ConfirmedFile, DeliveryTarget, OutgoingDelivery, OutgoingFile, Platform as _, PlatformError,
    SendRequest, SendStep,
};
use dray_types::Secret;

use crate::fake_server::{FakeTelegram, StoredMessage};
use crate::{TelegramOptions, TelegramPlatform};

/// Options of a bot that uses the fake server.
fn options(fake: &FakeTelegram) -> TelegramOptions {
    TelegramOptions {
        token: fake.token(),
        base_url: fake.url(),
        webhook_secret: Secret::new("hook-secret"),
        ..TelegramOptions::default()
    }
}

fn target(chat: i64) -> DeliveryTarget {
    DeliveryTarget {
        platform: "telegram".to_owned(),
        account: String::new(),
        chat: chat.to_string(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

/// A bot and a group on the fake server.
#[derive(Debug)]
struct BotFixture {
    fake: FakeTelegram,
    bot: TelegramPlatform,
    chat: i64,
}

impl BotFixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut TelegramOptions)) -> Self {
        let fake = FakeTelegram::start().await.unwrap();
        let mut options = options(&fake);
        change(&mut options);
        Self {
            bot: TelegramPlatform::new("", options).unwrap(),
            chat: fake.group(),
            fake,
        }
    }

    fn delivery(&self, message: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
        plain_delivery(target(self.chat), message, files)
    }

    async fn steps(&self, delivery: &OutgoingDelivery) -> Vec<SendStep> {
        let limits = self.bot.limits(&delivery.target).await.unwrap();
        self.bot.plan(delivery, &limits)
    }

    async fn attempt(
        &self,
        delivery: &OutgoingDelivery,
        step: &SendStep,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let send = SendRequest {
            delivery,
            step,
            prepared: "",
            key: "0123456789012345678901",
            repeated: false,
        };
        self.bot.send(send, &NoProgress).await
    }

    /// Sends the only step of a delivery.
    async fn send_only(
        &self,
        delivery: &OutgoingDelivery,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let steps = self.steps(delivery).await;
        assert_eq!(steps.len(), 1, "{steps:?}");
        self.attempt(delivery, &steps[0]).await
    }

    fn visible_messages(&self) -> Vec<StoredMessage> {
        self.fake.visible_messages(self.chat)
    }

    /// The kinds of the visible files.
    fn kinds(&self) -> Vec<&'static str> {
        let files = self
            .visible_messages()
            .into_iter()
            .filter_map(|message| message.file);
        files.map(|file| file.kind).collect()
    }
}
