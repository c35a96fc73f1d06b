//! The plan of a copy: its files, and the place of each.

use super::end::{CopyEndpoint, PathKind};
use crate::outcome::CommandFailure;
use dray_types::{Fault, FaultCode};

/// One file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyJob {
    pub(super) from: Vec<u8>,
    /// Directory at the target, which may not exist yet.
    pub(super) directory: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) size: u64,
    /// Permission bits of the source.
    pub(super) mode: u32,
}

/// The entries that a copy will create, in order, and those that it cannot create.
#[derive(Debug, Default)]
pub(super) struct CopyPlan {
    /// Directories to make, each after its parent.
    pub(super) directories: Vec<Vec<u8>>,
    pub(super) jobs: Vec<CopyJob>,
    /// Entries that are left out, one line each.
    pub(super) skipped: Vec<String>,
    /// Operands that cannot be copied, with the reason.
    pub(super) failed: Vec<(Vec<u8>, CommandFailure)>,
}

/// Where a copied file or directory gets its name from.
#[derive(Clone, Copy, Debug)]
pub(super) enum CopyDestination<'a> {
    /// Into this directory, under the source's own name.
    Into(&'a [u8]),
    /// To this path: into it when it is a directory, otherwise as the new name.
    To(&'a [u8]),
}

pub(super) fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        [] => name.to_vec(),
        // The root and paths that end with a slash need no further separator.
        [.., b'/'] => [directory, name].concat(),
        _ => [directory, b"/", name].concat(),
    }
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/');
    // The root itself keeps its slash.
    path.get(..=end.unwrap_or(0)).unwrap_or_default()
}

/// The directory and the name of a path. A name alone is in the current directory.
fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    let path = trim_slashes(path);
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", path.get(1..).unwrap_or_default()),
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at + 1..).unwrap_or_default(),
        ),
        None => (b".", path),
    }
}

/// The name that a copy takes from its source. `None` for `.`, `..`, `~` and the root: their content is copied.
fn own_name(path: &[u8]) -> Option<&[u8]> {
    let (_, name) = split_path(path);
    let is_name = !matches!(name, b"" | b"." | b".." | b"~");
    is_name.then_some(name)
}

impl CopyPlan {
    /// Adds one operand, which is a file or a directory at the source.
    pub(super) async fn add(
        &mut self,
        source: &CopyEndpoint<'_>,
        from: &[u8],
        target: &CopyEndpoint<'_>,
        destination: CopyDestination<'_>,
    ) -> Result<(), CommandFailure> {
        let found = match source.stat(from).await {
            Ok(found) => found,
            // Other operands may still be copied.
            Err(failure) if is_about_one_file(&failure) => {
                self.failed.push((from.to_vec(), failure));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        match found {
            PathKind::File(size, mode) => {
                let (directory, name) = place_file(from, target, destination).await?;
                self.jobs.push(CopyJob {
                    from: from.to_vec(),
                    directory,
                    name,
                    size,
                    mode,
                });
            }
            PathKind::Directory => {
                let root = place_directory(from, target, destination).await?;
                self.add_tree(source, from, &root).await?;
            }
            PathKind::Nothing => {
                let fault = Fault::new(FaultCode::NotFound, "The file does not exist.");
                self.failed
                    .push((from.to_vec(), fault.detail("not_found").into()));
            }
            PathKind::Special => {
                let text = "Only regular files and directories are copied.";
                let fault = Fault::new(FaultCode::InvalidArgument, text).detail("not_regular");
                self.failed.push((from.to_vec(), fault.into()));
            }
        }
        Ok(())
    }

    async fn add_tree(
        &mut self,
        source: &CopyEndpoint<'_>,
        from: &[u8],
        root: &[u8],
    ) -> Result<(), CommandFailure> {
        let tree = match source.tree(from).await {
            Ok(tree) => tree,
            Err(failure) if is_about_one_file(&failure) => {
                self.failed.push((from.to_vec(), failure));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        // The root is added first: an empty directory is copied too.
        self.directories.push(root.to_vec());
        let names = tree.directories.iter().map(|name| join_path(root, name));
        self.directories.extend(names);
        self.skipped.extend(tree.skipped);
        let unreadable = tree.unreadable.iter();
        let unreadable = unreadable.map(|name| (join_path(&tree.path, name), unreadable_failure()));
        self.failed.extend(unreadable);
        for file in tree.files {
            let whole = join_path(root, &file.name);
            // A name in a tree may contain directories.
            let (directory, name) = split_path(&whole);
            self.jobs.push(CopyJob {
                from: join_path(&tree.path, &file.name),
                directory: directory.to_vec(),
                name: name.to_vec(),
                size: file.size,
                mode: file.mode,
            });
        }
        Ok(())
    }

    /// Size of all files, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.jobs.iter().map(|job| job.size).sum()
    }
}

/// The failure of a directory in a tree; what else the tree has is copied.
fn unreadable_failure() -> CommandFailure {
    let fault = Fault::new(FaultCode::Denied, "The directory cannot be read.");
    let fault = fault.detail("permission_denied");
    fault.advice("Change its permissions.").into()
}

fn nameless_failure() -> CommandFailure {
    CommandFailure::Usage("name the file that is copied, not only its directory".to_owned())
}

/// The directory and the name of a file at the target.
async fn place_file(
    from: &[u8],
    target: &CopyEndpoint<'_>,
    destination: CopyDestination<'_>,
) -> Result<(Vec<u8>, Vec<u8>), CommandFailure> {
    let own = own_name(from).ok_or_else(nameless_failure);
    match destination {
        CopyDestination::Into(directory) => Ok((directory.to_vec(), own?.to_vec())),
        CopyDestination::To(path) => {
            let is_directory =
                // A slash at the end requests a directory, even if none exists yet.
                path.ends_with(b"/") || target.stat(path).await? == PathKind::Directory;
            if is_directory || own_name(path).is_none() {
                return Ok((path.to_vec(), own?.to_vec()));
            }
            let (directory, name) = split_path(path);
            Ok((directory.to_vec(), name.to_vec()))
        }
    }
}

/// The directory at the target that a source directory becomes.
async fn place_directory(
    from: &[u8],
    target: &CopyEndpoint<'_>,
    destination: CopyDestination<'_>,
) -> Result<Vec<u8>, CommandFailure> {
    let inside = |directory: &[u8]| match own_name(from) {
        Some(name) => join_path(directory, name),
        None => directory.to_vec(),
    };
    match destination {
        CopyDestination::Into(directory) => Ok(inside(directory)),
        CopyDestination::To(path) if path.ends_with(b"/") => Ok(inside(path)),
        CopyDestination::To(path) => match target.stat(path).await? {
            PathKind::Directory => Ok(inside(path)),
            // This is the rule of `cp -r`: a path that does not exist becomes the copy itself.
            PathKind::Nothing => Ok(path.to_vec()),
            PathKind::File(..) | PathKind::Special => {
                let text = "A directory cannot take the place of a file.";
                let fault = Fault::new(FaultCode::InvalidArgument, text).detail("not_directory");
                Err(fault.into())
            }
        },
    }
}

/// Whether a failure is about one file, so that others may still be copied.
pub(super) fn is_about_one_file(failure: &CommandFailure) -> bool {
    const FAULT_DETAILS: [&str; 14] = [
        "not_found",
        "is_directory",
        "not_directory",
        "not_regular",
        "permission_denied",
        "outside_root",
        "denied_path",
        "too_large",
        "exists",
        "loop",
        "invalid_name",
        "changed_during_transfer",
        "corrupted",
        "local",
    ];
    match failure {
        CommandFailure::Fault(fault) => FAULT_DETAILS.contains(&fault.detail.as_str()),
        CommandFailure::Local { source, .. } => !matches!(
            // A disk that is full or read-only fails every further file too.
            source.kind(),
            std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::ReadOnlyFilesystem
                | std::io::ErrorKind::QuotaExceeded
        ),
        CommandFailure::Usage(_)
        | CommandFailure::AlreadyPrinted(_)
        | CommandFailure::Interrupted(_)
        | CommandFailure::Program(_)
        | CommandFailure::Reported
        | CommandFailure::Configuration(_)
        | CommandFailure::Unreachable { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_and_put_together() {
        for (path, directory, name) in [
            ("/a", "/", "a"),
            ("/a/b//", "/a", "b"),
            ("a b:c", ".", "a b:c"),
            ("~/-x", "~", "-x"),
        ] {
            let parts = split_path(path.as_bytes());
            assert_eq!(parts, (directory.as_bytes(), name.as_bytes()), "{path}");
        }
        for path in [".", "..", "/", "a/.", "~", "a/.."] {
            assert_eq!(own_name(path.as_bytes()), None, "{path}");
        }
        for (directory, name, whole) in [("/", "a", "/a"), ("a", "b", "a/b"), ("a/", "b", "a/b")] {
            assert_eq!(
                join_path(directory.as_bytes(), name.as_bytes()),
                whole.as_bytes()
            );
        }
    }

    #[tokio::test]
    async fn a_copy_is_put_into_a_directory_and_otherwise_gets_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            [
                directory.path().as_os_str().as_encoded_bytes(),
                b"/",
                name.as_bytes(),
            ]
            .concat()
        };
        std::fs::create_dir_all(directory.path().join("d/e")).unwrap();
        std::fs::write(directory.path().join("f"), "1").unwrap();
        let local = CopyEndpoint::Local;
        let place = async |to: &str| {
            let to = at(to);
            place_file(b"/x/own", &local, CopyDestination::To(&to))
                .await
                .unwrap()
        };
        assert_eq!(place("d").await, (at("d"), b"own".to_vec()));
        assert_eq!(place("new/").await, (at("new/"), b"own".to_vec()));
        assert_eq!(
            place("new").await,
            (at("")[..at("").len() - 1].to_vec(), b"new".to_vec())
        );
        let into = async |from: &str, to: &str| {
            place_directory(from.as_bytes(), &local, CopyDestination::To(&at(to))).await
        };
        assert_eq!(into("/x/own", "d").await.unwrap(), at("d/own"));
        assert_eq!(into("/x/own", "new").await.unwrap(), at("new"));
        assert_eq!(into("/x/own/.", "d").await.unwrap(), at("d"));
        assert!(into("/x/own", "f").await.is_err());
    }
}
