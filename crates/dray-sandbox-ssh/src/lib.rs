//! Sandboxes behind SSH (sandbox-transfer 5): the system's OpenSSH with shared connections, SFTP over them, and
//! commands where SFTP is not offered.
//!
//! - [`SshBackend`] finds hosts and opens them; [`Config`] has the settings.
//! - [`ScpTarget`] has the arguments of `scp` for the same host, for comparisons.
//! - An incarnation is the key that the host proved to have and the session directory, so a rebuilt host is another.
//!
//! What it does not do: it holds no password and answers no prompt.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dray_sandbox::{Backend as _, Follow, SandboxPath};
//! use dray_sandbox_ssh::{Config, SshBackend};
//!
//! let backend = SshBackend::new(Config::default())?;
//! let handle = backend.resolve(&"ssh:me@build.example/srv/session".parse()?).await?;
//! let sandbox = backend.open(&handle).await?;
//! let report = sandbox.stat(&SandboxPath::new("/srv/session/report.pdf")?, Follow::Yes).await?;
//! println!("{} bytes", report.size);
//! # Ok(())
//! # }
//! ```

mod backend;
mod background_work;
mod client;
mod config;
mod fault;
mod identity;
mod link;
mod master;
mod mux;
mod name_cache;
mod sandbox;
mod scp;
mod session;
mod sftp;
mod shell;
mod target;

pub use backend::SshBackend;
pub use config::{Config, ConfigError, HostKeys};
pub use scp::ScpTarget;
