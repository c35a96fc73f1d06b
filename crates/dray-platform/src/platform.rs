//! The interface that every platform implements.
//!
//! A platform speaks a wire; it keeps no state and decides nothing that is the same for all. Intent before sending,
//! retries, rate limits, ambiguity, reuse of file ids, links for what is too large, and receipts are the work of
//! the delivery service.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::delivery::{
    ByteStream, ConfirmedFile, DeliveryTarget, OutgoingFile, SendFlags, SendStep,
};
use crate::error::PlatformError;
use crate::limits::ChatLimits;

/// What the platform offers against duplicates (the table of messaging-reliability 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateProtection {
    /// The same [`SendRequest::key`] within this time of the first try gives the same message.
    Resend(Duration),
    /// The same [`SendRequest::key`] always gives the same message.
    ResendAlways,
    /// The platform can be asked with [`Platform::reconcile`].
    Reconcile,
    /// Nothing: an answer that is lost stays lost.
    Unknown,
}

/// Rates that the platform allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Visible requests per minute and account.
    pub account_per_minute: u32,
    /// Visible requests per minute and chat.
    pub chat_per_minute: u32,
}

/// A delivery as a platform sees it.
#[derive(Clone, Debug)]
pub struct OutgoingDelivery {
    /// Its id, as in its receipt.
    pub id: String,
    /// Where to.
    pub target: DeliveryTarget,
    /// What the agent says with it; empty for nothing. Mentions are not yet neutralised.
    pub message: String,
    /// The files in the agent's order.
    pub files: Vec<OutgoingFile>,
    /// Switches.
    pub flags: SendFlags,
}

/// One visible request about to be made.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// The delivery that it belongs to.
    pub delivery: &'a OutgoingDelivery,
    /// What it shows.
    pub step: &'a SendStep,
    /// What [`Platform::prepare`] gave for it; empty when it gave nothing.
    pub prepared: &'a str,
    /// Key against duplicates, the same for every try of this step: 22 characters of base64url.
    pub key: &'a str,
}

/// Receives how many bytes of a body have left.
pub trait UploadProgress: Debug + std::marker::Send + Sync {
    /// `bytes` more have left.
    fn sent(&self, bytes: u64);
}

/// What asking the platform about a lost answer brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// It is there.
    Sent(Vec<ConfirmedFile>),
    /// It is not there and will not come: sending once more is right.
    NotSent,
    /// It cannot be known.
    Unknown,
}

/// One account on one platform.
#[async_trait]
pub trait Platform: Debug + std::marker::Send + Sync {
    /// `telegram`, `discord` …
    fn name(&self) -> &'static str;

    /// What it offers against duplicates.
    fn ambiguity(&self) -> DuplicateProtection;

    /// Its rates for this target.
    fn rates(&self, target: &DeliveryTarget) -> RateLimits;

    /// Its limits for this target now, asked of the platform where it has an API for them. Fails only when the target
    /// cannot be served at all; otherwise falls back to the defaults.
    async fn limits(&self, target: &DeliveryTarget) -> Result<ChatLimits, PlatformError>;

    /// The visible requests of a delivery, in order: text first, pictures in albums, the rest in the given order
    /// (platform-delivery 4). Files that fit no route of this platform's limits are left out; the service makes links
    /// of them. Pure.
    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep>;

    /// Invisible uploads; what it returns is stored before anything visible happens and given back on
    /// every later try. Empty where the platform has no such step.
    async fn prepare(
        &self,
        _send: SendRequest<'_>,
        _progress: &dyn UploadProgress,
    ) -> Result<String, PlatformError> {
        Ok(String::new())
    }

    /// The visible request. `Ok` means that the platform itself confirmed every file of the step, counted and of the
    /// asked kind. Errors say with their moment whether something may be visible.
    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError>;

    /// Asks the platform what became of a step whose answer was lost.
    async fn reconcile(&self, _send: SendRequest<'_>) -> Result<ReconcileResult, PlatformError> {
        Ok(ReconcileResult::Unknown)
    }

    /// Another way for a step that was refused as it is (photo refused: as document); `None` when there is none.
    fn fallback(
        &self,
        _delivery: &OutgoingDelivery,
        _step: &SendStep,
        _error: &PlatformError,
    ) -> Option<SendStep> {
        None
    }
}

/// A request that came to our webhook address for a platform.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    /// HTTP method.
    pub method: String,
    /// Query string, undecoded.
    pub query: String,
    /// Header names in lower case and their values.
    pub headers: Vec<(String, String)>,
    /// The body, at most 1 MiB.
    pub body: bytes::Bytes,
}

/// What to answer, and the messages of the request.
#[derive(Clone, Debug, Default)]
pub struct WebhookReply {
    /// HTTP status; 200 unless said otherwise.
    pub status: u16,
    /// Content type and body of the answer.
    pub body: Option<(&'static str, String)>,
    /// Messages of users.
    pub messages: Vec<InboundMessage>,
    /// Later news on what we sent.
    pub statuses: Vec<StatusUpdate>,
}

/// A message of a user, with what is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// Where it was written; `reply_to` is empty.
    pub target: DeliveryTarget,
    /// The platform's id of the message: the same message comes once, however often it is sent.
    pub message_id: String,
    /// Who wrote it, in the platform's spelling.
    pub sender: String,
    /// Its text; empty for none.
    pub text: String,
    /// What is attached, in order.
    pub attachments: Vec<InboundAttachment>,
}

/// An attachment before it was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundAttachment {
    /// The platform's id.
    pub id: String,
    /// The name as sent; may hold anything.
    pub name: String,
    /// Bytes as claimed; 0 when unknown.
    pub size: u64,
    /// Media type as claimed; empty when unknown.
    pub media_type: String,
    /// What [`InboundSource::fetch`] needs; opaque, free of tokens.
    pub reference: String,
    /// `photo`, `voice`, `audio`, `video`, `document` … as the user sent it.
    pub kind: String,
    /// Why it cannot be fetched, when that is known already (over the platform's download limit); empty otherwise.
    pub unavailable: String,
}

/// Later news on a message that we sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusUpdate {
    /// The platform's id of the message.
    pub message_id: String,
    /// `sent`, `delivered`, `read` or `failed`.
    pub status: String,
    /// The platform's code with `failed`.
    pub code: String,
}

/// Takes what an inbox found.
#[async_trait]
pub trait InboundSink: Debug + std::marker::Send + Sync {
    /// Stores the message durably. Only after `Ok` may the inbox acknowledge it to the platform.
    async fn message(&self, message: InboundMessage) -> Result<(), PlatformError>;
}

/// The way in of one account.
#[async_trait]
pub trait InboundSource: Debug + std::marker::Send + Sync {
    /// Reads a webhook request after verifying its signature.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::Auth`] for a wrong or missing signature, [`crate::ErrorKind::BadFormat`] otherwise.
    fn webhook(&self, request: &WebhookRequest) -> Result<WebhookReply, PlatformError>;

    /// Asks the platform for messages until `stop`, where it is polled rather than calls us. Returns immediately where
    /// is nothing to ask.
    async fn poll(
        &self,
        _deliver: &dyn InboundSink,
        _stop: CancellationToken,
    ) -> Result<(), PlatformError> {
        Ok(())
    }

    /// The bytes of an attachment, from the hosts that this platform serves files from and no others; credentials
    /// never follow a redirect to another host.
    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, PlatformError>;
}
