//! What is left of an interrupted get on this host: `.NAME.ORIGIN.STATE.part` beside the file that it was to become.
//! ORIGIN stands for the sandbox and the path in it, STATE for what the sandbox said of the file: size, time, inode.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use dray_content::name;
use dray_types::Sha256Digest;

use crate::metadata::Metadata;

/// Hexadecimal digits of ORIGIN and of STATE.
const KEY_DIGITS: usize = 12;
/// How the names end.
const PARTIAL_SUFFIX: &str = ".part";

/// A partial file with a single writer.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Whether there was one of another state of the same file; it is gone.
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

impl Partial {
    /// Opens the partial file of this state, or makes it. Those of earlier states are removed.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ResourceBusy`] when another process writes it, and what opening fails with.
    pub(super) fn open(target: &Path, origin: &[u8], of: &Metadata) -> io::Result<Self> {
        let called = target.file_name().unwrap_or_default().as_bytes();
        let name = name::part_file_name(called, &format!("{}.{}", key(origin), state(of)));
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
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let stale = remove_others(directory, &name)?;
        Ok(Self { path, file, stale })
    }
}

/// Removes partial files of other states; those that another process writes go on existing without a name.
fn remove_others(directory: &Path, ours: &[u8]) -> io::Result<bool> {
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
