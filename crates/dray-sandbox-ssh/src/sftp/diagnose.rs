//! Finds the cause behind a status code: OpenSSH reports "no such file" for loops and for paths through a file, and
//! "failure" for a full disk, a read-only mount and much else.

use dray_sandbox::{Error, ErrorKind, PathWalk, SandboxPath};

use super::channel::Channel;
use super::reply::Reply;
use super::resolve::follow_links;
use super::wire::{FieldReader, kind};

/// `SSH2_FXE_STATVFS_ST_RDONLY`: bit of the flags in a response to `statvfs@openssh.com`.
const READ_ONLY: u64 = 1;

/// Replaces the kind of a failure by the one that the parts of the path show.
pub(super) async fn explain_missing(
    channel: &mut Channel,
    path: &SandboxPath,
    error: Error,
) -> Error {
    let ambiguous_kinds = [ErrorKind::NotFound, ErrorKind::Unavailable];
    // A channel that waits for a response cannot take another request.
    if !ambiguous_kinds.contains(&error.kind()) || !channel.is_free() {
        return error;
    }
    match follow_links(channel, &mut PathWalk::new(path)).await {
        Err(found) if found.kind() != error.kind() => {
            Error::new(found.kind(), "a part of the path explains the failure").caused_by(error)
        }
        _ => error,
    }
}

/// Replaces the kind of a failed write of `size` bytes below `directory` by one that the state of the file system
/// explains.
pub(super) async fn explain_unwritable(
    channel: &mut Channel,
    directory: &SandboxPath,
    size: u64,
    error: Error,
) -> Error {
    if error.kind() != ErrorKind::Unavailable || !channel.is_free() {
        return error;
    }
    match file_system_space(channel, directory).await {
        Ok(Some(space)) if space.is_read_only => {
            Error::new(ErrorKind::ReadOnly, "a read-only file system").caused_by(error)
        }
        // OpenSSH reports a full disk as "failure"; the space that is left afterwards shows the reason.
        Ok(Some(space)) if space.free_bytes < size => {
            Error::new(ErrorKind::NoSpace, "the file system is full").caused_by(error)
        }
        _ => error,
    }
}

/// Returns how many bytes the user may still write below a directory, if the server reports it.
pub(crate) async fn free_bytes(
    channel: &mut Channel,
    path: &SandboxPath,
) -> Result<Option<u64>, Error> {
    Ok(file_system_space(channel, path)
        .await?
        .map(|space| space.free_bytes))
}

/// Free space and state of the file system below a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSystemSpace {
    pub(super) free_bytes: u64,
    pub(super) is_read_only: bool,
}

/// Asks the server for the file system of a path. Returns `None` when the server cannot report it.
pub(super) async fn file_system_space(
    channel: &mut Channel,
    path: &SandboxPath,
) -> Result<Option<FileSystemSpace>, Error> {
    if !channel.has_extension("statvfs@openssh.com") {
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

/// Parses a response to `statvfs@openssh.com`: block size, fragment size, three counts of blocks (all, free,
/// available), three of inodes, id, flags, longest name.
fn parse(fields: &mut FieldReader) -> Result<FileSystemSpace, Error> {
    let mut numbers = [0; 11];
    for number in &mut numbers {
        *number = fields.u64()?;
    }
    // "Available" and not "free", which counts blocks that only root may use.
    let [_, fragment, _, _, available, _, _, _, _, flags, _] = numbers;
    Ok(FileSystemSpace {
        free_bytes: fragment.saturating_mul(available),
        is_read_only: flags & READ_ONLY != 0,
    })
}
