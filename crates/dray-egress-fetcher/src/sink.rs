//! The destination of fetched bytes.

use bytes::Bytes;
use dray_types::Sha256Digest;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::fetch::CachedFile;
use crate::label::ResponseLabels;

/// Takes the bytes of one file in order, hashing them on the way.
///
/// Exactly one of `finish` and `discard` follows the last `write`; a sink that is merely dropped discards what it has.
pub trait ByteSink: Send {
    /// Takes one chunk, at most 64 KiB. Waits while the store behind it is slower than the peer.
    fn write(&mut self, chunk: Bytes) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Makes the file final and returns its size and digest.
    fn finish(
        &mut self,
        labels: &ResponseLabels,
    ) -> impl Future<Output = Result<StoredFile, SinkError>> + Send;

    /// Takes over a file that is in the store already, in place of its bytes. Returns whether the file exists. Nothing
    /// was written before, and bytes that are written afterwards replace it.
    fn adopt(&mut self, _file: &CachedFile) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// Makes sure that the finished file is where [`Self::adopt`] finds it. Returns whether it is.
    fn keep(&mut self, _file: &CachedFile) -> impl Future<Output = bool> + Send {
        std::future::ready(false)
    }

    /// Records where the file comes from: before [`Self::finish`], or before an adopted file is used. So nothing is
    /// stored without its origin.
    fn record_origin(
        &mut self,
        _origin: ContentOrigin,
    ) -> impl Future<Output = Result<(), SinkError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Removes what was written or adopted so far. Further writes may follow: those of a new file. If the call is
    /// dropped before its end, the sink cleans up by itself.
    fn discard(&mut self) -> impl Future<Output = ()> + Send;
}

/// The origin of a fetched file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentOrigin {
    /// Hosts of the chain of redirects, from the one that was requested to the one that sent the bytes.
    pub hosts: Vec<String>,
    /// SHA-256 (hex) of the effective policy.
    pub policy_digest: String,
    /// SHA-256 (hex) of the policy files; empty without them.
    pub rules_digest: String,
    /// Media type as declared; empty without one.
    pub media_type: String,
}

/// Size and digests of the file in a finished sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// SHA-256 of the stored bytes.
    pub sha256: Sha256Digest,
    /// Number of stored bytes.
    pub size: u64,
}

/// The bytes could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("the fetched bytes could not be stored")]
pub struct SinkError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl SinkError {
    /// A failure with its cause.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// Hashes and passes on to any writer: a file, or `tokio::io::sink()`.
#[derive(Debug)]
pub struct HashingSink<W> {
    writer: W,
    digest: Sha256,
    size: u64,
}

impl<W> HashingSink<W> {
    /// Writes to `writer`, which the caller removes again when the fetch fails.
    pub fn new(writer: W) -> Self {
        Self {
            writer,
            digest: Sha256::new(),
            size: 0,
        }
    }

    /// Returns the writer, with everything that was written to it.
    pub fn into_inner(self) -> W {
        self.writer
    }
}

impl<W: AsyncWrite + Unpin + Send> ByteSink for HashingSink<W> {
    async fn write(&mut self, chunk: Bytes) -> Result<(), SinkError> {
        self.digest.update(&chunk);
        self.size += chunk.len() as u64;
        self.writer.write_all(&chunk).await.map_err(SinkError::new)
    }

    async fn finish(&mut self, _labels: &ResponseLabels) -> Result<StoredFile, SinkError> {
        // A file of Tokio writes in the background; only the flush shows a late error.
        self.writer.flush().await.map_err(SinkError::new)?;
        let sha256 = Sha256Digest::from_bytes(std::mem::take(&mut self.digest).finalize().into());
        Ok(StoredFile {
            sha256,
            size: self.size,
        })
    }

    // The caller of `new` owns what is behind the writer, and removes it.
    async fn discard(&mut self) {}
}
