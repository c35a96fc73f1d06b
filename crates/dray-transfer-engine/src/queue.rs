//! Bytes between the task that reads and the task that writes. A few are in memory. The others are in a file without a
//! name, if reading must not wait (sandbox-transfer ).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dray_sandbox::error::{Error, ErrorKind};
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::options::EngineOptions;
use super::spool::{SpoolSpace, SpoolUsage};

/// Bytes held in memory before the reader waits or spools.
pub(super) const MAX_HELD_BYTES: usize = 1 << 20;
/// How long the reader waits for room before it spools: a sink of about the same speed costs no disk, and a stalled
/// one does not stall the sandbox.
const SPOOL_GRACE: Duration = Duration::from_millis(20);
/// Longest read back from the spool, in bytes.
const READ_BACK_BYTES: usize = 256 << 10;
/// Bytes that were read back, after which their space is given back to the file system.
const FREE_BYTES: u64 = 4 << 20;

/// The directory for bytes that do not fit in memory, and the limit for those of all transfers.
#[derive(Clone, Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    limit: u64,
    usage: SpoolUsage,
}

impl From<&EngineOptions> for Spool {
    fn from(options: &EngineOptions) -> Self {
        Self {
            directory: options.spool_dir.clone(),
            limit: options.spool_limit,
            usage: options.spool_usage.clone(),
        }
    }
}

impl Spool {
    /// Makes a file without a name, which no other process can open. Its space is freed when it is closed.
    pub(super) fn file(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.directory)
    }

    /// The space of a file that is empty.
    pub(super) fn empty_space(&self) -> SpoolSpace {
        SpoolSpace::new(self.usage.clone(), self.limit)
    }
}

/// A queue with one writer and one reader. It keeps the order of the bytes.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Signals that there are bytes to take, or the end.
    bytes_available: Notify,
    /// Signals that there is room in memory.
    room_available: Notify,
    spool: Option<Spool>,
    /// Longest time without room, if there is no spool.
    stall_timeout: Option<Duration>,
}

#[derive(Debug, Default)]
struct QueueState {
    chunks: VecDeque<Bytes>,
    held: usize,
    file: Option<Arc<File>>,
    written: u64,
    read: u64,
    /// The file has no more space for the bytes before this offset.
    freed: u64,
    space: SpoolSpace,
    end: Option<Result<(), Error>>,
}

/// The next step of the reader.
enum ReaderStep {
    Chunk(Bytes),
    Spooled(SpooledRead),
    End(Result<(), Error>),
    Wait,
}

/// The next read from the spool.
struct SpooledRead {
    file: Arc<File>,
    at: u64,
    length: usize,
    freed: u64,
}

impl SpooledRead {
    /// Reads, and frees the space of what was read before. Returns the bytes, and up to where the file is free.
    fn read(self) -> io::Result<(Bytes, u64)> {
        let chunk = read(&self.file, self.at, self.length)?;
        // These bytes themselves stay: when the reader is cancelled, they are read again.
        let read_before = self.at - self.freed;
        if read_before < FREE_BYTES {
            return Ok((chunk, self.freed));
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system without holes keeps the space until the file is written from its beginning again, or closed.
        let freed = fallocate(&*self.file, mode, self.freed, read_before);
        Ok((chunk, if freed.is_ok() { self.at } else { self.freed }))
    }
}

impl Queue {
    /// Creates a queue. With a spool the writer does not wait for a reader that stalls.
    pub(super) fn new(spool: Option<Spool>) -> Self {
        let space = spool.as_ref().map(Spool::empty_space).unwrap_or_default();
        let state = QueueState {
            space,
            ..QueueState::default()
        };
        Self {
            state: Mutex::new(state),
            bytes_available: Notify::new(),
            room_available: Notify::new(),
            spool,
            stall_timeout: None,
        }
    }

    /// The same queue, whose writer fails with [`ErrorKind::Timeout`] when the reader takes no bytes for this long.
    pub(super) const fn with_stall_timeout(mut self, stall_timeout: Duration) -> Self {
        self.stall_timeout = Some(stall_timeout);
        self
    }

    /// Appends bytes. Waits for room, or spools.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NoSpace`] and other failures of the spool, and [`ErrorKind::Timeout`] for a reader that stalls.
    pub(super) async fn push(&self, chunk: Bytes) -> Result<(), Error> {
        loop {
            if self.keep_in_memory(&chunk) {
                return Ok(());
            }
            match &self.spool {
                // Once bytes are in the spool, later ones must follow them there, to keep the order.
                Some(spool) if self.has_spooled_bytes() || !self.has_room_in_time().await => {
                    return self.spool(spool, chunk).await;
                }
                Some(_) => {}
                None => self.wait_for_room().await?,
            }
        }
    }

    /// Waits until the reader takes something.
    async fn wait_for_room(&self) -> Result<(), Error> {
        let room_available = self.room_available.notified();
        let Some(stall_timeout) = self.stall_timeout else {
            room_available.await;
            return Ok(());
        };
        let stalled = |_| {
            Error::new(
                ErrorKind::Timeout,
                "the reader accepted no bytes for too long",
            )
        };
        timeout(stall_timeout, room_available)
            .await
            .map_err(stalled)
    }

    /// Whether the spool holds bytes that were not read yet.
    fn has_spooled_bytes(&self) -> bool {
        let state = self.state();
        state.read < state.written
    }

    async fn has_room_in_time(&self) -> bool {
        timeout(SPOOL_GRACE, self.room_available.notified())
            .await
            .is_ok()
    }

    /// Ends the queue, with the failure of the writer if there was one.
    pub(super) fn end(&self, result: Result<(), Error>) {
        self.state().end = Some(result);
        self.bytes_available.notify_one();
    }

    /// The next bytes; `None` at the end. A failure of the writer comes after all bytes that it had written.
    pub(super) async fn pop(&self) -> Result<Option<Bytes>, Error> {
        loop {
            match self.next() {
                ReaderStep::Chunk(chunk) => {
                    self.room_available.notify_one();
                    return Ok(Some(chunk));
                }
                ReaderStep::Spooled(next) => {
                    let (chunk, freed) = blocking(move || next.read()).await?;
                    let mut state = self.state();
                    state.read += chunk.len() as u64;
                    let released = freed.saturating_sub(state.freed);
                    state.space.release_bytes(released);
                    state.freed = freed;
                    return Ok(Some(chunk));
                }
                ReaderStep::End(result) => return result.map(|()| None),
                ReaderStep::Wait => self.bytes_available.notified().await,
            }
        }
    }

    /// Keeps a chunk in memory if there is room and the spool is empty.
    fn keep_in_memory(&self, chunk: &Bytes) -> bool {
        let mut state = self.state();
        // A chunk of any length fits an empty queue; otherwise a large one would wait forever.
        let room = state.held == 0 || state.held + chunk.len() <= MAX_HELD_BYTES;
        if !room || state.read < state.written {
            return false;
        }
        state.held += chunk.len();
        // Shares the bytes; the caller still owns the chunk if it has to go to the spool.
        state.chunks.push_back(chunk.clone());
        self.bytes_available.notify_one();
        true
    }

    async fn spool(&self, spool: &Spool, chunk: Bytes) -> Result<(), Error> {
        let length = chunk.len() as u64;
        let (file, at) = {
            let mut state = self.state();
            // All bytes were read back: the file is written from its beginning again. Not while a read that was
            // cancelled still has the file: it would free the new bytes.
            let is_shared = |file: &Arc<File>| Arc::strong_count(file) > 1;
            if state.read == state.written && !state.file.as_ref().is_some_and(is_shared) {
                (state.read, state.written, state.freed) = (0, 0, 0);
            }
            // The space of what was read back is free, so a reader that is always a little behind needs no more than
            // that.
            let unfreed = (state.written - state.freed).saturating_add(length);
            state.space.reserve_bytes(unfreed)?;
            (state.file.clone(), state.written)
        };
        let spool = spool.clone();
        let file = blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(spool.file()?),
            };
            file.write_all_at(&chunk, at)?;
            Ok(file)
        })
        .await?;
        let mut state = self.state();
        state.file = Some(file);
        state.written = at + length;
        self.bytes_available.notify_one();
        Ok(())
    }

    fn next(&self) -> ReaderStep {
        let mut state = self.state();
        // Chunks in memory are older than the spool: they are kept there only while it is empty.
        if let Some(chunk) = state.chunks.pop_front() {
            state.held -= chunk.len();
            return ReaderStep::Chunk(chunk);
        }
        let remaining = state.written - state.read;
        match &state.file {
            Some(file) if remaining > 0 => {
                let length = usize::try_from(remaining)
                    .unwrap_or(READ_BACK_BYTES)
                    .min(READ_BACK_BYTES);
                ReaderStep::Spooled(SpooledRead {
                    file: Arc::clone(file),
                    at: state.read,
                    length,
                    freed: state.freed,
                })
            }
            _ => state.end.take().map_or(ReaderStep::Wait, ReaderStep::End),
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(file: &File, at: u64, length: usize) -> io::Result<Bytes> {
    let mut chunk = vec![0; length];
    file.read_exact_at(&mut chunk, at)?;
    Ok(chunk.into())
}

/// Runs disk work on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let failed = match spawn_blocking(work).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error,
        Err(error) => io::Error::other(error),
    };
    Err(spool_error(failed))
}

/// A failure of the spool. The sandbox did not fail, and freeing space there does not help.
pub fn spool_error(failed: io::Error) -> Error {
    let kind = match failed.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "the spool on this host failed")
        .caused_by(failed)
        .of_this_host()
}

#[cfg(test)]
mod tests;
