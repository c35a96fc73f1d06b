//! Files of this host as source or sink of a transfer. Another thread than the one that moves the bytes hashes and
//! writes them, so that the digest on the host takes no additional time.

mod partial;
mod temporary_name;
#[cfg(test)]
mod tests;

use std::fs::{File, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Metadata};
use dray_types::Sha256Digest;
use futures_util::stream;
use sha2::{Digest as _, Sha256};
use tokio::task::{JoinHandle, spawn_blocking};

use self::partial::PartialFile;
use self::temporary_name::TemporaryName;
use super::peer::{Sink, Source};

/// Bytes that are collected before they are hashed and written; as many may be written at the same time.
const BATCH_BYTES: usize = 512 << 10;
/// Longest read of a source, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// The file, and the digest of the bytes written to it.
struct FileWriter {
    file: Arc<File>,
    sha256: Sha256,
}

impl FileWriter {
    fn write(&mut self, batch: &[Bytes]) -> io::Result<()> {
        for chunk in batch {
            (&*self.file).write_all(chunk)?;
            self.sha256.update(chunk);
        }
        Ok(())
    }
}

/// The writer of a sink, which is lent to a thread for each batch.
enum WriterState {
    Idle(FileWriter),
    Writing(JoinHandle<io::Result<FileWriter>>),
}

/// A file of this host that gets its name when all of it is proved. Until then it has a temporary name in the same
/// directory and mode 0600; the temporary file is removed on drop. The finished file is executable for its owner if the
/// source is. Like the output of `cp`, it is not synced to the disk.
pub struct FileSink {
    target: PathBuf,
    /// `None` before the first byte of a resumable file, and once it has its final name or was removed.
    temporary: Option<TemporaryName>,
    file: Option<Arc<File>>,
    /// Identity of the content of a resumable file; `None` for a file that is removed on drop.
    origin: Option<Vec<u8>>,
    /// The reason why the partial file of an earlier transfer was discarded.
    restarted: Option<&'static str>,
    replace: bool,
    /// Whether the owner may execute the file in the sandbox.
    executable: bool,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// `None` before the first byte, after a failure and after an interruption.
    output: Option<WriterState>,
    sha256: Sha256Digest,
}

impl std::fmt::Debug for FileSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSink").finish_non_exhaustive()
    }
}

impl FileSink {
    /// Makes a sink for the file of this name. An existing file is replaced at the end.
    ///
    /// # Errors
    ///
    /// The failure to create a file beside it.
    pub fn create(target: impl Into<PathBuf>) -> io::Result<Self> {
        let target = target.into();
        let directory = match target.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let named = tempfile::Builder::new()
            .prefix(".dray-")
            .tempfile_in(directory)?;
        let (file, temporary) = named.into_parts();
        Ok(Self {
            temporary: Some(TemporaryName::Dropped(temporary)),
            file: Some(Arc::new(file)),
            origin: None,
            ..Self::resumable(target, Vec::new())
        })
    }

    /// Makes a sink that writes to a file without a name in this directory, and returns the file too. The kernel frees
    /// its space when it is closed, also when the process is killed.
    ///
    /// # Errors
    ///
    /// The failure to create the file.
    pub fn unnamed_in(directory: &Path) -> io::Result<(Self, File)> {
        let file = tempfile::tempfile_in(directory)?;
        let sink = Self {
            temporary: Some(TemporaryName::Unnamed),
            file: Some(Arc::new(file.try_clone()?)),
            origin: None,
            ..Self::resumable(PathBuf::new(), Vec::new())
        };
        Ok((sink, file))
    }

    /// Makes a sink that keeps its partial file beside the target when the transfer is interrupted, for the next one to
    /// continue. `origin` identifies what is copied, for instance the sandbox and the path in it.
    pub fn resumable(target: impl Into<PathBuf>, origin: impl Into<Vec<u8>>) -> Self {
        Self {
            target: target.into(),
            temporary: None,
            file: None,
            origin: Some(origin.into()),
            restarted: None,
            replace: true,
            executable: false,
            batch: Vec::new(),
            batch_bytes: 0,
            output: None,
            sha256: Sha256Digest::of(b""),
        }
    }

    /// Changes the sink so that it fails with [`ErrorKind::Exists`] if a file with the final name exists, and leaves
    /// that file unchanged.
    #[must_use]
    pub const fn exclusive(mut self) -> Self {
        self.replace = false;
        self
    }

    /// The reason why the partial file of an earlier transfer was discarded and everything is copied again. `None` if
    /// nothing was discarded.
    pub const fn restarted(&self) -> Option<&'static str> {
        self.restarted
    }

    /// Opens the partial file of a resumable sink, once.
    async fn open_partial(&mut self, of: &Metadata) -> Result<(), Error> {
        let Some(origin) = self.origin.clone().filter(|_| self.file.is_none()) else {
            return Ok(());
        };
        let opened = PartialFile::open(&self.target, &origin, of).await;
        let PartialFile { path, file, stale } = opened.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                let error = "another transfer writes the same partial file";
                Error::new(ErrorKind::Exists, error)
            }
            _ => write_error(&error),
        })?;
        self.restarted = stale.then_some("the file changed since the earlier transfer");
        self.temporary = Some(TemporaryName::Kept(path));
        self.file = Some(Arc::new(file));
        Ok(())
    }

    fn open_file(&self) -> Result<Arc<File>, Error> {
        let none = || Error::new(ErrorKind::Protocol, "no file on this host was opened");
        self.file.clone().ok_or_else(none)
    }

    /// Waits until the last batch is written, and starts writing the collected one.
    async fn start_batch(&mut self) -> Result<(), Error> {
        // Batches are written one at a time: the digest must get the bytes in their order.
        let mut output = self.finish_batch().await?;
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.output = Some(WriterState::Writing(spawn_blocking(move || {
            output.write(&batch)?;
            Ok(output)
        })));
        Ok(())
    }

    async fn finish_batch(&mut self) -> Result<FileWriter, Error> {
        let failed = || Error::new(ErrorKind::Unavailable, "no copy to this host was begun");
        match self.output.take().ok_or_else(failed)? {
            WriterState::Idle(output) => Ok(output),
            WriterState::Writing(batch) => blocking_result(batch.await),
        }
    }
}

fn blocking_result<T>(joined: Result<io::Result<T>, tokio::task::JoinError>) -> Result<T, Error> {
    joined
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|error| write_error(&error))
}

/// Whether the owner may run the file. The same bit of a directory, which arrives as an archive, permits entering it.
fn is_executable(file: &Metadata) -> bool {
    file.kind == FileKind::File && file.mode & 0o100 != 0
}

/// Converts an error of this host. A full disk has its own kind, because a retry does not help and the sandbox did not
/// fail.
fn write_error(error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::NoSpace
        }
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("a file on this host: {error}")).of_this_host()
}

#[async_trait]
impl Sink for FileSink {
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error> {
        self.open_partial(file).await?;
        self.executable = is_executable(file);
        if self.output.is_some() {
            // A batch that is written after the file was truncated would leave bytes of the old copy. If it fails, that
            // failure concerns bytes that are discarded anyway.
            drop(self.finish_batch().await);
        }
        (self.batch, self.batch_bytes) = (Vec::new(), 0);
        self.sha256 = Sha256Digest::of(b"");
        let file = self.open_file()?;
        if self.origin.is_some() && file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            self.restarted = Some("the partial file of the earlier transfer cannot be continued");
        }
        self.output = Some(WriterState::Writing(spawn_blocking(move || {
            file.set_len(0)?;
            (&*file).rewind()?;
            Ok(FileWriter {
                file,
                sha256: Sha256::new(),
            })
        })));
        Ok(())
    }

    async fn resume(&mut self, file: &Metadata) -> Result<Option<Body>, Error> {
        if self.origin.is_none() {
            return Ok(None);
        }
        self.open_partial(file).await?;
        self.executable = is_executable(file);
        let kept = self.open_file()?;
        let length = kept.metadata().map_err(|error| write_error(&error))?.len();
        if length == 0 || length > file.size {
            return Ok(None);
        }
        // The caller counts these bytes from a separate stream, and the digest here is the sink's.
        let body = FileSource::shared(Arc::clone(&kept), length).unhashed();
        let mut bytes = FileSource::shared(Arc::clone(&kept), length).unhashed();
        let mut sha256 = Sha256::new();
        while let Some(chunk) = bytes.next().await.transpose()? {
            sha256.update(&chunk);
        }
        (&*kept)
            .seek(SeekFrom::Start(length))
            .map_err(|error| write_error(&error))?;
        self.sha256 = Sha256Digest::from_bytes(sha256.clone().finalize().into());
        self.output = Some(WriterState::Idle(FileWriter { file: kept, sha256 }));
        Ok(Some(body))
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        self.batch_bytes += chunk.len();
        self.batch.push(chunk);
        if self.batch_bytes < BATCH_BYTES {
            return Ok(());
        }
        self.start_batch().await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.start_batch().await?;
        let output = self.finish_batch().await?;
        self.sha256 = Sha256Digest::from_bytes(output.sha256.clone().finalize().into());
        self.output = Some(WriterState::Idle(output));
        Ok(())
    }

    fn sha256(&self) -> Option<Sha256Digest> {
        Some(self.sha256)
    }

    async fn finish(&mut self, sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        self.flush().await?;
        if self.sha256 != sha256 {
            let error = "the file on this host has other bytes";
            return Err(Error::new(ErrorKind::Corrupted, error));
        }
        let Some(temporary) = self.temporary.take() else {
            return Err(Error::new(ErrorKind::Protocol, "finished twice"));
        };
        let (target, replace) = (self.target.clone(), self.replace);
        let file = self.open_file()?;
        let mode = if self.executable { 0o700 } else { 0o600 };
        let persisted = spawn_blocking(move || {
            file.set_permissions(Permissions::from_mode(mode))?;
            if replace {
                return temporary.persist(&target);
            }
            temporary.persist_new(&target)
        });
        blocking_result(persisted.await)
    }

    async fn abort(&mut self) {
        if self.output.is_some() {
            drop(self.finish_batch().await);
        }
        if let Some(TemporaryName::Kept(path)) = self.temporary.take() {
            // The space of the file is freed with its last descriptor.
            let _ = std::fs::remove_file(path);
        }
    }

    async fn interrupt(&mut self) -> bool {
        if self.origin.is_none() || self.file.is_none() {
            self.abort().await;
            return false;
        }
        // The batches before a failed one are on the disk anyway.
        let _ = self.flush().await;
        let kept = self.file.as_ref().and_then(|file| file.metadata().ok());
        if kept.is_some_and(|kept| kept.len() > 0) {
            self.temporary = None;
            self.output = None;
            // A reader of the kept bytes may still hold a descriptor, and the lock would last as long.
            drop(self.file.take().map(|file| file.unlock()));
            return true;
        }
        self.abort().await;
        false
    }
}

/// A file of this host as the source of a put. Its digest is computed while it is sent.
#[derive(Clone, Debug)]
pub struct FileSource {
    file: Arc<File>,
    size: u64,
    sha256: Arc<Mutex<Option<Sha256Digest>>>,
}

/// A chunk, and the digest up to its end where one is computed.
type ReadChunk = (Bytes, Option<Sha256>);

/// An unfinished read of a source.
struct SourceRead {
    source: FileSource,
    at: u64,
    /// The digest so far; `None` for a read that does not start at the beginning.
    sha256: Option<Sha256>,
    /// The read of the chunk after the one that was returned last.
    next: Option<JoinHandle<io::Result<ReadChunk>>>,
}

impl FileSource {
    /// Wraps an open regular file of this size. Reads use their own positions, so the cursor of the file does not
    /// matter.
    pub fn new(file: File, size: u64) -> Self {
        Self::shared(Arc::new(file), size)
    }

    fn shared(file: Arc<File>, size: u64) -> Self {
        Self {
            file,
            size,
            sha256: Arc::default(),
        }
    }

    /// The whole content, without a digest.
    fn unhashed(self) -> Body {
        let mut reading = SourceRead {
            source: self,
            at: 0,
            sha256: None,
            next: None,
        };
        reading.read_ahead();
        Body::new(stream::try_unfold(reading, SourceRead::step))
    }

    fn known_digest(&self) -> Option<Sha256Digest> {
        *self.sha256.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the digest of the whole file. It must be the same in every read.
    fn record_digest(&self, sha256: Sha256) -> Result<(), Error> {
        let sha256 = Sha256Digest::from_bytes(sha256.finalize().into());
        let mut known = self.sha256.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some_and(|known| known != sha256) {
            let error = "the file on this host changed while it was sent";
            return Err(Error::new(ErrorKind::ChangedDuringTransfer, error));
        }
        *known = Some(sha256);
        Ok(())
    }
}

impl SourceRead {
    fn read_ahead(&mut self) {
        let remaining = self.source.size.saturating_sub(self.at);
        let length =
            usize::try_from(remaining).map_or(CHUNK_BYTES, |remaining| remaining.min(CHUNK_BYTES));
        if length == 0 {
            return;
        }
        let (file, at, mut sha256) = (Arc::clone(&self.source.file), self.at, self.sha256.take());
        self.at += length as u64;
        self.next = Some(spawn_blocking(move || {
            let mut chunk = vec![0; length];
            file.read_exact_at(&mut chunk, at)?;
            if let Some(sha256) = &mut sha256 {
                sha256.update(&chunk);
            }
            Ok((chunk.into(), sha256))
        }));
    }

    async fn step(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        let Some(next) = self.next.take() else {
            if let Some(sha256) = self.sha256.take() {
                self.source.record_digest(sha256)?;
            }
            return Ok(None);
        };
        let (chunk, sha256) = blocking_result(next.await).map_err(|error| {
            Error::new(ErrorKind::Truncated, "the file on this host cannot be read")
                .caused_by(error)
        })?;
        self.sha256 = sha256;
        // The next read runs while the caller sends this chunk.
        self.read_ahead();
        Ok(Some((chunk, self)))
    }
}

#[async_trait]
impl Source for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        if let Some(known) = self.known_digest() {
            return Ok(known);
        }
        let mut body = self.open(0).await?;
        // `record_digest` sets the digest at the end of the stream.
        while body.next().await.transpose()?.is_some() {}
        self.known_digest()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no digest of the file on this host"))
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        let mut reading = SourceRead {
            source: self.clone(),
            at: offset,
            sha256: (offset == 0).then(Sha256::new),
            next: None,
        };
        reading.read_ahead();
        Ok(Body::new(stream::try_unfold(reading, SourceRead::step)))
    }
}
