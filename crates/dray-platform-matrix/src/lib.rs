//! Matrix, by the client-server API (platform-delivery 8): outbound by upload and event, inbound by sync.
//!
//! - [`MatrixPlatform`]: one user on one homeserver, as [`Platform`] and [`InboundSource`].
//! - [`MatrixOptions`]: its configuration.
//! - `fake_server` (feature `fake-server`): a homeserver with the same protocol, for tests and the demo.
//!
//! What it does not do: it does not write into encrypted rooms, does not join rooms automatically, and has no state.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_matrix::{MatrixOptions, MatrixPlatform};
//! use dray_types::{Clock, Secret};
//!
//! let options = MatrixOptions {
//!     homeserver: "https://matrix.example.org".to_owned(),
//!     token: Secret::new("example"),
//!     ..MatrixOptions::default()
//! };
//! let user = MatrixPlatform::new("", options, Clock::system())?;
//! assert_eq!(user.name(), "matrix");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod api;
mod event;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod options;
mod send;
mod sync;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dray_media_type::kind::{AudioKind, ContentKind};
use dray_platform::{
    AccountCheck, AccountOptions, ByteStream, ChatLimits, ConfirmedFile, DeliveryTarget,
    DuplicateProtection, ErrorKind, FilePermission, InboundAttachment, InboundSink, InboundSource,
    OutgoingDelivery, OutgoingFile, Platform, PlatformError, RateLimits, Route, SendRequest,
    SendStep, UploadProgress, WebhookReply, WebhookRequest, http, plan,
};
use dray_presentation::caption::CaptionUnit;
use dray_types::Clock;
use tokio_util::sync::CancellationToken;

pub use options::MatrixOptions;

use api::MatrixApi;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "matrix";

/// One user on one homeserver.
#[derive(Debug)]
pub struct MatrixPlatform {
    account: String,
    options: MatrixOptions,
    api: MatrixApi,
    clock: Clock,
}

impl MatrixPlatform {
    /// A user under the name of an account; the name is empty for the only one. Sends no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for invalid options: a missing token, a malformed address, certificate authorities
    /// that cannot be read.
    pub fn new(account: &str, options: MatrixOptions, clock: Clock) -> Result<Self, PlatformError> {
        let api = MatrixApi::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
            clock,
        })
    }
}

impl AccountOptions for MatrixOptions {
    type Account = MatrixPlatform;

    fn open_account(&self, account: &str, clock: &Clock) -> Result<MatrixPlatform, PlatformError> {
        MatrixPlatform::new(account, self.clone(), clock.clone())
    }
}

#[async_trait]
impl Platform for MatrixPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    /// The key is the transaction id in the path of the event, which the homeserver deduplicates.
    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::ResendAlways
    }

    /// Homeservers have their own limits and report the delay when one is reached
    /// (<https://spec.matrix.org/latest/client-server-api/#rate-limiting>).
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 60,
            chat_per_minute: 30,
        }
    }

    /// Requests `account/whoami` and the homeserver's limit of uploads. Rooms decide by the user's power level.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        let user = self.api.get("/client/v3/account/whoami", &[]).await?;
        let name = user.get("user_id").and_then(serde_json::Value::as_str);
        let largest = self.api.max_upload_bytes().await?;
        let files = if largest == Some(0) {
            FilePermission::Denied("the homeserver takes no uploads".to_owned())
        } else {
            FilePermission::PerChat(
                "the user must be in the room and may not be muted there".to_owned(),
            )
        };
        let check = AccountCheck::accepted(name.unwrap_or_default(), files);
        Ok(check.with_limits(self.options.limits(largest)))
    }

    /// The limits of the homeserver. Fails for rooms that do not exist or are encrypted.
    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        // The room is checked first, because a delivery to an encrypted room must fail before anything is uploaded.
        let server_limit = match self.api.room(&target.chat).await {
            Ok(_) => self.api.max_upload_bytes().await,
            Err(error) => Err(error),
        };
        match server_limit {
            Ok(server_limit) => Ok(self.options.limits(server_limit)),
            Err(error) if matches!(error.kind(), ErrorKind::Transient | ErrorKind::RateLimited) => {
                tracing::debug!(%error, "the homeserver's limit is unknown; using the default");
                Ok(self.options.limits(None))
            }
            Err(error) => Err(error),
        }
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        let mut steps =
            plan::plan_attachments(delivery, limits, send::FILE_ROUTE, CaptionUnit::Bytes);
        // The plan uses one route; here each file gets the route with the best display in clients.
        for step in &mut steps {
            let SendStep::Files(step) = step else {
                continue;
            };
            let file = step
                .files
                .first()
                .and_then(|index| delivery.files.get(*index));
            if let Some(file) = file {
                step.route = file_route(delivery, file);
            }
        }
        steps
    }

    async fn prepare(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<String, PlatformError> {
        send::prepare_upload(&self.api, send, progress).await
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        _: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        send::send_event(&self.api, send).await
    }
}

/// How a file is shown. The bytes are the same on every route.
fn file_route(delivery: &OutgoingDelivery, file: &OutgoingFile) -> Route {
    match file.detected.kind {
        _ if delivery.flags.as_document => send::FILE_ROUTE,
        ContentKind::Image(_) => send::IMAGE_ROUTE,
        ContentKind::Video(_) => send::VIDEO_ROUTE,
        ContentKind::Audio(AudioKind::OggOpus { .. }) if delivery.flags.as_voice => {
            send::VOICE_ROUTE
        }
        ContentKind::Audio(_) => send::AUDIO_ROUTE,
        _ => send::FILE_ROUTE,
    }
}

#[async_trait]
impl InboundSource for MatrixPlatform {
    /// Always refused: a homeserver is polled.
    fn webhook(&self, _: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        let what = "Matrix sends no webhooks; the account is polled";
        Err(PlatformError::new(ErrorKind::BadFormat, what))
    }

    async fn poll(
        &self,
        deliver: &dyn InboundSink,
        stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        let oldest_ms = self
            .clock
            .now_ms()
            .saturating_sub(self.options.catch_up.as_millis());
        let sync = sync::SyncLoop {
            account: &self.account,
            options: &self.options,
            api: &self.api,
            oldest_ms,
        };
        sync.run(deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        Ok(http::response_stream(
            self.api.download(&attachment.reference).await?,
        ))
    }
}
