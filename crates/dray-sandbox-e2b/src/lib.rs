//! E2B sandboxes, by the control API and the daemon in the sandbox (sandbox-transfer 8).
//!
//! - [`E2bBackend`]: the sandboxes of one account, as [`dray_sandbox::Backend`].
//! - [`Config`]: the settings of an operator.
//! - `fake_server` (feature `fake-server`): a server that speaks the same wire, for tests.
//!
//! What it does not do: it does not create, pause or end sandboxes.

mod backend;
mod config;
mod connect;
mod control;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod fault;
mod link;
mod process;
#[cfg(test)]
mod tests;

pub use backend::E2bBackend;
pub use config::{Config, ConfigError};
