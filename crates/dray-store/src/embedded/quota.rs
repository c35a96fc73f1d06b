//! The configured capacity, which is a limit below the free space of the disk.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in use, and their maximum.
#[derive(Debug)]
pub(super) struct StorageQuota {
    capacity: u64,
    used: AtomicU64,
}

impl StorageQuota {
    pub(super) fn new(capacity: u64, used: u64) -> Self {
        Self {
            capacity,
            used: AtomicU64::new(used),
        }
    }

    /// Returns whether a capacity was set.
    pub(super) fn is_limited(capacity: u64) -> bool {
        capacity != u64::MAX
    }

    /// Reserves `bytes`, or fails as a full disk would.
    pub(super) fn reserve(&self, bytes: u64) -> io::Result<()> {
        let updated = self
            .used
            // Check and count are one step: concurrent writers cannot pass the limit together.
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes)
                    .filter(|total| *total <= self.capacity)
            });
        match updated {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }

    /// Releases reserved bytes.
    pub(super) fn release(&self, bytes: u64) {
        let updated = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                // The subtraction saturates, because without a limit the count starts at 0, not at the bytes that are
                // already on the disk.
                Some(used.saturating_sub(bytes))
            });
        debug_assert!(updated.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_quota_can_be_reserved_again_and_no_more() {
        let quota = StorageQuota::new(10, 4);
        quota.reserve(6).unwrap();
        assert_eq!(
            quota.reserve(1).unwrap_err().kind(),
            io::ErrorKind::StorageFull
        );
        quota.release(3);
        quota.reserve(3).unwrap();
        assert!(quota.reserve(u64::MAX).is_err());
    }
}
