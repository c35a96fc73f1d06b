//! The directory of objects: how objects get their names. All functions here block on the file system.
//!
//! An object is a file that is complete before it gets its name; a name is given with one `link` (only if it is free)
//! or one `rename`. So neither a reader nor a crash leaves a partial object, and of two concurrent conditional creates
//! exactly one fails.

use std::fs::{self, File, FileTimes};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dray_types::Clock;
use uuid::Uuid;

use super::error::DirectoryError;
use super::layout::DirectoryLayout;
use super::part::{InPlaceWrites, WriteLock};
use super::private;
use super::quota::StorageQuota;
use super::record::{self, ObjectMetadata, ObjectRecord};

/// A directory that this process serves.
#[derive(Debug)]
pub(super) struct ServedDirectory {
    pub(super) layout: DirectoryLayout,
    pub(super) quota: Arc<StorageQuota>,
    /// Held while names change, so that a directory is not removed between its creation and the first file in it.
    names: Mutex<()>,
    /// Parts that are being written in their final place.
    pub(super) in_place_writes: InPlaceWrites,
    /// Locked as long as the directory is served.
    _lock: File,
}

/// Bytes being written: a file that has no name yet, or a range of a larger file. Dropping it before
/// [`ObjectDraft::keep`] removes the file and releases its space.
#[derive(Debug)]
pub(super) struct ObjectDraft {
    pub(super) file: File,
    /// The file that is removed when this is dropped; `None` for a range.
    path: Option<PathBuf>,
    quota: Arc<StorageQuota>,
    /// Number of bytes that were reserved in the quota.
    pub(super) written: u64,
    finished: bool,
    /// The right to write the range. It ends with the last write, which may outlive the request.
    _write_lock: Option<WriteLock>,
}

/// The condition under which a new object may replace an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverwriteRule {
    /// Write only to a free key; an existing object is kept.
    Free,
    /// Write to any key; an existing object is replaced.
    Any,
}

impl ServedDirectory {
    /// Locks the directory for this process, and removes incomplete files of an earlier process.
    pub(super) fn open(root: &Path, capacity: u64) -> io::Result<Self> {
        let layout = DirectoryLayout::new(root);
        // The directory is claimed before any file is created: other users must not be able to place one.
        private::claim_directory(root)?;
        let lock = private::create_private(&layout.lock())?;
        // The kernel drops the lock with the process, so no lock stays behind after a crash.
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::new(
                ErrorKind::ResourceBusy,
                "another process serves this directory",
            ),
            fs::TryLockError::Error(error) => error,
        })?;
        // The lock is held, so no other process writes there.
        if layout.temporary().exists() {
            fs::remove_dir_all(layout.temporary())?;
        }
        for directory in [layout.temporary(), layout.objects(), layout.uploads()] {
            private::create_directories(&directory)?;
        }
        // The count walks the complete tree, so it is done only if there is a limit.
        let used = if StorageQuota::is_limited(capacity) {
            size_of(&layout.objects())? + size_of(&layout.uploads())?
        } else {
            0
        };
        Ok(Self {
            layout,
            quota: Arc::new(StorageQuota::new(capacity, used)),
            names: Mutex::new(()),
            in_place_writes: InPlaceWrites::default(),
            _lock: lock,
        })
    }

    /// Path of the directory.
    pub(super) fn root(&self) -> &Path {
        self.layout.root()
    }

    /// Creates the bucket, if it is missing. Returns whether it was.
    pub(super) fn create_bucket(&self, bucket: &str) -> io::Result<bool> {
        match private::create_directory(&self.layout.bucket(bucket)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Fails unless the bucket exists.
    pub(super) fn check_bucket(&self, bucket: &str) -> Result<(), DirectoryError> {
        if self.layout.bucket(bucket).is_dir() {
            Ok(())
        } else {
            Err(DirectoryError::NoSuchBucket)
        }
    }

    /// Path of an object's file, whether it exists or not.
    pub(super) fn path(&self, bucket: &str, key: &str) -> Result<PathBuf, DirectoryError> {
        self.layout
            .object(bucket, key)
            .ok_or(DirectoryError::KeyTooLong)
    }

    /// Opens an object for reading.
    pub(super) fn open_object(
        &self,
        bucket: &str,
        key: &str,
    ) -> Result<ObjectRecord, DirectoryError> {
        self.check_bucket(bucket)?;
        ObjectRecord::open(&self.path(bucket, key)?)
    }

    /// Creates a new file that has no name for readers yet.
    pub(super) fn draft(&self) -> io::Result<ObjectDraft> {
        let path = self.layout.temporary().join(Uuid::new_v4().to_string());
        let file = private::private_options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok(ObjectDraft {
            file,
            path: Some(path),
            quota: Arc::clone(&self.quota),
            written: 0,
            finished: false,
            _write_lock: None,
        })
    }

    /// Creates a draft of a range of a file, written from the current position of `file`.
    pub(super) fn range(&self, file: File, write_lock: Option<WriteLock>) -> ObjectDraft {
        ObjectDraft {
            file,
            path: None,
            quota: Arc::clone(&self.quota),
            written: 0,
            finished: false,
            _write_lock: write_lock,
        }
    }

    /// Seals the draft and makes it the object under `path`.
    pub(super) fn publish(
        &self,
        mut draft: ObjectDraft,
        meta: &ObjectMetadata,
        path: &Path,
        rule: OverwriteRule,
    ) -> Result<(), DirectoryError> {
        let length = record::seal_record(&mut draft.file, meta)?;
        draft.reserve(length)?;
        if let Some(unnamed) = &draft.path {
            self.assign_name(unnamed, path, rule)?;
        }
        draft.keep();
        Ok(())
    }

    /// Gives a complete file its name, and removes the temporary one.
    pub(super) fn assign_name(
        &self,
        unnamed: &Path,
        path: &Path,
        rule: OverwriteRule,
    ) -> Result<(), DirectoryError> {
        // The lock is held until the name is given, because `remove` could delete the parent that was just created.
        let _names = self.names();
        make_parent(path)?;
        match rule {
            // One system call that fails when the name exists, so of two concurrent creators exactly one succeeds.
            OverwriteRule::Free => match fs::hard_link(unnamed, path) {
                Ok(()) => fs::remove_file(unnamed)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(DirectoryError::Precondition);
                }
                Err(error) => return Err(error.into()),
            },
            OverwriteRule::Any => {
                // The size is measured before the rename, which replaces this file.
                let freed = freed_by_removing(path)?;
                fs::rename(unnamed, path)?;
                self.quota.release(freed);
            }
        }
        Ok(())
    }

    /// Gives an object a second name. Both names share the bytes and the time of the copy, from which the lifetime of
    /// both counts; nothing is copied.
    pub(super) fn link(
        &self,
        from: &Path,
        to: &Path,
        rule: OverwriteRule,
    ) -> Result<(), DirectoryError> {
        let _names = self.names();
        make_parent(to)?;
        // The copy of an old object must not be removed as an old one, not even when the process ends after this line.
        Self::touch(from)?;
        if rule == OverwriteRule::Any && to.exists() {
            // A temporary name is linked and then renamed, so that the destination is never missing.
            let temporary = self.layout.temporary().join(Uuid::new_v4().to_string());
            fs::hard_link(from, &temporary).map_err(missing_or_io)?;
            let freed = freed_by_removing(to)?;
            fs::rename(&temporary, to)?;
            self.quota.release(freed);
            return Ok(());
        }
        match fs::hard_link(from, to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(DirectoryError::Precondition)
            }
            linked => linked.map_err(missing_or_io),
        }
    }

    /// Renews the lifetime of an object, which counts from its last modification.
    pub(super) fn touch(path: &Path) -> Result<(), DirectoryError> {
        let file = File::options()
            .write(true)
            .open(path)
            .map_err(missing_or_io)?;
        let now = UNIX_EPOCH + Duration::from_millis(Clock::system().now_ms());
        file.set_times(FileTimes::new().set_modified(now))?;
        Ok(())
    }

    /// Removes an object, if it exists, and the directories that this leaves empty.
    pub(super) fn remove(&self, bucket: &str, path: &Path) -> Result<(), DirectoryError> {
        let _names = self.names();
        let freed = freed_by_removing(path)?;
        match fs::remove_file(path) {
            Ok(()) => self.quota.release(freed),
            Err(error) if is_absent(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let top = self.layout.bucket(bucket);
        for directory in path.ancestors().skip(1) {
            // `remove_dir` fails on a directory with entries; its parents have entries too.
            if directory == top || fs::remove_dir(directory).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn names(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectDraft {
    /// Reserves space for bytes that will be written. Fails when the capacity is reached.
    pub(super) fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.quota.reserve(bytes)?;
        self.written += bytes;
        Ok(())
    }

    /// Marks the bytes as published: dropping the draft then removes and releases nothing.
    pub(super) fn keep(mut self) {
        self.finished = true;
    }
}

impl Drop for ObjectDraft {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.quota.release(self.written);
        if let Some(path) = &self.path
            && let Err(error) = fs::remove_file(path)
        {
            // The failure is only logged: the directory of drafts is emptied at the next start.
            tracing::warn!(%error, "could not remove an unfinished file; the next start removes it");
        }
    }
}

fn missing_or_io(error: io::Error) -> DirectoryError {
    if is_absent(&error) {
        DirectoryError::NoSuchKey
    } else {
        error.into()
    }
}

fn is_absent(error: &io::Error) -> bool {
    // A key below another object's name: a part of the path is a file.
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), private::create_directories)
}

/// Bytes that removing this name of a file frees; 0 while the file has another name.
fn freed_by_removing(path: &Path) -> io::Result<u64> {
    match fs::metadata(path) {
        Ok(attributes) if attributes.nlink() == 1 => Ok(attributes.len()),
        Ok(_) => Ok(0),
        Err(error) if is_absent(&error) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Size in bytes of all files below a directory.
fn size_of(directory: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        total += if entry.file_type()?.is_dir() {
            size_of(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(total)
}
