//! The partial file of an interrupted get on this host: `.NAME.ORIGIN.STATE.part` beside the final file. ORIGIN
//! identifies the sandbox and the path in it, STATE the file as the sandbox described it: size, time, inode.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_presentation::name;
use dray_sandbox::metadata::Metadata;
use dray_types::Sha256Digest;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Hexadecimal digits of ORIGIN and of STATE; 48 bits are enough for the files of one directory.
const KEY_DIGITS: usize = 12;
/// End of the names of partial files.
const PARTIAL_SUFFIX: &str = ".part";
/// Longest wait for a writer that is ending. The last batch of a transfer whose future was dropped is still written,
/// and holds the lock for as long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two attempts to take the lock.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A partial file with one writer.
#[derive(Debug)]
pub(super) struct PartialFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Whether a partial file of another state of the same file existed; it was removed.
    pub(super) stale: bool,
}

fn key(of: &[u8]) -> String {
    let mut digits = Sha256Digest::of(of).to_hex();
    digits.truncate(KEY_DIGITS);
    digits
}

fn state(file: &Metadata) -> String {
    let Metadata {
        size,
        mtime_ns,
        identity,
        ..
    } = file;
    key(format!("{size} {mtime_ns:?} {identity:?}").as_bytes())
}

impl PartialFile {
    /// Opens the partial file of this state, or creates it. Waits up to 5 s for another writer to end. Partial files of
    /// other states are removed.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ResourceBusy`] when another transfer still writes it, and failures of opening.
    pub(super) async fn open(target: &Path, origin: &[u8], of: &Metadata) -> io::Result<Self> {
        let target_name = target.file_name().unwrap_or_default().as_bytes();
        let name = name::part_file_name(target_name, &format!("{}.{}", key(origin), state(of)));
        let directory = match target.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let end = Instant::now() + LOCK_TIMEOUT;
        loop {
            let (directory, name) = (directory.to_owned(), name.clone());
            let opened = spawn_blocking(move || Self::try_open(&directory, &name)).await;
            match opened.unwrap_or_else(|error| Err(io::Error::other(error))) {
                // The wait occupies no thread: the batch that holds the lock may need one.
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end =>
                {
                    tokio::time::sleep(LOCK_POLL_INTERVAL).await;
                }
                other => return other,
            }
        }
    }

    /// Like [`Self::open`], without a wait.
    fn try_open(directory: &Path, name: &[u8]) -> io::Result<Self> {
        let path = directory.join(OsStr::from_bytes(name));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A link with this name must not redirect the write: the directory may be shared.
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)?;
        lock_named(&file, &path)?;
        // The lock is held here: a second process fails above and removes nothing.
        let stale = remove_others(directory, name)?;
        Ok(Self { path, file, stale })
    }
}

/// Locks an open file that must still have this name.
///
/// # Errors
///
/// [`io::ErrorKind::ResourceBusy`] when another writer has the lock, or had it and renamed or removed the file.
pub(super) fn lock_named(file: &File, path: &Path) -> io::Result<()> {
    // The lock ends with the descriptor, so a killed process leaves none behind.
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let locked = file.metadata()?;
    match path.symlink_metadata() {
        Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => Ok(()),
        // Between the open and the lock, the other writer gave the file its final name: its bytes must not change.
        Ok(_) => Err(io::ErrorKind::ResourceBusy.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::ErrorKind::ResourceBusy.into())
        }
        Err(error) => Err(error),
    }
}

/// Removes partial files of other states. A process that writes to such a file keeps it open; the file then has no
/// name.
fn remove_others(directory: &Path, ours: &[u8]) -> io::Result<bool> {
    // Names of one origin differ only in STATE and the suffix.
    let end = ours.len().saturating_sub(KEY_DIGITS + PARTIAL_SUFFIX.len());
    let prefix = ours.get(..end).unwrap_or_default();
    let mut removed = false;
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let other = name.as_bytes();
        let is_partial = other.len() == ours.len()
            && other.starts_with(prefix)
            && other.ends_with(PARTIAL_SUFFIX.as_bytes());
        if is_partial && other != ours {
            match std::fs::remove_file(directory.join(&name)) {
                Ok(()) => removed = true,
                // Its writer gave it the final name in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}
