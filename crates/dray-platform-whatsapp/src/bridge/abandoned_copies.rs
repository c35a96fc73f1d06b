//! Copies of files in the shared directory: their directories, and the removal of those that a killed process left.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of the directories of copies; the bridge uses other names.
const COPY_PREFIX: &str = "out-";

/// The path of a new directory for one file, so that the file can keep its name.
pub(super) fn new_directory_path(shared_directory: &Path) -> PathBuf {
    shared_directory.join(format!("{COPY_PREFIX}{:032x}", rand::random::<u128>()))
}

/// Removes the directories of copies that nothing was written to for this time. Failures are only logged.
pub(super) async fn remove(shared_directory: PathBuf, max_age: Duration) {
    let removing = tokio::task::spawn_blocking(move || remove_old(&shared_directory, max_age));
    if let Ok(Err(error)) = removing.await {
        tracing::warn!(%error, "could not remove old copies from the shared directory");
    }
}

fn remove_old(shared_directory: &Path, max_age: Duration) -> io::Result<()> {
    for entry in fs::read_dir(shared_directory)? {
        let entry = entry?;
        let is_copy = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(COPY_PREFIX.as_bytes());
        if is_copy && entry.file_type()?.is_dir() && is_older(&entry, max_age)? {
            tracing::info!(path = %entry.path().display(), "removes a copy that was left behind");
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Whether neither the directory nor its file changed for this time.
fn is_older(directory: &DirEntry, max_age: Duration) -> io::Result<bool> {
    let mut newest = directory.metadata()?.modified()?;
    for file in fs::read_dir(directory.path())? {
        newest = newest.max(file?.metadata()?.modified()?);
    }
    // A time in the future has no age.
    Ok(newest.elapsed().is_ok_and(|age| age > max_age))
}
