//! What a command has to know of paths in a sandbox before it copies them.

use dray_content::name;
use dray_proto::v1;
use dray_sandbox::policy::Way;
use dray_sandbox::tree::Why;
use dray_sandbox::{Error as SandboxError, ErrorKind, FileKind, Follow, SandboxPath};
use dray_types::Fault;

use super::DirectSandbox;
use crate::error::Error;
use crate::wire;

/// Levels of a directory that are copied.
const MAX_DEPTH: u32 = 64;
/// Entries of a directory that are copied.
const MAX_ENTRIES: usize = 100_000;
/// Characters of a name in a message.
const MAX_SHOWN: usize = 4096;

/// What lies beneath a directory.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The directory, links resolved.
    pub path: Vec<u8>,
    /// Directories beneath it, by their names relative to it; each after the one that holds it.
    pub directories: Vec<Vec<u8>>,
    /// Regular files.
    pub files: Vec<ListedFile>,
    /// What is left out, a line each: links, special files, what policy refuses.
    pub skipped: Vec<String>,
}

/// A regular file beneath a directory.
#[derive(Clone, Debug)]
pub struct ListedFile {
    /// Its name relative to the directory.
    pub name: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// The 9 low mode bits.
    pub mode: u32,
}

impl DirectSandbox {
    /// What a path is, links followed; `None` when there is nothing.
    ///
    /// # Errors
    ///
    /// As the service answers.
    pub async fn stat(&self, path: &[u8]) -> Result<Option<v1::SandboxEntry>, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let (engine, policy) = (&self.opened.engine, &self.opened.policy);
        match engine.stat(policy, &path, Follow::Yes).await {
            Ok(found) => Ok(Some(wire::metadata(&found))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::from(error).into()),
        }
    }

    /// Makes a directory and what is missing above it. Fine when it exists.
    ///
    /// # Errors
    ///
    /// As the service answers.
    pub async fn make_directory(&self, path: &[u8]) -> Result<(), Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let made = self
            .opened
            .engine
            .make_directory(&self.opened.policy, &path);
        made.await.map_err(Error::from)?;
        Ok(())
    }

    /// What lies beneath a directory, at most 100,000 entries and 64 levels.
    ///
    /// # Errors
    ///
    /// As the service answers; `too_large` for more entries.
    pub async fn tree(&self, path: &[u8]) -> Result<Tree, Fault> {
        Ok(self.try_tree(path).await?)
    }

    async fn try_tree(&self, path: &[u8]) -> Result<Tree, Error> {
        let (engine, policy) = (&self.opened.engine, &self.opened.policy);
        let path = self.opened.path(path)?;
        let directory = engine.stat(policy, &path, Follow::Yes).await?.real_path;
        let listing = engine.sandbox().list(&directory, MAX_DEPTH, MAX_ENTRIES);
        let listing = listing.await?;
        if listing.truncated {
            let most = MAX_ENTRIES as u64;
            return Err(SandboxError::too_large(most + 1, most).into());
        }
        let mut tree = Tree {
            path: directory.as_bytes().to_vec(),
            ..Tree::default()
        };
        for entry in listing.entries {
            let Some(called) = below(&directory, &entry.path) else {
                continue;
            };
            let why = match entry.kind {
                _ if policy.check(&entry.path, Way::Out).is_err() => Why::Denied,
                FileKind::Directory => {
                    tree.directories.push(called);
                    continue;
                }
                FileKind::File => {
                    tree.files.push(ListedFile {
                        name: called,
                        size: entry.size,
                        mode: entry.mode & 0o777,
                    });
                    continue;
                }
                FileKind::Symlink => Why::Link,
                _ => Why::Special,
            };
            let called = name::shown_text(&called, MAX_SHOWN);
            tree.skipped.push(format!("{called}: {}", why.sentence()));
        }
        // The parts of a path, so that a directory comes before what it holds in any sort order.
        tree.directories.sort_by_key(|name| {
            (
                name.iter().filter(|byte| **byte == b'/').count(),
                name.clone(),
            )
        });
        Ok(tree)
    }
}

/// The name of what lies beneath a directory, relative to it.
fn below(directory: &SandboxPath, path: &SandboxPath) -> Option<Vec<u8>> {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes())?;
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    (!rest.is_empty()).then(|| rest.to_vec())
}
