//! Files in Docker containers (sandbox-transfer 4).
//!
//! The archive calls of the engine transfer bytes. They work on any container in any state and need no program in it.
//! Commands in the container, run as its user, do what these calls cannot do (digests, renames, removing), and read
//! what they cannot see (memory file systems, `/proc`, `/dev`).
//!
//! - [`DockerBackend`] finds containers and opens them; [`Config`] names the engine.
//! - An incarnation is the full id of the container.
//!
//! What it does not do: it does not decide what may be read or written, it creates no containers, and it never
//! touches the host's side of a mount.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use dray_sandbox::{Backend as _, Follow, SandboxPath};
//! use dray_sandbox_docker::{Config, DockerBackend};
//! use dray_types::Clock;
//!
//! let backend = DockerBackend::new(&Config::default(), Clock::system())?;
//! let sandbox = backend.open_address(&"docker:my-container".parse()?).await?;
//! let report = sandbox.stat(&SandboxPath::new("/work/report.pdf")?, Follow::Yes).await?;
//! println!("{} bytes", report.size);
//! # Ok(())
//! # }
//! ```

mod archive;
mod backend;
mod client;
mod config;
mod dial;
mod exec;
mod fault;
mod hung;
mod list;
mod mounts;
mod read;
mod resolve;
mod sandbox;
mod user;
mod wire;
mod write;

pub use backend::DockerBackend;
pub use config::{Config, ConfigError};
