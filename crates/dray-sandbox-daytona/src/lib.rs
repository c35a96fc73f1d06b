//! Daytona sandboxes, by the API and the toolbox in the sandbox (sandbox-transfer 9).
//!
//! - [`DaytonaBackend`]: the sandboxes of one organization, as [`dray_sandbox::Backend`].
//! - [`Config`]: what an operator sets about it.
//! - [`signature`]: signed URLs of files.
//! - `double` (feature `double`): a server that speaks the same wire, for tests.
//!
//! What it does not do: it makes, starts and ends no sandbox.

mod backend;
mod config;
mod control;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod fault;
mod files;
mod link;
mod process;
mod sandbox;
pub mod signature;
#[cfg(test)]
mod tests;

pub use backend::DaytonaBackend;
pub use config::{Config, ConfigError};
