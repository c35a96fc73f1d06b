//! The two ends of a copy: this machine, a sandbox that this process opened, or a sandbox of a running system.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_presentation::name;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, SandboxEntryKind};
use dray_sandbox_transfer::direct::{
    DirectSandbox, ListedFile, MAX_PATH_PARTS, Tree, directory_batches,
};
use dray_types::{Fault, FaultCode};

use super::plan::{is_about_one_file, join_path};
use super::{CALL_TIMEOUT, MAX_SHOWN_CHARACTERS, call_service, sandbox_ref};
use crate::context::SystemConnection;
use crate::outcome::CommandFailure;

/// Most entries of one listing that the command requests from a running system.
const MAX_SERVED_ENTRIES: u32 = 10_000;
/// Most entries of a complete directory, as without a running system.
const MAX_TREE_ENTRIES: usize = 100_000;

/// Most directories in one request to make them; the service takes 10,000.
const MAX_BATCH_DIRECTORIES: usize = 1000;
/// Most bytes of paths in one request to make directories; a message may have 1 MiB.
const MAX_BATCH_BYTES: usize = 512 * 1024;
/// Timeout of such a request: some backends make each directory by a call of their provider.
const DIRECTORIES_TIMEOUT: Duration = Duration::from_mins(10);

/// One end of a copy. All of its paths are bytes.
pub(super) enum CopyEndpoint<'a> {
    Local,
    Direct(Box<DirectSandbox>),
    Served(&'a SystemConnection, &'a str),
}

/// Kind of a path before the copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    Nothing,
    Directory,
    /// A regular file of this size and these permission bits.
    File(u64, u32),
    Special,
}

impl CopyEndpoint<'_> {
    /// The kind of a path, following links.
    pub(super) async fn stat(&self, path: &[u8]) -> Result<PathKind, CommandFailure> {
        let entry = match self {
            Self::Local => return stat_local(path),
            Self::Direct(sandbox) => sandbox.stat(path).await?,
            Self::Served(system, sandbox) => {
                let request = v1::StatSandboxRequest {
                    sandbox: Some(sandbox_ref(sandbox)),
                    path: path.to_vec(),
                    follow: true,
                    ..v1::StatSandboxRequest::default()
                };
                match call_service(system, CALL_TIMEOUT, &request).await {
                    // Here a missing path is a result, not a failure.
                    Err(CommandFailure::Fault(fault)) if fault.detail == "not_found" => None,
                    entry => Some(entry?),
                }
            }
        };
        Ok(match entry {
            None => PathKind::Nothing,
            Some(entry) => match entry.entry_kind() {
                SandboxEntryKind::Directory => PathKind::Directory,
                SandboxEntryKind::File => PathKind::File(entry.size, entry.mode & 0o777),
                _ => PathKind::Special,
            },
        })
    }

    /// All entries below a directory, with their paths relative to it.
    pub(super) async fn tree(&self, path: &[u8]) -> Result<Tree, CommandFailure> {
        match self {
            Self::Local => {
                let path = local_path(path);
                // Directories on slow disks must not block the other transfers.
                let walked = tokio::task::spawn_blocking(move || walk_directory(&path)).await;
                walked.map_err(|error| CommandFailure::local("cannot list files")(error.into()))?
            }
            Self::Direct(sandbox) => Ok(sandbox.tree(path).await?),
            Self::Served(system, sandbox) => served_tree(system, sandbox, path).await,
        }
    }

    /// Makes directories and their missing parents; those of a tree come after its root.
    pub(super) async fn make_directories(&self, paths: &[Vec<u8>]) -> Result<(), CommandFailure> {
        match self {
            Self::Local => {
                for path in paths.iter().map(|path| local_path(path)) {
                    let failed = CommandFailure::local(format!("cannot make {}", path.display()));
                    std::fs::create_dir_all(&path).map_err(failed)?;
                }
            }
            Self::Direct(sandbox) => sandbox.make_directories(paths).await?,
            Self::Served(system, sandbox) => {
                let call = async |request: v1::MakeSandboxDirectoryRequest| {
                    call_service(system, DIRECTORIES_TIMEOUT, &request).await
                };
                make_served_directories(sandbox, paths, call).await?;
            }
        }
        Ok(())
    }
}

/// Creates directories by `call`, which sends a request to the service. A request names many directories, or only one
/// if the service is older.
async fn make_served_directories(
    sandbox: &str,
    paths: &[Vec<u8>],
    call: impl AsyncFn(v1::MakeSandboxDirectoryRequest) -> Result<v1::SandboxEntry, CommandFailure>,
) -> Result<(), CommandFailure> {
    let request = |path, further_paths| v1::MakeSandboxDirectoryRequest {
        sandbox: Some(sandbox_ref(sandbox)),
        path,
        further_paths,
    };
    let mut is_older_service = false;
    for batch in directory_batches(paths, MAX_BATCH_DIRECTORIES, MAX_BATCH_BYTES) {
        let mut batch = batch.into_iter();
        let first = batch.next().unwrap_or_default();
        let further: Vec<Vec<u8>> = batch.collect();
        let sent = if is_older_service {
            Vec::new()
        } else {
            further.clone()
        };
        let made = call(request(first, sent)).await?;
        is_older_service |= !further.is_empty() && made.made_directories == 0;
        if is_older_service {
            for path in further {
                call(request(path, Vec::new())).await?;
            }
        }
    }
    Ok(())
}

/// A path of this machine; any bytes are valid.
pub(super) fn local_path(path: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(path.to_vec()))
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

/// All entries below a directory of this machine. Links are listed and not followed, so cycles cannot occur.
fn walk_directory(directory: &Path) -> Result<Tree, CommandFailure> {
    let mut tree = Tree {
        path: directory.as_os_str().as_bytes().to_vec(),
        ..Tree::default()
    };
    let mut pending = vec![PathBuf::new()];
    while let Some(relative) = pending.pop() {
        let target_directory = directory.join(&relative);
        let failed =
            || CommandFailure::local(format!("cannot read {}", target_directory.display()));
        let entries = match described_entries(&target_directory) {
            // The rest of the tree can be copied.
            Err(error)
                if error.kind() == std::io::ErrorKind::PermissionDenied
                    && !relative.as_os_str().is_empty() =>
            {
                let name = relative.as_os_str().as_bytes();
                tree.unreadable.push(name.to_vec());
                continue;
            }
            entries => entries.map_err(failed())?,
        };
        for (entry_name, metadata) in entries {
            let called = relative.join(entry_name);
            let name = called.as_os_str().as_bytes().to_vec();
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
                let reason = if metadata.is_symlink() {
                    "a link"
                } else {
                    "not a regular file"
                };
                tree.skipped.push(format!(
                    "{}: {reason}",
                    name::shown_text(&name, MAX_SHOWN_CHARACTERS)
                ));
            }
        }
    }
    Ok(tree)
}

/// The names in a directory, in an order that is equal on every file system, with the metadata of the entries. Links
/// are not followed. A directory that may be read and not searched fails like one that may not be read.
fn described_entries(directory: &Path) -> std::io::Result<Vec<(OsString, std::fs::Metadata)>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => entries.push((entry.file_name(), metadata)),
            // It was removed since the directory was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(entries)
}

async fn served_tree(
    system: &SystemConnection,
    sandbox: &str,
    path: &[u8],
) -> Result<Tree, CommandFailure> {
    let stat = v1::StatSandboxRequest {
        sandbox: Some(sandbox_ref(sandbox)),
        path: path.to_vec(),
        follow: true,
        ..v1::StatSandboxRequest::default()
    };
    // Listings have resolved paths; the path that was typed may be a link.
    let root = call_service(system, CALL_TIMEOUT, &stat).await?.real_path;
    let mut tree = Tree {
        path: root.clone(),
        ..Tree::default()
    };
    let mut pending = vec![(root, MAX_PATH_PARTS)];
    while let Some((directory, depth)) = pending.pop() {
        let request = v1::ListSandboxRequest {
            sandbox: Some(sandbox_ref(sandbox)),
            path: directory.clone(),
            depth,
            limit: MAX_SERVED_ENTRIES,
            offset: 0,
        };
        let listing = call_service(system, CALL_TIMEOUT, &request).await?;
        if listing.truncated && depth > 1 {
            // A reply fits one message, so larger trees are listed level by level.
            pending.push((directory, 1));
            continue;
        }
        // A partial directory must not look complete.
        if listing.truncated || tree.directories.len() + tree.files.len() > MAX_TREE_ENTRIES {
            return Err(too_many_entries().into());
        }
        if listing.denied > 0 {
            let directory = name::shown_text(&directory, MAX_SHOWN_CHARACTERS);
            let denied = listing.denied;
            tree.skipped.push(format!(
                "{directory}: {denied} entries that the policy of transfers refuses"
            ));
        }
        for entry in listing.entries {
            if depth == 1 && entry.entry_kind() == SandboxEntryKind::Directory {
                pending.push((entry.path.clone(), MAX_PATH_PARTS));
            }
            add_served_entry(&mut tree, &entry);
        }
    }
    tree.unreadable = unreadable_directories(system, sandbox, &tree).await?;
    Ok(tree)
}

/// The directories of a tree that cannot be read. A listing shows them like empty ones, so those without entries are
/// listed once more, each alone.
async fn unreadable_directories(
    system: &SystemConnection,
    sandbox: &str,
    tree: &Tree,
) -> Result<Vec<Vec<u8>>, CommandFailure> {
    let files = tree.files.iter().map(|file| &file.name);
    let names = tree.directories.iter().chain(files);
    let parents: HashSet<&[u8]> = names
        .filter_map(|name| {
            let slash = name.iter().rposition(|byte| *byte == b'/')?;
            name.get(..slash)
        })
        .collect();
    let mut unreadable = Vec::new();
    for name in &tree.directories {
        if parents.contains(name.as_slice()) {
            continue;
        }
        let request = v1::ListSandboxRequest {
            sandbox: Some(sandbox_ref(sandbox)),
            path: join_path(&tree.path, name),
            depth: 1,
            limit: 1,
            offset: 0,
        };
        match call_service(system, CALL_TIMEOUT, &request).await {
            Ok(_) => {}
            Err(failure) if is_about_one_file(&failure) || needs_commands(&failure) => {
                unreadable.push(name.clone());
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(unreadable)
}

/// Whether a listed directory needs a command to be read: a mount of a container that runs no commands.
fn needs_commands(failure: &CommandFailure) -> bool {
    const FAULT_DETAILS: [&str; 3] = ["tool_missing", "sandbox_stopped", "sandbox_paused"];
    matches!(failure, CommandFailure::Fault(fault) if FAULT_DETAILS.contains(&fault.detail.as_str()))
}

fn too_many_entries() -> Fault {
    let text = "The directory has more entries than a running system lists.";
    let advice = "Copy its parts one by one, or leave out --nats.";
    Fault::new(FaultCode::TooLarge, text)
        .detail("too_large")
        .advice(advice)
}

fn add_served_entry(tree: &mut Tree, entry: &v1::SandboxEntry) {
    let Some(called) = entry.path.strip_prefix(tree.path.as_slice()) else {
        return;
    };
    let called = called.strip_prefix(b"/").unwrap_or(called).to_vec();
    match entry.entry_kind() {
        SandboxEntryKind::Directory => tree.directories.push(called),
        SandboxEntryKind::File => tree.files.push(ListedFile {
            name: called,
            size: entry.size,
            mode: entry.mode & 0o777,
        }),
        kind => tree.skipped.push(format!(
            "{}: {}",
            name::shown_text(&called, MAX_SHOWN_CHARACTERS),
            kind.name()
        )),
    }
}

/// Checks that several sources have a directory to go to. One that does not exist is requested with a slash at its
/// end.
pub(super) async fn check_directory(
    target: &CopyEndpoint<'_>,
    path: &[u8],
) -> Result<(), CommandFailure> {
    match target.stat(path).await? {
        PathKind::Directory => Ok(()),
        PathKind::Nothing if path.ends_with(b"/") => Ok(()),
        _ => Err(CommandFailure::Usage(format!(
            "{} is not a directory; several sources need one, and a `/` at its end creates it",
            super::path_text(path)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The requests for these directories, each as its paths, of a service that reads further paths or does not.
    async fn requests(paths: &[Vec<u8>], reads_further_paths: bool) -> Vec<Vec<Vec<u8>>> {
        let requests = RefCell::new(Vec::new());
        let call = async |request: v1::MakeSandboxDirectoryRequest| {
            let further = request.further_paths;
            let made = if reads_further_paths && !further.is_empty() {
                u32::try_from(1 + further.len()).unwrap()
            } else {
                0
            };
            requests
                .borrow_mut()
                .push([vec![request.path], further].concat());
            Ok(v1::SandboxEntry {
                made_directories: made,
                ..v1::SandboxEntry::default()
            })
        };
        make_served_directories("docker:web", paths, call)
            .await
            .unwrap();
        requests.into_inner()
    }

    #[tokio::test]
    async fn many_directories_are_one_request_and_an_older_service_gets_one_for_each() {
        let below = (0..420).map(|number| format!("tree/{number}").into_bytes());
        let paths: Vec<Vec<u8>> = [b"tree".to_vec()].into_iter().chain(below).collect();
        assert_eq!(requests(&paths, true).await, std::slice::from_ref(&paths));
        let older = requests(&paths, false).await;
        assert_eq!(older.len(), 421);
        assert!(older[1..].iter().all(|request| request.len() == 1));
        assert_eq!(requests(&paths[..1], true).await, [[b"tree".to_vec()]]);
        let long: Vec<Vec<u8>> = (0..3000)
            .map(|number| format!("tree/{number}").into_bytes())
            .collect();
        let long = [vec![b"tree".to_vec()], long].concat();
        let new = requests(&long, true).await;
        assert_eq!(new.len(), 4);
        assert!(new.iter().all(|request| request[0] == b"tree"));
        // After the first reply, an older service gets no path that it would ignore.
        let older = requests(&long, false).await;
        assert!(older[1..].iter().all(|request| request.len() == 1));
    }
}
