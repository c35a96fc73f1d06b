//! Discord, by the HTTP API and the gateway (platform-delivery 7.3).
//!
//! - [`Discord`]: one bot, as [`Platform`] and [`Inbox`].
//! - [`Options`]: what an operator sets about it.
//! - `double` (feature `double`): a server that speaks the same wire, for tests and the demo.
//!
//! What it does not do: it keeps no state; a message that may be visible is made again only under the same nonce.

mod api;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod fetch;
mod gateway;
mod message;
mod options;
mod send;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use dray_content::caption::Unit;
use dray_platform::{
    Ambiguity, ByteStream, Confirmed, Deliver, Delivery, Error, ErrorKind, InboundAttachment,
    Inbox, Limits, Moment, Platform, Progress, Rates, Send, Step, Target, WebhookReply,
    WebhookRequest, plan,
};
use dray_types::Clock;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use options::Options;

use api::Api;

/// The platform's name in targets.
const NAME: &str = "discord";

/// How long the same nonce gives the same message (messaging-reliability 12).
const NONCE_LIFE: Duration = Duration::from_mins(2);

/// One bot.
#[derive(Debug)]
pub struct Discord {
    options: Options,
    api: Api,
    clock: Clock,
    pauses: gateway::Pauses,
}

impl Discord {
    /// A bot.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for options that cannot be: no token, an address that is none, authorities that
    /// cannot be read.
    pub fn new(options: Options, clock: Clock) -> Result<Self, Error> {
        let api = Api::new(&options)?;
        Ok(Self {
            options,
            api,
            clock,
            pauses: gateway::Pauses::default(),
        })
    }

    /// Boosts of the server that a channel belongs to; 0 for conversations with people.
    async fn boosts(&self, channel: &str) -> Result<u64, Error> {
        let channel = format!("/channels/{}", send::checked(channel)?);
        let channel = self.api.get(&channel, &[]).await?;
        let Some(guild) = channel.get("guild_id").and_then(Value::as_str) else {
            return Ok(0);
        };
        let guild = format!("/guilds/{}", send::checked(guild)?);
        let guild = self.api.get(&guild, &[]).await?;
        Ok(guild
            .get("premium_tier")
            .and_then(Value::as_u64)
            .unwrap_or_default())
    }
}

#[async_trait]
impl Platform for Discord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::Resend(NONCE_LIFE)
    }

    /// 50 requests a second for the bot, five messages in five seconds for a channel.
    fn rates(&self, _target: &Target) -> Rates {
        Rates {
            account_per_minute: 3000,
            chat_per_minute: 60,
        }
    }

    /// What the server's boosts allow.
    async fn limits(&self, target: &Target) -> Result<Limits, Error> {
        match self.boosts(&target.chat).await {
            Ok(boosts) => Ok(self.options.limits(boosts)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::Auth | ErrorKind::Forbidden
                ) =>
            {
                Err(error)
            }
            Err(error) => {
                tracing::debug!(%error, "boosts are unknown; the lowest limit holds");
                Ok(self.options.limits(0))
            }
        }
    }

    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        let mut steps = plan::attachments(delivery, limits, send::ATTACHMENT, Unit::Chars);
        if delivery.flags.as_voice && !delivery.flags.as_document {
            voices(delivery, &mut steps);
        }
        steps
    }

    async fn send(&self, send: Send<'_>, progress: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        send::send(&self.api, send, progress).await
    }

    fn fallback(&self, _: &Delivery, step: &Step, error: &Error) -> Option<Step> {
        let is_refused = step.route() == send::VOICE
            && matches!(
                error.kind(),
                ErrorKind::BadFormat | ErrorKind::UnsupportedKind
            )
            && error.moment() == Moment::NotSent;
        if !is_refused {
            return None;
        }
        step.with_route(send::ATTACHMENT)
    }
}

#[async_trait]
impl Inbox for Discord {
    /// The platform makes no requests: a connection of ours brings the messages.
    fn webhook(&self, _request: &WebhookRequest) -> Result<WebhookReply, Error> {
        Err(Error::new(ErrorKind::Auth, "Discord posts nothing to us"))
    }

    async fn poll(&self, deliver: &dyn Deliver, stop: CancellationToken) -> Result<(), Error> {
        if !self.options.receive {
            return Ok(());
        }
        let since = self.clock.now_ms();
        let since = since.saturating_sub(self.options.catch_up.as_millis());
        gateway::Gateway::new(&self.options, &self.api, &self.pauses, since)
            .run(deliver, &stop)
            .await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, Error> {
        fetch::fetch(&self.options, &self.api, attachment).await
    }
}

/// Takes the voices out of their messages: each is a message of its own, without words.
fn voices(delivery: &Delivery, steps: &mut Vec<Step>) {
    let mut all = Vec::new();
    for step in std::mem::take(steps) {
        let Step::Files(mut step) = step else {
            all.push(step);
            continue;
        };
        let is_voice = |index: &usize| delivery.files.get(*index).is_some_and(send::is_voice);
        let (voices, rest): (Vec<usize>, Vec<usize>) =
            step.files.iter().partition(|index| is_voice(index));
        if voices.is_empty() {
            all.push(Step::Files(step));
            continue;
        }
        if rest.is_empty() && !step.text.is_empty() {
            all.push(Step::Text(std::mem::take(&mut step.text)));
        }
        if !rest.is_empty() {
            step.files = rest;
            all.push(Step::Files(step));
        }
        let voices = voices.into_iter();
        all.extend(voices.map(|voice| Step::files_by(send::VOICE, vec![voice])));
    }
    *steps = all;
}
