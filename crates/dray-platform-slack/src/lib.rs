//! Slack, by the external upload calls (platform-delivery 7.4): out by upload, completion and proof of the share, in by
//! signed events.
//!
//! - [`Slack`]: one app in one workspace, as [`Platform`] and [`Inbox`].
//! - [`Options`]: what an operator sets about it.
//! - `double` (feature `double`): a server that speaks the same wire, for tests and the demo.
//!
//! What it does not do: it keeps no state and tries nothing again that may be visible.

mod api;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod inbox;
mod options;
mod plan;
mod send;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dray_content::caption::Unit;
use dray_platform::{
    Ambiguity, ByteStream, Confirmed, Delivery, Error, InboundAttachment, Inbox, Limits, Platform,
    Progress, Rates, Reconciled, Send, Step, Target, WebhookReply, WebhookRequest, http,
};
use dray_types::Clock;

pub use options::Options;

use api::Api;

/// The platform's name in targets.
const NAME: &str = "slack";

/// One app in one workspace.
#[derive(Debug)]
pub struct Slack {
    account: String,
    options: Options,
    api: Api,
    clock: Clock,
}

impl Slack {
    /// An app under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for options that cannot be: no token, an address that is none,
    /// authorities that cannot be read.
    pub fn new(account: &str, options: Options, clock: Clock) -> Result<Self, Error> {
        let api = Api::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
            clock,
        })
    }
}

#[async_trait]
impl Platform for Slack {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::Reconcile
    }

    /// Tier 4 for the calls of files, one message a second for a channel.
    fn rates(&self, _target: &Target) -> Rates {
        Rates {
            account_per_minute: 100,
            chat_per_minute: 60,
        }
    }

    /// The API publishes no limits; these are the configured ones.
    async fn limits(&self, _target: &Target) -> Result<Limits, Error> {
        Ok(self.options.limits())
    }

    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        dray_platform::plan::attachments(delivery, limits, plan::FILE, Unit::Chars)
    }

    async fn prepare(&self, send: Send<'_>, progress: &dyn Progress) -> Result<String, Error> {
        send::prepare(&self.api, send, progress).await
    }

    async fn send(&self, send: Send<'_>, _: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        send::send(&self.api, send, self.options.share_wait.as_duration()).await
    }

    async fn reconcile(&self, send: Send<'_>) -> Result<Reconciled, Error> {
        send::reconcile(&self.api, send, self.options.share_wait.as_duration()).await
    }
}

#[async_trait]
impl Inbox for Slack {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, Error> {
        let now = self.clock.now_ms() / 1000;
        inbox::webhook(&self.account, &self.options, request, now)
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, Error> {
        Ok(http::stream(
            self.api.download(&attachment.reference).await?,
        ))
    }
}
