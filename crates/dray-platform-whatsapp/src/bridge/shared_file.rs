//! Opens files that a bridge names.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use dray_platform::{ErrorKind, PlatformError};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens a file of the shared directory.
///
/// # Errors
///
/// [`ErrorKind::Forbidden`] for anything else than a file in it; [`ErrorKind::NotFound`].
pub(super) async fn open(
    shared_directory: &Path,
    path: &Path,
) -> Result<tokio::fs::File, PlatformError> {
    let missing = |cause: io::Error| {
        PlatformError::new(ErrorKind::NotFound, "the bridge's file is missing").caused_by(cause)
    };
    // Both sides are resolved: the directory may itself be a symbolic link.
    let root = tokio::fs::canonicalize(shared_directory)
        .await
        .map_err(missing)?;
    let path = tokio::fs::canonicalize(path).await.map_err(missing)?;
    let inside = match path.strip_prefix(&root) {
        Ok(inside) if !inside.as_os_str().is_empty() => inside.to_owned(),
        _ => return Err(outside_error()),
    };
    let opened = open_beneath_in_background(root, inside).await;
    let opened = tokio::fs::File::from_std(opened.map_err(missing)?);
    // The metadata is that of the open file, because the bridge can replace what is at the path.
    if !opened.metadata().await.map_err(missing)?.is_file() {
        return Err(outside_error());
    }
    Ok(opened)
}

fn outside_error() -> PlatformError {
    PlatformError::new(
        ErrorKind::Forbidden,
        "the path of the bridge is outside the shared directory",
    )
}

async fn open_beneath_in_background(root: PathBuf, inside: PathBuf) -> io::Result<File> {
    let opening = tokio::task::spawn_blocking(move || open_beneath(&root, &inside));
    opening.await.map_err(io::Error::other)?
}

/// Opens a path without links. The kernel refuses a link that the bridge put there since the path was resolved.
fn open_beneath(root: &Path, inside: &Path) -> io::Result<File> {
    let directory_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, directory_flags, Mode::empty())?;
    // `NONBLOCK`: the open of a FIFO would wait for a writer without end.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match rustix::fs::openat2(&root, inside, flags, Mode::empty(), resolve) {
        // Old kernels, and seccomp profiles that are older than the call: only the last name is protected.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(&root, inside, flags, Mode::empty())?,
        opened => opened?,
    };
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_replaces_a_file_after_the_check_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a.txt"), b"a").unwrap();
        std::fs::write(other.path().join("secret"), b"s").unwrap();
        std::os::unix::fs::symlink(other.path().join("secret"), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(other.path(), root.path().join("directory")).unwrap();
        assert!(open_beneath(root.path(), Path::new("a.txt")).is_ok());
        for link in ["link", "directory/secret"] {
            let opened = open_beneath(root.path(), Path::new(link));
            assert!(opened.is_err(), "{link}");
        }
    }
}
