//! Against the double.

mod conformance;
mod fetch;
mod inbox;
mod plan;
mod poll;
mod python;
mod refused;
mod send;
mod setup;

use std::sync::Arc;

use dray_platform::{
    Confirmed, Delivery, Error, Flags, OutgoingFile, Platform as _, Progress, Send, Step, Target,
};
use dray_types::Secret;

use crate::double::{Double, Shown};
use crate::{Options, Telegram};

/// What a bot at the double needs.
fn options(double: &Double) -> Options {
    Options {
        token: double.token(),
        base_url: double.url(),
        webhook_secret: Secret::new("hook-secret"),
        ..Options::default()
    }
}

fn target(chat: i64) -> Target {
    Target {
        platform: "telegram".to_owned(),
        account: String::new(),
        chat: chat.to_string(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

/// Nobody listens.
#[derive(Debug)]
struct Silence;

impl Progress for Silence {
    fn sent(&self, _bytes: u64) {}
}

/// A bot, a group and the double between them.
#[derive(Debug)]
struct World {
    double: Double,
    bot: Telegram,
    chat: i64,
}

impl World {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let double = Double::start().await.unwrap();
        let mut options = options(&double);
        change(&mut options);
        Self {
            bot: Telegram::new("", options).unwrap(),
            chat: double.group(),
            double,
        }
    }

    fn delivery(&self, message: &str, files: Vec<OutgoingFile>) -> Delivery {
        Delivery {
            id: "d".to_owned(),
            target: target(self.chat),
            message: message.to_owned(),
            files,
            flags: Flags::default(),
        }
    }

    async fn steps(&self, delivery: &Delivery) -> Vec<Step> {
        let limits = self.bot.limits(&delivery.target).await.unwrap();
        self.bot.plan(delivery, &limits)
    }

    async fn attempt(&self, delivery: &Delivery, step: &Step) -> Result<Vec<Confirmed>, Error> {
        let send = Send {
            delivery,
            step,
            prepared: "",
            key: "0123456789012345678901",
        };
        self.bot.send(send, &Silence).await
    }

    /// Sends the only step of a delivery.
    async fn only(&self, delivery: &Delivery) -> Result<Vec<Confirmed>, Error> {
        let steps = self.steps(delivery).await;
        assert_eq!(steps.len(), 1, "{steps:?}");
        self.attempt(delivery, &steps[0]).await
    }

    fn seen(&self) -> Vec<Shown> {
        self.double.seen(self.chat)
    }

    /// Kinds of the files seen.
    fn kinds(&self) -> Vec<&'static str> {
        let files = self.seen().into_iter().filter_map(|shown| shown.file);
        files.map(|file| file.kind).collect()
    }
}
