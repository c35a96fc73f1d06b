//! Directories as one stream (sandbox-transfer 13).
//!
//! - [`Reader`]: members of an untrusted tar that a sandbox made.
//! - [`Walk`]: the same from a directory that is listed and read file by file.
//! - [`tar`], [`zip()`]: the members of either, as a plain tar for a sandbox or a ZIP for a person.
//!
//! ```no_run
//! # use dray_sandbox::Body;
//! # use dray_sandbox_tree as tree;
//! # fn deliver(tar: Body) -> Body {
//! let reader = tree::Reader::new(tar, tree::Limits::default());
//! let skipped = reader.report();
//! tree::zip(reader)
//! # }
//! ```
//!
//! All of it streams: memory does not depend on the size of the files. What it does not do: it opens no file on this
//! host, and it never unpacks what it finds in a file.

mod entries;
mod input;
mod listing;
mod names;
mod parents;
mod reader;
mod report;
#[cfg(test)]
mod tests;
mod walk;
mod writer;
mod zip;

use async_trait::async_trait;
use bytes::Bytes;

pub use entries::TarEntries;
pub use listing::list_tree;
pub use parents::ListedParents;
pub use reader::Reader;
pub use report::{Report, SkipReason, SkippedMember};
pub use walk::{Walk, WalkTransport};
pub use writer::{Owner, tar};
pub use zip::zip;

use dray_sandbox::error::Error;

/// Limits for a directory. The limits of entries, of bytes of names and of total bytes apply to the whole directory:
/// reading fails beyond them. Files that are too large and members that lie too deep are skipped and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of files, directories and skipped members.
    pub entries: usize,
    /// Bytes of all files together.
    pub total: u64,
    /// Bytes of one file; a larger one is skipped.
    pub file: u64,
    /// Levels; a file in the directory itself is at level 1.
    pub depth: usize,
    /// Bytes of all names, which a ZIP has to keep until its end.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 2000,
            total: 512 << 20,
            file: 100 << 20,
            depth: 32,
            names: 512 << 10,
        }
    }
}

/// Kind of a member. Other kinds are never passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, with its content.
    File,
    /// A directory, without content.
    Directory,
}

/// One file or directory of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Parts joined by `/`, relative to the directory: no empty part, no `.` or `..`, no NUL, each at most 255
    /// bytes; any encoding. No two members have names that are equal after case folding and composition.
    pub name: Vec<u8>,
    /// Kind of the member, which decides whether content follows.
    pub kind: Kind,
    /// Number of bytes that follow; 0 for a directory.
    pub size: u64,
    /// Permission bits, at most 0o777.
    pub mode: u32,
    /// Time of the last write in seconds since the epoch.
    pub mtime: Option<u64>,
}

/// Decides by its name (as in the tree, before any suffix) whether a member may be taken.
pub type Filter = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Members of a tree, one after the other.
#[async_trait]
pub trait Members: Send {
    /// The next member; the rest of the last one is skipped. `None` at a proper end.
    ///
    /// # Errors
    ///
    /// Failures of the source, and [`dray_sandbox::ErrorKind::TooLarge`] for a limit of the tree. After an error there
    /// is nothing more.
    async fn next(&mut self) -> Result<Option<Member>, Error>;

    /// Bytes of the current member; `None` after exactly [`Member::size`] of them.
    ///
    /// # Errors
    ///
    /// Failures of the source; [`dray_sandbox::ErrorKind::Truncated`] for a short end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error>;

    /// The report of skipped members; shared, so that it can be read when the members are used up.
    fn report(&self) -> Report;
}

#[async_trait]
impl Members for Box<dyn Members> {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        (**self).next().await
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        (**self).next_chunk().await
    }

    fn report(&self) -> Report {
        (**self).report()
    }
}
