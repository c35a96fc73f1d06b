//! Sandboxes behind SSH (sandbox-transfer 5): the system's OpenSSH with shared connections, SFTP over them, and
//! commands where SFTP is not offered.
//!
//! - [`SshBackend`] finds hosts and opens them; [`Config`] says how.
//! - An incarnation is the key that the host proved to have and the session directory, so a rebuilt host is another.
//!
//! What it does not do: it holds no password and answers no prompt.

mod aftermath;
mod backend;
mod client;
mod config;
mod fault;
mod identity;
mod link;
mod master;
mod sandbox;
mod session;
mod sftp;
mod shell;
mod target;

pub use backend::SshBackend;
pub use config::{Config, ConfigError, HostKeys};
