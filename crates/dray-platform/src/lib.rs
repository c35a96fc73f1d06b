//! Files to people: the interface of a platform and everything that is the same for all of them.
//!
//! - [`plan`]: which file goes with which message, where all are attachments.
//! - [`platform`]: what a platform implements, for the way out and the way in.
//! - [`http`]: requests to the endpoints of platforms.
//! - [`delivery`], [`limits`], [`error`]: the words that all share.
//! - `conformance` (feature `conformance`): the suite that every platform passes.
//!
//! What it does not do: it knows no bus, no store and no sandbox.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod delivery;
pub mod error;
pub mod http;
pub mod limits;
pub mod plan;
pub mod platform;

pub use delivery::{
    ByteSource, ByteStream, ConfirmedFile, DeliveryTarget, FilesStep, OutgoingFile, SendFlags,
    SendStep,
};
pub use error::{ErrorKind, PlatformError, SendOutcome};
pub use limits::ChatLimits;
pub use platform::{
    DuplicateProtection, InboundAttachment, InboundMessage, InboundSink, InboundSource,
    OutgoingDelivery, Platform, RateLimits, ReconcileResult, SendRequest, StatusUpdate,
    UploadProgress, WebhookReply, WebhookRequest,
};
