//! Files in Docker containers.
//!
//! Bytes travel through the archive calls of the engine, which work on any container in any state and need nothing in
//! it. What they cannot do (digests, renames, removing) and what they cannot see (memory file systems,
//! `/proc`, `/dev`) is done by commands in the container, as its user.
//!
//! Source: sandbox-transfer 4. What it does not do: it decides nothing about what may be read or written, it makes no
//! containers, and it never touches the host's side of a mount.

mod archive;
mod backend;
mod client;
mod config;
mod dial;
mod exec;
mod fault;
mod list;
mod mounts;
mod read;
mod resolve;
mod sandbox;
mod tar;
mod user;
mod wire;
mod write;

pub use backend::DockerBackend;
pub use config::{Config, ConfigError};
