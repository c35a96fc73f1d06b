//! What lies in a directory by its tar, for containers that cannot run a command.

use std::collections::BTreeMap;

use dray_sandbox::{Body, Entry, Error, ErrorKind, FileKind, Listing, SandboxPath};

use crate::tar::{Header, Kind, Reader};

/// Reads names and leaves all data out. The engine sends everything beneath the directory, so this is slow where much
/// lies there; it stops at the limit. Sockets are never in it.
pub(crate) async fn list(
    tar: Body,
    directory: &SandboxPath,
    depth: u32,
    limit: usize,
) -> Result<Listing, Error> {
    let mut reader = Reader::new(tar);
    let mut entries = BTreeMap::new();
    let mut truncated = false;
    while let Some(header) = reader.entry().await? {
        let Some((path, level)) = place(&header.name, directory)? else {
            continue;
        };
        if level > depth {
            continue;
        }
        if entries.len() == limit {
            truncated = true;
            break;
        }
        entries.insert(path.clone(), entry(path, header));
    }
    Ok(Listing {
        entries: entries.into_values().collect(),
        truncated,
    })
}

/// The path of an entry and how deep it lies; nothing for the directory itself.
fn place(name: &[u8], directory: &SandboxPath) -> Result<Option<(SandboxPath, u32)>, Error> {
    let mut path = directory.clone();
    let mut level = 0;
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                return Err(Error::new(
                    ErrorKind::Protocol,
                    "a name outside of its directory",
                ));
            }
            part => {
                path = path.join(part)?;
                level += 1;
            }
        }
    }
    Ok((level > 0).then_some((path, level)))
}

fn entry(path: SandboxPath, header: Header) -> Entry {
    let link = header.kind == Kind::Symlink;
    Entry {
        path,
        kind: kind(header.kind),
        size: if link {
            header.link.len() as u64
        } else {
            header.size
        },
        mode: header.mode,
        mtime_ns: Some(i128::from(header.mtime) * 1_000_000_000),
        link_target: link.then_some(header.link),
    }
}

const fn kind(kind: Kind) -> FileKind {
    match kind {
        // A further name of a file that came before.
        Kind::File | Kind::HardLink => FileKind::File,
        Kind::Symlink => FileKind::Symlink,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
        Kind::Directory => FileKind::Directory,
        Kind::Fifo => FileKind::Fifo,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::{END, file};

    fn tar(names: &[&str]) -> Body {
        let mut tar = Vec::new();
        for name in names {
            tar.extend_from_slice(&file(name.as_bytes(), 0, 0o600, (0, 0), 5));
        }
        tar.extend_from_slice(&END);
        Body::from_bytes(tar)
    }

    async fn names(given: &[&str], depth: u32, limit: usize) -> (Vec<String>, bool) {
        let directory = SandboxPath::new("/work").unwrap();
        let listing = list(tar(given), &directory, depth, limit).await.unwrap();
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
    async fn the_limit_says_that_more_is_there() {
        assert!(!names(&["./a", "./b"], 1, 2).await.1);
        let (found, truncated) = names(&["./a", "./b", "./c"], 1, 2).await;
        assert_eq!((found.len(), truncated), (2, true));
    }

    #[tokio::test]
    async fn a_name_that_climbs_out_makes_no_sense() {
        let directory = SandboxPath::new("/work").unwrap();
        let error = list(tar(&["./../etc"]), &directory, 1, 9)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
