//! Files in sandboxes: the interface of a backend and everything that is the same for all of them.
//!
//! - [`backend`], [`exec`]: what a backend implements.
//! - [`error`], [`path`], [`metadata`], [`handle`], [`body`]: the words that all share.
//! - [`policy`], [`transfer`], [`receipt`]: what may move, moving it safely, and the proof.
//! - [`tree`]: directories as one stream, read from hostile tars, written as tars and ZIPs.
//! - [`local`]: directories of this host.
//! - `conformance` (feature of the same name): the suite that every backend passes.
//!
//! What it does not do: it knows no bus, no store and no chat platform.

pub mod backend;
pub mod body;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod error;
pub mod exec;
#[cfg(any(test, feature = "conformance"))]
pub mod fake;
pub mod handle;
pub mod local;
pub mod metadata;
pub mod path;
pub mod policy;
pub mod receipt;
pub mod transfer;
pub mod tree;

pub use backend::{Backend, Follow, Read, ReadDigest, Sandbox, Write};
pub use body::Body;
pub use error::{Again, Error, ErrorKind};
pub use handle::{Address, Handle};
pub use metadata::{
    Entry, FileKind, Fingerprint, Integrity, Listing, Metadata, Probe, State, Transport,
};
pub use path::SandboxPath;
pub use policy::{Places, Policy, PolicyOptions};
pub use receipt::Receipt;
pub use transfer::Engine;
