//! Makes the directories of a tree with a few requests, however many they are.

use std::collections::HashMap;

use dray_sandbox::path::MAX_PATH_PARTS;
use dray_sandbox::{ErrorKind, FileKind, SandboxPath};
use dray_transfer_engine::policy::TransferDirection;

use crate::error::Error;
use crate::service::OpenedSandbox;

/// Least number of directories for which a listing is cheaper than a look-up of each.
const MIN_LISTED_DIRECTORIES: usize = 4;
/// Entries of the first directory that are listed. In a larger one each directory is looked up by itself.
const MAX_LISTED_ENTRIES: usize = 20_000;

/// Splits directories into requests of limited size. Each request begins with the root of its first tree, so that the
/// other paths are created as a part of that tree. A root that is in several requests is created once.
pub fn directory_batches(
    paths: &[Vec<u8>],
    max_paths: usize,
    max_bytes: usize,
) -> Vec<Vec<Vec<u8>>> {
    let mut batches: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut root: Option<&Vec<u8>> = None;
    let mut size = 0;
    for path in paths {
        let parent_root = root.filter(|root| relative_name(root, path).is_some());
        if parent_root.is_none() {
            root = Some(path);
        }
        let fits = |batch: &Vec<Vec<u8>>| batch.len() < max_paths && size + path.len() <= max_bytes;
        if !batches.last().is_some_and(fits) {
            let first: Vec<Vec<u8>> = parent_root.into_iter().cloned().collect();
            size = first.iter().map(Vec::len).sum();
            batches.push(first);
        }
        size += path.len();
        if let Some(batch) = batches.last_mut() {
            batch.push(path.clone());
        }
    }
    batches
}

impl OpenedSandbox {
    /// Makes directories and their missing parents. Directories that exist count as made. In `paths`, the root of a
    /// tree comes directly before its other directories.
    ///
    /// # Errors
    ///
    /// A failure of the sandbox, or a path that policy refuses. Directories before the failure may have been made.
    pub(crate) async fn make_directories(&self, paths: &[Vec<u8>]) -> Result<(), Error> {
        let mut rest = paths;
        while let Some((root, others)) = rest.split_first() {
            let inside = |path: &&Vec<u8>| relative_name(root, path).is_some();
            let count = others.iter().take_while(inside).count();
            let (tree, next) = others.split_at(count);
            self.make_tree(root, tree).await?;
            rest = next;
        }
        Ok(())
    }

    async fn make_tree(&self, root: &[u8], tree: &[Vec<u8>]) -> Result<(), Error> {
        let (engine, policy) = (&self.engine, &self.policy);
        let typed = self.path(root)?;
        let root_path = engine.make_directory(policy, &typed).await?;
        let known = if tree.len() < MIN_LISTED_DIRECTORIES {
            None
        } else {
            self.listed_kinds(&root_path).await?
        };
        let mut missing = Vec::new();
        for path in tree {
            let name = relative_name(root, path).unwrap_or_default();
            let below = SandboxPath::new([root_path.as_bytes(), b"/", name].concat())?;
            // A caller can write `..`: the listing shows no links outside of the root.
            let listed = known.as_ref().filter(|_| below.is_beneath(&root_path));
            match listed.map(|known| place_state(known, &root_path, &below)) {
                Some(PlaceState::Exists) => {}
                Some(PlaceState::Free) => {
                    policy
                        .check(&below, TransferDirection::Inbound)
                        .map_err(dray_sandbox::Error::from)?;
                    missing.push(below);
                }
                // A link may lead elsewhere, so the engine resolves it and checks the result.
                Some(PlaceState::Blocked) | None => {
                    engine.make_directory(policy, &self.path(path)?).await?;
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        engine
            .sandbox()
            .make_directories(&without_parents(&missing))
            .await?;
        // Another process may have created a link in place of a missing part.
        let Some(made) = self.listed_kinds(&root_path).await? else {
            for path in &missing {
                engine.make_directory(policy, path).await?;
            }
            return Ok(());
        };
        if missing
            .iter()
            .all(|path| made.get(path) == Some(&FileKind::Directory))
        {
            return Ok(());
        }
        let replaced = "a new directory was replaced or removed";
        Err(dray_sandbox::Error::new(ErrorKind::ChangedDuringTransfer, replaced).into())
    }

    /// The kind of everything beneath a directory; `None` where it has too many entries.
    async fn listed_kinds(
        &self,
        directory: &SandboxPath,
    ) -> Result<Option<HashMap<SandboxPath, FileKind>>, Error> {
        let sandbox = self.engine.sandbox();
        let listing = sandbox
            .list(directory, MAX_PATH_PARTS, MAX_LISTED_ENTRIES)
            .await?;
        let entries = listing.entries.into_iter();
        let kinds = entries.map(|entry| (entry.path, entry.kind));
        Ok((!listing.truncated).then(|| kinds.collect()))
    }
}

/// The present entry at the path of a new directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceState {
    /// The directory itself.
    Exists,
    /// The path is free, and its parents are directories or missing too.
    Free,
    /// A link or a file, there or in place of a parent.
    Blocked,
}

fn place_state(
    known: &HashMap<SandboxPath, FileKind>,
    root: &SandboxPath,
    path: &SandboxPath,
) -> PlaceState {
    let mut part = path.clone();
    while part != *root && part != SandboxPath::root() {
        match known.get(&part) {
            Some(FileKind::Directory) if part == *path => return PlaceState::Exists,
            // Its parents are directories, because the listing follows no link.
            Some(FileKind::Directory) => return PlaceState::Free,
            Some(_) => return PlaceState::Blocked,
            None => part = part.parent(),
        }
    }
    PlaceState::Free
}

/// The directories that contain no other directory of the list; their parents are made with them.
fn without_parents(paths: &[SandboxPath]) -> Vec<SandboxPath> {
    let mut sorted = paths.to_vec();
    // The key ends with a slash, so that everything beneath a directory follows it directly.
    sorted.sort_by_cached_key(|path| [path.as_bytes(), b"/"].concat());
    let next = sorted.iter().skip(1).map(Some).chain([None]);
    let leaves = sorted.iter().zip(next);
    let leaves = leaves.filter(|(path, next)| !next.is_some_and(|next| next.is_beneath(path)));
    leaves.map(|(path, _)| path.clone()).collect()
}

/// The name of a path relative to a directory that holds it.
fn relative_name<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    let name = if directory.ends_with(b"/") {
        rest
    } else {
        rest.strip_prefix(b"/")?
    };
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SandboxPath {
        SandboxPath::new(text).unwrap()
    }

    #[test]
    fn every_request_begins_with_the_root_of_its_tree() {
        let paths = ["r", "r/a", "r/b", "r/b/c", "s", "s/d"].map(|path| path.as_bytes().to_vec());
        let batches = |max_paths, max_bytes| {
            let batches = directory_batches(&paths, max_paths, max_bytes).into_iter();
            let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
            batches
                .map(|batch| batch.into_iter().map(text).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(batches(100, 1000), ["r r/a r/b r/b/c s s/d"]);
        assert_eq!(batches(3, 1000), ["r r/a r/b", "r r/b/c s", "s s/d"]);
        assert_eq!(batches(100, 7), ["r r/a r/b", "r r/b/c s", "s s/d"]);
        // A path above the limit still goes, alone with its root.
        assert_eq!(batches(100, 1).len(), 6);
        assert!(directory_batches(&[], 3, 1000).is_empty());
    }

    #[test]
    fn only_directories_without_others_in_them_are_requested() {
        let all = ["/r/a", "/r/a/b", "/r/a/b/c", "/r/a-x", "/r/d", "/r/a/e"].map(path);
        let leaves = without_parents(&all);
        assert_eq!(leaves, ["/r/a-x", "/r/a/b/c", "/r/a/e", "/r/d"].map(path));
    }

    #[test]
    fn a_link_or_a_file_in_place_of_a_parent_blocks_a_directory() {
        let known = HashMap::from([
            (path("/r/d"), FileKind::Directory),
            (path("/r/l"), FileKind::Symlink),
            (path("/r/d/f"), FileKind::File),
        ]);
        let placed = |text: &str| place_state(&known, &path("/r"), &path(text));
        assert_eq!(placed("/r/d"), PlaceState::Exists);
        assert_eq!(placed("/r/d/new/er"), PlaceState::Free);
        assert_eq!(placed("/r/new"), PlaceState::Free);
        assert_eq!(placed("/r/l"), PlaceState::Blocked);
        assert_eq!(placed("/r/l/x/y"), PlaceState::Blocked);
        assert_eq!(placed("/r/d/f/x"), PlaceState::Blocked);
    }
}
