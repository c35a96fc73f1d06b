//! Telegram, by the Bot API (platform-delivery 7.2): out by `send…` methods, in by webhook or long polling.
//!
//! - [`Telegram`]: one bot, as [`Platform`] and [`Inbox`].
//! - [`Options`]: what an operator sets about it.
//! - `double` (feature `double`): a server that speaks the same wire, for tests and the demo.
//!
//! What it does not do: it keeps no state, tries nothing again that may be visible, and never sends by address.

mod answer;
mod api;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod fetch;
mod inbox;
mod options;
mod plan;
mod poll;
mod refusal;
mod send;
#[cfg(test)]
mod tests;
mod update;

use async_trait::async_trait;
use dray_platform::{
    Ambiguity, ByteStream, Confirmed, Deliver, Delivery, Error, InboundAttachment, Inbox, Limits,
    Platform, Progress, Rates, Send, Step, Target, WebhookReply, WebhookRequest,
};
use tokio_util::sync::CancellationToken;

pub use options::Options;

use api::Api;

/// The platform's name in targets.
const NAME: &str = "telegram";

/// One bot.
#[derive(Debug)]
pub struct Telegram {
    account: String,
    options: Options,
    api: Api,
}

impl Telegram {
    /// A bot under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for options that cannot be: no token, or one that is none; an address
    /// that is none; authorities that cannot be read.
    pub fn new(account: &str, options: Options) -> Result<Self, Error> {
        let api = Api::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
        })
    }
}

#[async_trait]
impl Platform for Telegram {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::Unknown
    }

    /// 30 a second for the bot, one a second for a person, 20 a minute for a group.
    fn rates(&self, target: &Target) -> Rates {
        let is_group = target.chat.starts_with(['-', '@']);
        Rates {
            account_per_minute: 1800,
            chat_per_minute: if is_group { 20 } else { 60 },
        }
    }

    /// The API publishes no limits; these are the configured ones.
    async fn limits(&self, _target: &Target) -> Result<Limits, Error> {
        Ok(self.options.limits())
    }

    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        plan::steps(delivery, limits)
    }

    async fn send(&self, send: Send<'_>, progress: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        send::send(&self.api, send, progress).await
    }

    fn fallback(&self, delivery: &Delivery, step: &Step, error: &Error) -> Option<Step> {
        plan::fallback(delivery, step, error)
    }
}

#[async_trait]
impl Inbox for Telegram {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, Error> {
        inbox::webhook(&self.account, &self.options, request)
    }

    /// Fails only when the bot's token is refused; everything else passes or is waited for.
    async fn poll(&self, deliver: &dyn Deliver, stop: CancellationToken) -> Result<(), Error> {
        poll::poll(&self.account, &self.options, &self.api, deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, Error> {
        fetch::fetch(&self.options, &self.api, attachment).await
    }
}
