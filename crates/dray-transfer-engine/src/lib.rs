//! The transfer engine: it decides which files of a sandbox may move, moves them in the same safe way for all backends,
//! and proves the copies (sandbox-transfer 1, 12, 13).
//!
//! - [`Engine`]: belongs to one opened incarnation and lives as long as that. It checks policy before a byte moves,
//!   counts and hashes, retries, chooses another transport, cleans up, and always returns a [`Receipt`].
//! - [`policy`]: the roots, the deny list and the scan for secrets.
//! - [`receipt`]: how a transfer went, and the evidence for it.
//!
//! What it does not do: it keeps nothing on disk beyond a transfer and knows no store, bus or platform.
//!
//! ```rust
//! use dray_sandbox::SandboxPath;
//! use dray_transfer_engine::Policy;
//! use dray_transfer_engine::policy::TransferDirection;
//!
//! let policy = Policy::beneath([SandboxPath::new("/work")?]);
//! let report = SandboxPath::new("/work/report.pdf")?;
//! assert!(policy.check(&report, TransferDirection::Outbound).is_ok());
//! // Credentials stay in the sandbox, and so does all that lies outside the roots.
//! assert!(policy.check(&SandboxPath::new("/work/.env")?, TransferDirection::Outbound).is_err());
//! assert!(policy.check(&SandboxPath::new("/srv/report.pdf")?, TransferDirection::Outbound).is_err());
//! # Ok::<(), dray_sandbox::Error>(())
//! ```
//!
//! A file is copied out of a sandbox like this:
//!
//! ```text
//! let engine = Engine::new(backend.open(&handle).await?, EngineOptions::default());
//! let policy = engine.policy(&policy_options, session_directory).await?;
//! let got = engine.get(&path, &GetOptions::new(&policy, max_bytes), &mut sink, &(), &cancel).await?;
//! ```

mod copy;
mod engine;
mod file;
mod get;
mod options;
mod peer;
mod place;
pub mod policy;
mod prove;
mod put;
mod queue;
pub mod receipt;
mod schedule;
mod send;
mod spool;
#[cfg(test)]
mod tests;
mod tree;
mod view;
mod witness;

pub use engine::{Engine, PermittedListing};
pub use file::{FileSink, FileSource};
pub use options::{Collision, EngineOptions, GetOptions, ListOptions, PutOptions};
pub use peer::{BytesSource, Progress, Sink, Source, VecSink};
pub use policy::{Places, Policy, PolicyOptions};
pub use queue::spool_error;
pub use receipt::Receipt;
pub use spool::SpoolUsage;
pub use tree::{GetTreeOptions, GotTree, PutTree, PutTreeOptions, TreeFormat};
pub use view::PinnedPath;

use std::fmt;

use dray_sandbox::error::Error;
use dray_sandbox::metadata::Metadata;
use dray_sandbox::path::SandboxPath;
use dray_types::Sha256Digest;

use policy::Finding;

/// A file that was copied out of a sandbox.
#[derive(Clone, Debug)]
pub struct GetResult {
    /// Metadata of the file when it was read.
    pub metadata: Metadata,
    /// Length of the file in bytes.
    pub size: u64,
    /// Digest of the bytes that the sink received.
    pub sha256: Sha256Digest,
    /// The secret that its content suggests, if policy lets the file pass with a warning.
    pub warning: Option<Finding>,
    /// The receipt of the transfer.
    pub receipt: Receipt,
}

/// A file that was put into a sandbox.
#[derive(Clone, Debug)]
pub struct PutResult {
    /// The path of the file, with its links resolved.
    pub path: SandboxPath,
    /// Length of the file in bytes.
    pub size: u64,
    /// Digest of the file, equal to that of the source.
    pub sha256: Sha256Digest,
    /// Whether the file got another name than the requested one.
    pub renamed: bool,
    /// Whether the same content existed already, so that nothing was written.
    pub existed: bool,
    /// Temporary files that could not be removed; for the operator.
    pub left: Vec<SandboxPath>,
    /// The receipt of the transfer.
    pub receipt: Receipt,
}

/// A transfer that did not succeed.
#[derive(Debug)]
pub struct TransferFailure {
    /// Failure that ended it.
    pub error: Error,
    /// Whether the caller cancelled; then the kind of `error` has no meaning.
    pub cancelled: bool,
    /// Temporary files that could not be removed; for the operator.
    pub left: Vec<SandboxPath>,
    /// Whether a later transfer of the same file can continue with what this one moved.
    pub kept: bool,
    /// The receipt of the transfer until it failed.
    pub receipt: Receipt,
}

/// The form for the operator's log, with the paths that were left behind.
impl fmt::Display for TransferFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cancelled {
            f.write_str("cancelled")?;
        } else {
            write!(f, "{}", self.error)?;
        }
        for path in &self.left {
            write!(f, "; {path} is left behind")?;
        }
        Ok(())
    }
}

impl std::error::Error for TransferFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
