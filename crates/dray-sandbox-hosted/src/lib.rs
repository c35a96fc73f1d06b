//! Files in sandboxes of hosted providers: companies that offer sandboxes by an HTTP API (sandbox-transfer 8 and 9).
//!
//! - [`Provider`]: what differs between providers: requests, the state of a sandbox, the texts of errors.
//! - [`HostedSandbox`]: what all providers share, as [`dray_sandbox::Sandbox`].
//! - [`unanswered`], [`refused`], [`kind_of_status`]: failures of HTTP as kinds of failure.
//! - [`require_key`], [`require_lifetime`], [`remaining_lifetime`]: rules of all control APIs.
//! - `fake_server` and `provider_suite` (features of the same names with hyphens): for the tests of providers.
//!
//! The file calls of such providers run with more rights than the sandbox user, follow links, make missing parents and
//! replace what they find. Therefore only bytes of whole files go through them; commands of the sandbox user do the
//! rest.
//!
//! A provider implements [`Provider`] and runs commands; its files need nothing more:
//!
//! ```
//! # use std::sync::Arc;
//! # use dray_sandbox::Sandbox;
//! # use dray_sandbox_hosted::{HostedSandbox, Provider};
//! fn open<P: Provider>(provider: P, commands: P::Commands) -> Arc<dyn Sandbox> {
//!     Arc::new(HostedSandbox::new(Arc::new(provider), commands))
//! }
//! ```
//!
//! What it does not do: it contains no code for a single provider, and does not create, start or end sandboxes.

mod control;
#[cfg(feature = "fake-server")]
pub mod fake_server;
mod fault;
mod files;
mod provider;
#[cfg(feature = "provider-suite")]
pub mod provider_suite;
mod sandbox;

pub use control::{remaining_lifetime, require_key, require_lifetime};
pub use fault::{MessageRefusal, Refusal, kind_of_status, kind_of_words, refused, unanswered};
pub use files::OCTET_STREAM;
pub use provider::Provider;
pub use sandbox::HostedSandbox;
