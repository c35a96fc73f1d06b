//! Finds the cause behind a status code: OpenSSH reports "no such file" for loops and for paths through a file, and
//! "failure" for a full disk, a read-only mount and much else.

use dray_sandbox::{Error, ErrorKind, FileKind, SandboxPath};

use super::attributes::Attributes;
use super::channel::Channel;
use super::files::{lstat, read_link};
use super::reply::Reply;
use super::resolve::MAX_LINKS;
use super::wire::{FieldReader, kind};

/// `SSH2_FXE_STATVFS_ST_RDONLY`: bit of the flags in a response to `statvfs@openssh.com`.
const READ_ONLY: u64 = 1;

/// Replaces the kind of a failure by what the parts of the path show.
pub(super) async fn missing(channel: &mut Channel, path: &SandboxPath, error: Error) -> Error {
    let unclear = [ErrorKind::NotFound, ErrorKind::Unavailable];
    // A channel that waits for a response cannot take another request.
    if !unclear.contains(&error.kind()) || !channel.is_free() {
        return error;
    }
    match walk(channel, path).await {
        Some(kind) if kind != error.kind() => {
            Error::new(kind, "found on the way to the path").caused_by(error)
        }
        _ => error,
    }
}

/// The reason why a path leads nowhere; `None` when it exists or its parts cannot be examined.
async fn walk(channel: &mut Channel, path: &SandboxPath) -> Option<ErrorKind> {
    let mut here = SandboxPath::root();
    let parts = path
        .as_bytes()
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty());
    let parts: Vec<&[u8]> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        here = here.join(part).ok()?;
        let kind = match lstat(channel, &here).await {
            Err(error) => return Some(error.kind()),
            Ok(found) if found.kind() == FileKind::Symlink => match chase(channel, &here).await {
                Ok(found) => found.kind(),
                Err(kind) => return Some(kind),
            },
            Ok(found) => found.kind(),
        };
        if kind != FileKind::Directory && index + 1 < parts.len() {
            return Some(ErrorKind::NotDirectory);
        }
    }
    None
}

/// The attributes of a link's target, or the reason why it has none.
async fn chase(channel: &mut Channel, link: &SandboxPath) -> Result<Attributes, ErrorKind> {
    let reply = channel
        .call(kind::STAT, |packet| packet.string(link.as_bytes()))
        .await
        .map_err(|error| error.kind())?;
    // The server followed the link to its end, so it is not broken.
    if let Reply::Attributes(found) = reply {
        return Ok(found);
    }
    let mut here = link.clone();
    for _ in 0..MAX_LINKS {
        let target = read_link(channel, &here)
            .await
            .map_err(|error| error.kind())?;
        let mut next = Vec::new();
        if target.first() != Some(&b'/') {
            next.extend_from_slice(here.parent().as_bytes());
            next.push(b'/');
        }
        next.extend_from_slice(&target);
        here = SandboxPath::new(next).map_err(|error| error.kind())?;
        match lstat(channel, &here).await {
            Err(error) => return Err(error.kind()),
            Ok(found) if found.kind() != FileKind::Symlink => return Err(ErrorKind::NotFound),
            Ok(_) => {}
        }
    }
    Err(ErrorKind::Loop)
}

/// Replaces the kind of a failure to write `size` bytes below `directory` by what its file system shows.
pub(super) async fn unwritable(
    channel: &mut Channel,
    directory: &SandboxPath,
    size: u64,
    error: Error,
) -> Error {
    if error.kind() != ErrorKind::Unavailable || !channel.is_free() {
        return error;
    }
    match space(channel, directory).await {
        Ok(Some(space)) if space.read_only => {
            Error::new(ErrorKind::ReadOnly, "a read-only file system").caused_by(error)
        }
        // OpenSSH reports a full disk as "failure"; the space that is left afterwards shows the reason.
        Ok(Some(space)) if space.free < size => {
            Error::new(ErrorKind::NoSpace, "the file system is full").caused_by(error)
        }
        _ => error,
    }
}

/// Bytes that the user may still write below a directory, when the server reports it.
pub(crate) async fn free(channel: &mut Channel, path: &SandboxPath) -> Result<Option<u64>, Error> {
    Ok(space(channel, path).await?.map(|space| space.free))
}

/// Free space and state of the file system below a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSystemSpace {
    pub(super) free: u64,
    pub(super) read_only: bool,
}

/// Asks for the file system of a path.
pub(super) async fn space(
    channel: &mut Channel,
    path: &SandboxPath,
) -> Result<Option<FileSystemSpace>, Error> {
    if !channel.has("statvfs@openssh.com") {
        return Ok(None);
    }
    let reply = channel
        .call(kind::EXTENDED, |packet| {
            packet
                .string(b"statvfs@openssh.com")
                .string(path.as_bytes())
        })
        .await?;
    let Reply::Extended(mut fields) = reply else {
        return Err(reply.failure());
    };
    parse(&mut fields).map(Some)
}

/// Reads block size, fragment size, blocks, free, available, three of inodes, id, flags, longest name.
fn parse(fields: &mut FieldReader) -> Result<FileSystemSpace, Error> {
    let mut numbers = [0; 11];
    for number in &mut numbers {
        *number = fields.u64()?;
    }
    // "Available" and not "free", which counts blocks that only root may use.
    let [_, fragment, _, _, available, _, _, _, _, flags, _] = numbers;
    Ok(FileSystemSpace {
        free: fragment.saturating_mul(available),
        read_only: flags & READ_ONLY != 0,
    })
}
