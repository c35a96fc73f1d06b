//! Slack, by the external upload calls (platform-delivery 7.4). A delivery is an upload, its completion, and a request
//! for the share that proves it. Messages of users arrive as signed events.
//!
//! - [`SlackPlatform`]: one app in one workspace, as [`Platform`] and [`InboundSource`].
//! - [`SlackOptions`]: its configuration.
//! - `fake_server` (feature `fake-server`): a server with the same protocol, for tests and the demo.
//!
//! What it does not do: it has no state, and never repeats a request whose message may already be visible. It uses
//! neither Socket Mode nor the old `files.upload`.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_slack::{SlackOptions, SlackPlatform};
//! use dray_types::{Clock, Secret};
//!
//! let options = SlackOptions { token: Secret::new("xoxb-example"), ..SlackOptions::default() };
//! let app = SlackPlatform::new("", options, Clock::system())?;
//! assert_eq!(app.name(), "slack");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod account;
mod api;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod inbox;
mod options;
mod plan;
mod question;
mod send;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dray_platform::{
    AccountCheck, AccountOptions, ButtonPress, ByteStream, ChatLimits, ChatQuestion, ConfirmedFile,
    DeliveryTarget, DuplicateProtection, InboundAttachment, InboundSource, OutgoingDelivery,
    Platform, PlatformError, PressReply, QuestionChannel, RateLimits, ReconcileResult, SendRequest,
    SendStep, ShownQuestion, UploadProgress, WebhookReply, WebhookRequest, http,
};
use dray_presentation::caption::CaptionUnit;
use dray_types::Clock;
use tokio::sync::OnceCell;

pub use options::SlackOptions;

use api::SlackApi;

/// The platform's name in targets.
const PLATFORM_NAME: &str = "slack";

/// One app in one workspace, with its token and a clock for the age of signatures.
#[derive(Debug)]
pub struct SlackPlatform {
    account: String,
    options: SlackOptions,
    api: SlackApi,
    clock: Clock,
    /// Ids of the workspace, or the organization, in which the app is installed with this token.
    workspaces: OnceCell<Vec<String>>,
}

impl SlackPlatform {
    /// An app under the name of an account; the name is empty for the only one. Sends no request.
    ///
    /// # Errors
    ///
    /// [`dray_platform::ErrorKind::BadFormat`] for invalid options: a missing token, a malformed address, certificate
    /// authorities that cannot be read.
    pub fn new(account: &str, options: SlackOptions, clock: Clock) -> Result<Self, PlatformError> {
        let api = SlackApi::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
            clock,
            workspaces: OnceCell::new(),
        })
    }
}

impl AccountOptions for SlackOptions {
    type Account = SlackPlatform;

    fn open_account(&self, account: &str, clock: &Clock) -> Result<SlackPlatform, PlatformError> {
        SlackPlatform::new(account, self.clone(), clock.clone())
    }
}

#[async_trait]
impl Platform for SlackPlatform {
    fn name(&self) -> &'static str {
        PLATFORM_NAME
    }

    fn ambiguity(&self) -> DuplicateProtection {
        // Messages have no idempotency key, but `files.info` shows whether a file was shared.
        DuplicateProtection::Reconcile
    }

    /// Tier 4 for the calls of files, one message a second for a channel
    /// (<https://docs.slack.dev/apis/web-api/rate-limits>).
    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 100,
            chat_per_minute: 60,
        }
    }

    /// Calls `auth.test`, whose response names the scopes of the token in a header.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        let (name, files) = account::check_app(&self.api).await?;
        Ok(AccountCheck::accepted(name, files).with_limits(self.options.limits()))
    }

    /// The API publishes no limits; these are the configured ones.
    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(self.options.limits())
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        dray_platform::plan::plan_attachments(
            delivery,
            limits,
            plan::FILE_ROUTE,
            CaptionUnit::Chars,
        )
    }

    async fn prepare(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<String, PlatformError> {
        send::prepare_uploads(&self.api, send, progress).await
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        _: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        send::send_step(&self.api, send, self.options.share_wait.as_duration()).await
    }

    async fn reconcile(&self, send: SendRequest<'_>) -> Result<ReconcileResult, PlatformError> {
        send::reconcile_step(&self.api, send, self.options.share_wait.as_duration()).await
    }

    fn questions(&self) -> Option<&dyn QuestionChannel> {
        Some(self)
    }
}

#[async_trait]
impl QuestionChannel for SlackPlatform {
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
impl InboundSource for SlackPlatform {
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError> {
        let now = self.clock.now_ms() / 1000;
        inbox::read_webhook(&self.account, &self.options, request, now)
    }

    /// Compares with the workspace that `auth.test` names: the events of all workspaces that use the app come to one
    /// address (platform-delivery 7.4).
    async fn serves_workspaces(&self, workspaces: &[String]) -> Result<bool, PlatformError> {
        // A request for the check of the address is for no workspace.
        if workspaces.is_empty() {
            return Ok(true);
        }
        let identified = self
            .workspaces
            .get_or_try_init(|| account::own_workspaces(&self.api));
        let own = identified.await?;
        Ok(workspaces.iter().any(|id| own.contains(id)))
    }

    async fn describe(
        &self,
        attachment: &InboundAttachment,
    ) -> Result<InboundAttachment, PlatformError> {
        if !inbox::is_file_id(&attachment.reference) {
            return Ok(attachment.clone());
        }
        let described = self.api.file_info(&attachment.reference).await?;
        Ok(inbox::inbound_attachment(&described))
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError> {
        Ok(http::response_stream(
            self.api.download(&attachment.reference).await?,
        ))
    }
}
