//! The host side of a transfer: the traits for sinks, sources and observers.

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Metadata, Transport};
use dray_types::Sha256Digest;

/// The destination of a get. The engine calls `begin`, then `write` repeatedly, and at the end exactly one of `finish`,
/// `abort` and `interrupt`. For each new copy it calls `begin` again. Nothing may be published before `finish`.
///
/// A failure of a sink ends the transfer: a retry inside the sink would otherwise be retried again here.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Starts a copy of this file. Bytes that were written before are discarded.
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error>;

    /// Returns the first bytes of exactly this file that an interrupted transfer left in the sink; they count as
    /// written. `None` when there are none; then `begin` follows. Called at most once, before the first copy.
    async fn resume(&mut self, _file: &Metadata) -> Result<Option<Body>, Error> {
        Ok(None)
    }

    /// Takes the next bytes, of any number.
    async fn write(&mut self, chunk: Bytes) -> Result<(), Error>;

    /// Waits until [`Self::sha256`] covers all bytes that were written. A sink that works on another thread reports its
    /// failures here at the latest.
    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Digest of all bytes since `begin`, as of the last [`Self::flush`], if the sink computes one anyway; it must then
    /// do so from `begin` to `finish`. The engine does not compute a second one.
    fn sha256(&self) -> Option<Sha256Digest> {
        None
    }

    /// Publishes the content, which is complete and proved. `sha256` is the digest of what was written.
    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error>;

    /// Removes what was written, after a failure. May be called without `begin`.
    async fn abort(&mut self);

    /// Ends an interrupted transfer. A sink that can [resume](Self::resume) keeps the written bytes; every other sink
    /// aborts. Returns whether something was kept.
    async fn interrupt(&mut self) -> bool {
        self.abort().await;
        false
    }
}

/// The content that a put writes.
#[async_trait]
pub trait Source: Send + Sync {
    /// Size of the whole content in bytes.
    fn size(&self) -> u64;

    /// Digest of the whole content. Cheap after `open(0)` was read to its end; a source that does not know its digest
    /// yet may have to read everything.
    async fn sha256(&self) -> Result<Sha256Digest, Error>;

    /// Reads from `offset` to the end. May be called repeatedly, and must give the same bytes.
    async fn open(&self, offset: u64) -> Result<Body, Error>;
}

/// Watches a transfer. Calls are frequent and must not block.
pub trait Progress: Send + Sync {
    /// Reports that a copy begins, or continues at `offset`, with its number (from 1) and its transport.
    fn began(&self, _attempt: u32, _transport: Transport, _offset: u64) {}

    /// Reports that `done` of `of` bytes have been moved.
    fn moved(&self, _done: u64, _of: u64) {}
}

/// The observer that ignores all reports.
impl Progress for () {}

/// Longest chunk that a source in memory yields, so that it behaves like a file.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes in memory as a source.
#[derive(Clone, Debug)]
pub struct BytesSource {
    bytes: Bytes,
    sha256: Sha256Digest,
}

impl BytesSource {
    /// Takes the bytes and computes their digest.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let sha256 = Sha256Digest::of(&bytes);
        Self { bytes, sha256 }
    }

    /// Digest of all bytes.
    pub const fn sha256(&self) -> Sha256Digest {
        self.sha256
    }
}

#[async_trait]
impl Source for BytesSource {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        Ok(self.sha256)
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        let from = usize::try_from(offset)
            .ok()
            .filter(|from| *from <= self.bytes.len())
            .ok_or_else(|| Error::new(ErrorKind::Protocol, "an offset beyond the end"))?;
        let mut rest = self.bytes.slice(from..);
        let chunks = std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(CHUNK_BYTES))))
        });
        Ok(Body::new(futures_util::stream::iter(chunks)))
    }
}

/// Memory as a sink, for small files. It does not limit the bytes; [`GetOptions`](super::GetOptions) does.
#[derive(Clone, Debug, Default)]
pub struct VecSink {
    bytes: Vec<u8>,
    finished: bool,
}

impl VecSink {
    /// The bytes that were written, if the transfer is complete.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        self.finished.then_some(self.bytes)
    }
}

#[async_trait]
impl Sink for VecSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        // A copy starts again after a failure; the earlier bytes are discarded.
        self.bytes.clear();
        Ok(())
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        self.bytes.extend_from_slice(&chunk);
        Ok(())
    }

    async fn finish(&mut self, _sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        self.finished = true;
        Ok(())
    }

    async fn abort(&mut self) {
        self.bytes = Vec::new();
    }
}
