//! Daytona sandboxes, by the API and the toolbox in the sandbox (sandbox-transfer 9).
//!
//! - [`DaytonaBackend`]: the sandboxes of one organization, as [`dray_sandbox::Backend`].
//! - [`Config`]: the settings of an operator.
//! - `fake_server` (feature `fake-server`): a server that speaks the same wire, for tests.
//!
//! What it does not do: it does not create, start or end sandboxes.

mod backend;
mod config;
mod control;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod link;
mod process;
#[cfg(test)]
mod tests;

pub use backend::DaytonaBackend;
pub use config::{Config, ConfigError};
