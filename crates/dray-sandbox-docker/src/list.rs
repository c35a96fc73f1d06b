//! Lists a directory by its tar, for containers that cannot run a command.

use std::collections::{BTreeMap, BTreeSet};

use dray_archive::name::relative_parts;
use dray_archive::tar::{Entry as TarEntry, EntryKind, TarRules};
use dray_sandbox::{Body, Entry, Error, ErrorKind, FileKind, Listing, SandboxPath};
use dray_sandbox_tree::TarEntries;

use crate::client::Client;

/// A listing by a tar, which has the size of a file only under its first name.
#[derive(Debug)]
pub(crate) struct TarListing {
    listing: Listing,
    /// Listed entries that are further names of a file. Their sizes are missing.
    hard_links: BTreeSet<SandboxPath>,
}

impl TarListing {
    /// Asks the engine for the missing sizes.
    pub(crate) async fn with_sizes(
        mut self,
        client: &Client,
        container: &str,
    ) -> Result<Listing, Error> {
        let mut connection = None;
        for entry in &mut self.listing.entries {
            if !self.hard_links.contains(&entry.path) {
                continue;
            }
            let stat = client.stat_path(&mut connection, container, entry.path.as_bytes());
            match stat.await {
                Ok(stat) => entry.size = stat.size,
                // It was removed since the tar was made.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.listing)
    }
}

/// Reads the names in the tar of a directory and skips all content. The engine sends everything beneath the directory,
/// in no promised order, so this is slow for a large tree. The tar is read to its end, and the first `limit` entries by
/// name are kept. A tar never contains sockets.
pub(crate) async fn list(
    tar: Body,
    directory: &SandboxPath,
    depth: u32,
    limit: usize,
) -> Result<TarListing, Error> {
    let mut reader = TarEntries::new(tar, TarRules::Exact);
    let mut entries = BTreeMap::new();
    let mut hard_links = BTreeSet::new();
    let mut truncated = false;
    while let Some(header) = reader.entry().await? {
        let Some((path, level)) = place(&header.name, directory)? else {
            continue;
        };
        // The engine packs the whole tree, so deeper entries are skipped.
        if level > depth {
            continue;
        }
        // Memory is bounded by the limit, however many entries the directory has.
        let is_full = entries.len() >= limit && !entries.contains_key(&path);
        if is_full {
            truncated = true;
            if entries
                .last_key_value()
                .is_none_or(|(last, _)| *last < path)
            {
                continue;
            }
            if let Some((last, _)) = entries.pop_last() {
                hard_links.remove(&last);
            }
        }
        if header.kind == EntryKind::HardLink {
            hard_links.insert(path.clone());
        }
        entries.insert(path.clone(), entry(path, header));
    }
    let listing = Listing {
        entries: entries.into_values().collect(),
        truncated,
    };
    Ok(TarListing {
        listing,
        hard_links,
    })
}

/// The same entries under the requested path.
pub(crate) fn under(
    path: &SandboxPath,
    directory: &SandboxPath,
    mut listing: Listing,
) -> Result<Listing, Error> {
    if path == directory {
        return Ok(listing);
    }
    for entry in &mut listing.entries {
        let rest = entry.path.as_bytes().strip_prefix(directory.as_bytes());
        entry.path = SandboxPath::new([path.as_bytes(), b"/", rest.unwrap_or_default()].concat())?;
    }
    Ok(listing)
}

/// The path of an entry and its level; `None` for the directory itself.
fn place(name: &[u8], directory: &SandboxPath) -> Result<Option<(SandboxPath, u32)>, Error> {
    let parts = relative_parts(name).map_err(|unsafe_name| {
        Error::new(ErrorKind::Protocol, "a name outside of its directory").caused_by(unsafe_name)
    })?;
    let mut path = directory.clone();
    for part in &parts {
        path = path.join(part)?;
    }
    let level = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    Ok((level > 0).then_some((path, level)))
}

fn entry(path: SandboxPath, header: TarEntry) -> Entry {
    let link = header.kind == EntryKind::Symlink;
    Entry {
        path,
        kind: kind(header.kind),
        size: if link {
            // POSIX: the size of a link is the length of its target.
            header.link.len() as u64
        } else {
            header.real_size.unwrap_or(header.size)
        },
        mode: header.mode,
        mtime_ns: header.mtime.map(|time| i128::from(time) * 1_000_000_000),
        link_target: link.then_some(header.link),
    }
}

const fn kind(kind: EntryKind) -> FileKind {
    match kind {
        // A hard link is another name of a file that came before.
        EntryKind::File | EntryKind::Contiguous | EntryKind::Sparse | EntryKind::HardLink => {
            FileKind::File
        }
        EntryKind::Symlink => FileKind::Symlink,
        EntryKind::CharDevice => FileKind::CharDevice,
        EntryKind::BlockDevice => FileKind::BlockDevice,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Fifo => FileKind::Fifo,
        EntryKind::Other(_) => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use dray_archive::tar::{END_BLOCKS, NewEntry, encode};

    use super::*;

    fn tar(names: &[&str]) -> Body {
        let mut tar = Vec::new();
        for name in names {
            tar.extend_from_slice(&encode(&NewEntry::file(name.as_bytes())));
        }
        tar.extend_from_slice(&END_BLOCKS);
        Body::from_bytes(tar)
    }

    async fn names(given: &[&str], depth: u32, limit: usize) -> (Vec<String>, bool) {
        let directory = SandboxPath::new("/work").unwrap();
        let listed = list(tar(given), &directory, depth, limit).await;
        let listing = listed.unwrap().listing;
        let names = listing.entries.iter().map(|entry| entry.path.to_string());
        (names.collect(), listing.truncated)
    }

    #[tokio::test]
    async fn entries_come_in_order_down_to_the_depth() {
        let given = ["./", "./b", "./a", "./b/c", "./b/c/d"];
        let (found, truncated) = names(&given, 2, 10).await;
        assert_eq!(found, ["/work/a", "/work/b", "/work/b/c"]);
        assert!(!truncated);
    }

    #[tokio::test]
    async fn a_listing_beyond_the_limit_is_truncated() {
        assert!(!names(&["./a", "./b"], 1, 2).await.1);
        let (found, truncated) = names(&["./a", "./b", "./c"], 1, 2).await;
        assert_eq!((found.len(), truncated), (2, true));
        assert_eq!(names(&["./a"], 1, 0).await, (Vec::new(), true));
    }

    #[tokio::test]
    async fn the_first_entries_by_name_are_listed_in_any_order_of_the_tar() {
        let found = names(&["./d", "./b", "./e", "./a", "./c"], 1, 2).await;
        assert_eq!(
            found,
            (vec!["/work/a".to_owned(), "/work/b".to_owned()], true)
        );
        // A second header for the same name, as a tar that grows while it is packed can have, is not counted as another
        // entry.
        let found = names(&["./b", "./a", "./b"], 1, 2).await;
        assert_eq!(
            found,
            (vec!["/work/a".to_owned(), "/work/b".to_owned()], false)
        );
    }

    #[tokio::test]
    async fn a_name_outside_of_the_directory_is_a_protocol_error() {
        let directory = SandboxPath::new("/work").unwrap();
        let error = list(tar(&["./../etc"]), &directory, 1, 9)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
