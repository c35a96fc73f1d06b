//! Directories as one stream (sandbox-transfer 13).
//!
//! - [`Reader`]: members of a tar that a sandbox made, to be believed in nothing.
//! - [`Walk`]: the same from a directory that is listed and read file by file.
//! - [`tar`], [`zip()`]: what came out of either, as a plain tar for a sandbox or a ZIP for a person.
//!
//! ```no_run
//! # use dray_sandbox::{Body, Error, tree};
//! # fn deliver(tar: Body) -> Body {
//! let reader = tree::Reader::new(tar, tree::Limits::default());
//! let skipped = reader.report();
//! tree::zip(reader)
//! # }
//! ```
//!
//! All of it streams: memory does not depend on the size of the files. What it does not do: it opens no file on this
//! host, and it never unpacks what it finds in a file.

mod header;
mod input;
mod names;
mod pax;
mod reader;
mod report;
#[cfg(test)]
mod tests;
mod walk;
mod writer;
mod zip;

use async_trait::async_trait;
use bytes::Bytes;

pub use reader::Reader;
pub use report::{Report, Skipped, Why};
pub use walk::Walk;
pub use writer::{Owner, tar};
pub use zip::zip;

use crate::error::Error;

/// How much of a directory is taken. Entries, bytes of names and bytes in all are the limits of the whole:
/// beyond them it fails. Files that are too large and what lies too deep are skipped and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files, directories and what is skipped.
    pub entries: usize,
    /// Bytes of all files.
    pub total: u64,
    /// Bytes of one file.
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

/// What a member is. There is nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
}

/// One file or directory of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Parts joined by `/`, relative to the directory: no empty part, no `.` or `..`, no NUL, each at most 255
    /// bytes; any encoding. No two members have names that are equal after case folding and composition.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes that follow; 0 for a directory.
    pub size: u64,
    /// Permission bits, at most 0o777.
    pub mode: u32,
    /// Seconds since the epoch.
    pub mtime: Option<u64>,
}

/// Decides by its name (as in the tree, before any suffix) whether a member may be taken.
pub type Filter = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Members of a tree, one after the other.
#[async_trait]
pub trait Members: Send {
    /// The next member; what is left of the last one is passed over. `None` at a proper end.
    ///
    /// # Errors
    ///
    /// What the source fails with, and [`crate::ErrorKind::TooLarge`] for a limit of the whole. After an error there
    /// is nothing more.
    async fn next(&mut self) -> Result<Option<Member>, Error>;

    /// Bytes of the current member; `None` after exactly [`Member::size`] of them.
    ///
    /// # Errors
    ///
    /// What the source fails with; [`crate::ErrorKind::Truncated`] for a short end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Error>;

    /// What is skipped; shared, so that it can be asked when the members are gone.
    fn report(&self) -> Report;
}

#[async_trait]
impl Members for Box<dyn Members> {
    async fn next(&mut self) -> Result<Option<Member>, Error> {
        (**self).next().await
    }

    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        (**self).piece().await
    }

    fn report(&self) -> Report {
        (**self).report()
    }
}
