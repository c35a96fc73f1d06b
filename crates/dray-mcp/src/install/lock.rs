//! The advisory lock around one change of a configuration: of concurrent commands, each reads what the one before it
//! wrote, so no entry is lost.
//!
//! The directory of the file is locked, because the file itself is replaced and may not exist. No separate file is
//! needed, so none is left behind. Only programs that take this lock wait for each other; clients do not, so a file is
//! still compared with what was read before it is replaced.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use dray_types::file_lock::{FileLockError, lock_within};

use super::error::InstallError;

/// Longest wait for other commands. One change takes milliseconds.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A held lock. The kernel releases it when this value is dropped, and when the process dies.
#[derive(Debug)]
pub(super) struct ConfigLock {
    /// The locked directory; `None` where it cannot be locked.
    _directory: Option<File>,
}

impl ConfigLock {
    /// Locks the directory of `target`, and waits at most `limit` for another holder. A directory that does not exist,
    /// that this user may not open, or whose file system has no such locks is not locked.
    ///
    /// # Errors
    ///
    /// [`InstallError::Locked`] when another program still holds the lock at the end of `limit`.
    pub(super) fn acquire(target: &Path, limit: Duration) -> Result<Self, InstallError> {
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let Ok(opened) = File::open(directory) else {
            return Ok(Self { _directory: None });
        };
        match lock_within(&opened, limit) {
            Ok(()) => Ok(Self {
                _directory: Some(opened),
            }),
            Err(FileLockError::Held { .. }) => Err(InstallError::Locked(directory.to_owned())),
            // NFS locks only files that are open for writing (flock(2)), which a directory never is.
            Err(FileLockError::Unsupported(_) | FileLockError::Failed(_)) => {
                Ok(Self { _directory: None })
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_program_holds_is_an_error_after_the_limit_and_free_after_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("mcp.json");
        let other = ConfigLock::acquire(&target, Duration::ZERO).unwrap();
        let error = ConfigLock::acquire(&target, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(&error, InstallError::Locked(locked) if locked == directory.path()));
        drop(other);
        ConfigLock::acquire(&target, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_directory_that_does_not_exist_is_not_locked() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("missing/mcp.json");
        ConfigLock::acquire(&target, Duration::ZERO).unwrap();
        assert!(!target.parent().unwrap().exists());
    }
}
