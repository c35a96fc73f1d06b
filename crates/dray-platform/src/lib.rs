//! The interface of a chat platform, and the code that is the same for all of them.
//!
//! - [`platform`]: the traits that a platform implements, outbound and inbound.
//! - [`plan`]: the assignment of files to messages, on platforms that show every file as an attachment.
//! - [`http`]: conversions between this crate's types and those of the HTTP client.
//! - [`file_hosts`]: the allow-list for addresses of files.
//! - [`account_check`]: what a platform says about an account itself.
//! - [`question`]: questions with buttons in a chat.
//! - [`delivery`], [`limits`], [`error`]: the types that these share.
//! - `conformance` (feature `conformance`): the test suite that every platform passes.
//!
//! What it does not do: it uses no message bus, store or sandbox, and it never retries, because the delivery service
//! does.
//!
//! ```rust
//! use dray_platform::DeliveryTarget;
//!
//! let target: DeliveryTarget = "telegram/bot:-1001234#7".parse()?;
//! assert_eq!((target.account.as_str(), target.chat.as_str()), ("bot", "-1001234"));
//! assert_eq!(target.thread, "7");
//! assert_eq!(target.to_string(), "telegram/bot:-1001234#7");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

pub mod account_check;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod delivery;
pub mod error;
pub mod file_hosts;
pub mod http;
pub mod limits;
pub mod plan;
pub mod platform;
pub mod question;

pub use account_check::{AccountCheck, CredentialCheck, FilePermission};
pub use delivery::{
    ByteSource, ByteStream, ConfirmedFile, DeliveryTarget, FilesStep, OutgoingFile, Route,
    SendFlags, SendStep,
};
pub use error::{ErrorKind, PlatformError, SendOutcome};
pub use file_hosts::FileHosts;
pub use limits::ChatLimits;
pub use platform::{
    AccountOptions, ChatMove, DuplicateProtection, InboundAttachment, InboundMessage, InboundSink,
    InboundSource, OutgoingDelivery, Platform, RateLimits, ReconcileResult, SendRequest,
    StatusUpdate, UploadProgress, WebhookReply, WebhookRequest,
};
pub use question::{
    ButtonPress, ChatQuestion, PressReply, QuestionButton, QuestionChannel, ShownQuestion,
};
