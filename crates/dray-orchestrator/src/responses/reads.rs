//! Memory for documents that requests read: together they have a limit, and further requests wait.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::failure::RequestFailure;
use dray_http_server::{ByteLimit, BytePermit};

/// Most bytes of the documents of all requests of this process. Parsed they take about three times as much memory.
const MAX_READ_BYTES: u64 = 256 << 20;
/// How long a request waits for the others.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of documents in memory. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ReadLimit {
    bytes: ByteLimit,
}

/// The memory for the documents of one request, until it is dropped. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPermit {
    _permit: Option<Arc<BytePermit>>,
}

impl ReadLimit {
    /// A limit that no request uses.
    pub(super) fn new() -> Self {
        Self {
            bytes: ByteLimit::new(MAX_READ_BYTES),
        }
    }

    /// Waits until documents of this size may be read. More than [`MAX_READ_BYTES`] take the whole limit.
    ///
    /// # Errors
    ///
    /// 503 when other requests use the memory for too long.
    pub(super) async fn acquire(&self, bytes: u64) -> Result<ReadPermit, RequestFailure> {
        match self.bytes.acquire(bytes, READ_TIMEOUT).await {
            Some(permit) => Ok(ReadPermit {
                _permit: Some(Arc::new(permit)),
            }),
            None => Err(
                RequestFailure::new(503, "Too many concurrent reads of stored data")
                    .display("The service is busy. Please try again later."),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn documents_above_the_limit_wait_for_others_or_are_refused() {
        let limit = ReadLimit::new();
        let most = limit.acquire(MAX_READ_BYTES - 1024).await.unwrap();
        let small = limit.acquire(1).await.unwrap();
        let mut waiting = Box::pin(limit.acquire(2));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(small);
        waiting.await.unwrap();
        tokio::time::pause();
        let refused = limit.acquire(u64::MAX).await.unwrap_err();
        assert_eq!(refused.status, 503);
        drop(most);
        limit.acquire(u64::MAX).await.unwrap();
    }
}
