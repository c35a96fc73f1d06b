//! Daytona sandboxes, by the API and the toolbox in the sandbox (sandbox-transfer 9).
//!
//! - [`DaytonaBackend`]: the sandboxes of one organization, as [`dray_sandbox::Backend`].
//! - [`Config`]: the settings of an operator.
//! - [`signature`]: signed URLs of files.
//! - `fake_server` (feature `fake-server`): a server that speaks the same wire, for tests.
//!
//! What it does not do: it does not create, start or end sandboxes.
//!
//! ```
//! use dray_sandbox_daytona::signature::sign;
//! use dray_types::Secret;
//!
//! let key = Secret::new("signing-key");
//! let signature = sign(&key, "GET", "/home/daytona/report.pdf", 1_700_000_000);
//! assert_eq!(signature.as_deref(), Some("v1_31Z12NzLFlzOmtJsY7zUzL76CU5azNGR_tr5dyuyK_k"));
//! ```

mod backend;
mod config;
mod control;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod link;
mod process;
pub mod signature;
#[cfg(test)]
mod tests;

pub use backend::DaytonaBackend;
pub use config::{Config, ConfigError};
