//! Files in sandboxes of Modal.
//!
//! Everything is a command there: the provider's own file tool is one, and what it cannot say (which inode, where a
//! link leads, digests, renames) is asked of a shell. Commands go to the router of the worker that runs the sandbox;
//! both of their streams are read and written by offset, so that a connection that breaks costs nothing
//! (sandbox-transfer R-10).
//!
//! Source: sandbox-transfer 7. What it does not do: it makes no sandboxes and ends none, and it decides nothing about
//! what may be read or written.

mod backend;
mod config;
mod control;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod exec;
mod fault;
mod retry;
mod router;
mod rpc;
mod sandbox;
mod tools;
mod wire;

pub use backend::ModalBackend;
pub use config::{Config, ConfigError};
