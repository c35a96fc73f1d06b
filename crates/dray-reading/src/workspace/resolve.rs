//! Resolves the real target of a path, even if the end of the path does not exist.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Most symbolic links that are followed for one path, as in Linux (`path_resolution(7)`).
const MAX_SYMBOLIC_LINKS: u32 = 40;

/// A path that may be accessed.
#[derive(Clone, Debug)]
pub(super) struct ResolvedPath {
    /// The real directory and the last name, which is not followed.
    pub(super) path: PathBuf,
    /// The root that contains it; `None` if containment is off and no root contains it.
    pub(super) root: Option<PathBuf>,
}

/// Replaces bytes of a path that are not UTF-8.
const REPLACEMENT_CHARACTER: char = '\u{FFFD}';
/// Most entries of one directory that are compared with such a name.
const MAX_ENTRIES: usize = 10_000;

impl ResolvedPath {
    /// Replaces names by their spelling on the disk. Callers write names in UTF-8, with U+FFFD for every invalid byte.
    /// If no entry has the exact name and exactly one entry is written like this, that entry is used. Applies only
    /// within the root.
    pub(super) fn with_names_on_disk(mut self) -> Self {
        let below = self
            .root
            .as_deref()
            .and_then(|root| self.path.strip_prefix(root).ok().map(|rest| (root, rest)));
        if let Some((root, rest)) = below {
            let mut on_disk = root.to_owned();
            for name in rest {
                let exact = on_disk.join(name);
                let written = name
                    .to_str()
                    .filter(|name| name.contains(REPLACEMENT_CHARACTER));
                on_disk = match written {
                    Some(written) if exact.symlink_metadata().is_err() => {
                        only_entry(&on_disk, written).unwrap_or(exact)
                    }
                    _ => exact,
                };
            }
            self.path = on_disk;
        }
        self
    }
}

/// The only entry of a directory with this spelling; `None` if there are several.
fn only_entry(directory: &Path, written: &str) -> Option<PathBuf> {
    let mut matching = None;
    for entry in std::fs::read_dir(directory).ok()?.take(MAX_ENTRIES) {
        let name = entry.ok()?.file_name();
        // A valid name that contains U+FFFD was already found by its exact name.
        if name.to_str().is_none() && name.to_string_lossy() == written {
            if matching.is_some() {
                // Two entries have this spelling: a guess could read the wrong file.
                return None;
            }
            matching = Some(directory.join(name));
        }
    }
    matching
}

/// The path with its directory resolved: links are followed, and missing parts are kept as written. `None` for loops
/// and for directories without permission.
///
/// A link whose target does not exist is followed anyway: whether it leads outside must not depend on which files
/// exist.
pub(super) fn resolve_parent(lexical: &Path) -> Option<PathBuf> {
    let Some(name) = lexical.file_name() else {
        return Some(lexical.to_owned());
    };
    let mut real = resolve_links(lexical.parent()?)?;
    real.push(name);
    Some(real)
}

fn resolve_links(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::from("/");
    let mut pending: VecDeque<OsString> = names(path).collect();
    let mut links = 0;
    // Below a missing directory, no entry can exist.
    let mut missing = false;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            resolved.pop();
            // Only targets of links contain `..`. The parent of a missing name may exist.
            missing = false;
            continue;
        }
        resolved.push(&name);
        if missing {
            continue;
        }
        match std::fs::symlink_metadata(&resolved) {
            Ok(metadata) if metadata.file_type().is_symlink() => {
                links += 1;
                if links > MAX_SYMBOLIC_LINKS {
                    return None;
                }
                let target = std::fs::read_link(&resolved).ok()?;
                resolved.pop();
                if target.is_absolute() {
                    resolved = PathBuf::from("/");
                }
                for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                    pending.push_front(name);
                }
            }
            Ok(_) => {}
            // A directory without permission counts as outside (read-attachment 4).
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            Err(_) => missing = true,
        }
    }
    Some(resolved)
}

/// The names of a path, `..` among them.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}
