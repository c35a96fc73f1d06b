//! Files in sandboxes of Modal (sandbox-transfer 7).
//!
//! All operations are commands. They run the provider's file tool, or a shell for what the tool cannot report (inodes,
//! targets of links, digests) or do (rename). Commands go to the router of the worker that runs the sandbox; both of
//! their streams are read and written by offset, so that a broken connection loses nothing (sandbox-transfer R-10).
//!
//! - [`ModalBackend`] finds sandboxes by their ids and opens them; [`Config`] holds the token.
//! - An incarnation is the id of the sandbox and that of the task that runs it.
//! - `fake_server` (feature `fake-server`): both services of the provider on loopback, for tests.
//!
//! What it does not do: it starts and ends no sandboxes, and it does not decide what may be read or written.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dray_sandbox::{Backend as _, Follow, SandboxPath};
//! use dray_sandbox_modal::{Config, ModalBackend};
//! use dray_types::Clock;
//!
//! let backend = ModalBackend::new(&Config::default(), Clock::system())?;
//! let sandbox = backend.open_address(&"modal:sb-0123456789abcdefghijKL".parse()?).await?;
//! let report = sandbox.stat(&SandboxPath::new("/root/report.pdf")?, Follow::Yes).await?;
//! println!("{} bytes", report.size);
//! # Ok(())
//! # }
//! ```

mod backend;
mod config;
mod control;
mod exec;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod fault;
mod retry;
mod router;
mod rpc;
mod sandbox;
mod tools;
mod wire;

pub use backend::ModalBackend;
pub use config::{Config, ConfigError};
