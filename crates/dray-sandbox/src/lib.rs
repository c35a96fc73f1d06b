//! The interface of a sandbox backend: what each backend implements, and the types that all of them share.
//!
//! - [`backend`]: [`Backend`] resolves an address and opens one incarnation; [`Sandbox`] reads and writes its files and
//!   runs programs.
//! - [`path_walk`]: resolving the links of a path part by part, for backends whose wire does not do it.
//! - [`error`], [`path`], [`metadata`], [`handle`], [`body`], [`command`]: the types in the signatures of both.
//!
//! The crates above it: `dray-sandbox-exec` moves files by commands, `dray-sandbox-local` opens directories of this
//! host, and `dray-sandbox-tree` reads and writes directories as one stream. `dray-transfer-engine` decides what may
//! move and moves it with proof, and `dray-sandbox-conformance` is the suite that every backend passes.
//!
//! What it does not do: it opens no file and starts no process; it knows no bus, no store and no chat platform.
//!
//! ```rust
//! use dray_sandbox::{Address, ErrorKind, SandboxPath};
//!
//! let address: Address = "docker:box".parse()?;
//! assert_eq!((address.backend.as_str(), address.name.as_str()), ("docker", "box"));
//! // Paths are absolute and normal, so that a policy can compare them part by part.
//! let report = SandboxPath::new("/work/report.pdf")?;
//! assert!(report.is_beneath(&SandboxPath::new("/work")?));
//! assert_eq!(SandboxPath::new("report.pdf").unwrap_err().kind(), ErrorKind::InvalidName);
//! # Ok::<(), dray_sandbox::Error>(())
//! ```

pub mod backend;
pub mod body;
pub mod command;
pub mod error;
pub mod handle;
pub mod metadata;
pub mod path;
pub mod path_walk;

pub use backend::{Backend, BackendCheck, Follow, Read, ReadDigest, Sandbox, Write};
pub use body::Body;
pub use command::{CommandEnd, CommandInput, CommandRequest, SandboxCommand};
pub use error::{Error, ErrorKind, RetryMode};
pub use handle::{Address, Handle};
pub use metadata::{
    Entry, FileKind, FileState, Fingerprint, Integrity, Listing, Metadata, Probe, Transport,
};
pub use path::SandboxPath;
pub use path_walk::PathWalk;
