//! The lock of a file that several processes write to (flock(2)), for which a process waits a limited time.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two attempts to take a lock. Other processes hold it for one write.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Takes the lock of `file` alone, or gives up after `limit`. It takes none on a file system without locks, where only one
/// process may use the file.
///
/// # Errors
///
/// `TimedOut` while another process holds it, with the name of that process where the kernel shows it. Every other failure
/// of the lock.
pub(super) fn lock_within(file: &File, limit: Duration) -> io::Result<()> {
    let end = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                return Err(held_error(file));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL_INTERVAL),
            Err(TryLockError::Error(error)) => match error.kind() {
                io::ErrorKind::Unsupported => return Ok(()),
                io::ErrorKind::Interrupted => {}
                kind => {
                    let message = format!("could not lock the file: {error}");
                    return Err(io::Error::new(kind, message));
                }
            },
        }
    }
}

fn held_error(file: &File) -> io::Error {
    let holder = find_holder(file).unwrap_or_else(|| "another process".to_owned());
    let message = format!("{holder} holds the lock of the file");
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// The process that holds the lock, with the name of its program; `None` where the kernel does not show it, as for a
/// process outside of the container.
fn find_holder(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&locks, metadata.dev(), metadata.ino())?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm"));
    Some(match program {
        // A process chooses its name, so it is quoted.
        Ok(program) => format!("process {pid} ({:?})", program.trim_end()),
        Err(_) => format!("process {pid}"),
    })
}

/// Finds the holder of the lock of an inode in the text of `/proc/locks` (`proc_locks(5)`).
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

#[cfg(test)]
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let held = File::create(&path).unwrap();
        held.lock().unwrap();
        let file = File::open(&path).unwrap();
        let error = lock_within(&file, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
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
        drop(held);
        lock_within(&file, Duration::ZERO).unwrap();
    }
}
