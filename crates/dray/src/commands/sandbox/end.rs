//! The two ends of a copy: this machine, a sandbox that this process opened, or one of a running system.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dray_content::name;
use dray_proto::v1;
use dray_sandbox_transfer::direct::{DirectSandbox, ListedFile, Tree};
use dray_types::{Fault, FaultCode};

use super::{CALL_TIMEOUT, MAX_SHOWN_CHARACTERS, call_service, sandbox_ref};
use crate::outcome::CommandFailure;
use crate::world::SystemConnection;

/// Levels and entries that a running system is asked for.
const MAX_SERVED: (u32, u32) = (64, 10_000);

/// One end.
pub(super) enum CopyEndpoint<'a> {
    Local,
    Direct(Box<DirectSandbox>),
    Served(&'a SystemConnection, &'a str),
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    Nothing,
    Directory,
    /// A regular file of this size and these permission bits.
    File(u64, u32),
    Special,
}

impl CopyEndpoint<'_> {
    /// What a path is, links followed.
    pub(super) async fn stat(&self, path: &[u8]) -> Result<PathKind, CommandFailure> {
        let entry = match self {
            Self::Local => return stat_local(path),
            Self::Direct(sandbox) => sandbox.stat(path).await?,
            Self::Served(world, sandbox) => {
                let request = v1::StatSandboxRequest {
                    sandbox: Some(sandbox_ref(sandbox)),
                    path: path.to_vec(),
                    follow: true,
                };
                match call_service(world, CALL_TIMEOUT, &request).await {
                    Err(CommandFailure::Fault(fault)) if fault.detail == "not_found" => None,
                    entry => Some(entry?),
                }
            }
        };
        Ok(match entry {
            None => PathKind::Nothing,
            Some(entry) => match entry.kind.as_str() {
                "dir" => PathKind::Directory,
                "file" => PathKind::File(entry.size, entry.mode & 0o777),
                _ => PathKind::Special,
            },
        })
    }

    /// What lies beneath a directory.
    pub(super) async fn tree(&self, path: &[u8]) -> Result<Tree, CommandFailure> {
        match self {
            Self::Local => {
                let path = local_path(path);
                let walked = tokio::task::spawn_blocking(move || walk_directory(&path)).await;
                walked.map_err(|error| CommandFailure::local("cannot list files")(error.into()))?
            }
            Self::Direct(sandbox) => Ok(sandbox.tree(path).await?),
            Self::Served(world, sandbox) => served_tree(world, sandbox, path).await,
        }
    }

    /// Makes a directory and what is missing above it. Returns whether this end can do so.
    pub(super) async fn make_directory(&self, path: &[u8]) -> Result<bool, CommandFailure> {
        match self {
            Self::Local => {
                let path = local_path(path);
                let failed = CommandFailure::local(format!("cannot make {}", path.display()));
                std::fs::create_dir_all(&path).map_err(failed)?;
            }
            Self::Direct(sandbox) => sandbox.make_directory(path).await?,
            // A put makes the directories above its file.
            Self::Served(..) => return Ok(false),
        }
        Ok(true)
    }
}

/// A path of this machine.
pub(super) fn local_path(path: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()))
}

fn stat_local(path: &[u8]) -> Result<PathKind, CommandFailure> {
    let path = local_path(path);
    match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(PathKind::Directory),
        Ok(found) if found.is_file() => Ok(PathKind::File(
            found.size(),
            found.permissions().mode() & 0o777,
        )),
        Ok(_) => Ok(PathKind::Special),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(PathKind::Nothing),
        Err(error) => Err(CommandFailure::local(format!(
            "cannot read {}",
            path.display()
        ))(error)),
    }
}

/// What lies beneath a directory of this machine. Links are named and not followed.
fn walk_directory(directory: &Path) -> Result<Tree, CommandFailure> {
    let mut tree = Tree {
        path: directory.as_os_str().as_bytes().to_vec(),
        ..Tree::default()
    };
    let mut pending = vec![PathBuf::new()];
    while let Some(relative) = pending.pop() {
        let here = directory.join(&relative);
        let failed = || CommandFailure::local(format!("cannot read {}", here.display()));
        let entries = std::fs::read_dir(&here).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = entries.map_err(failed())?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let called = relative.join(entry.file_name());
            let name = called.as_os_str().as_bytes().to_vec();
            let metadata = entry.metadata().map_err(failed())?;
            if metadata.is_dir() {
                tree.directories.push(name);
                pending.push(called);
            } else if metadata.is_file() {
                tree.files.push(ListedFile {
                    name,
                    size: metadata.size(),
                    mode: metadata.permissions().mode() & 0o777,
                });
            } else {
                let why = if metadata.is_symlink() {
                    "a link"
                } else {
                    "not a regular file"
                };
                tree.skipped.push(format!(
                    "{}: {why}",
                    name::shown_text(&name, MAX_SHOWN_CHARACTERS)
                ));
            }
        }
    }
    Ok(tree)
}

async fn served_tree(
    world: &SystemConnection,
    sandbox: &str,
    path: &[u8],
) -> Result<Tree, CommandFailure> {
    let (depth, limit) = MAX_SERVED;
    let request = v1::ListSandboxRequest {
        sandbox: Some(sandbox_ref(sandbox)),
        path: path.to_vec(),
        depth,
        limit,
    };
    let listing = call_service(world, CALL_TIMEOUT, &request).await?;
    if listing.truncated {
        let text = "The directory has more entries than a running system lists.";
        let advice = "Copy its parts one by one, or leave out --nats.";
        let fault = Fault::new(FaultCode::TooLarge, text).detail("too_large");
        return Err(fault.advice(advice).into());
    }
    let mut tree = Tree::default();
    let stat = v1::StatSandboxRequest {
        sandbox: Some(sandbox_ref(sandbox)),
        path: path.to_vec(),
        follow: true,
    };
    tree.path = call_service(world, CALL_TIMEOUT, &stat).await?.real_path;
    for entry in listing.entries {
        let Some(called) = entry.path.strip_prefix(tree.path.as_slice()) else {
            continue;
        };
        let called = called.strip_prefix(b"/").unwrap_or(called).to_vec();
        match entry.kind.as_str() {
            "dir" => tree.directories.push(called),
            "file" => tree.files.push(ListedFile {
                name: called,
                size: entry.size,
                mode: entry.mode & 0o777,
            }),
            kind => tree.skipped.push(format!(
                "{}: {kind}",
                name::shown_text(&called, MAX_SHOWN_CHARACTERS)
            )),
        }
    }
    Ok(tree)
}

/// Several things need a directory to go into; one that is missing must be asked for with a slash.
pub(super) async fn check_directory(
    target: &CopyEndpoint<'_>,
    path: &[u8],
) -> Result<(), CommandFailure> {
    match target.stat(path).await? {
        PathKind::Directory => Ok(()),
        PathKind::Nothing if path.ends_with(b"/") => Ok(()),
        _ => Err(CommandFailure::Usage(format!(
            "{} is not a directory; several things need one, and `/` at its end makes it",
            super::path_text(path)
        ))),
    }
}
