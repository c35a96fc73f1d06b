//! Webhooks: files sent to programs of the operator (platform-delivery 7.6), and signed messages from them.
//!
//! - [`WebhookPlatform`]: the configured addresses, as [`Platform`] and [`InboundSource`].
//! - [`WebhookOptions`]: their configuration.
//! - `fake_server` (feature `fake-server`): a receiver with the same protocol, for tests and the demo.
//!
//! What it does not do: a delivery selects a configured address and cannot use another one. It has no state; the
//! receiver detects repetitions by the key.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_webhook::{WebhookAddress, WebhookOptions, WebhookPlatform};
//! use dray_types::{Clock, Secret};
//!
//! let address = WebhookAddress {
//!     url: Secret::new("https://example.org/hooks/files"),
//!     secret: Secret::new("example"),
//!     ..WebhookAddress::default()
//! };
//! let hooks = [("files".to_owned(), address)].into();
//! let options = WebhookOptions { hooks, ..WebhookOptions::default() };
//! let receiver = WebhookPlatform::new("", options, Clock::system())?;
//! assert_eq!(receiver.name(), "webhook");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod api;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod inbox;
mod options;
mod send;
mod sign;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dray_platform::{
    AccountCheck, AccountOptions, ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget,
    DuplicateProtection, InboundAttachment, InboundSource, OutgoingDelivery, Platform,
    PlatformError, RateLimits, Route, SendRequest, SendStep, UploadProgress, WebhookReply,
    WebhookRequest, http, plan,
};
use dray_presentation::caption::CaptionUnit;
use dray_types::Clock;

pub use options::{WebhookAddress, WebhookOptions};

use api::WebhookApi;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "webhook";
/// Route of files.
const FILE_ROUTE: Route = Route::File;

/// The configured addresses of one account.
#[derive(Debug)]
pub struct WebhookPlatform {
    account: String,
    options: WebhookOptions,
    api: WebhookApi,
    clock: Clock,
}

impl WebhookPlatform {
    /// The addresses under the name of an account; the name is empty for the only one. Sends no request.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for invalid options: an address that is malformed or not encrypted, a
    /// missing secret, certificate authorities that cannot be read.
    pub fn new(
        account: &str,
        options: WebhookOptions,
        clock: Clock,
    ) -> Result<Self, PlatformError> {
        let api = WebhookApi::new(&options)?;
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

impl AccountOptions for WebhookOptions {
    type Account = WebhookPlatform;

    fn open_account(&self, account: &str, clock: &Clock) -> Result<WebhookPlatform, PlatformError> {
        WebhookPlatform::new(account, self.clone(), clock.clone())
    }
}

#[async_trait]
impl Platform for WebhookPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        // The key is a header of every request, and receivers respond to a known one with the id of its event.
        DuplicateProtection::ResendAlways
    }

    /// A high limit, because a receiver can request fewer with 429.
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 3000,
            chat_per_minute: 600,
        }
    }

    /// Makes no request, because a receiver would take every signed request as an event.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        Ok(AccountCheck::unverified(
            "a receiver would take a request as an event; the first delivery shows whether the URL is right",
        ))
    }

    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(self.options.hook(&target.chat)?.limits())
    }

    /// As other platforms, but programs read the text: it is sent as it was written, mentions included.
    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        let mut steps = plan::plan_files(delivery, limits, FILE_ROUTE);
        // `plan_attachments` is not used, because it neutralises mentions.
        plan::place_text(&delivery.message, limits, CaptionUnit::Chars, &mut steps);
        steps
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        let hook = self.options.hook(&send.delivery.target.chat)?;
        send::send_event(&self.api, hook, send, self.now(), progress).await
    }
}

#[async_trait]
impl InboundSource for WebhookPlatform {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        inbox::read_webhook(&self.account, &self.options, request, self.now())
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        let response = self.api.download(&attachment.reference).await?;
        Ok(http::response_stream(response))
    }
}
