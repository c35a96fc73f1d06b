//! E2B sandboxes, by the control API and the daemon in the sandbox (sandbox-transfer 8).
//!
//! - [`E2bBackend`]: the sandboxes of one account, as [`dray_sandbox::Backend`].
//! - [`Config`]: the settings of an operator.
//! - [`signature`]: signed URLs of files, version 1.
//! - `fake_server` (feature `fake-server`): a server that speaks the same wire, for tests.
//!
//! What it does not do: it does not create, pause or end sandboxes.
//!
//! ```
//! use dray_sandbox_e2b::signature::{Operation, sign};
//! use dray_types::Secret;
//!
//! let token = Secret::new("tok123");
//! let signature = sign("/home/user/report.pdf", Operation::Read, "user", &token, Some(1_700_000_000));
//! assert_eq!(signature, "v1_kmk2TM4cwmaNyuDPcdsxmI2DI2zKTjO3i4PEETeY6aQ");
//! ```

mod backend;
mod config;
mod connect;
mod control;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod fault;
mod link;
mod process;
pub mod signature;
#[cfg(test)]
mod tests;

pub use backend::E2bBackend;
pub use config::{Config, ConfigError};
