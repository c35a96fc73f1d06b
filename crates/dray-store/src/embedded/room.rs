//! How much may still be written: the configured capacity, ahead of the disk's own end.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes held and the most that may be.
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

    /// Whether anybody set a capacity.
    pub(super) fn is_limited(capacity: u64) -> bool {
        capacity != u64::MAX
    }

    /// Takes room for `bytes`, or says that the disk is full.
    pub(super) fn take(&self, bytes: u64) -> io::Result<()> {
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                used.checked_add(bytes)
                    .filter(|total| *total <= self.capacity)
            });
        match taken {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }

    /// Gives room back.
    pub(super) fn give(&self, bytes: u64) {
        let given = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
                Some(used.saturating_sub(bytes))
            });
        debug_assert!(given.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let room = StorageQuota::new(10, 4);
        room.take(6).unwrap();
        assert_eq!(room.take(1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        room.give(3);
        room.take(3).unwrap();
        assert!(room.take(u64::MAX).is_err());
    }
}
