//! The storage of records: values with revisions, changed by compare-and-set.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};

/// Bucket of the bus with the records of tickets.
pub const TICKET_BUCKET: &str = "dray_tickets";
/// Name of the file in a directory of records whose lock guards changes; no key has it.
const LOCK_FILE: &str = ".lock";
/// Mode of a new directory of records: all rights for its owner alone, since records name people's files.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of the file with the lock. Records have the same one, from `tempfile`.
const LOCK_MODE: u32 = 0o600;
/// Bytes of the revision before the value in a file.
const REVISION_BYTES: usize = 8;

/// The records of all tickets of a system. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TicketRecords(RecordBackend);

#[derive(Clone, Debug)]
enum RecordBackend {
    KeyValue(KeyValue),
    Directory(Arc<RecordDirectory>),
}

/// Files of this machine, one for each record.
#[derive(Debug)]
struct RecordDirectory {
    path: PathBuf,
    /// File that is locked while a record is compared and replaced, so that other processes with this directory wait.
    changes: Mutex<File>,
}

/// A record was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another request changed the record since it was read.
    #[error("the record was changed by another request")]
    Stale,
    /// The bus failed.
    #[error("could not reach the records of tickets")]
    Bus(#[source] KeyError),
    /// The directory failed.
    #[error("could not access the directory of tickets")]
    Directory(#[source] io::Error),
}

impl From<KeyError> for RecordError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Stale | KeyError::Exists => Self::Stale,
            other => Self::Bus(other),
        }
    }
}

impl TicketRecords {
    /// Records in a bucket of the bus, which all replicas share.
    pub const fn key_value(keys: KeyValue) -> Self {
        Self(RecordBackend::KeyValue(keys))
    }

    /// Records in a directory, which is created for its owner alone. They survive the end of the process, but may be
    /// lost in a power failure, because no file is synced.
    ///
    /// # Errors
    ///
    /// The directory cannot be created.
    pub fn directory(path: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(path)?;
        let changes = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(LOCK_MODE)
            .open(path.join(LOCK_FILE))?;
        Ok(Self(RecordBackend::Directory(Arc::new(RecordDirectory {
            path: path.to_owned(),
            changes: Mutex::new(changes),
        }))))
    }

    /// The value of a key and its revision.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<(Bytes, u64)>, RecordError> {
        match &self.0 {
            RecordBackend::KeyValue(keys) => {
                let entry = keys.get(key).await?;
                Ok(entry.map(|entry| (entry.value, entry.revision)))
            }
            RecordBackend::Directory(directory) => {
                directory.run(key, |_, file| read_record(file)).await
            }
        }
    }

    /// Writes a key at `revision`; 0 for one that has no value. Returns the new revision.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: Bytes,
        revision: u64,
    ) -> Result<u64, RecordError> {
        match &self.0 {
            RecordBackend::KeyValue(keys) if revision == 0 => Ok(keys.create(key, value).await?),
            RecordBackend::KeyValue(keys) => Ok(keys.update(key, value, revision).await?),
            RecordBackend::Directory(directory) => {
                let replaced = directory.run(key, move |path, file| {
                    if read_revision(file)? != revision {
                        return Ok(None);
                    }
                    write_record(path, file, &value, revision + 1)?;
                    Ok(Some(revision + 1))
                });
                replaced.await?.ok_or(RecordError::Stale)
            }
        }
    }

    /// Deletes a key of exactly this revision.
    pub(crate) async fn delete(&self, key: &str, revision: u64) -> Result<(), RecordError> {
        match &self.0 {
            RecordBackend::KeyValue(keys) => Ok(keys.delete(key, revision).await?),
            RecordBackend::Directory(directory) => {
                let deleted = directory.run(key, move |_, file| {
                    if read_revision(file)? != revision {
                        return Ok(false);
                    }
                    std::fs::remove_file(file)?;
                    Ok(true)
                });
                if deleted.await? {
                    Ok(())
                } else {
                    Err(RecordError::Stale)
                }
            }
        }
    }

    /// Keys that begin with `prefix` and a dot, at most `limit`.
    pub(crate) async fn keys(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<String>, RecordError> {
        match &self.0 {
            RecordBackend::KeyValue(keys) => {
                let listing = keys.list(prefix, limit).await?;
                Ok(listing.entries.into_iter().map(|(key, _)| key).collect())
            }
            RecordBackend::Directory(directory) => {
                let start = format!("{prefix}.");
                let list = directory.run("", move |path, _| {
                    let mut keys = Vec::new();
                    for entry in std::fs::read_dir(path)? {
                        let name = entry?.file_name().to_string_lossy().into_owned();
                        if name.starts_with(&start) && keys.len() < limit {
                            keys.push(name);
                        }
                    }
                    Ok(keys)
                });
                list.await
            }
        }
    }
}

impl RecordDirectory {
    /// Runs blocking work with the directory and the file of a key, one at a time.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        key: &str,
        work: impl FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, RecordError> {
        let directory = Arc::clone(self);
        // Keys have letters, digits, `-`, `_` and dots between them, so they are names of files.
        let file = self.path.join(key);
        let joined = tokio::task::spawn_blocking(move || {
            let changes = directory
                .changes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            changes.lock()?;
            let worked = work(&directory.path, &file);
            // The file stays open for the next change, so closing it does not release the lock.
            changes.unlock()?;
            worked
        });
        joined
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(RecordError::Directory)
    }
}

fn read_record(file: &Path) -> io::Result<Option<(Bytes, u64)>> {
    let mut content = match std::fs::read(file) {
        Ok(content) => Bytes::from(content),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if content.len() < REVISION_BYTES {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut revision = [0; REVISION_BYTES];
    revision.copy_from_slice(&content.split_to(REVISION_BYTES));
    Ok(Some((content, u64::from_be_bytes(revision))))
}

/// The revision of a file; 0 where there is none. A record of a large upload has 200 KB, and each of its segments
/// changes it, so the value is not read.
fn read_revision(file: &Path) -> io::Result<u64> {
    let mut file = match File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut revision = [0; REVISION_BYTES];
    file.read_exact(&mut revision)?;
    Ok(u64::from_be_bytes(revision))
}

/// Replaces a file with one rename, so that a reader and a crash see the old or the new value.
fn write_record(directory: &Path, file: &Path, value: &[u8], revision: u64) -> io::Result<()> {
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    draft.write_all(&revision.to_be_bytes())?;
    draft.write_all(value)?;
    draft.persist(file)?;
    Ok(())
}
