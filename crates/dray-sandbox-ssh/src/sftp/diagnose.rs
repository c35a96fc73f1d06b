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
pub(super) async fn missing(channel: &mut Channel, path: &SandboxPath, error: Error) -> Error {
    let unclear = [ErrorKind::NotFound, ErrorKind::Unavailable];
    // A channel that waits for a response cannot take another request.
    if !unclear.contains(&error.kind()) || !channel.is_free() {
        return error;
    }
    match follow_links(channel, &mut PathWalk::new(path)).await {
        Err(found) if found.kind() != error.kind() => {
            Error::new(found.kind(), "a part of the path explains the failure").caused_by(error)
        }
        _ => error,
    }
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
