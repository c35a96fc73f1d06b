//! Metadata and listings.

use bytes::Bytes;
use dray_sandbox::{Entry, Error, ErrorKind, FileKind, Follow, Listing, Metadata, SandboxPath};

use super::attributes::Attributes;
use super::channel::Channel;
use super::diagnose;
use super::reply::{NamedEntry, Reply};
use super::resolve::real_path;
use super::wire::{kind, protocol_error, status};

/// Metadata of a path. A link at its end is followed only with [`Follow::Yes`].
pub(crate) async fn stat(
    channel: &mut Channel,
    path: &SandboxPath,
    follow: Follow,
) -> Result<Metadata, Error> {
    let found = match follow {
        Follow::Yes => stat_followed(channel, path).await,
        Follow::No => stat_entry(channel, path).await,
    };
    match found {
        Err(error) => Err(diagnose::explain_missing(channel, path, error).await),
        found => found,
    }
}

async fn stat_followed(channel: &mut Channel, path: &SandboxPath) -> Result<Metadata, Error> {
    let real = real_path(channel, path.as_bytes()).await?;
    // LSTAT on the resolved path, not STAT on the path: both results then describe the same file.
    let attributes = lstat(channel, &real).await?;
    if attributes.kind() == FileKind::Symlink {
        // A loop, or a link that was created after the path was resolved.
        return Err(Error::new(
            ErrorKind::NotFound,
            "the path still leads to a link",
        ));
    }
    Ok(metadata(path, real, &attributes, None))
}

async fn stat_entry(channel: &mut Channel, path: &SandboxPath) -> Result<Metadata, Error> {
    let attributes = lstat(channel, path).await?;
    if attributes.kind() != FileKind::Symlink {
        let real = real_path(channel, path.as_bytes()).await?;
        return Ok(metadata(path, real, &attributes, None));
    }
    let target = read_link(channel, path).await?;
    Ok(metadata(path, path.clone(), &attributes, Some(target)))
}

fn metadata(
    path: &SandboxPath,
    real_path: SandboxPath,
    attributes: &Attributes,
    link_target: Option<Vec<u8>>,
) -> Metadata {
    Metadata {
        path: path.clone(),
        real_path,
        kind: attributes.kind(),
        size: attributes.size.unwrap_or(0),
        mode: attributes.mode(),
        uid: attributes.owner.map(|(uid, _)| uid),
        gid: attributes.owner.map(|(_, gid)| gid),
        mtime_ns: attributes.mtime_ns(),
        link_target,
        // Version 3 reports neither the number of links nor an inode.
        links: None,
        identity: None,
    }
}

/// Returns the attributes of the entry itself; a link is not followed.
pub(super) async fn lstat(channel: &mut Channel, path: &SandboxPath) -> Result<Attributes, Error> {
    let reply = channel
        .call(kind::LSTAT, |packet| packet.string(path.as_bytes()))
        .await?;
    reply.attributes()
}

/// Returns the target of a link, as the link has it.
pub(super) async fn read_link(channel: &mut Channel, path: &SandboxPath) -> Result<Vec<u8>, Error> {
    let reply = channel
        .call(kind::READLINK, |packet| packet.string(path.as_bytes()))
        .await?;
    Ok(reply.name()?.to_vec())
}

/// Lists the entries below a directory, down to `depth` levels, in the order of paths. Links are listed, never
/// followed.
pub(crate) async fn list(
    channel: &mut Channel,
    path: &SandboxPath,
    depth: u32,
    limit: usize,
) -> Result<Listing, Error> {
    let directory = stat(channel, path, Follow::Yes).await?;
    if directory.kind != FileKind::Directory {
        return Err(Error::new(ErrorKind::NotDirectory, "not a directory"));
    }
    let mut listing = Listing::default();
    let mut pending = vec![(path.clone(), 1)];
    while let Some((path, level)) = pending.pop() {
        let names_left = limit.saturating_sub(listing.entries.len());
        let (names, is_truncated) = match names(channel, &path, names_left).await {
            Ok(names) => names,
            // A subdirectory that may not be entered, or was removed meanwhile, is listed without its entries.
            Err(error) if level > 1 && is_about_one_directory(&error) => continue,
            Err(error) => return Err(error),
        };
        if names.is_empty() && !is_truncated {
            match check_searchable(channel, &path).await {
                Err(error) if level > 1 && is_about_one_directory(&error) => {}
                checked => checked?,
            }
        }
        listing.truncated |= is_truncated;
        for name in names {
            let entry = entry(channel, &path, &name).await?;
            if entry.kind == FileKind::Directory && level < depth {
                pending.push((entry.path.clone(), level + 1));
            }
            listing.entries.push(entry);
        }
        if listing.truncated {
            break;
        }
    }
    listing
        .entries
        .sort_by(|left, right| left.path.cmp(&right.path));
    Ok(listing)
}

/// Fails when a directory may be read and not searched. A server can describe none of its entries then, and leaves them
/// out.
async fn check_searchable(channel: &mut Channel, path: &SandboxPath) -> Result<(), Error> {
    let itself = [path.as_bytes(), b"/."].concat();
    let reply = channel
        .call(kind::LSTAT, |packet| packet.string(&itself))
        .await?;
    match reply.attributes() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        // Other servers may not know this name.
        _ => Ok(()),
    }
}

/// Whether an error concerns the directory that was read, and not the channel.
fn is_about_one_directory(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::NotDirectory
    )
}

async fn entry(
    channel: &mut Channel,
    parent: &SandboxPath,
    name: &NamedEntry,
) -> Result<Entry, Error> {
    let path = parent.join(&name.name)?;
    let kind = name.attributes.kind();
    let link_target = if kind == FileKind::Symlink {
        // The link may have gone since the directory was read; the entry is still listed.
        read_link(channel, &path).await.ok()
    } else {
        None
    };
    Ok(Entry {
        path,
        kind,
        size: name.attributes.size.unwrap_or(0),
        mode: name.attributes.mode(),
        mtime_ns: name.attributes.mtime_ns(),
        link_target,
    })
}

/// Reads at most `limit` names of a directory. Returns whether it has more.
pub(super) async fn names(
    channel: &mut Channel,
    path: &SandboxPath,
    limit: usize,
) -> Result<(Vec<NamedEntry>, bool), Error> {
    let handle = channel
        .call(kind::OPENDIR, |packet| packet.string(path.as_bytes()))
        .await?
        .handle()?;
    let found = read_names(channel, &handle, limit).await;
    // The handle is closed even after a failure, or the channel could not be used again.
    channel.close(&handle).await?.done()?;
    found
}

async fn read_names(
    channel: &mut Channel,
    handle: &Bytes,
    limit: usize,
) -> Result<(Vec<NamedEntry>, bool), Error> {
    let mut found = Vec::new();
    loop {
        let reply = channel
            .call(kind::READDIR, |packet| packet.string(handle))
            .await?;
        let names = match reply {
            // A server that keeps sending empty responses would keep this loop running forever.
            Reply::Names(names) if names.is_empty() => return Err(protocol_error("no names")),
            Reply::Names(names) => names,
            other if other.code() == Some(status::EOF) => return Ok((found, false)),
            other => return Err(other.failure()),
        };
        for name in names {
            // READDIR returns `.` and `..` as `readdir(3)` does.
            if name.name == "." || name.name == ".." {
                continue;
            }
            if found.len() == limit {
                return Ok((found, true));
            }
            found.push(name);
        }
    }
}
