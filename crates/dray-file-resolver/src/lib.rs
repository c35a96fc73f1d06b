//! The file-resolver: puts the content of files in place of `file:{base64|text|url}::…` arguments before a tool
//! runs.
//!
//! It handles `Resolve` calls, and consumes `ToolCallRequested` work. Files come from DIAL Core, at the exact origin
//! that is configured, or through the egress-fetcher; this service opens no other connection. Contents are streamed: a
//! result that does not fit a message is stored and returned as a claim.
//!
//! - [`arguments`], [`text`], [`base64`], [`reply`], [`shown`]: rules without I/O.
//! - [`dial`], [`external`]: the two sources of files.
//! - [`downloads`]: files that were loaded recently.
//! - [`loader`], [`source`], [`output`], [`resolver`]: one tool call from its arguments to its result.
//! - [`reading`]: documents for an agent to read, and the files of a conversation.
//! - [`service`], [`config`], [`metrics`]: the service around it.
//!
//! What it does not do: it does not decide which external URLs are allowed (the egress-fetcher does), runs no tools and
//! stores no conversations.
//!
//! ```
//! use dray_file_resolver::arguments::{ReferenceScope, find_slots};
//! use dray_dial::origin::{LoadTarget, classify_reference};
//!
//! let arguments = br#"{"document": "file:text::files/b/a.txt", "pages": 3}"#;
//! let slots = find_slots(arguments, ReferenceScope::TopLevel).unwrap();
//! assert_eq!(slots[0].pointer, "/document");
//!
//! let target = classify_reference("files/b/a.txt", None).unwrap();
//! assert!(matches!(target, LoadTarget::Dial(_)));
//! assert!(classify_reference("ftp://files.example/a.txt", None).is_err());
//! ```

pub mod arguments;
pub mod base64;
pub mod config;
pub mod dial;
pub mod downloads;
pub mod error;
pub mod external;
pub mod loader;
pub mod metrics;
pub mod output;
pub mod reading;
mod reload;
pub mod reply;
pub mod resolver;
pub mod service;
pub mod shown;
pub mod source;
pub mod text;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use service::FileResolver;
