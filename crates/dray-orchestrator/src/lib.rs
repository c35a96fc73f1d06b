//! The orchestrator: turns a chat completion into a loop of model and tools (quickapps).
//!
//! - [`http`]: the surface: requests in, chunks out.
//! - [`manifests`]: manifests and layers of folders.
//! - `turn`: one request from its manifest to its ending.
//! - [`permissions`]: who asks, and what they may use.
//! - [`files`]: files for agents, asked of the other services.
//! - `internal`: tools of its own.
//! - [`config`], [`metrics`]: the service around it.
//!
//! What it does not do: it reads no file into a message and dials no address that a model chose. Addresses in manifests
//! of callers are connected to only where the operator allows it.

pub mod config;
pub mod files;
pub mod http;
mod internal;
pub mod manifests;
pub mod metrics;
pub mod permissions;
mod service;
mod turn;

pub use config::Config;
pub use service::Orchestrator;
