//! The interface that every platform implements.
//!
//! A platform implements a protocol. It has no state, and does not implement what is common to all platforms. The
//! delivery service records intents before sending, retries, limits rates, resolves ambiguous sends, reuses file ids,
//! links large files and writes receipts.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use dray_types::Clock;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::account_check::AccountCheck;
use crate::delivery::{
    ByteStream, ConfirmedFile, DeliveryTarget, OutgoingFile, Route, SendFlags, SendStep,
};
use crate::error::PlatformError;
use crate::limits::ChatLimits;
use crate::question::{ButtonPress, QuestionChannel};

/// How sending again after a lost response avoids a duplicate (the table of messaging-reliability 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateProtection {
    /// The same [`SendRequest::key`] returns the same message for this long after the first attempt.
    Resend(Duration),
    /// The same [`SendRequest::key`] always returns the same message.
    ResendAlways,
    /// [`Platform::reconcile`] can find out the outcome of a request.
    Reconcile,
    /// None: it stays unknown whether the message exists.
    Unknown,
}

/// Rate limits of a platform. The caller delays its requests so that they stay below these rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Visible requests per minute and account.
    pub account_per_minute: u32,
    /// Visible requests per minute and chat.
    pub chat_per_minute: u32,
}

/// A delivery for a platform.
#[derive(Clone, Debug)]
pub struct OutgoingDelivery {
    /// The delivery's id, as in its receipt; a UUID that the caller made once.
    pub id: String,
    /// The target chat, the same for all of its files.
    pub target: DeliveryTarget,
    /// Text of the agent; may be empty. Mentions are not disabled yet.
    pub message: String,
    /// The files, in the agent's order.
    pub files: Vec<OutgoingFile>,
    /// Wishes about how files are shown.
    pub flags: SendFlags,
}

/// One visible request that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The delivery that it belongs to.
    pub delivery: &'a OutgoingDelivery,
    /// The content of the request: a text, a link, or files of the delivery.
    pub step: &'a SendStep,
    /// The result of [`Platform::prepare`] for this step; may be empty.
    pub prepared: &'a str,
    /// Key against duplicates, the same for every attempt of this step: 22 characters of base64url.
    pub key: &'a str,
    /// Whether an earlier request with this key may have arrived, because its response was lost.
    pub repeated: bool,
}

/// Receives the number of sent bytes of a body.
pub trait UploadProgress: Debug + std::marker::Send + Sync {
    /// `bytes` more were sent. Called often and from within the upload, so it must not block.
    fn sent(&self, bytes: u64);
}

/// The platform's information about a request whose response was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The message exists, with these files.
    Sent(Vec<ConfirmedFile>),
    /// The message does not exist and will not appear later, so it can be sent again.
    NotSent,
    /// The platform has no information.
    Unknown,
}

/// One account on one platform. Methods may run concurrently.
#[async_trait]
pub trait Platform: Debug + std::marker::Send + Sync {
    /// The platform's name in the list of platforms ([`dray_types::PlatformKind`]).
    fn name(&self) -> &'static str;

    /// The platform's protection against duplicates, for all of its steps.
    fn ambiguity(&self) -> DuplicateProtection;

    /// The rate limits of this account for this target. `docs/platforms/NAME.md` states them.
    fn rate_limits(&self, target: &DeliveryTarget) -> RateLimits;

    /// Asks the platform whether it accepts the credentials of the account, and what the account may send. Shows
    /// nothing in any chat. The default is for platforms that have no request of this kind.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::Auth`] when the credentials are refused; other kinds when the platform did not respond
    /// clearly.
    async fn check_account(&self) -> Result<AccountCheck, PlatformError> {
        Ok(AccountCheck::unverified(
            "the platform has no request for this",
        ))
    }

    /// The platform's limits for this target now, requested from the platform where it has an API for them.
    ///
    /// # Errors
    ///
    /// Only if the target cannot be served. If only the limits are unknown, defaults are returned.
    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError>;

    /// The visible requests of a delivery, in order: text first, pictures in albums, other files in the given order
    /// (platform-delivery 4). Files that exceed `limits` on every route are left out; the caller replaces them by
    /// links. A pure function.
    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep>;

    /// Makes invisible uploads. The result is stored before a visible request, and is passed to every later attempt.
    /// Empty without such uploads, which is the default.
    ///
    /// # Errors
    ///
    /// No message is visible yet, so an error is never ambiguous.
    async fn prepare(
        &self,
        _send: SendRequest<'_>,
        _progress: &dyn UploadProgress,
    ) -> Result<String, PlatformError> {
        Ok(String::new())
    }

    /// Makes the visible request. `Ok` means that the platform confirmed every file of the step, counted and of the
    /// right kind.
    ///
    /// # Errors
    ///
    /// [`PlatformError::send_outcome`] shows whether a message may be visible. If the future is dropped, this is
    /// unknown.
    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError>;

    /// Requests the outcome of a step whose response was lost. The default has no information.
    async fn reconcile(&self, _send: SendRequest<'_>) -> Result<ReconcileResult, PlatformError> {
        Ok(ReconcileResult::Unknown)
    }

    /// Another route for a refused step: a refused photo is sent as a document. `None` if there is none.
    fn fallback(
        &self,
        _delivery: &OutgoingDelivery,
        _step: &SendStep,
        _error: &PlatformError,
    ) -> Option<SendStep> {
        None
    }

    /// Whether a file of this route that is sent by its id has the name of its upload. The caller then uses an id only for
    /// files of the same name. The default is for platforms whose messages name their files.
    fn ids_keep_names(&self, _route: Route) -> bool {
        false
    }

    /// Questions with buttons, where this platform has them. The default is for platforms without.
    fn questions(&self) -> Option<&dyn QuestionChannel> {
        None
    }
}

/// The configuration of one account on a platform: the options of each platform implement it, so that the delivery
/// service opens all accounts in the same way.
pub trait AccountOptions {
    /// The opened account.
    type Account: Platform + InboundSource + 'static;

    /// Opens the account under its name in the configuration. Makes no request.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::BadFormat`] for options that cannot be used.
    fn open_account(&self, account: &str, clock: &Clock) -> Result<Self::Account, PlatformError>;
}

/// A request to the webhook address of a platform. Not trusted before [`InboundSource::webhook`] has checked its
/// signature.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    /// HTTP method, in upper case.
    pub method: String,
    /// Query string without the question mark, not decoded.
    pub query: String,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, at most [`InboundSource::max_webhook_bytes`].
    pub body: bytes::Bytes,
}

/// The response to a webhook request, and the messages in the request.
#[derive(Clone, Debug, Default)]
pub struct WebhookReply {
    /// HTTP status of the response; 0, the default, means 200.
    pub status: u16,
    /// Content type and body of the response; `None` for an empty one.
    pub body: Option<(&'static str, String)>,
    /// Messages of users, which are stored before the response is sent.
    pub messages: Vec<InboundMessage>,
    /// Later reports about messages that we sent.
    pub statuses: Vec<StatusUpdate>,
    /// Buttons of questions that users pressed.
    pub presses: Vec<ButtonPress>,
    /// Chats that got another id.
    pub moved_chats: Vec<ChatMove>,
    /// Ids of the workspaces that the request is for, where a platform posts the events of several to one address; empty
    /// where the address belongs to one account.
    pub workspaces: Vec<String>,
}

/// A chat to which the platform gave another id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMove {
    /// The earlier id.
    pub from: String,
    /// The id that the chat has now.
    pub to: String,
}

/// A message of a user, with its attachments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// The chat of the message; `reply_to` is empty. A reply to the user is sent to this target.
    pub target: DeliveryTarget,
    /// The platform's id of the message. A message that arrives again has the same id, and counts once.
    pub message_id: String,
    /// Who wrote it, in the platform's spelling.
    pub sender: String,
    /// The message's text; may be empty.
    pub text: String,
    /// The message's attachments, in order. They are not downloaded yet.
    pub attachments: Vec<InboundAttachment>,
}

/// An attachment before its download. Everything about it is a claim of the sender's client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundAttachment {
    /// The platform's id, unique within its message.
    pub id: String,
    /// The name as sent; it may contain any characters.
    pub name: String,
    /// Number of bytes as claimed; 0 when unknown.
    pub size: u64,
    /// Media type as claimed; empty when unknown.
    pub media_type: String,
    /// Reference with which [`InboundSource::fetch`] finds the attachment; opaque, and free of tokens, because it is
    /// stored.
    pub reference: String,
    /// How the user sent it: `photo`, `voice`, `audio`, `video`, `document` …
    pub kind: String,
    /// The reason why it cannot be downloaded, if that is already known (over the platform's limit); otherwise empty.
    pub unavailable: String,
}

/// A later report about a message that we sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// The platform's id of the message.
    pub message_id: String,
    /// `sent`, `delivered`, `read` or `failed`.
    pub status: String,
    /// The platform's code, when the status is `failed`.
    pub code: String,
}

/// Stores the messages of an inbound source.
#[async_trait]
pub trait InboundSink: Debug + std::marker::Send + Sync {
    /// Stores the message durably. Only after `Ok` may the source acknowledge it to the platform.
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError>;

    /// Records a later report about a message that we sent. Only after `Ok` may the source acknowledge it to the
    /// platform. The default ignores it.
    async fn status(&self, _update: StatusUpdate) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Handles a press of a button, including the reply to the person. Presses are not stored, because platforms accept
    /// replies for a few seconds only; after a failure the person gets a message and can press again. The default
    /// ignores presses.
    async fn press(&self, _press: ButtonPress) {}

    /// Learns the new id of a chat. The default ignores it.
    async fn chat_moved(&self, _moved: ChatMove) {}
}

/// The inbound side of one account.
#[async_trait]
pub trait InboundSource: Debug + std::marker::Send + Sync {
    /// Reads a webhook request after verifying its signature.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::Auth`] for a wrong or missing signature, [`crate::ErrorKind::BadFormat`] otherwise.
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError>;

    /// The longest body of a webhook request in bytes. The default is 1 MiB.
    fn max_webhook_bytes(&self) -> usize {
        1 << 20
    }

    /// Whether this account serves one of the [`WebhookReply::workspaces`] of a request whose signature was verified.
    /// The default is for platforms that post to each address for one account only.
    ///
    /// # Errors
    ///
    /// The platform did not respond with the workspace of the account.
    async fn serves_workspaces(&self, _workspaces: &[String]) -> Result<bool, PlatformError> {
        Ok(true)
    }

    /// Requests messages from the platform until `stop` is cancelled. Returns immediately where the platform calls
    /// our webhook instead, which is the default.
    async fn poll(
        &self,
        _deliver: &dyn InboundSink,
        _stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        Ok(())
    }

    /// The attachment as [`InboundSource::fetch`] needs it, with the name that a message may leave out. The default
    /// returns it unchanged.
    ///
    /// # Errors
    ///
    /// The platform does not describe the attachment.
    async fn describe(
        &self,
        attachment: &InboundAttachment,
    ) -> Result<InboundAttachment, PlatformError> {
        Ok(attachment.clone())
    }

    /// The bytes of an attachment. They are read only from the hosts from which this platform serves files; credentials
    /// never follow a redirect to another host.
    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError>;
}
