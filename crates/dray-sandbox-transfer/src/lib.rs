//! The sandbox-transfer service: files into and out of sandboxes, with proof. No other service has credentials of
//! sandboxes.
//!
//! - [`service`]: the calls that it answers and the work that it consumes.
//! - [`sessions`], [`uploads`]: the sandbox and the chat of each session, and the files that users sent to it.
//! - [`backends`], [`store`], [`wire`]: open incarnations, the artifact store, the contracts.
//! - [`commands`]: who may run programs in which sandboxes.
//! - [`direct`]: the same transfers for one command, without bus and store.
//! - [`egress_proxy`]: the forward proxy in the environment of programs.
//! - [`config`], `reload`, [`error`], [`command_error`]: the settings, and the faults for callers.
//!
//! What it does not do: it reaches neither the web nor a chat platform, and it does not move bytes itself:
//! [`dray_transfer_engine`] does.
//!
//! The whole process:
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     dray_service::main::<dray_sandbox_transfer::SandboxTransfer>()
//! }
//! ```

pub mod backends;
pub mod command_error;
pub mod commands;
pub mod config;
pub mod direct;
mod directories;
pub mod egress_proxy;
pub mod error;
mod keyed_locks;
mod reload;
pub mod service;
pub mod sessions;
mod settings;
pub mod store;
pub mod uploads;
pub mod wire;

#[cfg(test)]
mod tests;

/// Files of this host as the ends of a [`direct`] transfer.
pub mod files {
    pub use dray_transfer_engine::{FileSink, FileSource, Progress};
}

pub use config::Config;
pub use dray_sandbox_ssh::ScpTarget;
pub use service::SandboxTransfer;
