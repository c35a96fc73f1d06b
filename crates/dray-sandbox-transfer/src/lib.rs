//! The sandbox-transfer service: files in and out of sandboxes, with proof, and the only holder of what opens them.
//!
//! - [`service`]: calls and work.
//! - [`sessions`], [`uploads`]: which sandbox and chat belong together, and what users sent.
//! - [`backends`], [`store`], [`wire`]: open incarnations, the artifact store, the contracts.
//! - [`direct`]: the same for one command, without bus and store.
//! - [`config`], [`error`].
//!
//! What it does not do: it reaches neither the web nor a chat platform; how files move is the work of
//! [`dray_sandbox`].

pub mod backends;
pub mod config;
pub mod direct;
pub mod error;
pub mod service;
pub mod sessions;
pub mod store;
mod turns;
pub mod uploads;
pub mod wire;

#[cfg(test)]
mod tests;

/// Files of this host as the ends of a [`direct`] transfer.
pub mod files {
    pub use dray_sandbox::transfer::{FileSink, FileSource, Progress};
}

pub use config::Config;
pub use service::SandboxTransfer;
