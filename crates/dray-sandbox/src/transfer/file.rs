//! Files of this host as the ends of a transfer. They are hashed and written on another thread than the one that moves
//! the bytes, so that a digest of ours costs no time of its own.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dray_types::Sha256Digest;
use futures_util::stream;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use tokio::task::{JoinHandle, spawn_blocking};

use super::peer::{Sink, Source};
use crate::body::Body;
use crate::error::{Error, ErrorKind};
use crate::metadata::Metadata;

/// Bytes that are gathered before they are hashed and written; as many may be under way meanwhile.
const BATCH_BYTES: usize = 512 << 10;
/// Bytes of one read of a source.
const CHUNK_BYTES: usize = 256 << 10;

/// Where the other thread writes.
struct Output {
    file: Arc<File>,
    sha256: Sha256,
}

impl Output {
    fn write(&mut self, batch: &[Bytes]) -> io::Result<()> {
        for piece in batch {
            (&*self.file).write_all(piece)?;
            self.sha256.update(piece);
        }
        Ok(())
    }
}

/// A file of this host that gets its name when all of it was proved. Until then it has a name of its own in the same
/// directory, mode 0600, which goes when this is dropped. Not synced to the disk, like the output of `cp`.
pub struct FileSink {
    target: PathBuf,
    /// `None` once it has its name or was removed.
    temporary: Option<TempPath>,
    file: Arc<File>,
    batch: Vec<Bytes>,
    gathered: usize,
    /// The last batch; `None` before the first byte and after a failure.
    writing: Option<JoinHandle<io::Result<Output>>>,
    sha256: Sha256Digest,
}

impl std::fmt::Debug for FileSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileSink").finish_non_exhaustive()
    }
}

impl FileSink {
    /// For the file of this name. An existing one is replaced in the end.
    ///
    /// # Errors
    ///
    /// What creating a file beside it fails with.
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
            target,
            temporary: Some(temporary),
            file: Arc::new(file),
            batch: Vec::new(),
            gathered: 0,
            writing: None,
            sha256: Sha256Digest::of(b""),
        })
    }

    /// Waits for the last batch and hands over the next one.
    async fn hand_over(&mut self) -> Result<(), Error> {
        let mut output = self.written().await?;
        let batch = std::mem::take(&mut self.batch);
        self.gathered = 0;
        self.writing = Some(spawn_blocking(move || {
            output.write(&batch)?;
            Ok(output)
        }));
        Ok(())
    }

    async fn written(&mut self) -> Result<Output, Error> {
        let failed = || Error::new(ErrorKind::Unavailable, "nothing was begun on this host");
        let writing = self.writing.take().ok_or_else(failed)?;
        blocking_result(writing.await)
    }
}

fn blocking_result<T>(joined: Result<io::Result<T>, tokio::task::JoinError>) -> Result<T, Error> {
    joined
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|error| failed(&error))
}

/// A full disk is told apart: waiting does not help there, and it is not the sandbox that fails.
fn failed(error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::NoSpace
        }
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("a file on this host: {error}"))
}

#[async_trait]
impl Sink for FileSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        if self.writing.is_some() {
            // Nothing may be written after the file was cut.
            drop(self.written().await);
        }
        (self.batch, self.gathered) = (Vec::new(), 0);
        self.sha256 = Sha256Digest::of(b"");
        let file = Arc::clone(&self.file);
        self.writing = Some(spawn_blocking(move || {
            file.set_len(0)?;
            (&*file).rewind()?;
            Ok(Output {
                file,
                sha256: Sha256::new(),
            })
        }));
        Ok(())
    }

    async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        self.gathered += piece.len();
        self.batch.push(piece);
        if self.gathered < BATCH_BYTES {
            return Ok(());
        }
        self.hand_over().await
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.hand_over().await?;
        let output = self.written().await?;
        self.sha256 = Sha256Digest::from_bytes(output.sha256.clone().finalize().into());
        self.writing = Some(spawn_blocking(move || Ok(output)));
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
        let target = self.target.clone();
        let persisted = spawn_blocking(move || {
            let persisted = temporary.persist(target);
            persisted.map_err(|error| error.error)
        });
        blocking_result(persisted.await)
    }

    async fn abort(&mut self) {
        if self.writing.is_some() {
            drop(self.written().await);
        }
        self.temporary = None;
    }
}

/// A file of this host as what is put into a sandbox. Its digest is computed while it is sent.
#[derive(Clone, Debug)]
pub struct FileSource {
    file: Arc<File>,
    size: u64,
    sha256: Arc<Mutex<Option<Sha256Digest>>>,
}

/// A source that is being read.
struct Reading {
    source: FileSource,
    at: u64,
    /// Only from the beginning.
    sha256: Option<Sha256>,
    /// The chunk after the one that was handed out last.
    next: Option<JoinHandle<io::Result<(Bytes, Option<Sha256>)>>>,
}

impl FileSource {
    /// An open regular file of this size.
    pub fn new(file: File, size: u64) -> Self {
        Self {
            file: Arc::new(file),
            size,
            sha256: Arc::default(),
        }
    }

    fn known(&self) -> Option<Sha256Digest> {
        *self.sha256.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the digest of the whole file. It must be the same every time.
    fn note(&self, sha256: Sha256) -> Result<(), Error> {
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

impl Reading {
    fn read_ahead(&mut self) {
        let left = self.source.size.saturating_sub(self.at);
        let length = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
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
                self.source.note(sha256)?;
            }
            return Ok(None);
        };
        let (chunk, sha256) = blocking_result(next.await).map_err(|error| {
            Error::new(ErrorKind::Truncated, "the file on this host cannot be read")
                .caused_by(error)
        })?;
        self.sha256 = sha256;
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
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let mut body = self.open(0).await?;
        while body.next().await.transpose()?.is_some() {}
        self.known()
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "no digest of the file on this host"))
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        let mut reading = Reading {
            source: self.clone(),
            at: offset,
            sha256: (offset == 0).then(Sha256::new),
            next: None,
        };
        reading.read_ahead();
        Ok(Body::new(stream::try_unfold(reading, Reading::step)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::fake::Fake;
    use crate::metadata::Metadata;
    use crate::{Follow, Sandbox as _, SandboxPath};

    async fn metadata() -> Metadata {
        let fake = Fake::new();
        fake.file("/work/a", "x");
        let path = SandboxPath::new("/work/a").unwrap();
        fake.stat(&path, Follow::Yes).await.unwrap()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[tokio::test]
    async fn a_file_appears_whole_with_the_digest_of_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("a");
        let file = metadata().await;
        let mut sink = FileSink::create(&target).unwrap();
        for attempt in 0..2_u8 {
            sink.begin(&file).await.unwrap();
            for piece in 0..7_u8 {
                let piece = vec![piece ^ attempt; 300_000];
                sink.write(piece.into()).await.unwrap();
            }
        }
        sink.flush().await.unwrap();
        let expected: Vec<u8> = (0..7_u8)
            .flat_map(|piece| vec![piece ^ 1; 300_000])
            .collect();
        assert_eq!(sink.sha256(), Some(Sha256Digest::of(&expected)));
        assert!(!target.exists());
        let sha256 = Sha256Digest::of(&expected);
        sink.finish(sha256, expected.len() as u64).await.unwrap();
        assert!(std::fs::read(&target).unwrap() == expected);
        let mode = std::fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[tokio::test]
    async fn an_aborted_or_dropped_file_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = metadata().await;
        for abort in [true, false] {
            let mut sink = FileSink::create(directory.path().join("a")).unwrap();
            sink.begin(&file).await.unwrap();
            sink.write(vec![1; 600_000].into()).await.unwrap();
            if abort {
                sink.abort().await;
            }
            drop(sink);
            assert!(names(directory.path()).is_empty());
        }
    }

    #[tokio::test]
    async fn a_full_disk_of_this_host_is_no_space() {
        let file = metadata().await;
        let mut sink = FileSink::create(std::env::temp_dir().join("unused")).unwrap();
        // Every write to this device fails as on a full disk.
        sink.file = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let output = Output {
            file: Arc::clone(&sink.file),
            sha256: Sha256::new(),
        };
        sink.begin(&file).await.unwrap();
        sink.writing = Some(spawn_blocking(move || Ok(output)));
        sink.write(vec![1; 10].into()).await.unwrap();
        let error = sink.flush().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }

    #[tokio::test]
    async fn a_source_knows_its_digest_after_it_was_sent_and_before() {
        let content: Vec<u8> = (0..251_u8).cycle().take(700_000).collect();
        let source = |length| {
            let file = tempfile::tempfile().unwrap();
            (&file).write_all(&content).unwrap();
            FileSource::new(file, length)
        };
        let sent = source(700_000);
        let body = sent.open(0).await.unwrap();
        assert!(body.read_all(1 << 20).await.unwrap() == content);
        assert_eq!(sent.known(), Some(Sha256Digest::of(&content)));
        let rest = sent.open(650_000).await.unwrap();
        assert!(rest.read_all(1 << 20).await.unwrap() == content[650_000..]);
        let unsent = source(700_000);
        assert_eq!(unsent.known(), None);
        assert_eq!(unsent.sha256().await.unwrap(), Sha256Digest::of(&content));
        let short = source(700_001).open(0).await.unwrap();
        let error = short.read_all(1 << 20).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        let empty = FileSource::new(tempfile::tempfile().unwrap(), 0);
        assert_eq!(empty.sha256().await.unwrap(), Sha256Digest::of(b""));
    }

    #[tokio::test]
    async fn a_source_that_changes_between_two_attempts_is_refused() {
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(b"abc").unwrap();
        let writer = file.try_clone().unwrap();
        let source = FileSource::new(file, 3);
        source.open(0).await.unwrap().read_all(10).await.unwrap();
        writer.write_all_at(b"xyz", 0).unwrap();
        let again = source.open(0).await.unwrap();
        let error = again.read_all(10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChangedDuringTransfer);
    }
}
