//! Creates directories, renames and removes.

use dray_sandbox::{Error, ErrorKind, FileKind, Follow, SandboxPath};

use super::attributes::Attributes;
use super::channel::Channel;
use super::diagnose;
use super::files::{lstat, names, stat};
use super::resolve::{POSIX_RENAME, real_path};
use super::wire::kind;

const HARD_LINK: &str = "hardlink@openssh.com";
/// Names per read of a directory.
const MAX_BATCH_NAMES: usize = 1000;

/// Makes a directory and its missing parents.
pub(crate) async fn make_directory(channel: &mut Channel, path: &SandboxPath) -> Result<(), Error> {
    channel.set_writing();
    let mut missing = Vec::new();
    let mut directory = path.clone();
    loop {
        match stat(channel, &directory, Follow::Yes).await {
            // Directories are looked up from the path upwards, because usually only the last directory is missing.
            Ok(found) if found.kind == FileKind::Directory => break,
            Ok(_) => {
                return Err(Error::new(
                    ErrorKind::NotDirectory,
                    "a file with this name exists",
                ));
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(error) if directory == SandboxPath::root() => return Err(error),
            Err(_) => {
                let parent = directory.parent();
                missing.push(std::mem::replace(&mut directory, parent));
            }
        }
    }
    while let Some(next) = missing.pop() {
        make_one(channel, &next).await?;
    }
    Ok(())
}

async fn make_one(channel: &mut Channel, path: &SandboxPath) -> Result<(), Error> {
    let made = channel
        .call(kind::MKDIR, |packet| {
            packet
                .string(path.as_bytes())
                .u32(Attributes::only_permissions())
                .u32(0o755)
        })
        .await?
        .done();
    // Status code 4 of MKDIR means an existing entry as well as a full disk (sandbox-transfer 5.2).
    if let Err(error) = made {
        // Another process may have made it in the meantime.
        return match stat(channel, path, Follow::Yes).await {
            Ok(found) if found.kind == FileKind::Directory => Ok(()),
            Ok(_) => Err(Error::new(
                ErrorKind::NotDirectory,
                "a file with this name exists",
            )),
            Err(_) => Err(diagnose::explain_unwritable(channel, &path.parent(), 1, error).await),
        };
    }
    // The server applied its umask to the mode of MKDIR.
    channel
        .call(kind::SETSTAT, |packet| {
            packet
                .string(path.as_bytes())
                .u32(Attributes::only_permissions())
                .u32(0o755)
        })
        .await?
        .done()
}

/// Renames. Returns whether the rename was atomic: readers saw the old file or the new one.
pub(crate) async fn rename(
    channel: &mut Channel,
    from: &SandboxPath,
    to: &SandboxPath,
    replace: bool,
) -> Result<bool, Error> {
    channel.set_writing();
    let renamed = if replace {
        rename_replacing(channel, from, to).await
    } else {
        rename_new(channel, from, to).await.map(|()| true)
    };
    match renamed {
        Err(error) => {
            let error = diagnose::explain_missing(channel, from, error).await;
            Err(diagnose::explain_unwritable(channel, &to.parent(), 0, error).await)
        }
        renamed => renamed,
    }
}

async fn rename_replacing(
    channel: &mut Channel,
    from: &SandboxPath,
    to: &SandboxPath,
) -> Result<bool, Error> {
    if channel.has_extension(POSIX_RENAME) {
        let renamed = extended_rename(channel, POSIX_RENAME, from, to).await?;
        return match renamed {
            Err(error) if is_directory(channel, to).await => Err(Error::new(
                ErrorKind::IsDirectory,
                "a directory with this name exists",
            )
            .caused_by(error)),
            renamed => renamed.map(|()| true),
        };
    }
    if plain_rename(channel, from, to).await?.is_ok() {
        return Ok(true);
    }
    if is_directory(channel, to).await {
        return Err(Error::new(
            ErrorKind::IsDirectory,
            "a directory with this name exists",
        ));
    }
    // The source is checked before the target is removed: if the source is missing, the target must stay.
    lstat(channel, from).await?;
    // Without the extension, rename does not replace: for a moment no file has this name.
    call_path(channel, kind::REMOVE, to).await?;
    plain_rename(channel, from, to).await??;
    Ok(false)
}

async fn is_directory(channel: &mut Channel, path: &SandboxPath) -> bool {
    let found = lstat(channel, path).await;
    found.is_ok_and(|found| found.kind() == FileKind::Directory)
}

/// Renames without replacing: creates a hard link, which fails when the name is taken, and then removes the old name.
async fn rename_new(
    channel: &mut Channel,
    from: &SandboxPath,
    to: &SandboxPath,
) -> Result<(), Error> {
    if channel.has_extension(HARD_LINK) {
        match extended_rename(channel, HARD_LINK, from, to).await? {
            Ok(()) => return call_path(channel, kind::REMOVE, from).await,
            // The status is the same for an existing name and for a file system without hard links, so `lstat` decides.
            Err(_) if lstat(channel, to).await.is_ok() => return Err(name_taken()),
            // The file system may have no hard links, or the source is a directory.
            Err(_) => {}
        }
    }
    if lstat(channel, to).await.is_ok() {
        // Some servers replace the target in a plain rename, although version 3 forbids it. The check before it leaves
        // a race, but only without hard links.
        return Err(name_taken());
    }
    match plain_rename(channel, from, to).await? {
        Err(_) if lstat(channel, to).await.is_ok() => Err(name_taken()),
        renamed => renamed,
    }
}

fn name_taken() -> Error {
    Error::new(ErrorKind::Exists, "the name is taken")
}

/// The plain rename of version 3, which fails when an entry has the new name. The inner result is the response.
async fn plain_rename(
    channel: &mut Channel,
    from: &SandboxPath,
    to: &SandboxPath,
) -> Result<Result<(), Error>, Error> {
    let reply = channel
        .call(kind::RENAME, |packet| {
            packet.string(from.as_bytes()).string(to.as_bytes())
        })
        .await?;
    Ok(reply.done())
}

async fn extended_rename(
    channel: &mut Channel,
    name: &str,
    from: &SandboxPath,
    to: &SandboxPath,
) -> Result<Result<(), Error>, Error> {
    let reply = channel
        .call(kind::EXTENDED, |packet| {
            packet
                .string(name.as_bytes())
                .string(from.as_bytes())
                .string(to.as_bytes())
        })
        .await?;
    Ok(reply.done())
}

async fn call_path(channel: &mut Channel, kind: u8, path: &SandboxPath) -> Result<(), Error> {
    let reply = channel
        .call(kind, |packet| packet.string(path.as_bytes()))
        .await?;
    reply.done()
}

/// Removes a file or a link, or with `recursive` a directory with what is in it.
pub(crate) async fn remove(
    channel: &mut Channel,
    path: &SandboxPath,
    recursive: bool,
) -> Result<(), Error> {
    channel.set_writing();
    let kind = match lstat(channel, path).await {
        Ok(found) => found.kind(),
        Err(error) => return Err(diagnose::explain_missing(channel, path, error).await),
    };
    let removed = if kind != FileKind::Directory {
        call_path(channel, kind::REMOVE, path).await
    } else if recursive {
        remove_directory(channel, path).await
    } else {
        return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
    };
    match removed {
        Err(error) => Err(diagnose::explain_unwritable(channel, &path.parent(), 0, error).await),
        removed => removed,
    }
}

/// Removes directories from the deepest up. A directory that became a link meanwhile is not entered.
async fn remove_directory(channel: &mut Channel, path: &SandboxPath) -> Result<(), Error> {
    // The links of the parent are resolved once. A link that appears below it changes the real path.
    let real = real_path(channel, path.parent().as_bytes()).await?;
    let mut directories = vec![real.join(path.name())?];
    while let Some(directory) = directories.last().cloned() {
        if real_path(channel, directory.as_bytes()).await? != directory {
            return Err(Error::new(ErrorKind::Loop, "a link replaced a directory"));
        }
        let (names, more) = names(channel, &directory, MAX_BATCH_NAMES).await?;
        // Entries can be removed while the directory is read, so it is read again until it has no more.
        let directory_count = directories.len();
        for name in &names {
            let path = directory.join(&name.name)?;
            if name.attributes.kind() == FileKind::Directory {
                directories.push(path);
            } else {
                call_path(channel, kind::REMOVE, &path).await?;
            }
        }
        if directories.len() == directory_count && !more {
            call_path(channel, kind::RMDIR, &directory).await?;
            directories.pop();
        }
    }
    Ok(())
}
