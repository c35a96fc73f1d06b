//! Discord, by the HTTP API and the gateway (platform-delivery 7.3).
//!
//! - [`DiscordPlatform`]: one bot, as [`Platform`] and [`InboundSource`].
//! - [`DiscordOptions`]: its configuration.
//! - `fake_server` (feature `fake-server`): a server with the same protocol, for tests and the demo.
//!
//! No state is stored: a restart loses the session of the gateway. A message that may be visible is only repeated with
//! the same nonce. Sharding is not supported: one connection serves one bot.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_discord::{DiscordOptions, DiscordPlatform};
//! use dray_types::{Clock, Secret};
//!
//! let token = Secret::new("example");
//! let options = DiscordOptions { token, ..DiscordOptions::default() };
//! let bot = DiscordPlatform::new(options, Clock::system())?;
//! assert_eq!(bot.name(), "discord");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod account;
mod api;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod fetch;
mod gateway;
mod message;
mod options;
mod question;
mod send;
#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use dray_platform::{
    AccountCheck, AccountOptions, ButtonPress, ByteStream, ChatLimits, ChatQuestion, ConfirmedFile,
    DeliveryTarget, DuplicateProtection, ErrorKind, InboundAttachment, InboundSink, InboundSource,
    OutgoingDelivery, Platform, PlatformError, PressReply, QuestionChannel, RateLimits,
    SendOutcome, SendRequest, SendStep, ShownQuestion, UploadProgress, WebhookReply,
    WebhookRequest, plan,
};
use dray_presentation::caption::CaptionUnit;
use dray_types::Clock;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use options::DiscordOptions;

use api::DiscordApi;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "discord";

/// How long a repeated nonce returns the first message (messaging-reliability 12).
const NONCE_LIFETIME: Duration = Duration::from_mins(2);

/// One bot at one API, with its clock.
#[derive(Debug)]
pub struct DiscordPlatform {
    options: DiscordOptions,
    api: DiscordApi,
    clock: Clock,
    reconnect_delays: gateway::ReconnectDelays,
}

impl DiscordPlatform {
    /// A bot with these options. Sends no request; `clock` bounds how far back missed messages are read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for invalid options: a missing token, a malformed address, certificate authorities
    /// that cannot be read.
    pub fn new(options: DiscordOptions, clock: Clock) -> Result<Self, PlatformError> {
        let api = DiscordApi::new(&options)?;
        Ok(Self {
            options,
            api,
            clock,
            reconnect_delays: gateway::ReconnectDelays::default(),
        })
    }

    /// Boost level of the server that a channel belongs to; 0 for conversations with people.
    async fn boost_level(&self, channel: &str) -> Result<u64, PlatformError> {
        let channel = format!("/channels/{}", send::checked_id(channel)?);
        let channel = self.api.get(&channel, &[]).await?;
        let Some(guild) = channel.get("guild_id").and_then(Value::as_str) else {
            return Ok(0);
        };
        let guild = format!("/guilds/{}", send::checked_id(guild)?);
        let guild = self.api.get(&guild, &[]).await?;
        Ok(guild
            .get("premium_tier")
            .and_then(Value::as_u64)
            .unwrap_or_default())
    }
}

impl AccountOptions for DiscordOptions {
    type Account = DiscordPlatform;

    fn open_account(
        &self,
        _account: &str,
        clock: &Clock,
    ) -> Result<DiscordPlatform, PlatformError> {
        DiscordPlatform::new(self.clone(), clock.clone())
    }
}

#[async_trait]
impl Platform for DiscordPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::Resend(NONCE_LIFETIME)
    }

    /// 50 requests a second for the bot (<https://docs.discord.com/developers/topics/rate-limits>). Discord publishes no
    /// limit of a channel; the headers of its responses announce five messages in five seconds.
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 3000,
            chat_per_minute: 60,
        }
    }

    /// Reads `users/@me` and the permissions of the bot in its servers. Servers with boosts accept larger files than
    /// the returned limits.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        let (name, files) = account::check_bot(&self.api).await?;
        Ok(AccountCheck::accepted(name, files).with_limits(self.options.limits(0)))
    }

    /// The limits that the boost level of the server allows.
    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        match self.boost_level(&target.chat).await {
            Ok(boosts) => Ok(self.options.limits(boosts)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::Auth | ErrorKind::Forbidden
                ) =>
            // The chat itself cannot be used: a delivery with default limits would only fail later.
            {
                Err(error)
            }
            Err(error) => {
                tracing::debug!(%error, "could not read the boosts of the server; the lowest limit applies");
                Ok(self.options.limits(0))
            }
        }
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        let mut steps =
            plan::plan_attachments(delivery, limits, send::ATTACHMENT_ROUTE, CaptionUnit::Chars);
        if delivery.flags.as_voice && !delivery.flags.as_document {
            split_voice_steps(delivery, &mut steps);
        }
        steps
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        send::send_step(&self.api, send, progress).await
    }

    fn fallback(
        &self,
        _: &OutgoingDelivery,
        step: &SendStep,
        error: &PlatformError,
    ) -> Option<SendStep> {
        let is_refused = step.route() == send::VOICE_ROUTE
            && matches!(
                error.kind(),
                ErrorKind::BadFormat | ErrorKind::UnsupportedKind
            )
            // A message that may be visible must not be sent again in another form.
            && error.send_outcome() == SendOutcome::NotSent;
        if !is_refused {
            return None;
        }
        step.with_route(send::ATTACHMENT_ROUTE)
    }

    /// None without the gateway, because no button press would arrive.
    fn questions(&self) -> Option<&dyn QuestionChannel> {
        self.options.receive.then_some(self as _)
    }
}

#[async_trait]
impl QuestionChannel for DiscordPlatform {
    async fn ask(
        &self,
        target: &DeliveryTarget,
        question: &ChatQuestion,
    ) -> Result<String, PlatformError> {
        question::ask_question(&self.api, target, question).await
    }

    async fn acknowledge(&self, press: &ButtonPress) -> Result<(), PlatformError> {
        question::acknowledge_press(&self.api, press).await
    }

    async fn reply(&self, press: &ButtonPress, reply: &PressReply) -> Result<(), PlatformError> {
        question::reply_to_press(&self.api, press, reply).await
    }

    async fn close(&self, question: &ShownQuestion, outcome: &str) -> Result<(), PlatformError> {
        question::close_question(&self.api, question, outcome).await
    }
}

#[async_trait]
impl InboundSource for DiscordPlatform {
    /// Always refuses: messages arrive by the gateway, not by webhooks.
    fn webhook(&self, _request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        Err(PlatformError::new(
            ErrorKind::Auth,
            "Discord sends no webhooks",
        ))
    }

    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        if !self.options.receive {
            return Ok(());
        }
        let since = self.clock.now_ms();
        // Counted from the start of the receiver. After a later outage, messages are caught up from the last stored
        // one.
        let since = since.saturating_sub(self.options.catch_up.as_millis());
        gateway::GatewayReceiver::new(&self.options, &self.api, &self.reconnect_delays, since)
            .run(deliver, &stop)
            .await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        fetch::fetch_attachment(&self.options, &self.api, attachment).await
    }
}

/// Splits voice messages into separate steps, because a voice message has no text and no other files.
fn split_voice_steps(delivery: &OutgoingDelivery, steps: &mut Vec<SendStep>) {
    let mut all = Vec::new();
    for step in std::mem::take(steps) {
        let SendStep::Files(mut step) = step else {
            all.push(step);
            continue;
        };
        let is_voice = |index: &usize| delivery.files.get(*index).is_some_and(send::is_voice);
        let (voices, rest): (Vec<usize>, Vec<usize>) =
            step.files.iter().partition(|index| is_voice(index));
        if voices.is_empty() {
            all.push(SendStep::Files(step));
            continue;
        }
        // The text would have been the caption of the voice message.
        if rest.is_empty() && !step.text.is_empty() {
            all.push(SendStep::Text(std::mem::take(&mut step.text)));
        }
        if !rest.is_empty() {
            step.files = rest;
            all.push(SendStep::Files(step));
        }
        let voices = voices.into_iter();
        all.extend(voices.map(|voice| SendStep::files_by(send::VOICE_ROUTE, vec![voice])));
    }
    *steps = all;
}
