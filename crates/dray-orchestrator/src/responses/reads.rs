//! Memory for documents that requests read: together they have a limit, and further requests wait.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::failure::RequestFailure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Most bytes of the documents of all requests of this process. Parsed they take about three times as much memory.
const MAX_READ_BYTES: u64 = 256 << 20;
/// Bytes of one permit.
const PERMIT_BYTES: u64 = 1 << 10;
/// How long a request waits for the others.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of documents in memory. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ReadLimit {
    permits: Arc<Semaphore>,
}

/// The memory for the documents of one request, until it is dropped. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPermit {
    _permit: Option<Arc<OwnedSemaphorePermit>>,
}

impl ReadLimit {
    /// A limit that no request uses.
    pub(super) fn new() -> Self {
        let permits = usize::try_from(permits_of(MAX_READ_BYTES));
        Self {
            permits: Arc::new(Semaphore::new(permits.unwrap_or(Semaphore::MAX_PERMITS))),
        }
    }

    /// Waits until documents of this size may be read. More than [`MAX_READ_BYTES`] take the whole limit.
    ///
    /// # Errors
    ///
    /// 503 when other requests use the memory for too long.
    pub(super) async fn acquire(&self, bytes: u64) -> Result<ReadPermit, RequestFailure> {
        let permits = permits_of(bytes.min(MAX_READ_BYTES));
        let acquired = Arc::clone(&self.permits).acquire_many_owned(permits);
        match timeout(READ_TIMEOUT, acquired).await {
            Ok(Ok(permit)) => Ok(ReadPermit {
                _permit: Some(Arc::new(permit)),
            }),
            // The semaphore is never closed, so only the timeout leads here.
            _ => Err(
                RequestFailure::new(503, "Too many concurrent reads of stored data")
                    .display("The service is busy. Please try again later."),
            ),
        }
    }
}

fn permits_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn documents_above_the_limit_wait_for_others_or_are_refused() {
        let limit = ReadLimit::new();
        let most = limit.acquire(MAX_READ_BYTES - PERMIT_BYTES).await.unwrap();
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
