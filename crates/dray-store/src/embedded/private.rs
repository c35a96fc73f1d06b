//! Files and directories that only their owner can access. An object store holds other people's documents, so other
//! users of the machine must not read its directory. The modes do not protect against the superuser or the owner's own
//! processes.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

/// Mode of every directory: all rights for the owner alone.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of every file: reading and writing for the owner alone.
const FILE_MODE: u32 = 0o600;
/// Permission bits of the group and of others.
const OTHER_USERS_MASK: u32 = 0o077;

/// Options that create files for the owner alone.
pub(super) fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Creates a file, or truncates an existing one.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    private_options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
}

/// Writes a complete file, creating it if needed.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_private(path)?.write_all(bytes)
}

/// Creates a directory; fails when it exists.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Creates a directory with its missing parents.
pub(super) fn create_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

/// Creates a directory for the owner alone, with its missing parents. The modes of an existing one and of all its
/// content are restricted: earlier versions wrote files that every user could read.
///
/// # Errors
///
/// [`ErrorKind::PermissionDenied`] with advice when the directory belongs to another user, or when its permissions
/// cannot be changed.
pub(super) fn claim_directory(path: &Path) -> io::Result<()> {
    create_directories(path)?;
    let attributes = fs::metadata(path)?;
    check_owner(&attributes)?;
    if attributes.mode() & OTHER_USERS_MASK == 0 {
        return Ok(());
    }
    restrict_mode(path, DIRECTORY_MODE).map_err(|error| {
        let text = format!(
            "other users can read it and its permissions cannot be changed ({error}). Run `chmod 700` on it, or name \
             another directory"
        );
        io::Error::new(ErrorKind::PermissionDenied, text)
    })?;
    tracing::warn!(directory = %path.display(), "other users could read this directory; it is now for its owner alone");
    restrict_content(path)
}

/// Makes sure that no other user can put a directory into this one, which may also contain unrelated
/// files. Creates a missing directory with access for the owner only; restricts the mode of an existing one if it
/// belongs to this user and contains only `known` names.
pub(super) fn claim_parent(path: &Path, known: &[&str]) -> io::Result<()> {
    create_directories(path)?;
    let attributes = fs::metadata(path)?;
    let mode = attributes.mode() & 0o7777;
    if mode & OTHER_USERS_MASK == 0 {
        return Ok(());
    }
    let is_owner = check_owner(&attributes).is_ok();
    // The mode of a directory with other content, such as a home directory, must not be changed.
    if is_owner && contains_only(path, known)? && restrict_mode(path, DIRECTORY_MODE).is_ok() {
        return Ok(());
    }
    // In a directory with the sticky bit a user cannot rename another user's files.
    if mode & 0o002 != 0 && mode & 0o1000 == 0 {
        let text = "every user can write to it. Run `chmod go-w` on it, or name another directory";
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn check_owner(attributes: &fs::Metadata) -> io::Result<()> {
    let (owner, user) = (attributes.uid(), rustix::process::geteuid().as_raw());
    if owner == user {
        return Ok(());
    }
    let text = format!(
        "it belongs to the user {owner}, and this process runs as {user}. Run `chown` on it, or name another directory"
    );
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

fn contains_only(path: &Path, known: &[&str]) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !known.iter().any(|known| name == *known) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn restrict_content(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let result = if kind.is_dir() {
            restrict_mode(&entry.path(), DIRECTORY_MODE)
                .and_then(|()| restrict_content(&entry.path()))
        } else if kind.is_file() {
            restrict_mode(&entry.path(), FILE_MODE)
        } else {
            // Links are not followed: they may lead out of the directory.
            Ok(())
        };
        match result {
            // The process that serves the directory may remove files meanwhile.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn restrict_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}
