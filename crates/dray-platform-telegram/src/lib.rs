//! Telegram, by the Bot API (platform-delivery 7.2): outbound by `send…` methods, inbound by webhook or long polling.
//!
//! - [`TelegramPlatform`]: one bot, as [`Platform`] and [`InboundSource`].
//! - [`TelegramOptions`]: its configuration.
//! - `fake_server` (feature `fake-server`): a server with the same protocol, for tests and the demo.
//!
//! What it does not do: it has no state, never repeats a request whose message may already be visible, and gives
//! Telegram no URLs of files to fetch.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_telegram::{TelegramOptions, TelegramPlatform};
//! use dray_types::Secret;
//!
//! let token = Secret::new("4242:example");
//! let bot = TelegramPlatform::new("", TelegramOptions { token, ..TelegramOptions::default() })?;
//! assert_eq!(bot.name(), "telegram");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod api;
mod content;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod fetch;
mod inbox;
mod options;
mod plan;
mod poll;
mod question;
mod refusal;
mod response;
mod rich;
mod send;
#[cfg(test)]
mod tests;
mod update;

use async_trait::async_trait;
use dray_http::MultipartForm;
use dray_platform::{
    AccountCheck, AccountOptions, ButtonPress, ByteStream, ChatLimits, ChatQuestion, ConfirmedFile,
    DeliveryTarget, DuplicateProtection, FilePermission, InboundAttachment, InboundSink,
    InboundSource, OutgoingDelivery, Platform, PlatformError, PressReply, QuestionChannel,
    RateLimits, Route, SendRequest, SendStep, ShownQuestion, UploadProgress, WebhookReply,
    WebhookRequest,
};
use dray_types::Clock;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use options::TelegramOptions;

use api::TelegramApi;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "telegram";

/// One bot at one Bot API server. Has a token and a connection pool, but no state of chats.
#[derive(Debug)]
pub struct TelegramPlatform {
    account: String,
    options: TelegramOptions,
    api: TelegramApi,
}

impl TelegramPlatform {
    /// A bot under the name of an account; the name is empty for the only one. Sends no request.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for invalid options: a missing or malformed token, a malformed
    /// address, certificate authorities that cannot be read.
    pub fn new(account: &str, options: TelegramOptions) -> Result<Self, PlatformError> {
        let api = TelegramApi::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
        })
    }
}

impl AccountOptions for TelegramOptions {
    type Account = TelegramPlatform;

    fn open_account(
        &self,
        account: &str,
        _clock: &Clock,
    ) -> Result<TelegramPlatform, PlatformError> {
        TelegramPlatform::new(account, self.clone())
    }
}

#[async_trait]
impl Platform for TelegramPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        // `sendMessage` and similar methods have no idempotency key, and no method finds a message by its content.
        DuplicateProtection::Unknown
    }

    /// 30 a second for the bot, one a second for a person, 20 a minute for a group
    /// (<https://core.telegram.org/bots/faq#my-bot-is-hitting-limits-how-do-i-avoid-this>).
    fn rate_limits(&self, target: &DeliveryTarget) -> RateLimits {
        // Groups have negative ids; `@name` addresses a public group or channel.
        let is_group = target.chat.starts_with(['-', '@']);
        RateLimits {
            account_per_minute: 1800,
            chat_per_minute: if is_group { 20 } else { 60 },
        }
    }

    /// Calls `getMe`. Each group decides whether files may be sent (`can_send_documents` and similar rights).
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        let bot = self.api.ask("getMe", MultipartForm::new()).await?;
        let name = bot.get("username").and_then(Value::as_str);
        let name = name.map(|name| format!("@{name}")).unwrap_or_default();
        let files = FilePermission::PerChat(
            "a group may restrict it, and a person must have written first".to_owned(),
        );
        Ok(AccountCheck::accepted(name, files).with_limits(self.options.limits()))
    }

    /// The API publishes no limits; these are the configured ones.
    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(self.options.limits())
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        plan::plan_steps(delivery, limits)
    }

    /// No method renames a file that the server has. Photos and voice messages have no names.
    fn ids_keep_names(&self, route: Route) -> bool {
        !matches!(route, Route::Photo | Route::Voice)
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
        delivery: &OutgoingDelivery,
        step: &SendStep,
        error: &PlatformError,
    ) -> Option<SendStep> {
        plan::fallback_step(delivery, step, error)
    }

    fn questions(&self) -> Option<&dyn QuestionChannel> {
        Some(self)
    }
}

#[async_trait]
impl QuestionChannel for TelegramPlatform {
    async fn ask(
        &self,
        target: &DeliveryTarget,
        question: &ChatQuestion,
    ) -> Result<String, PlatformError> {
        question::ask_question(&self.api, target, question).await
    }

    async fn reply(&self, press: &ButtonPress, reply: &PressReply) -> Result<(), PlatformError> {
        question::reply_to_press(&self.api, press, reply).await
    }

    async fn close(&self, question: &ShownQuestion, outcome: &str) -> Result<(), PlatformError> {
        question::close_question(&self.api, question, outcome).await
    }
}

#[async_trait]
impl InboundSource for TelegramPlatform {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        inbox::read_webhook(&self.account, &self.options, request)
    }

    /// Fails only if the bot's token is refused; after other failures it waits and polls again.
    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        poll::poll_updates(&self.account, &self.options, &self.api, deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        fetch::fetch_file(&self.options, &self.api, attachment).await
    }
}
