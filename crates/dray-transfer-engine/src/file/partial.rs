//! The partial file of an interrupted get on this host: `.NAME.ORIGIN.STATE.part` beside the final file. ORIGIN
//! identifies the sandbox and the path in it, STATE the file as the sandbox described it: size, time, inode.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use dray_presentation::name;
use dray_sandbox::metadata::Metadata;
use dray_types::Sha256Digest;

/// Hexadecimal digits of ORIGIN and of STATE; 48 bits are enough for the files of one directory.
const KEY_DIGITS: usize = 12;
/// End of the names of partial files.
const PARTIAL_SUFFIX: &str = ".part";

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
    /// Opens the partial file of this state, or creates it. Partial files of other states are removed.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ResourceBusy`] when another process writes it, and failures of opening.
    pub(super) fn open(target: &Path, origin: &[u8], of: &Metadata) -> io::Result<Self> {
        let target_name = target.file_name().unwrap_or_default().as_bytes();
        let name = name::part_file_name(target_name, &format!("{}.{}", key(origin), state(of)));
        let directory = match target.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let path = directory.join(std::ffi::OsString::from_vec(name.clone()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A link with this name must not redirect the write: the directory may be shared.
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)?;
        // The lock ends with the descriptor, so a killed process leaves none behind.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Under the lock: a second process fails above and removes nothing.
        let stale = remove_others(directory, &name)?;
        Ok(Self { path, file, stale })
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
            std::fs::remove_file(directory.join(&name))?;
            removed = true;
        }
    }
    Ok(removed)
}
