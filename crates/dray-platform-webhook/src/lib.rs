//! Webhooks: files to programs of the operator's (platform-delivery 7.6), and signed messages from them.
//!
//! - [`Webhook`]: the configured addresses, as [`Platform`] and [`Inbox`].
//! - [`Options`]: what an operator sets about them.
//! - `double` (feature `double`): a receiver that speaks the same wire, for tests and the demo.
//!
//! What it does not do: a delivery names an address, it never brings one. It keeps no state; the receiver detects
//! repetitions by the key.

mod api;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod inbox;
mod options;
mod send;
mod sign;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dray_content::caption::{self, Caption, Unit};
use dray_platform::{
    Ambiguity, ByteStream, Confirmed, Delivery, Error, InboundAttachment, Inbox, Limits, Platform,
    Progress, Rates, Send, Step, Target, WebhookReply, WebhookRequest, http, plan,
};
use dray_types::Clock;

pub use options::{Hook, Options};

use api::Api;

/// The platform's name in targets.
const NAME: &str = "webhook";
/// Route of files.
const FILE: &str = "file";

/// The configured addresses of one account.
#[derive(Debug)]
pub struct Webhook {
    account: String,
    options: Options,
    api: Api,
    clock: Clock,
}

impl Webhook {
    /// The addresses under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for options that cannot be: an address that is none or is not
    /// encrypted, a missing secret, authorities that cannot be read.
    pub fn new(account: &str, options: Options, clock: Clock) -> Result<Self, Error> {
        let api = Api::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
            clock,
        })
    }

    fn now(&self) -> u64 {
        self.clock.now_ms() / 1000
    }
}

#[async_trait]
impl Platform for Webhook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::ResendAlways
    }

    /// The receiver says 429 when it is too much.
    fn rates(&self, _target: &Target) -> Rates {
        Rates {
            account_per_minute: 3000,
            chat_per_minute: 600,
        }
    }

    async fn limits(&self, target: &Target) -> Result<Limits, Error> {
        Ok(self.options.hook(&target.chat)?.limits())
    }

    /// Programs read the words: they go as they were written, mentions included.
    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        let silent = Delivery {
            message: String::new(),
            ..delivery.clone()
        };
        let mut steps = plan::attachments(&silent, limits, FILE, Unit::Chars);
        let fitting = caption::Limits {
            caption: if steps.is_empty() { 0 } else { limits.caption },
            message: limits.text,
            unit: Unit::Chars,
        };
        match (caption::fit(&delivery.message, fitting), steps.first_mut()) {
            (Caption::None, _) => {}
            (Caption::Fits(text), Some(first)) => first.set_text(text),
            (Caption::Fits(text), None) => steps.push(Step::Text(text)),
            (Caption::Separate(texts), _) => {
                steps.splice(0..0, texts.into_iter().map(Step::Text));
            }
        }
        steps
    }

    async fn send(&self, send: Send<'_>, progress: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        let hook = self.options.hook(&send.delivery.target.chat)?;
        send::send(&self.api, hook, send, self.now(), progress).await
    }
}

#[async_trait]
impl Inbox for Webhook {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, Error> {
        inbox::webhook(&self.account, &self.options, request, self.now())
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, Error> {
        let answer = self.api.download(&attachment.reference).await?;
        Ok(http::stream(answer))
    }
}
