//! The host side of a transfer: where bytes go to, where they come from, who watches.

use async_trait::async_trait;
use bytes::Bytes;
use dray_types::Sha256Digest;

use crate::body::Body;
use crate::error::{Error, ErrorKind};
use crate::metadata::{Metadata, Transport};

/// Where the bytes of a get go. Calls come in the order `begin`, `write`…, and again from `begin` when a copy starts
/// again, then `finish` or `abort` once. Nothing may be published before `finish`.
///
/// A failure of a sink ends the transfer: a retry here would be one inside a retry.
#[async_trait]
pub trait Sink: Send + Sync {
    /// A copy of this file begins. What was written before is void.
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error>;

    /// The bytes of this very file, from its first one on, that an interrupted transfer left in the sink; they count as
    /// written. `None` when there are none: then `begin` follows. Asked at most once, before the first copy.
    async fn resume(&mut self, _file: &Metadata) -> Result<Option<Body>, Error> {
        Ok(None)
    }

    /// The next bytes.
    async fn write(&mut self, piece: Bytes) -> Result<(), Error>;

    /// Waits until [`Self::sha256`] counts all that was written. A sink that works on another thread reports its
    /// failures here at the latest.
    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Digest of all that was written since `begin`, as of the last [`Self::flush`], from a sink that computes it
    /// anyway, from `begin` to `finish`. It is not computed a second time then.
    fn sha256(&self) -> Option<Sha256Digest> {
        None
    }

    /// All of it was written and proved. `sha256` is the digest of what was written.
    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error>;

    /// The transfer failed; removes what was written. May be called without `begin`.
    async fn abort(&mut self);

    /// The transfer was interrupted. A sink that can [resume](Self::resume) keeps what was written; every other one
    /// aborts. Returns whether something was kept.
    async fn interrupt(&mut self) -> bool {
        self.abort().await;
        false
    }
}

/// What a put writes.
#[async_trait]
pub trait Source: Send + Sync {
    /// Bytes in all.
    fn size(&self) -> u64;

    /// Digest of all of it. Cheap after `open(0)` was read to its end; a source that does not know its digest yet may
    /// have to read all of it.
    async fn sha256(&self) -> Result<Sha256Digest, Error>;

    /// The bytes from `offset` to the end. May be called again.
    async fn open(&self, offset: u64) -> Result<Body, Error>;
}

/// Watches a transfer. Calls are frequent and must not block.
pub trait Progress: Send + Sync {
    /// A copy begins, or goes on at `offset`: the how-manieth, over what.
    fn began(&self, _attempt: u32, _transport: Transport, _offset: u64) {}

    /// So many bytes of so many are through.
    fn moved(&self, _done: u64, _of: u64) {}
}

/// Without an observer.
impl Progress for () {}

/// Bytes in one piece of a source at hand, as a file would come.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes at hand as a source.
#[derive(Clone, Debug)]
pub struct BytesSource {
    bytes: Bytes,
    sha256: Sha256Digest,
}

impl BytesSource {
    /// Of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let sha256 = Sha256Digest::of(&bytes);
        Self { bytes, sha256 }
    }

    /// Digest of all of it.
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
        let pieces = std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| Ok(rest.split_to(rest.len().min(CHUNK_BYTES))))
        });
        Ok(Body::new(futures_util::stream::iter(pieces)))
    }
}

/// Memory as a sink, for small files.
#[derive(Clone, Debug, Default)]
pub struct VecSink {
    bytes: Vec<u8>,
    finished: bool,
}

impl VecSink {
    /// What was written, once it is finished.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        self.finished.then_some(self.bytes)
    }
}

#[async_trait]
impl Sink for VecSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        self.bytes.clear();
        Ok(())
    }

    async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        self.bytes.extend_from_slice(&piece);
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
