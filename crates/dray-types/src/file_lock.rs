//! Waits for the lock of a file (flock(2)) for a limited time.
//!
//! The kernel releases a lock with the open file, so a process that dies leaves none behind. Only programs that take
//! the lock wait for each other.

use std::fs::{File, TryLockError};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two attempts to take a lock. Other processes hold it for a few milliseconds.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The reason why a file was not locked.
#[derive(Debug, thiserror::Error)]
pub enum FileLockError {
    /// Another process held the lock until the end of the wait.
    #[error("{} holds the lock of the file", .holder.as_deref().unwrap_or("another process"))]
    Held {
        /// The process that holds it, with the name of its program, where the kernel shows them.
        holder: Option<String>,
    },
    /// The file has no locks, as on some network file systems and for directories on NFS.
    #[error("the file cannot be locked")]
    Unsupported(#[source] io::Error),
    /// The kernel reported another failure.
    #[error("could not lock the file: {0}")]
    Failed(#[source] io::Error),
}

/// Takes the lock of `file`, which may be a directory, for this process alone. Blocks its thread for at most `limit`,
/// and makes at least one attempt.
///
/// # Errors
///
/// [`FileLockError`]; the file is not locked then.
pub fn lock_within(file: &File, limit: Duration) -> Result<(), FileLockError> {
    let end = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                return Err(FileLockError::Held {
                    holder: find_holder(file),
                });
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL_INTERVAL),
            Err(TryLockError::Error(error)) => match error.kind() {
                // A signal came before the kernel decided.
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::Unsupported => return Err(FileLockError::Unsupported(error)),
                _ => return Err(FileLockError::Failed(error)),
            },
        }
    }
}

/// The process that holds the lock, with the name of its program. `None` if the kernel does not show it, for example
/// because the process is outside the container.
#[cfg(unix)]
fn find_holder(file: &File) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    let metadata = file.metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&locks, metadata.dev(), metadata.ino())?;
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    Some(match program {
        // A process chooses its name, so it is quoted.
        Ok(program) => format!("process {pid} ({:?})", program.trim_end()),
        Err(_) => format!("process {pid}"),
    })
}

#[cfg(not(unix))]
fn find_holder(_file: &File) -> Option<String> {
    None
}

/// Finds the holder of the lock of an inode in the text of `/proc/locks` (`proc_locks(5)`).
#[cfg(unix)]
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    // The two numbers of a device, as in makedev(3).
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & 0xffff_f000);
    let minor = (device & 0xff) | ((device >> 12) & 0xffff_ff00);
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        match fields.as_slice() {
            // A process that waits has `->` in place of the kind. One outside of the container has number 0.
            [_, "FLOCK", _, _, pid, place, ..] if *place == wanted => {
                pid.parse().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_among_other_locks_and_waiters() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:43 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fd:100:42 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 14 08:01:42 0 EOF\n\
                     4: -> FLOCK  ADVISORY  WRITE 15 08:01:42 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 0 08:01:44 0 EOF\n";
        // Major number 8 and minor number 1; 253 and 256.
        assert_eq!(holder_in(locks, 0x801, 42), Some(14));
        assert_eq!(holder_in(locks, 0x10_fd00, 42), Some(13));
        assert_eq!(holder_in(locks, 0x801, 44), None);
        assert_eq!(holder_in(locks, 0x802, 42), None);
    }

    #[test]
    fn a_lock_that_another_holder_keeps_is_an_error_that_names_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let lock_file = File::create(&path).unwrap();
        lock_file.lock().unwrap();
        let file = File::open(&path).unwrap();
        let error = lock_within(&file, Duration::ZERO).unwrap_err();
        assert!(matches!(&error, FileLockError::Held { .. }), "{error:?}");
        let message = error.to_string();
        let own = format!("process {} (", std::process::id());
        // Some file systems have another device number in the list of locks.
        assert!(
            message.starts_with(&own) || message.starts_with("another process "),
            "{message}"
        );
        assert!(
            message.ends_with(" holds the lock of the file"),
            "{message}"
        );
        drop(lock_file);
        lock_within(&file, Duration::ZERO).unwrap();
    }
}
