//! Moving files safely, once for all backends (sandbox-transfer 1, 12, 13).
//!
//! An [`Engine`] belongs to one opened incarnation and is kept as long as that. It asks policy before a byte moves,
//! counts and hashes, retries, chooses another transport, cleans up, and always gives a [`Receipt`]. What
//! it does not do: it keeps nothing on disk beyond a transfer and knows no store, bus or platform.
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
mod prove;
mod put;
mod queue;
mod schedule;
mod send;
#[cfg(test)]
mod tests;
mod tree;
mod witness;

pub use engine::Engine;
pub use file::{FileSink, FileSource};
pub use options::{Collision, EngineOptions, GetOptions, ListOptions, PutOptions};
pub use peer::{BytesSource, Progress, Sink, Source, VecSink};
pub use tree::{GetTreeOptions, GotTree, PutTree, PutTreeOptions, TreeFormat};

use std::fmt;

use dray_types::Sha256Digest;

use crate::error::Error;
use crate::metadata::Metadata;
use crate::path::SandboxPath;
use crate::policy::Finding;
use crate::receipt::Receipt;

/// A file that came out of a sandbox.
#[derive(Clone, Debug)]
pub struct Got {
    /// What it was when it was read.
    pub metadata: Metadata,
    /// Bytes.
    pub size: u64,
    /// Digest of the bytes that the sink got.
    pub sha256: Sha256Digest,
    /// What its content looks like, when policy lets that pass with a warning.
    pub warning: Option<Finding>,
    /// How it went.
    pub receipt: Receipt,
}

/// A file that is in its place in a sandbox.
#[derive(Clone, Debug)]
pub struct Put {
    /// Where, links resolved.
    pub path: SandboxPath,
    /// Bytes.
    pub size: u64,
    /// Digest.
    pub sha256: Sha256Digest,
    /// Whether another name had to be taken.
    pub renamed: bool,
    /// Whether the very same file was there already and nothing was written.
    pub existed: bool,
    /// Temp files that could not be removed; for the operator.
    pub left: Vec<SandboxPath>,
    /// How it went.
    pub receipt: Receipt,
}

/// A transfer that did not happen.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// Whether the caller cancelled; then the kind of `error` means nothing.
    pub cancelled: bool,
    /// Temp files that could not be removed; for the operator.
    pub left: Vec<SandboxPath>,
    /// Whether a later transfer of the same file can go on with what this one moved.
    pub kept: bool,
    /// How far it went.
    pub receipt: Receipt,
}

/// For the operator's log.
impl fmt::Display for Failed {
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

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
