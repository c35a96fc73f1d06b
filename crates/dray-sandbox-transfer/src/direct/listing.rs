//! Lists paths of a sandbox before a command copies them.

use dray_presentation::name;
use dray_proto::v1;
use dray_sandbox::path::MAX_PATH_PARTS;
use dray_sandbox::{ErrorKind, FileKind, Follow, SandboxPath};
use dray_sandbox_tree::{ListedParents, SkipReason, list_tree};
use dray_transfer_engine::policy::TransferDirection;
use dray_types::Fault;

use super::DirectSandbox;
use crate::error::Error;
use crate::wire;

/// Most entries of a directory that are copied.
const MAX_ENTRIES: usize = 100_000;
/// Most characters of a name in a message.
const MAX_SHOWN_CHARACTERS: usize = 4096;

/// The contents of a directory, in the order in which they are copied.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The directory, with its links resolved.
    pub path: Vec<u8>,
    /// Directories beneath it, by their names relative to it; each after its parent.
    pub directories: Vec<Vec<u8>>,
    /// Regular files beneath it, in the order of the listing.
    pub files: Vec<ListedFile>,
    /// Those of `directories` that cannot be read.
    pub unreadable: Vec<Vec<u8>>,
    /// Entries that are left out, a line each: links, special files, and what policy refuses.
    pub skipped: Vec<String>,
}

/// A regular file beneath a directory.
#[derive(Clone, Debug)]
pub struct ListedFile {
    /// Name relative to the directory.
    pub name: Vec<u8>,
    /// Size of the file in bytes.
    pub size: u64,
    /// The 9 low mode bits: permissions without set-id and sticky.
    pub mode: u32,
}

impl DirectSandbox {
    /// Describes a path, with links followed; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// The faults of the service.
    pub async fn stat(&self, path: &[u8]) -> Result<Option<v1::SandboxEntry>, Fault> {
        let path = self.opened.path(path).map_err(Fault::from)?;
        let (engine, policy) = (&self.opened.engine, &self.opened.policy);
        match engine.stat(policy, &path, Follow::Yes).await {
            Ok(found) => Ok(Some(wire::metadata(&found))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::from(error).into()),
        }
    }

    /// Lists the contents of a directory, at most 100,000 entries.
    ///
    /// # Errors
    ///
    /// The faults of the service; `too_large` for more entries.
    pub async fn tree(&self, path: &[u8]) -> Result<Tree, Fault> {
        Ok(self.try_tree(path).await?)
    }

    async fn try_tree(&self, path: &[u8]) -> Result<Tree, Error> {
        let (engine, policy) = (&self.opened.engine, &self.opened.policy);
        let path = self.opened.path(path)?;
        let directory = engine.stat(policy, &path, Follow::Yes).await?.real_path;
        let sandbox = engine.sandbox();
        // A cut listing would copy a part and report success, so it is an error.
        let entries = list_tree(&**sandbox, &directory, MAX_PATH_PARTS, MAX_ENTRIES).await?;
        let parents = ListedParents::new(&entries);
        let mut tree = Tree {
            path: directory.as_bytes().to_vec(),
            ..Tree::default()
        };
        for entry in entries {
            let Some(relative_name) = below(&directory, &entry.path) else {
                continue;
            };
            let reason = match entry.kind {
                _ if policy
                    .check(&entry.path, TransferDirection::Outbound)
                    .is_err() =>
                {
                    SkipReason::Denied
                }
                FileKind::Directory => {
                    if parents.is_unreadable(&**sandbox, &entry.path).await? {
                        tree.unreadable.push(relative_name.clone());
                    }
                    tree.directories.push(relative_name);
                    continue;
                }
                FileKind::File => {
                    tree.files.push(ListedFile {
                        name: relative_name,
                        size: entry.size,
                        mode: entry.mode & 0o777,
                    });
                    continue;
                }
                FileKind::Symlink => SkipReason::Link,
                _ => SkipReason::Special,
            };
            let relative_name = name::shown_text(&relative_name, MAX_SHOWN_CHARACTERS);
            tree.skipped
                .push(format!("{relative_name}: {}", reason.sentence()));
        }
        // The directories are sorted by the number of components, so that a directory comes before its contents.
        tree.directories
            .sort_by_key(|name| (name.split(|byte| *byte == b'/').count(), name.clone()));
        Ok(tree)
    }
}

/// The name of a path beneath a directory, relative to it.
fn below(directory: &SandboxPath, path: &SandboxPath) -> Option<Vec<u8>> {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes())?;
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    (!rest.is_empty()).then(|| rest.to_vec())
}
