//! Previews: short-lived links through which a person views a file or a directory directly in its sandbox.
//!
//! - [`PreviewService`] makes, lists and revokes previews, within limits, and finds the one of a link.
//! - [`PreviewEndpoint`] serves their links over HTTP on a separate origin: the files as they are, with ranges and
//!   conditions, and viewer pages around them.
//! - [`PreviewSource`] opens sandboxes; the service that owns their credentials implements it.
//! - [`PreviewConfig`] is the section of an operator.
//!
//! A link has 256 random bits; records hold only their SHA-256. Every request is checked again: the record, the
//! incarnation of the sandbox, the policy of the session, and the path as the sandbox resolves it. Files are not copied
//! to the store (only documents for the reader pass through its cache); a response shows one state of the file, or it
//! ends early.
//!
//! What it does not do: it decides nothing about who may make a preview, and it speaks no TLS; a proxy in front of it
//! does.
//!
//! ```
//! use dray_preview::{PreviewConfig, PreviewKey, PreviewToken};
//! use dray_types::TenantId;
//!
//! let config = PreviewConfig {
//!     url: "https://*.preview.example.org".to_owned(),
//!     ..PreviewConfig::default()
//! };
//! let key = PreviewKey::of_session(&TenantId::new("acme")?, "chat-1");
//! let token = PreviewToken::mint(key);
//! let base = config.base_url("0123456789abcdef", None).unwrap();
//! assert_eq!(base, "https://0123456789abcdef.preview.example.org");
//! assert_eq!(PreviewToken::parse(&token.text()).unwrap().key(), key);
//! # Ok::<(), dray_types::id::InvalidId>(())
//! ```

mod archive;
mod audit;
mod config;
mod conversion;
mod document;
mod endpoint;
mod error;
mod file;
mod headers;
mod links;
mod location;
mod markdown;
mod metrics;
mod open_body;
mod records;
mod service;
mod source;
mod token;
mod view;
mod view_count;
mod viewer;
mod visitor;

pub use config::PreviewConfig;
pub use endpoint::{EndpointError, PreviewEndpoint};
pub use error::PreviewError;
pub use metrics::PreviewMetrics;
pub use service::{NewPreview, PreviewService, PreviewSystem};
pub use source::{OpenSandbox, PreviewSource};
pub use token::{PreviewKey, PreviewToken};
