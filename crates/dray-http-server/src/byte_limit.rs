//! A limit for bytes that requests hold in memory together. Requests wait in their order until enough is free.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of one permit of the semaphore, which gives at most `u32::MAX` permits to one request.
const PERMIT_BYTES: u64 = 1 << 10;

/// Bytes that requests may hold together, counted in KiB. Clones share the limit.
///
/// ```
/// use dray_http_server::ByteLimit;
///
/// let limit = ByteLimit::new(64 << 10);
/// let body = limit.try_acquire(60 << 10);
/// assert!(limit.try_acquire(5 << 10).is_none());
/// drop(body);
/// assert!(limit.try_acquire(5 << 10).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct ByteLimit {
    permits: Arc<Semaphore>,
    max_bytes: u64,
}

/// The bytes of one request, until it is dropped.
#[derive(Debug)]
pub struct BytePermit {
    permit: OwnedSemaphorePermit,
}

impl ByteLimit {
    /// A limit that no request uses.
    pub fn new(max_bytes: u64) -> Self {
        let permits = usize::try_from(permits_of(max_bytes));
        Self {
            permits: Arc::new(Semaphore::new(permits.unwrap_or(Semaphore::MAX_PERMITS))),
            max_bytes,
        }
    }

    /// Most bytes of all requests together.
    pub const fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Waits until so many bytes are free; `None` when they are not within this time. More than the limit take all of
    /// it.
    pub async fn acquire(&self, bytes: u64, wait: Duration) -> Option<BytePermit> {
        let permits = self.permits_of(bytes);
        let acquired = Arc::clone(&self.permits).acquire_many_owned(permits);
        // The semaphore is never closed, so only the timeout gives `None`.
        let permit = timeout(wait, acquired).await.ok()?.ok()?;
        Some(BytePermit { permit })
    }

    /// Like [`ByteLimit::acquire`], without a wait.
    pub fn try_acquire(&self, bytes: u64) -> Option<BytePermit> {
        let permits = self.permits_of(bytes);
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(permits);
        permit.ok().map(|permit| BytePermit { permit })
    }

    fn permits_of(&self, bytes: u64) -> u32 {
        permits_of(bytes.min(self.max_bytes))
    }
}

impl BytePermit {
    /// The bytes that the request holds, in whole KiB.
    pub fn bytes(&self) -> u64 {
        self.permit.num_permits() as u64 * PERMIT_BYTES
    }

    /// Changes the number of bytes. Returns false, and changes nothing, when so many are not free: a request that holds
    /// bytes must not wait for others that may wait for it.
    #[must_use]
    pub fn resize(&mut self, bytes: u64) -> bool {
        let permits = permits_of(bytes) as usize;
        let held = self.permit.num_permits();
        if permits <= held {
            // Dropping the part releases it.
            drop(self.permit.split(held - permits));
            return true;
        }
        let Ok(missing) = u32::try_from(permits - held) else {
            return false;
        };
        let semaphore = Arc::clone(self.permit.semaphore());
        let more = semaphore.try_acquire_many_owned(missing);
        more.map(|more| self.permit.merge(more)).is_ok()
    }
}

fn permits_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_above_the_limit_wait_or_are_not_given() {
        let limit = ByteLimit::new(8 << 10);
        let mut most = limit.acquire(7 << 10, Duration::ZERO).await.unwrap();
        assert!(limit.acquire(2 << 10, Duration::ZERO).await.is_none());
        assert!(!most.resize(9 << 10), "more than the limit");
        assert!(most.resize(6 << 10));
        let rest = limit.acquire(2 << 10, Duration::ZERO).await.unwrap();
        assert!(!most.resize(7 << 10), "another request holds the rest");
        drop(rest);
        assert!(most.resize(8 << 10));
        assert_eq!(most.bytes(), 8 << 10);
        assert!(limit.acquire(1, Duration::ZERO).await.is_none());
        drop(most);
        let all = limit.acquire(u64::MAX, Duration::ZERO).await;
        assert!(all.is_some());
    }
}
