//! Counters for the transfer of a file: bytes that were read, and bytes that were sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::StreamExt as _;

use crate::delivery::{ByteSource, ByteStream};
use crate::error::PlatformError;
use crate::platform::UploadProgress;

/// Counts the bytes that a platform reports as sent.
#[derive(Debug, Default)]
pub(super) struct SentByteCounter(AtomicU64);

impl SentByteCounter {
    pub(super) fn total(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl UploadProgress for SentByteCounter {
    fn sent(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::SeqCst);
    }
}

/// A source that counts the bytes that were read from it.
#[derive(Debug)]
pub(super) struct MeteredSource {
    pub(super) inner: Arc<dyn ByteSource>,
    pub(super) read: Arc<AtomicU64>,
}

#[async_trait]
impl ByteSource for MeteredSource {
    async fn open(&self) -> Result<ByteStream, PlatformError> {
        let read = Arc::clone(&self.read);
        let counted = self.inner.open().await?.inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                let length = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                read.fetch_add(length, Ordering::SeqCst);
            }
        });
        Ok(counted.boxed())
    }
}
