//! Lists a whole directory tree, in parts where one response of the sandbox does not carry it.

use dray_sandbox::backend::Sandbox;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Entry, FileKind};
use dray_sandbox::path::SandboxPath;

/// Listings of whole trees that may be cut before each directory is listed alone. Every one repeats work, so a sandbox
/// with a very deep tree could demand any amount of it.
const MAX_CUT_LISTINGS: usize = 64;

/// A directory that is to be listed.
struct PendingDirectory {
    path: SandboxPath,
    depth: u32,
    /// Whether the whole tree beneath it is requested, and not its own entries alone.
    whole: bool,
}

/// All entries beneath a real directory, down to `depth` levels, in the order of their paths. The channel of a sandbox
/// may cut a listing before `limit` entries; then parts of the tree are listed. A directory that cannot be read has no
/// entries; [`crate::ListedParents`] distinguishes it from an empty one.
///
/// # Errors
///
/// Failures of listing, and [`ErrorKind::TooLarge`] for more than `limit` entries, or for one directory with more
/// entries than a response carries.
pub async fn list_tree(
    sandbox: &dyn Sandbox,
    root: &SandboxPath,
    depth: u32,
    limit: usize,
) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let mut cut_listings = 0;
    let mut pending = vec![PendingDirectory {
        path: root.clone(),
        depth,
        whole: true,
    }];
    while let Some(PendingDirectory { path, depth, whole }) = pending.pop() {
        let room = limit.saturating_sub(entries.len());
        let levels = if whole { depth } else { 1 };
        let listing = match sandbox.list(&path, levels, room).await {
            Ok(listing) => listing,
            Err(error) if path != *root && is_about_directory(error.kind()) => continue,
            Err(error) => return Err(error),
        };
        let count = listing.entries.len();
        if listing.truncated && count >= room {
            return Err(too_many(limit));
        }
        if listing.truncated && levels > 1 {
            cut_listings += 1;
            pending.push(PendingDirectory {
                path,
                depth,
                whole: false,
            });
            continue;
        }
        if listing.truncated {
            // Without any entry, the limit is not that of the channel: the paths are too long.
            return Err(too_many(if count == 0 { limit } else { count }));
        }
        if !whole && depth > 1 {
            let is_directory = |entry: &&Entry| entry.kind == FileKind::Directory;
            let directories = listing.entries.iter().filter(is_directory);
            pending.extend(directories.map(|entry| PendingDirectory {
                path: entry.path.clone(),
                depth: depth - 1,
                whole: cut_listings < MAX_CUT_LISTINGS,
            }));
        }
        entries.extend(listing.entries);
    }
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(entries)
}

fn too_many(allowed: usize) -> Error {
    let allowed = allowed as u64;
    Error::too_many_entries(allowed.saturating_add(1), allowed)
}

/// Whether a failure concerns the directory that was listed, and not the sandbox.
const fn is_about_directory(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::NotDirectory
    )
}
